"""Language models asked which of two items wins: representations, answers, and finetuning on a task."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize
from scipy.special import expit

from paperworks.core.extras import require
from paperworks.core.validation import check_choice, check_integer, check_names, check_real, check_vector
from paperworks.transitive.tasks import TransitiveTask

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric

__all__ = ["Finetuned", "PairPrompt", "answer_margins", "finetune", "pair_features", "train_readout"]

Floats = NDArray[np.float64]

_METHODS = ("probe", "top", "lora", "full")
_EPOCHS = {"top": 50, "lora": 10, "full": 100}
_RATES = {"top": 1e-4, "lora": 1e-4, "full": 2e-6}
_BATCHES = {"top": None, "lora": 16, "full": 32}
_LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj")
# A run ends early once every trained prompt is right with this loss.
_LEARNED = 1e-3
_EVALUATED = 72


@dataclass(frozen=True)
class PairPrompt:
    r"""How a language model is asked whether one item wins against another.

    Parameters
    ----------
    template : str
        The question, with ``{a}`` and ``{b}`` where the items go.
    yes, no : str
        The answers. Each must be one token where it follows the question.
    anchors : (winner, loser), optional
        Two other items, asked about and answered in both orders before the question.

    Raises
    ------
    ValueError
        The template has other fields, the answers are equal or empty, or the anchors are.

    Examples
    --------
    >>> PairPrompt().render("Cubs", "Mets")
    'Q: Will the Cubs win against the Mets? A:'
    >>> print(PairPrompt(anchors=("Red Sox", "White Sox")).render("Cubs", "Mets"))
    Q: Will the Red Sox win against the White Sox? A: Yes
    Q: Will the White Sox win against the Red Sox? A: No
    Q: Will the Cubs win against the Mets? A:
    """

    template: str = "Q: Will the {a} win against the {b}? A:"
    yes: str = " Yes"
    no: str = " No"
    anchors: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        try:
            fields = [name for _, name, _, _ in Formatter().parse(self.template) if name is not None]
        except ValueError:  # a brace that is alone
            fields = []
        if sorted(fields) != ["a", "b"]:
            raise ValueError(f"template must have the fields {{a}} and {{b}} once each, got {self.template!r}")
        if not self.yes or not self.no or self.yes == self.no:
            raise ValueError(f"yes and no must be two different answers, got {self.yes!r} and {self.no!r}")
        if self.anchors is not None:
            winner, loser = check_names(self.anchors, "anchors", length=2)
            object.__setattr__(self, "anchors", (winner, loser))

    def render(self, a: str, b: str) -> str:
        """Return the text that asks whether `a` wins against `b`, up to the answer."""
        if self.anchors is None:
            return self.template.format(a=a, b=b)
        winner, loser = self.anchors
        shown = [self.template.format(a=winner, b=loser) + self.yes, self.template.format(a=loser, b=winner) + self.no]
        return "\n".join([*shown, self.template.format(a=a, b=b)])


def pair_features(
    model: Any, tokenizer: Any, items: Iterable[Any], prompt: PairPrompt = PairPrompt(), *, batch_size: int = 72
) -> tuple[NDArray[np.floating[Any]], NDArray[np.intp]]:
    """Return what a language model represents when it is about to answer, for each ordered pair of items.

    What prompts have in common at their beginning, the anchors among it, is run once.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model such as `paperworks.core.language.language_model` returns. It is used on its device and
        in its mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.
    items : iterable of str, length n
        At least two distinct names.
    prompt : PairPrompt
        The question.
    batch_size : int
        Prompts run at once; only prompts with the same first item are.

    Returns
    -------
    features : ndarray, shape (n(n − 1), d)
        Final hidden state at the last token, which the logits of the answer are linear in. In float64 for a model in
        float64, else in float32.
    pairs : ndarray of int, shape (n(n − 1), 2)
        The two items of each row.

    Raises
    ------
    ValueError, TypeError
        Items are not distinct, or an answer is not one token; the message shows how it is split.
    MissingExtra
        torch is not installed.

    Examples
    --------
    >>> from paperworks.core.language import language_model
    >>> features, pairs = pair_features(*language_model(), ["Cubs", "Mets", "Reds", "Twins"])  # doctest: +SKIP
    >>> representation_geometry(features, pairs).alpha  # doctest: +SKIP
    """
    prompts = _ask(tokenizer, items, prompt)
    features = _features(model.base_model, prompts.ids, prompts, check_integer(batch_size, "batch_size", low=1))
    return features.numpy(), prompts.pairs


def answer_margins(
    model: Any, tokenizer: Any, items: Iterable[Any], prompt: PairPrompt = PairPrompt(), *, batch_size: int = 72
) -> Floats:
    r"""Return by how much a language model prefers that one item wins against another.

    With :math:`\ell_{ij}` the logit of yes minus that of no when asked whether i wins against j,
    :math:`z_{ij} = \tfrac12 (\ell_{ij} - \ell_{ji})`: a liking for one answer, whatever the items, cancels.

    Parameters
    ----------
    model, tokenizer, items, prompt, batch_size
        As in `pair_features`.

    Returns
    -------
    ndarray, shape (n, n)
        Antisymmetric, in units of logits.

    Raises
    ------
    ValueError, TypeError, MissingExtra
        As in `pair_features`.

    Examples
    --------
    >>> from paperworks.core.language import language_model
    >>> answer_margins(*language_model(), ["Cubs", "Mets", "Reds"])  # doctest: +SKIP
    """
    prompts = _ask(tokenizer, items, prompt)
    features = _features(model.base_model, prompts.ids, prompts, check_integer(batch_size, "batch_size", low=1))
    return prompts.margins(_Readout.of(model, prompts)(features))


@dataclass(frozen=True, eq=False)
class Finetuned:
    """How a language model answered before and after it was finetuned on a task.

    Attributes
    ----------
    before, after : ndarray, shape (n, n)
        Margins as of `answer_margins`; row and column i are the item of rank i, 0 the best.
    train_accuracy : float
        Share of the trained prompts, two a comparison, with the right one of the two answers.
    loss : float
        Mean cross-entropy of their answers, in nats: over the two answers for ``"probe"`` and ``"top"``, over the whole
        vocabulary for ``"lora"`` and ``"full"``.
    record : dict
        What was run, ready for JSON: ``model``, ``method``, ``seed``, ``items``, ``prompt``, ``token_ids`` of the
        answers, the method's settings, and ``epochs_run``.
    """

    before: Floats
    after: Floats
    train_accuracy: float
    loss: float
    record: dict[str, Any]


def finetune(
    model: Any,
    tokenizer: Any,
    items: Iterable[Any],
    task: TransitiveTask,
    prompt: PairPrompt = PairPrompt(),
    *,
    method: str = "probe",
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    l2: float = 0.01,
    lora_r: int = 8,
    top_layers: int = 4,
    features: ArrayLike | None = None,
    seed: int = 0,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Finetuned:
    r"""Train a language model on the comparisons of a task, each asked in both orders, and ask about every pair.

    The model itself is left as it is. The methods are:

    - ``"probe"``: the features are fixed, and the readout w, yes minus no, of length d minimises
      :math:`\sum_k \omega_k \log(1 + e^{-y_k w \cdot x_k}) + \tfrac12\,l2\,|w - w_0|^2`, where :math:`w_0` is the
      model's own: logistic regression with C = 1/l2, which has one solution.
    - ``"top"``: the last `top_layers` blocks are trained, on activations of the block below that are computed once.
      The cross-entropy is that of the two answers.
    - ``"lora"``: low-rank adapters (peft) of rank `lora_r` and α = 2r on the projections q, k, v, o, up and down.
    - ``"full"``: all weights.

    The latter three use AdamW and stop early once every trained prompt is right with a loss below 0.001 in every batch
    of an epoch. The last two are as Cheng and Lippl train, with the cross-entropy of the whole vocabulary.

    Parameters
    ----------
    model, tokenizer
        As in `pair_features`. For ``"top"``, the blocks must be ``model.base_model.layers``, as in Llama or Qwen.
    items : iterable of str, length n
        Best first.
    task : TransitiveTask
        Of n items; a comparison's weight is that of its two prompts.
    prompt : PairPrompt
        The question.
    method : {"probe", "top", "lora", "full"}
        What is trained.
    epochs : int, optional
        At most so many; default 50, 10 and 100 for ``"top"``, ``"lora"`` and ``"full"``.
    lr : float, optional
        Learning rate; default 1e-4, 1e-4 and 2e-6.
    batch_size : int, optional
        Prompts a step; default all, 16 and 32. They are shuffled every epoch.
    l2 : float
        Penalty of ``"probe"``. With the default it learns what it is shown; a larger one costs memory first.
    lora_r : int
        Rank of ``"lora"``.
    top_layers : int
        Blocks of ``"top"``.
    features : array_like, shape (n(n − 1), d), optional
        What `pair_features` returns for these items, if ``"probe"`` need not compute it again.
    seed : int
        Of the order of the prompts and of the adapters.
    fabric : lightning_fabric.Fabric, optional
        Device and precision; default the model's.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    Finetuned

    Raises
    ------
    ValueError, TypeError
        As in `pair_features`; another number of items than the task's; an argument out of range, or one that
        ``"probe"`` has no use for; or blocks that ``"top"`` cannot run alone.
    MissingExtra
        torch, Lightning Fabric or peft is not installed.
    paperworks.core.training.NonFiniteLoss
        The training diverged.

    References
    ----------
    L. Cheng and S. Lippl, 2026, A mathematical theory of balancing relational generalization and memorization,
    arXiv:2605.22972. E. J. Hu et al., 2021, LoRA: Low-Rank Adaptation of Large Language Models, arXiv:2106.09685.

    Examples
    --------
    >>> from paperworks.core.language import language_model
    >>> from paperworks.transitive.data import REAL_TEAMS
    >>> task = TransitiveTask(9, exception=(5, 3))
    >>> tuned = finetune(*language_model(), REAL_TEAMS[:9], task)  # doctest: +SKIP
    >>> tuned.train_accuracy, tuned.after[2, 6]  # doctest: +SKIP
    """
    check_choice(method, "method", _METHODS)
    if method == "probe" and (epochs, lr, batch_size) != (None, None, None):
        raise ValueError("epochs, lr and batch_size must be None for method 'probe', which is solved exactly")
    if method != "probe" and features is not None:
        raise ValueError(f"features must be None for method {method!r}, which changes them")
    settings: dict[str, Any] = {}
    if method == "probe":
        settings["l2"] = check_real(l2, "l2", low=0, open_low=True)
    else:
        settings["epochs"] = check_integer(_EPOCHS[method] if epochs is None else epochs, "epochs", low=1)
        settings["lr"] = check_real(_RATES[method] if lr is None else lr, "lr", low=0, open_low=True)
        size = (_BATCHES[method] or 2 * len(task.pairs)) if batch_size is None else batch_size
        settings["batch_size"] = check_integer(size, "batch_size", low=1)
    if method == "lora":
        settings["lora_r"] = check_integer(lora_r, "lora_r", low=1)
    if method == "top":
        settings["top_layers"] = check_integer(top_layers, "top_layers", low=1)
    check_integer(seed, "seed", low=0)
    prompts = _ask(tokenizer, check_names(items, "items", length=task.n_items), prompt)
    lessons = _Lessons.of(task)
    if method == "probe":
        outcome = _fit_probe(model, prompts, lessons, settings["l2"], features)
    else:
        train = _train_top if method == "top" else _train_all
        outcome = train(model, prompts, lessons, settings, seed, fabric, progress)
    return Finetuned(
        before=prompts.margins(outcome.before),
        after=prompts.margins(outcome.after),
        train_accuracy=float((lessons.signs * outcome.after[lessons.rows] > 0).mean()),
        loss=outcome.loss,
        record={
            "model": str(getattr(model, "name_or_path", "")),
            "method": method,
            "seed": seed,
            "items": list(prompts.items),
            "prompt": asdict(prompt),
            "token_ids": dict(zip(("yes", "no"), prompts.answers, strict=True)),
            **settings,
            "epochs_run": outcome.epochs,
        },
    )


def train_readout(
    features: ArrayLike, pairs: ArrayLike, leads: ArrayLike, task: TransitiveTask, l2: float = 0.01
) -> NDArray[np.float64]:
    """Return the margins after a readout of fixed features is trained: `finetune` by ``"probe"``, without the model.

    So features that were computed once serve many tasks, and many orders of the items.

    Parameters
    ----------
    features : array_like, shape (n(n − 1), d)
        As of `pair_features`.
    pairs : array_like of int, shape (n(n − 1), 2)
        Ranks of the two items of each row, 0 the best; each ordered pair once.
    leads : array_like, shape (n(n − 1),)
        The model's own logit of yes minus that of no.
    task : TransitiveTask
        Of n items.
    l2 : float
        Penalty on the change of the readout.

    Returns
    -------
    ndarray, shape (n, n)
        Antisymmetric margins by rank.

    Raises
    ------
    ValueError, TypeError
        A pair is missing or there twice, or an argument has another shape or is out of range.

    Examples
    --------
    >>> pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    >>> additive = [np.eye(3)[i] - np.eye(3)[j] for i, j in pairs]
    >>> train_readout(additive, pairs, np.zeros(6), TransitiveTask(3), l2=1.0).round(2)[0]
    array([0.  , 0.67, 1.35])
    """
    l2 = check_real(l2, "l2", low=0, open_low=True)
    ranks = np.asarray(pairs)
    ordered = np.argwhere(~np.eye(task.n_items, dtype=bool))
    if ranks.shape != ordered.shape or not np.array_equal(ranks[order := np.lexsort(ranks.T[::-1])], ordered):
        raise ValueError(f"pairs must hold every ordered pair of the task's {task.n_items} items once")
    points, before = _finite(features, len(ordered))[order], check_vector(leads, "leads", length=len(ordered))[order]
    lessons = _Lessons.of(task)
    change = _logistic(points[lessons.rows], lessons.signs, before[lessons.rows], lessons.weights, l2)
    table = np.zeros((task.n_items, task.n_items))
    table[tuple(ordered.T)] = before + points @ change
    return np.asarray((table - table.T) / 2)


def _finite(features: ArrayLike, rows: int, columns: int | None = None) -> Floats:
    points = np.asarray(features, dtype=np.float64)
    if points.ndim != 2 or points.shape != (rows, columns or points.shape[1]) or not np.isfinite(points).all():
        expected = f"({rows}, {columns or 'd'})"
        raise ValueError(f"features must be a finite matrix of shape {expected}, got shape {points.shape}")
    return points


@dataclass(frozen=True, eq=False)
class _Prompts:
    """All ordered pairs of items, asked: tokens padded on the right, where a causal model does not see them."""

    items: tuple[str, ...]
    pairs: NDArray[np.intp]
    ids: torch.Tensor  # (prompts, tokens)
    last: torch.Tensor  # (prompts,), the last token that is none of the padding
    shared: int  # tokens that all prompts begin with
    answers: tuple[int, int]  # the tokens of yes and no

    def margins(self, leads: Floats) -> Floats:
        """Return the antisymmetric part, shape (n, n), of what each prompt has for yes over no."""
        table = np.zeros((len(self.items), len(self.items)))
        table[tuple(self.pairs.T)] = leads
        return (table - table.T) / 2


def _ask(tokenizer: Any, items: Iterable[Any], prompt: PairPrompt) -> _Prompts:
    """Render and tokenise the question for all ordered pairs, those with the same first item together."""
    require("torch", "transitive")
    import torch

    names = check_names(items, "items")
    if len(names) < 2:
        raise ValueError(f"items must have length at least 2, got {len(names)}")
    if prompt.anchors is not None and (known := set(names) & set(prompt.anchors)):
        raise ValueError(f"prompt.anchors must be none of the items, got {sorted(known)[0]!r}")
    pairs = np.argwhere(~np.eye(len(names), dtype=bool))
    texts = [prompt.render(names[i], names[j]) for i, j in pairs]
    rows = tokenizer(texts)["input_ids"]
    answers = (_answer(tokenizer, texts, rows, prompt.yes, "yes"), _answer(tokenizer, texts, rows, prompt.no, "no"))
    last = torch.tensor([len(row) - 1 for row in rows])
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return _Prompts(names, pairs, ids, last, _common(ids, last), answers)


def _answer(tokenizer: Any, texts: Sequence[str], rows: Sequence[list[int]], answer: str, name: str) -> int:
    """Return the one token that `answer` is after all the texts, whose tokens are `rows`."""
    tokens = set()
    for text, row, whole in zip(texts, rows, tokenizer([text + answer for text in texts])["input_ids"], strict=True):
        if len(whole) != len(row) + 1 or whole[:-1] != row:
            alike = next((k for k, (a, b) in enumerate(zip(row, whole, strict=False)) if a != b), len(row))
            split = tokenizer.convert_ids_to_tokens(whole[alike:])
            raise ValueError(f"prompt.{name} must be one token after {text!r}, got {answer!r} split into {split}")
        tokens.add(whole[-1])
    if len(tokens) > 1:
        raise ValueError(f"prompt.{name} must be the same token after every prompt, got {answer!r} as {sorted(tokens)}")
    return int(tokens.pop())


def _common(ids: torch.Tensor, last: torch.Tensor) -> int:
    """Return how many tokens the rows begin with alike, short of the last of any."""
    alike = (ids == ids[:1]).all(0).long().cumprod(0).sum()
    return min(int(alike), int(last.min()))


def _run(body: Any, inputs: torch.Tensor, cache: Any = None, *, keep: bool = True) -> tuple[torch.Tensor, Any]:
    """Return the final states of tokens, or activations, that follow what is in the cache, and the cache to keep."""
    # Renamed in transformers 5.24.
    name = "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
    given = "inputs_embeds" if inputs.is_floating_point() else "input_ids"
    output = body(**{given: inputs, name: cache}, use_cache=keep or cache is not None)
    return output.last_hidden_state, output.get(name)


def _run_alike(body: Any, inputs: torch.Tensor, common: int, cache: Any = None) -> torch.Tensor:
    """Return the final states of rows whose first `common` positions are the same, after the cache of one row."""
    import torch

    parts = []
    if common:
        states, cache = _run(body, inputs[:1, :common], cache)
        parts.append(states.expand(len(inputs), -1, -1))
    if cache is not None:
        cache.reorder_cache(torch.zeros(len(inputs), dtype=torch.long))
    parts.append(_run(body, inputs[:, common:], cache, keep=False)[0])
    return torch.cat(parts, dim=1)


def _states(
    body: Any, inputs: torch.Tensor, prompts: _Prompts, batch_size: int = _EVALUATED
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield, for some prompts after the other, the final states of all tokens and the number of the last token.

    The inputs are the tokens of the prompts, or activations of them.
    """
    import torch

    alike = len(prompts.items) - 1  # prompts in a row that have the first item in common
    place = next(body.parameters())
    inputs = inputs.to(place.device, place.dtype if inputs.is_floating_point() else inputs.dtype)
    with torch.no_grad():
        head, cache = _run(body, inputs[:1, : prompts.shared]) if prompts.shared else (None, None)
        for end in range(alike, len(inputs) + 1, alike):
            for start in range(end - alike, end, batch_size):
                rows = slice(start, min(start + batch_size, end))
                common = _common(prompts.ids[rows], prompts.last[rows]) - prompts.shared
                states = _run_alike(body, inputs[rows, prompts.shared :], common, copy.deepcopy(cache))
                if head is not None:
                    states = torch.cat([head.expand(len(states), -1, -1), states], dim=1)
                yield states, prompts.last[rows]


def _features(body: Any, inputs: torch.Tensor, prompts: _Prompts, batch_size: int = _EVALUATED) -> torch.Tensor:
    """Return the final state at the last token of each prompt, shape (prompts, d), on the CPU."""
    import torch

    ends = [states[torch.arange(len(last)), last] for states, last in _states(body, inputs, prompts, batch_size)]
    features = torch.cat(ends)
    return features.to("cpu", torch.promote_types(features.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class _Readout:
    """What turns features into the logit of yes minus that of no."""

    weight: Floats
    bias: float

    @classmethod
    def of(cls, model: Any, prompts: _Prompts) -> _Readout:
        head = _head(model)
        yes, no = head.weight.detach()[list(prompts.answers)].double().cpu().numpy()
        bias = [0.0, 0.0] if head.bias is None else head.bias.detach()[list(prompts.answers)].tolist()
        return cls(yes - no, bias[0] - bias[1])

    def __call__(self, features: ArrayLike) -> Floats:
        return np.asarray(np.asarray(features, dtype=np.float64) @ self.weight + self.bias)


def _head(model: Any) -> Any:
    head = model.get_output_embeddings()
    if head is None:
        raise TypeError(f"model must be a causal language model, with output embeddings, got {type(model).__name__}")
    return head


@dataclass(frozen=True, eq=False)
class _Lessons:
    """The trained prompts: each comparison, winner first and loser first."""

    rows: NDArray[np.intp]
    signs: Floats  # 1 where the answer is yes, else −1
    weights: Floats

    @classmethod
    def of(cls, task: TransitiveTask) -> _Lessons:
        first, second = np.concatenate([task.pairs, task.pairs[:, ::-1]]).T
        rows = first * (task.n_items - 1) + second - (second > first)
        return cls(rows, np.repeat([1.0, -1.0], len(task.pairs)), np.tile(task.weights, 2))

    def loss(self, leads: Floats) -> float:
        """Return the cross-entropy over the two answers."""
        return float(np.average(np.logaddexp(0, -self.signs * leads[self.rows]), weights=self.weights))


class _Outcome(NamedTuple):
    """What each prompt has for yes over no, before and after; the loss then; and the epochs that were run."""

    before: Floats
    after: Floats
    loss: float
    epochs: int


def _fit_probe(
    model: Any, prompts: _Prompts, lessons: _Lessons, l2: float, features: ArrayLike | None = None
) -> _Outcome:
    if features is None:
        features = _features(model.base_model, prompts.ids, prompts).numpy()
    readout = _Readout.of(model, prompts)
    points = _finite(features, len(prompts.pairs), len(readout.weight))
    before = readout(points)
    change = _logistic(points[lessons.rows], lessons.signs, before[lessons.rows], lessons.weights, l2)
    after = before + points @ change
    return _Outcome(before, after, lessons.loss(after), 0)


def _logistic(points: Floats, signs: Floats, offsets: Floats, weights: Floats, l2: float) -> Floats:
    """Return the w that minimises Σ weight·log(1 + exp(−sign·(offset + w·point))) + l2/2·|w|²."""
    _, sizes, axes = linalg.svd(points, full_matrices=False)
    # The solution is a combination of the points.
    axes = axes[sizes > 1e-12 * sizes[0]]
    reduced = signs[:, None] * (points @ axes.T)
    offsets = signs * offsets

    def loss(x: Floats) -> float:
        return float(weights @ np.logaddexp(0, -offsets - reduced @ x) + l2 / 2 * x @ x)

    def slope(x: Floats) -> Floats:
        return np.asarray(l2 * x - (weights * expit(-offsets - reduced @ x)) @ reduced)

    def curvature(x: Floats) -> Floats:
        wrong = expit(-offsets - reduced @ x)
        return np.asarray((reduced.T * (weights * wrong * (1 - wrong))) @ reduced + l2 * np.eye(len(x)))

    start = np.zeros(len(axes))
    options = {"gtol": 1e-8 * float(linalg.norm(slope(start))) + 1e-12}
    found = optimize.minimize(loss, start, jac=slope, hess=curvature, method="trust-exact", options=options).x
    # The loss can tell the optimum no better, but its slope can.
    found = found - linalg.solve(curvature(found), slope(found), assume_a="pos")
    return np.asarray(found @ axes)


def _train_top(
    model: Any,
    prompts: _Prompts,
    lessons: _Lessons,
    settings: Mapping[str, Any],
    seed: int,
    fabric: Fabric | None,
    progress: bool,
) -> _Outcome:
    """Train a copy of the last blocks on the activations below them."""
    import torch

    below, above = _cut(model.base_model, settings["top_layers"])
    inputs = torch.cat([states for states, _ in _states(below, prompts.ids, prompts)])
    readout = _Readout.of(model, prompts)
    features = _features(above, inputs, prompts)
    with torch.no_grad():
        whole, _ = _run(model.base_model, prompts.ids[:1, : int(prompts.last[0]) + 1].to(model.device), keep=False)
    # Half precision rounds; a block that is fed the wrong way is far off.
    if not torch.allclose(features[0], whole[0, -1].cpu().to(features.dtype), atol=0.1 * float(features[0].std())):
        raise ValueError(
            f"method 'top' cannot run the last blocks of {type(model).__name__} alone: take another method"
        )
    head = _head(model)
    pair = torch.nn.Linear(head.in_features, 2, bias=head.bias is not None, device="meta")
    pair.load_state_dict(
        {name: values.detach()[list(prompts.answers)].clone() for name, values in head.named_parameters()}, assign=True
    )
    reader = _reader(above, pair.requires_grad_(False), prompts.shared)
    epochs = _train(reader, inputs, prompts, lessons, (0, 1), settings, seed, fabric, progress)
    after = readout(_features(above, inputs, prompts))
    return _Outcome(readout(features), after, lessons.loss(after), epochs)


def _cut(base: Any, count: int) -> tuple[Any, Any]:
    """Return a model of all blocks but the last `count`, of the same weights, and one of those, a copy.

    The first ends before the final norm, and the second takes over from there, as ``inputs_embeds``.
    """
    from torch import nn

    absent = [name for name in ("embed_tokens", "layers", "norm") if not hasattr(base, name)]
    if absent:
        raise ValueError(f"method 'top' needs a model with the parts embed_tokens, layers and norm, got no {absent[0]}")
    if count > len(base.layers):
        raise ValueError(f"top_layers must be at most the model's {len(base.layers)} blocks, got {count}")

    def part(blocks: Any, span: slice, **others: Any) -> Any:
        config = copy.deepcopy(base.config)
        config.num_hidden_layers = len(blocks)
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[span]
        replaced = {"config": config, "layers": blocks, **others}
        return copy.deepcopy(base, {id(getattr(base, name)): value for name, value in replaced.items()})

    kept = len(base.layers) - count
    last: Any = nn.ModuleList(copy.deepcopy(block) for block in base.layers[kept:])
    for index, block in enumerate(last):
        for module in block.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # its place in the cache
    below = part(base.layers[:kept], slice(kept), embed_tokens=base.embed_tokens, norm=nn.Identity())
    above = part(last, slice(kept, None), embed_tokens=nn.Identity()).requires_grad_(False)
    last.requires_grad_(True)
    return below, above


def _train_all(
    model: Any,
    prompts: _Prompts,
    lessons: _Lessons,
    settings: Mapping[str, Any],
    seed: int,
    fabric: Fabric | None,
    progress: bool,
) -> _Outcome:
    """Train a copy of the model: all of it, or adapters if the settings have their rank."""
    import torch

    before = _Readout.of(model, prompts)(_features(model.base_model, prompts.ids, prompts))
    tuned = copy.deepcopy(model)
    if "lora_r" in settings:
        peft = require("peft", "transitive")
        rank = settings["lora_r"]
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(_LORA_TARGETS))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            peft.inject_adapter_in_model(config, tuned)
    else:
        tuned.requires_grad_(True)
    head = _head(tuned)
    reader = _reader(tuned.base_model, head, prompts.shared)
    epochs = _train(reader, prompts.ids, prompts, lessons, prompts.answers, settings, seed, fabric, progress)
    features = _features(tuned.base_model, prompts.ids, prompts)
    with torch.no_grad():
        logits = head(features[lessons.rows].to(head.weight.device, head.weight.dtype)).double()
    labels = torch.where(torch.from_numpy(lessons.signs) > 0, *prompts.answers)
    losses = torch.nn.functional.cross_entropy(logits.cpu(), labels, reduction="none")
    loss = float(np.average(losses.numpy(), weights=lessons.weights))
    return _Outcome(before, _Readout.of(tuned, prompts)(features), loss, epochs)


def _reader(body: Any, head: Any, shared: int) -> torch.nn.Module:
    """Return a module that maps prompts, the first `shared` tokens of which are the same, to logits of the answer."""
    import torch

    # The caches of other kinds of layers are changed in place, which no gradient survives.
    kinds = set(getattr(body.config, "layer_types", None) or ())
    common = shared if kinds <= {"full_attention", "sliding_attention"} else 0

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = body, head

        def forward(self, inputs: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
            states = _run_alike(self.body, inputs, common)
            logits: torch.Tensor = self.head(states[torch.arange(len(last), device=last.device), last])
            return logits

    return Reader()


class _Learned(Exception):
    """Every prompt is right: the training ends."""


def _train(
    reader: torch.nn.Module,
    inputs: torch.Tensor,
    prompts: _Prompts,
    lessons: _Lessons,
    answers: tuple[int, int],
    settings: Mapping[str, Any],
    seed: int,
    fabric: Fabric | None,
    progress: bool,
) -> int:
    """Train what requires a gradient, and return the number of epochs that it took.

    `answers` are the indices of yes and no among the logits.
    """
    import torch

    from paperworks.core.training import fit

    rows = torch.from_numpy(lessons.rows)
    is_yes = torch.from_numpy(lessons.signs) > 0
    rights, wrongs = torch.where(is_yes, *answers), torch.where(is_yes, *answers[::-1])
    weights = torch.from_numpy(lessons.weights / lessons.weights.mean()).float()
    size: int = settings["batch_size"]
    per_epoch = -(-len(rows) // size)
    recent: deque[tuple[float, float]] = deque(maxlen=per_epoch)
    steps = 0

    def batches(index: int, _: torch.Generator) -> tuple[torch.Tensor, ...]:
        epoch, part = divmod(index, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(len(rows))
        chosen = torch.from_numpy(order[part * size : (part + 1) * size])
        at = rows[chosen]
        return inputs[at], prompts.last[at], rights[chosen], wrongs[chosen], weights[chosen]

    def step(module: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        tokens, last, right, wrong, weight = batch
        logits = module(tokens, last).float()
        losses = torch.nn.functional.cross_entropy(logits, right, reduction="none")
        lead = logits.gather(1, right[:, None]) - logits.gather(1, wrong[:, None])
        return {"loss": (weight * losses).mean(), "accuracy": (lead > 0).float().mean()}

    def watch(done: int, _: torch.nn.Module, record: dict[str, float]) -> None:
        nonlocal steps
        steps = done
        recent.append((record["loss"], record["accuracy"]))
        if done % per_epoch == 0 and all(loss < _LEARNED and right == 1 for loss, right in recent):
            raise _Learned

    def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([each for each in parameters if each.requires_grad], lr=settings["lr"])

    with contextlib.suppress(_Learned):
        fit(
            reader, batches, step, optimizer=optimizer, steps=settings["epochs"] * per_epoch, on_step=(watch,),
            fabric=fabric, progress=progress, seed=seed,
        )  # fmt: skip
    return steps // per_epoch
