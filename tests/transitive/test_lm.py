"""The language-model probe on a tiny random model: plain forward passes, optima found in other ways, and plain loops."""

from __future__ import annotations

import copy
import json
import re
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import expit

from paperworks.core.extras import MissingExtra
from paperworks.transitive import lm
from paperworks.transitive.kernels import representation_geometry
from paperworks.transitive.lm import PairPrompt, answer_margins, finetune, pair_features, train_readout
from paperworks.transitive.tasks import TransitiveTask

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("lightning_fabric")
# Now, for they take seconds to be imported, and only when they are asked for.
LlamaConfig, LlamaForCausalLM = transformers.LlamaConfig, transformers.LlamaForCausalLM

Floats = NDArray[np.float64]

ITEMS = ("Ants", "Bees", "Blue Jays", "Crows", "Deer")
ANCHORS = ("Red Sox", "White Sox")
PROMPTS = (PairPrompt(), PairPrompt(anchors=ANCHORS))
TASK = TransitiveTask(5, exception=(3, 1))
WORDS = r" ?\w+|\n|[^\w\s]"


def tokenizer_of(*texts: str) -> Any:
    """Return a tokenizer with one token a word, which the space before it is part of."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    words = ["?", *sorted({word for text in texts for word in re.findall(WORDS, text)} - {"?"})]
    tokenizer = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = Split(Regex(WORDS), "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(PROMPTS[1].render("Ants", "Bees"), "".join(f" {item}" for item in ITEMS), " Yes No sir")


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    generator = torch.Generator().manual_seed(0)
    made = LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 6)
    return made


def plain(model: Any, tokenizer: Any, prompt: PairPrompt, i: int, j: int) -> Any:
    """Return the logits and the final state of one prompt, run alone."""
    ids = torch.tensor([tokenizer(prompt.render(ITEMS[i], ITEMS[j]))["input_ids"]])
    with torch.no_grad():
        output = model(ids, output_hidden_states=True)
    return output.logits[0, -1].numpy(), output.hidden_states[-1][0, -1].numpy()


def plain_table(model: Any, tokenizer: Any, prompt: PairPrompt) -> Floats:
    """Return the logit of yes minus that of no for every ordered pair."""
    yes, no = tokenizer.convert_tokens_to_ids([" Yes", " No"])
    table = np.zeros((5, 5))
    for i, j in np.argwhere(~np.eye(5, dtype=bool)):
        logits, _ = plain(model, tokenizer, prompt, i, j)
        table[i, j] = logits[yes] - logits[no]
    return table


def trained(task: TransitiveTask) -> list[tuple[int, int, float, float]]:
    """Return first item, second item, sign and weight of each trained prompt."""
    shown = list(zip(task.pairs.tolist(), task.weights.tolist(), strict=True))
    return [(*pair, 1.0, weight) for pair, weight in shown] + [(*pair[::-1], -1.0, weight) for pair, weight in shown]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("batch_size", [1, 3, 72])
def test_features_are_those_of_a_plain_forward_pass(
    prompt: PairPrompt, batch_size: int, model: Any, tokenizer: Any
) -> None:
    features, pairs = pair_features(model, tokenizer, ITEMS, prompt, batch_size=batch_size)
    assert features.shape == (20, 32)
    assert features.dtype == np.float64
    assert sorted(map(tuple, pairs.tolist())) == [(i, j) for i in range(5) for j in range(5) if i != j]
    alone = [plain(model, tokenizer, prompt, i, j)[1] for i, j in pairs]
    np.testing.assert_allclose(features, alone, rtol=0, atol=1e-5)
    assert np.ptp(features, axis=0).min() > 0.1


def test_features_in_single_precision(model: Any, tokenizer: Any) -> None:
    exact, pairs = pair_features(model, tokenizer, ITEMS, PROMPTS[1])
    features, _ = pair_features(copy.deepcopy(model).float(), tokenizer, ITEMS, PROMPTS[1])
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, exact, rtol=0, atol=1e-4)
    assert 0 < representation_geometry(features, pairs).alpha < 1


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    # "Q: Will the", then "Ants win against the" for each of 4 items, then "Bees? A:" for each of their 3 rivals.
    [(PROMPTS[0], 4 + 4 * (4 + 3 * 4)), (PROMPTS[1], 2 * (12 + 2 + 2) + 4 + 4 * (4 + 3 * 4))],
)
def test_a_common_beginning_is_run_once(prompt: PairPrompt, tokens: int, model: Any, tokenizer: Any) -> None:
    seen: list[int] = []
    handle = model.model.embed_tokens.register_forward_hook(lambda *call: seen.append(call[1][0].numel()))
    pair_features(model, tokenizer, ("Ants", "Bees", "Crows", "Deer"), prompt)
    handle.remove()
    assert sum(seen) == tokens


def test_other_orders_in_the_template(model: Any, tokenizer: Any) -> None:
    turned = PairPrompt("Q: Will the {b} win against the {a}? A:")
    np.testing.assert_allclose(
        answer_margins(model, tokenizer, ITEMS, turned), -answer_margins(model, tokenizer, ITEMS), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("kind", [*(pytest.param(k, marks=pytest.mark.slow) for k in ("Qwen3_5", "GPT2")), "Mistral"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_models_of_other_families(kind: str, prompt: PairPrompt, tokenizer: Any) -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    special |= {"vocab_size": len(tokenizer), "initializer_range": 0.2}
    config = {
        "Qwen3_5": lambda: transformers.Qwen3_5TextConfig(
            **shape, **heads, **special, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        ),
        "GPT2": lambda: transformers.GPT2Config(**special, n_embd=32, n_layer=2, n_head=4, n_positions=128),
        "Mistral": lambda: transformers.MistralConfig(**shape, **heads, **special, sliding_window=5),
    }[kind]()  # fmt: skip
    torch.manual_seed(0)
    other = transformers.AutoModelForCausalLM.from_config(config).eval()
    expected = plain_table(other, tokenizer, prompt)
    found = answer_margins(other, tokenizer, ITEMS, prompt)
    np.testing.assert_allclose(found, (expected - expected.T) / 2, rtol=0, atol=1e-4)
    assert np.abs(found).max() > 0.02
    short, long = (
        finetune(other, tokenizer, ITEMS, TASK, prompt, method="full", epochs=epochs, lr=3e-3) for epochs in (1, 8)
    )
    assert long.loss < short.loss - 0.3


@pytest.mark.parametrize("prompt", PROMPTS)
def test_margins_are_half_the_difference_between_orders(prompt: PairPrompt, model: Any, tokenizer: Any) -> None:
    margins = answer_margins(model, tokenizer, ITEMS, prompt)
    table = plain_table(model, tokenizer, prompt)
    np.testing.assert_allclose(margins, (table - table.T) / 2, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(margins, -margins.T)
    assert np.abs(margins + np.eye(5)).min() > 1e-3


@settings(max_examples=5, deadline=None)
@given(order=st.permutations(range(5)))
def test_margins_go_with_the_items(order: list[int], model: Any, tokenizer: Any) -> None:
    margins = answer_margins(model, tokenizer, ITEMS)
    turned = answer_margins(model, tokenizer, [ITEMS[k] for k in order])
    np.testing.assert_allclose(turned, margins[np.ix_(order, order)], rtol=0, atol=1e-6)


def test_a_bias_of_the_readout_counts(model: Any, tokenizer: Any) -> None:
    biased = copy.deepcopy(model)
    biased.lm_head.bias = torch.nn.Parameter(torch.arange(len(tokenizer), dtype=torch.float64))
    yes, no = tokenizer.convert_tokens_to_ids([" Yes", " No"])
    tuned = finetune(biased, tokenizer, ITEMS, TASK, l2=1e9)
    # The liking of one answer cancels in the margins, but not in the loss.
    np.testing.assert_allclose(tuned.after, answer_margins(model, tokenizer, ITEMS), rtol=0, atol=1e-4)
    leads = plain_table(model, tokenizer, PairPrompt()) + yes - no
    expected = [np.logaddexp(0, -sign * leads[i, j]) for i, j, sign, _ in trained(TASK)]
    assert tuned.loss == pytest.approx(np.mean(expected), abs=1e-5)


def test_a_logistic_readout_of_one_feature() -> None:
    # w = 1/(1 + exp(w)) at 0.401058.
    one = np.ones(1)
    assert lm._logistic(np.ones((1, 1)), one, 0 * one, one, 1.0) == pytest.approx(0.4010581375415, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), l2=st.floats(1e-4, 1e3), rank=st.integers(1, 6))
def test_the_gradient_of_a_logistic_readout_is_zero(seed: int, l2: float, rank: int) -> None:
    rng = np.random.default_rng(seed)
    points = 5 * rng.normal(size=(8, rank)) @ rng.normal(size=(rank, 12))
    signs, offsets, weights = rng.choice([-1.0, 1.0], 8), rng.normal(size=8), rng.uniform(0.1, 3, 8)
    found = lm._logistic(points, signs, offsets, weights, l2)

    def slope(change: Floats) -> Floats:
        return l2 * change - (weights * signs * expit(-signs * (offsets + points @ change))) @ points

    assert np.abs(slope(found)).max() < 1e-7 * np.abs(slope(0 * found)).max()


@pytest.mark.parametrize(("l2", "weight"), [(1.0, 1.0), (0.01, 3.0)])
def test_the_probe_is_the_optimum(l2: float, weight: float, model: Any, tokenizer: Any) -> None:
    task = TransitiveTask(5, exception=(3, 1), exception_weight=weight)
    table = plain_table(model, tokenizer, PairPrompt())
    shown = trained(task)
    points = np.array([plain(model, tokenizer, PairPrompt(), i, j)[1] for i, j, _, _ in shown])
    signs, weights = np.array([row[2:] for row in shown]).T
    offsets = np.array([table[i, j] for i, j, _, _ in shown])

    def loss(change: Floats) -> float:
        return float(weights @ np.logaddexp(0, -signs * (offsets + points @ change)) + l2 / 2 * change @ change)

    best = optimize.minimize(loss, np.zeros(32), options={"gtol": 1e-8}).x
    tuned = finetune(model, tokenizer, ITEMS, task, l2=l2)
    features, pairs = pair_features(model, tokenizer, ITEMS)
    leads = np.zeros((5, 5))
    leads[tuple(pairs.T)] = table[tuple(pairs.T)] + features @ best
    np.testing.assert_allclose(tuned.after, (leads - leads.T) / 2, rtol=0, atol=2e-3)
    right = signs * (offsets + points @ best)
    assert tuned.loss == pytest.approx(np.average(np.logaddexp(0, -right), weights=weights), abs=1e-4)
    assert tuned.train_accuracy == (right > 0).mean()


def test_the_probe_remembers_as_the_penalty_falls(model: Any, tokenizer: Any) -> None:
    runs = [finetune(model, tokenizer, ITEMS, TASK, l2=l2) for l2 in (1e6, 1.0, 1e-3)]
    np.testing.assert_allclose(runs[0].after, runs[0].before, rtol=0, atol=1e-3)
    assert all(weak.loss < strong.loss for strong, weak in pairwise(runs))
    assert runs[-1].train_accuracy == 1
    assert runs[-1].after[3, 1] > 0 > runs[-1].after[2, 1]


def test_the_probe_goes_with_the_items(model: Any, tokenizer: Any) -> None:
    order = [4, 2, 0, 1, 3]
    place = np.argsort(order)
    moved = TransitiveTask(5, edges=place[TASK.pairs])
    tuned = finetune(model, tokenizer, ITEMS, TASK)
    turned = finetune(model, tokenizer, [ITEMS[k] for k in order], moved)
    np.testing.assert_allclose(turned.after, tuned.after[np.ix_(order, order)], rtol=0, atol=1e-6)


def test_a_readout_of_stored_features_is_the_probe(model: Any, tokenizer: Any) -> None:
    task = TransitiveTask(5, exception=(3, 1), exception_weight=2.0)
    features, pairs = pair_features(model, tokenizer, ITEMS)
    leads = plain_table(model, tokenizer, PairPrompt())[tuple(pairs.T)]
    found = train_readout(features, 4 - pairs, leads, task, l2=0.1)
    expected = finetune(model, tokenizer, ITEMS[::-1], task, l2=0.1)
    np.testing.assert_allclose(found, expected.after, rtol=0, atol=1e-4)


def test_the_probe_takes_features_that_are_there(model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = pair_features(model, tokenizer, ITEMS)
    expected = finetune(model, tokenizer, ITEMS[::-1], TASK)
    monkeypatch.setattr(lm, "_features", None)
    # Ranks count from the other end, and so do all ordered pairs.
    found = finetune(model, tokenizer, ITEMS[::-1], TASK, features=features[::-1])
    np.testing.assert_allclose(found.before, expected.before, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.after, expected.after, rtol=0, atol=1e-6)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": [(0, 1)] * 20}, "pairs must hold every ordered pair of the task's 5 items once"),
        ({"pairs": [(0, 1)]}, "pairs must hold every ordered pair"),
        (
            {"features": np.full((20, 2), np.nan)},
            "features must be a finite matrix of shape (20, d), got shape (20, 2)",
        ),
        ({"features": np.ones((19, 2))}, "got shape (19, 2)"),
        ({"leads": np.ones(3)}, "leads must have length 20, got 3"),
        ({"l2": -1}, "l2 must be positive, got -1"),
    ],
)
def test_bad_features(change: dict[str, Any], message: str) -> None:
    pairs = np.argwhere(~np.eye(5, dtype=bool))
    given = {"features": np.ones((20, 2)), "pairs": pairs, "leads": np.zeros(20), "task": TASK, "l2": 1.0}
    with pytest.raises(ValueError, match=re.escape(message)):
        train_readout(**{**given, **change})


def plain_loop(model: Any, tokenizer: Any, prompt: PairPrompt, task: TransitiveTask, top: int | None) -> Any:
    """Return the model after three steps of AdamW on all trained prompts, each run alone."""
    tuned = copy.deepcopy(model)
    yes, no = tokenizer.convert_tokens_to_ids([" Yes", " No"])
    part = tuned if top is None else tuned.model.layers[-top:]
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    for _ in range(3):
        losses = []
        for i, j, sign, weight in trained(task):
            ids = torch.tensor([tokenizer(prompt.render(ITEMS[i], ITEMS[j]))["input_ids"]])
            logits = tuned(ids).logits[:, -1].float()
            right = torch.tensor([0 if sign > 0 else 1])
            if top is None:
                right = torch.tensor([yes, no])[right]
            else:
                logits = logits[:, [yes, no]]
            losses.append(weight * torch.nn.functional.cross_entropy(logits, right))
        optimizer.zero_grad()
        (sum(losses) / (2 * task.weights.sum())).backward()
        optimizer.step()
    return tuned


@pytest.mark.parametrize(("method", "top"), [("top", 1), ("top", 2), ("full", None)])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_training_is_that_of_a_plain_loop(
    method: str, top: int | None, prompt: PairPrompt, model: Any, tokenizer: Any
) -> None:
    task = TransitiveTask(5, exception=(3, 1), exception_weight=2.0)
    expected = plain_loop(model, tokenizer, prompt, task, top)
    layers = {} if top is None else {"top_layers": top}
    tuned = finetune(model, tokenizer, ITEMS, task, prompt, method=method, epochs=3, lr=1e-3, **layers)
    np.testing.assert_allclose(tuned.before, answer_margins(model, tokenizer, ITEMS, prompt), rtol=0, atol=1e-6)
    np.testing.assert_allclose(tuned.after, answer_margins(expected, tokenizer, ITEMS, prompt), rtol=0, atol=2e-4)
    assert np.abs(tuned.after - tuned.before).max() > 0.01
    assert tuned.record["epochs_run"] == 3


@pytest.mark.parametrize("method", ["top", "full"])
def test_training_ends_once_all_is_learned(method: str, model: Any, tokenizer: Any) -> None:
    first, tuned = (
        finetune(model, tokenizer, ITEMS, TASK, method=method, epochs=epochs, lr=0.03, top_layers=2)
        for epochs in (1, 200)
    )
    assert tuned.train_accuracy == 1
    assert tuned.loss < 1e-3 < first.loss
    assert 1 < tuned.record["epochs_run"] < 200
    assert tuned.after[tuple(TASK.pairs.T)].min() > 1
    np.testing.assert_array_equal(tuned.after, -tuned.after.T)


def test_adapters_learn(model: Any, tokenizer: Any) -> None:
    pytest.importorskip("peft")
    untrained, tuned = (
        finetune(model, tokenizer, ITEMS, TASK, method="lora", epochs=epochs, lr=lr)
        for epochs, lr in ((1, 1e-9), (40, 0.01))
    )
    # An adapter begins as nothing.
    np.testing.assert_allclose(untrained.after, untrained.before, rtol=0, atol=1e-6)
    assert tuned.train_accuracy == 1
    assert tuned.loss < 0.3 < untrained.loss


@pytest.mark.parametrize("method", ["probe", "top", "lora", "full"])
def test_the_callers_model_stays_as_it_is(method: str, model: Any, tokenizer: Any) -> None:
    if method == "lora":
        pytest.importorskip("peft")
    model = copy.deepcopy(model)
    model.train()
    model.model.layers[0].eval()
    model.lm_head.requires_grad_(False)
    model.model.norm.weight.grad = torch.ones(32, dtype=torch.float64)

    def state() -> dict[str, Any]:
        modes = {name: part.training for name, part in model.named_modules()}
        wanted = {name: (values.requires_grad, values.grad is None) for name, values in model.named_parameters()}
        places = [part.layer_idx for part in model.modules() if hasattr(part, "layer_idx")]
        return {"modes": modes, "wanted": wanted, "places": places, "config": model.config.to_dict()}

    before, weights = state(), copy.deepcopy(model.state_dict())
    options = {} if method == "probe" else {"epochs": 2, "lr": 0.01}
    tuned = finetune(model, tokenizer, ITEMS, TASK, method=method, top_layers=1, **options)
    assert np.abs(tuned.after - tuned.before).max() > 1e-3
    assert state() == before
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())
    assert torch.equal(model.model.norm.weight.grad, torch.ones(32, dtype=torch.float64))


@pytest.mark.parametrize("method", ["top", "full"])
def test_an_interruption_leaves_the_callers_model(
    method: str, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = copy.deepcopy(model.state_dict())
    steps = []

    def interrupted(*_: Any, **__: Any) -> None:
        steps.append(original(*_, **__))
        if len(steps) == 2:
            raise KeyboardInterrupt

    original = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(model, tokenizer, ITEMS, TASK, method=method, epochs=5, lr=0.1, top_layers=1)
    assert len(steps) == 2
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())


@pytest.mark.parametrize(("method", "batch_size"), [("lora", 10), ("full", 4)])  # adapters; order of the prompts
def test_the_seed_decides(method: str, batch_size: int, model: Any, tokenizer: Any) -> None:
    if method == "lora":
        pytest.importorskip("peft")
    runs = []
    with torch.random.fork_rng():
        for seed in (0, 0, 1):
            torch.rand(1)
            drawn = torch.get_rng_state()
            options = {"method": method, "epochs": 2, "lr": 0.01, "batch_size": batch_size, "seed": seed}
            runs.append(finetune(model, tokenizer, ITEMS, TASK, **options).after)
            assert torch.equal(torch.get_rng_state(), drawn)
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-6


def test_the_record_is_what_was_run(model: Any, tokenizer: Any) -> None:
    prompt = PairPrompt(anchors=ANCHORS)
    tuned = finetune(model, tokenizer, ITEMS, TASK, prompt, method="top", epochs=2, top_layers=1, seed=7)
    yes, no = tokenizer.convert_tokens_to_ids([" Yes", " No"])
    assert json.loads(json.dumps(tuned.record)) == {
        "model": "",
        "method": "top",
        "seed": 7,
        "items": list(ITEMS),
        "prompt": {"template": prompt.template, "yes": " Yes", "no": " No", "anchors": list(ANCHORS)},
        "token_ids": {"yes": yes, "no": no},
        "epochs": 2,
        "lr": 1e-4,
        "batch_size": 10,
        "top_layers": 1,
        "epochs_run": 2,
    }
    assert finetune(model, tokenizer, ITEMS, TASK, l2=2).record["l2"] == 2.0


def test_half_precision_of_a_fabric(model: Any, tokenizer: Any) -> None:
    from lightning_fabric import Fabric

    single = copy.deepcopy(model).float()
    for precision, tolerance in (("bf16-mixed", 0.1), ("bf16-true", 0.3)):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        options = {"method": "top", "epochs": 3, "lr": 1e-3, "top_layers": 1}
        exact = finetune(single, tokenizer, ITEMS, TASK, **options)
        rounded = finetune(single, tokenizer, ITEMS, TASK, fabric=fabric, **options)
        np.testing.assert_allclose(rounded.after, exact.after, rtol=0, atol=tolerance)
        assert np.abs(rounded.after - exact.after).max() > 1e-5


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "Will {a} win?"}, "template must have the fields {a} and {b} once each, got 'Will {a} win?'"),
        ({"template": "{a} {b} {a}"}, "once each"),
        ({"template": "{a} {b"}, "once each, got '{a} {b'"),
        ({"yes": ""}, "yes and no must be two different answers, got '' and ' No'"),
        ({"no": " Yes"}, "two different answers"),
        ({"anchors": ("Cubs",)}, "anchors must have length 2, got 1"),
        ({"anchors": ("Cubs", "Cubs")}, "anchors must be distinct, got 'Cubs' twice"),
    ],
)
def test_bad_prompts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PairPrompt(**options)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            PairPrompt(yes=" Yes sir"),
            r"prompt.yes must be one token after 'Q: .*:', got ' Yes sir' split into \[' Yes', ' sir'\]",
        ),
        (PairPrompt("Q: Will the {a} win against the {b}", no="No"), r"prompt.no must be one token after .*\['\?'\]"),
        (PairPrompt(anchors=("Ants", "Red Sox")), "prompt.anchors must be none of the items, got 'Ants'"),
    ],
)
def test_prompts_that_do_not_fit(prompt: PairPrompt, message: str, model: Any, tokenizer: Any) -> None:
    for call in (pair_features, answer_margins):
        with pytest.raises(ValueError, match=message):
            call(model, tokenizer, ITEMS, prompt)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "adapter"}, "method must be one of 'probe', 'top', 'lora', 'full', got 'adapter'"),
        ({"items": ITEMS[:4]}, "items must have length 5, got 4"),
        ({"items": (*ITEMS[:4], "Ants")}, "items must be distinct, got 'Ants' twice"),
        ({"epochs": 3}, "epochs, lr and batch_size must be None for method 'probe'"),
        ({"l2": 0}, "l2 must be positive, got 0"),
        ({"method": "full", "epochs": 0}, "epochs must be at least 1, got 0"),
        ({"method": "full", "lr": float("nan")}, "lr must be positive, got nan"),
        ({"method": "full", "batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"method": "lora", "lora_r": 0}, "lora_r must be at least 1, got 0"),
        ({"method": "top", "top_layers": 0}, "top_layers must be at least 1, got 0"),
        ({"method": "top", "top_layers": 3}, "top_layers must be at most the model's 2 blocks, got 3"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"features": np.ones((20, 3))}, "features must be a finite matrix of shape (20, 32), got shape (20, 3)"),
        ({"method": "full", "features": np.ones((20, 32))}, "features must be None for method 'full'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, model: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        finetune(model, tokenizer, **{"items": ITEMS, "task": TASK, **options})


def test_models_that_cannot_be_used(model: Any, tokenizer: Any) -> None:
    with pytest.raises(TypeError, match="must be a causal language model, with output embeddings, got LlamaModel"):
        answer_margins(model.model, tokenizer, ITEMS)
    odd = copy.deepcopy(model)
    odd.model.blocks = odd.model.layers
    del odd.model.layers
    with pytest.raises(ValueError, match="'top' needs a model with the parts embed_tokens, layers and norm, got no la"):
        lm._cut(odd.model, 1)


def test_blocks_that_do_not_give_the_models_states_are_refused(model: Any, tokenizer: Any) -> None:
    odd = copy.deepcopy(model)
    # Activations that come in as embeddings are changed, as they are in models with learned positions.
    odd.model.register_forward_pre_hook(
        lambda _, args, kwargs: (
            (args, kwargs | {"inputs_embeds": 1 - kwargs["inputs_embeds"]}) if "inputs_embeds" in kwargs else None
        ),
        with_kwargs=True,
    )
    with pytest.raises(ValueError, match="method 'top' cannot run the last blocks of LlamaForCausalLM alone"):
        finetune(odd, tokenizer, ITEMS, TASK, method="top", top_layers=1)


@pytest.mark.parametrize(("module", "method"), [("torch", "probe"), ("peft", "lora")])
def test_missing_packages_say_how_to_install_them(
    module: str, method: str, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"{module} is not installed: pip install 'paperworks\[transitive\]'"):
        finetune(model, tokenizer, ITEMS, TASK, method=method)


def test_a_saved_model_answers_the_same(model: Any, tokenizer: Any, tmp_path: Any) -> None:
    from paperworks.core.language import language_model

    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    read = language_model(tmp_path, dtype="float64")
    np.testing.assert_array_equal(answer_margins(*read, ITEMS), answer_margins(model, tokenizer, ITEMS))
