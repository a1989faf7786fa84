"""`paperworks dssgnn`: fit, score."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paperworks.core.commands import JsonOption, OutOption, SeedOption, read_frame, write_frame, write_report

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from paperworks.dssgnn.data import TableGraph
    from paperworks.dssgnn.estimator import DSSClassifier
    from paperworks.dssgnn.nn import DSSGNN

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Classify the nodes of a graph: calibrated probabilities, how uncertain they are, and which nodes are new.",
)

NodesOption = Annotated[
    Path | None, typer.Option("--nodes", metavar="FILE.csv", help="A row a node: id, label and numeric features.")
]
EdgesOption = Annotated[
    Path | None,
    typer.Option("--edges", metavar="FILE.csv", help="Columns source, target and, if wanted, weight; else no edges."),
]
GraphOption = Annotated[
    Path | None, typer.Option("--graph", metavar="FILE", help="In place of tables: .graphml, or .npz with masks.")
]
IdOption = Annotated[str | None, typer.Option("--id", help="Column of the nodes' names, id.")]

_PARTS = ("model", "predictions.csv", "report.html")
_ROLES = ("train", "val", "test")
_DRAWN = 500  # nodes up to which eigenvalues and a drawing of the graph take seconds
_SHOWN = 5
_KNOWN = 0.95


@app.command()
def fit(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the model, the predictions and a report.")],
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    graph: GraphOption = None,
    id: IdOption = None,
    label: Annotated[
        str | None, typer.Option(help="Column, or GraphML attribute, of the classes, label; empty where unknown.")
    ] = None,
    split: Annotated[int | None, typer.Option(help="Which masks of an .npz file, 0.")] = None,
    val_fraction: Annotated[
        float | None, typer.Option(help="Share of the labelled nodes that chooses filter and epoch, 0.2.")
    ] = None,
    test_fraction: Annotated[
        float | None, typer.Option(help="Share of the labelled nodes that is only used to judge the result, 0.")
    ] = None,
    filter: Annotated[
        str, typer.Option(help="auto, or ppr, identity, mix, heat, highpass, with -frozen if not to be learned.")
    ] = "auto",
    order: Annotated[int, typer.Option(help="Order of the chaos; with 0 the logits are not random.")] = 2,
    epochs: Annotated[int, typer.Option(help="Most epochs of training.")] = 200,
    no_scale: Annotated[
        bool, typer.Option("--no-scale", help="Do not bring features to mean 0 and standard deviation 1.")
    ] = False,
    seed: SeedOption = 0,
) -> None:
    """Learn from the labelled nodes, and write the model, a table of predictions for all nodes, and a report."""
    from paperworks.core.training import NonFiniteLoss
    from paperworks.dssgnn.estimator import DSSClassifier

    _check_out(out)
    read = _read(nodes, edges, graph, id, label or "label", None, split)
    is_npz = _is_npz(graph)
    if is_npz and label is not None:
        raise ValueError("--label is for tables and GraphML: an .npz file has labels of its own")
    if is_npz and not (val_fraction is None and test_fraction is None):
        raise ValueError("--val-fraction and --test-fraction are for graphs without masks: an .npz file has its own")
    where = graph or nodes
    data = read.data
    classes, labels = _labels(read)
    if len(classes) < 2:
        found = f"only {classes[0]!r}" if classes else "none"
        raise ValueError(f"{where} must have nodes of at least two classes in {label or 'label'!r}, got {found}")
    roles = _roles(read, classes, val_fraction, test_fraction, filter, seed)
    count = {role: int((roles == role).sum()) for role in (*_ROLES, "unlabelled")}
    for name in classes:
        if name in ("NA", "N/A", "NaN", "nan", "None", "null", "NULL"):
            _note(f"{name!r} is taken for a class: where there is no label, leave the cell empty")

    original = data.x
    mean, scale = _scaling(read, no_scale)
    data.x = (original - mean) / scale
    _note(
        f"fitting on {len(original)} nodes, {data.edge_index.shape[1] // 2} edges: "
        f"{count['train']} nodes to learn from, {count['val']} held out for validation, {count['test']} for the test, "
        f"{count['unlabelled']} unlabelled …"
    )
    settings: dict[str, Any] = {"order": order, "epochs": epochs, "filter": filter, "random_state": seed}
    if order > 7:  # what 8 quadrature nodes resolve
        settings |= {"q_train": order + 1, "q_predict": max(32, order + 1)}
    held = roles == "val" if count["val"] else None
    if held is None:
        settings["validation_fraction"] = 0.0
    model = DSSClassifier(**settings, verbose=int(sys.stderr.isatty()))
    try:
        model.fit(data, labels, train_mask=roles == "train", val_mask=held).set_params(verbose=0)
    except NonFiniteLoss as error:
        advice = "leave out --no-scale" if no_scale else "look for extreme values among the features"
        raise ValueError(f"training diverged at epoch {error.step}: {advice}") from error
    _take_unscaled(model, mean, scale)
    data.x = original
    if read.features:
        import numpy as np

        model.feature_names_in_ = np.array(read.features, dtype=object)

    table = _predictions(model, read).assign(role=roles)
    measures = _measures(model, table, labels)
    facts = {
        "nodes": len(table),
        "edges": data.edge_index.shape[1] // 2,
        "features": model.n_features_in_,
        "classes": f"{len(classes)}: {_listed(list(map(str, classes)))}",
        **{f"{name} nodes": count[role] for role, name in _NAMES.items()},
        "unlabelled nodes": count["unlabelled"],
        "filter": model.filter_,
        "seed": seed,
    }
    reference = table["energy"][roles == ("val" if count["val"] else "train")]
    limit = float(reference.quantile(_KNOWN))
    facts[f"energy that {_KNOWN:.0%} of the {'validation' if count['val'] else 'training'} nodes do not exceed"] = limit
    _write_run(out, model, table, measures, facts, _pictures(model, read, table, labels))
    for row in measures.itertuples():
        _note(
            f"{row.nodes} {row.Index} nodes: accuracy {row.accuracy:.4f}, Brier {row.Brier:.4f}, NLL {row.NLL:.4f}, "
            f"ECE {row.ECE:.4f}"
        )
    _note(f"filter {model.filter_}; wrote {', '.join(str(out / part) for part in _PARTS)}")


@app.command()
def score(
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="The model that fit wrote: run/model.")],
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    graph: GraphOption = None,
    id: IdOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Classify the nodes of another graph that has the same features."""
    from paperworks.dssgnn.estimator import DSSClassifier

    fitted = DSSClassifier.load(model)
    names = getattr(fitted, "feature_names_in_", None)
    read = _read(nodes, edges, graph, id, None, None if names is None else list(names), None)
    if read.data.x.shape[1] != fitted.n_features_in_:
        raise ValueError(
            f"{graph or nodes} must have the model's {fitted.n_features_in_} features, got {read.data.x.shape[1]}"
        )
    write_frame(_predictions(fitted, read), out, as_json=json)


_NAMES = {"train": "training", "val": "validation", "test": "test"}


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _check_out(out: Path) -> None:
    """Refuse, before a long fit, a folder that holds something else than an earlier run."""
    from paperworks.core.models import check_folder

    if not out.name:
        raise ValueError(f"--out must name a folder, got {str(out)!r}")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"--out must be a folder, got the file {str(out)!r}")
    held = sorted(path.name for path in out.iterdir()) if out.exists() else []
    other = [name for name in held if name not in _PARTS]
    if other or (held and "model" not in held):
        raise FileExistsError(
            f"--out must be new, empty or an earlier run, got {str(out)!r}, which holds {(other or held)[0]!r}"
        )
    check_folder(out / "model")


def _is_npz(graph: Path | None) -> bool:
    return graph is not None and graph.suffix.lower() == ".npz"


def _read(
    nodes: Path | None,
    edges: Path | None,
    graph: Path | None,
    id: str | None,
    label: str | None,
    features: Sequence[str] | None,
    split: int | None,
) -> TableGraph:
    """Read a graph from tables or a file: `features` of it, or all without names, or else all numeric ones."""
    from paperworks.core.validation import check_choice
    from paperworks.dssgnn.data import read_graphml

    if (nodes is None) == (graph is None):
        raise ValueError("give either --nodes or --graph, got " + ("neither" if nodes is None else "both"))
    if split is not None and not _is_npz(graph):
        raise ValueError("--split is for the masks of an .npz file")
    if nodes is not None:
        return _read_tables(nodes, edges, id or "id", label, features)
    assert graph is not None
    if edges is not None or id is not None:
        raise ValueError(f"--{'id' if edges is None else 'edges'} is for --nodes: {graph} has its own")
    check_choice(graph.suffix.lower(), "suffix of --graph", (".npz", ".graphml"))
    if _is_npz(graph):
        return _read_npz(graph, split or 0)
    return read_graphml(graph, label, features=features)


def _read_tables(
    nodes: Path, edges: Path | None, id: str, label: str | None, features: Sequence[str] | None
) -> TableGraph:
    import pandas as pd

    from paperworks.dssgnn.data import graph_from_tables

    if str(nodes) == str(edges) == "-":
        raise ValueError("--nodes and --edges cannot both be read from standard input")
    table = _table(nodes, [id] if label is None else [id, label])
    if table.empty:
        raise ValueError(f"{nodes} has no rows")
    if features is not None:
        absent = [name for name in features if name not in table]
        if absent:
            raise ValueError(
                f"{nodes} lacks the model's column {absent[0]!r}; the columns are {', '.join(map(repr, table))}"
            )
        others = [str(name) for name in table if name != id and name not in features]
        if others:
            _note(f"columns that the model does not use: {_listed(others)}")
        if id in table:
            table = table[[id, *features]]
    if edges is None:
        links = pd.DataFrame({"source": [], "target": []}, dtype=object)
    else:
        links = _table(edges, ["source", "target"])
    return graph_from_tables(table, links, id=id, label=label, first_row=2)


def _table(path: Path, words: Sequence[str]) -> pd.DataFrame:
    """Read a table, the columns `words` as text as it stands: a node may be called 007, and a class NA."""
    return read_frame(path, dtype=dict.fromkeys(words, str), keep_default_na=False, na_values=[""])


def _read_npz(graph: Path, split: int) -> TableGraph:
    import numpy as np
    import pandas as pd

    from paperworks.dssgnn.data import TableGraph, read_npz

    data = read_npz(graph, split)
    classes, codes = np.unique(data.y.numpy()[data.y.numpy() >= 0], return_inverse=True)
    data.y[data.y >= 0] = data.y.new_tensor(codes)
    return TableGraph(data, pd.RangeIndex(len(data.y)), tuple(classes.tolist()), ())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _labels(read: TableGraph) -> tuple[tuple[Any, ...], NDArray[np.object_]]:
    """Classes, and the class of each node, None without one."""
    import numpy as np

    # The last entry is where the index -1 of a node without a label leads.
    names = np.array([*read.classes, None], dtype=object)
    return read.classes, names[read.data.y.numpy()]


def _roles(
    read: TableGraph,
    classes: Sequence[Any],
    val_fraction: float | None,
    test_fraction: float | None,
    filter: str,
    seed: int,
) -> NDArray[np.object_]:
    """What each node is used for: by the file's masks, or drawn by class."""
    import numpy as np
    from sklearn.utils import check_random_state

    from paperworks.core.validation import check_real
    from paperworks.dssgnn.graphs import Labels, hold_out

    shares = {
        "test": check_real(0.0 if test_fraction is None else test_fraction, "--test-fraction", low=0, high=1),
        "val": check_real(0.2 if val_fraction is None else val_fraction, "--val-fraction", low=0, high=1),
    }
    if sum(shares.values()) >= 1:
        raise ValueError(f"--val-fraction and --test-fraction must sum to less than 1, got {sum(shares.values()):g}")
    masks = {role: getattr(read.data, f"{role}_mask", None) for role in _ROLES}
    roles = np.where(read.data.y.numpy() >= 0, "unused", "unlabelled").astype(object)
    for role, mask in masks.items():
        if mask is not None:
            roles[mask.numpy() & (roles == "unused")] = role
    rng = check_random_state(seed)
    labelled = int((roles == "train").sum())
    left = 1.0
    for role, share in shares.items():
        if (roles == role).any():
            continue
        if share == 0:
            if role == "val" and filter == "auto":
                raise ValueError(
                    "--filter auto needs validation nodes: give another filter, or a larger --val-fraction"
                )
            continue
        labels = Labels(np.array(classes, dtype=object), read.data.y.numpy(), roles == "train", None)
        try:
            held = hold_out(labels, share / left, rng).val
        except ValueError:
            raise ValueError(
                f"--{role}-fraction {share:g} of {labelled} labelled nodes leaves none of any class to hold out: "
                "label more nodes, or take a larger share"
            ) from None
        roles[held] = role
        left -= share
    return roles


def _scaling(read: TableGraph, no_scale: bool) -> tuple[Any, Any]:
    """Mean and standard deviation of each feature: 0 and 1 where it is an indicator, infinite deviation if constant."""
    import torch

    x = read.data.x.to(torch.float64)
    mean, scale = x.mean(0), x.std(0, correction=0)
    indicator = ((x == 0) | (x == 1)).all(0)
    mean[indicator], scale[indicator] = 0, 1
    if no_scale:
        return torch.zeros_like(mean, dtype=torch.float32), torch.ones_like(scale, dtype=torch.float32)
    constant = (x == x[0]).all(0) & ~indicator
    scale[constant] = torch.inf
    if constant.any():
        names = [read.features[i] if read.features else str(i) for i in constant.nonzero()[:, 0].tolist()]
        _note(f"features that are the same for all nodes and not used: {_listed(names)}")
    return mean.float(), scale.float()


def _take_unscaled(model: DSSClassifier, mean: Any, scale: Any) -> None:
    """Make a model of scaled features one of features as they are, by its first layer."""
    import torch

    first = _network(model).lin1
    with torch.no_grad():
        weight = first.weight.double() / scale.to(first.weight.device).double()
        first.bias.copy_(first.bias.double() - weight @ mean.to(weight))
        first.weight.copy_(weight)


def _network(model: DSSClassifier) -> DSSGNN:
    from paperworks.dssgnn.nn import DSSGNN

    assert isinstance(model.model_, DSSGNN)
    return model.model_


def _predictions(model: DSSClassifier, read: TableGraph) -> pd.DataFrame:
    """Table of class, probabilities and uncertainty of each node."""
    import pandas as pd

    proba = model.predict_proba(read.data)
    chances = pd.DataFrame(proba, columns=[f"p_{name}" for name in model.classes_])
    names = {"id": read.ids, "pred": model.classes_[proba.argmax(1)]}
    columns = ["energy", "total", "aleatoric", "epistemic", "logit_sd"]
    return pd.concat([pd.DataFrame(names), chances, model.uncertainty(read.data)[columns]], axis=1)


def _judged(
    model: DSSClassifier, table: pd.DataFrame, labels: NDArray[np.object_], role: str
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities and class indices of the nodes of a role."""
    import pandas as pd

    chosen = (table["role"] == role).to_numpy()
    proba = table.loc[chosen, [f"p_{name}" for name in model.classes_]].to_numpy()
    return proba, pd.Index(model.classes_).get_indexer(pd.Index(labels[chosen]))


def _measures(model: DSSClassifier, table: pd.DataFrame, labels: NDArray[np.object_]) -> pd.DataFrame:
    """How good the probabilities are on the nodes that were not learned from."""
    import pandas as pd

    from paperworks.dssgnn.metrics import brier, ece, nll

    rows = {}
    for role in ("val", "test"):
        proba, y = _judged(model, table, labels, role)
        if len(y):
            right = float((proba.argmax(1) == y).mean())
            rows[_NAMES[role]] = [len(y), right, brier(proba, y), nll(proba, y), ece(proba, y)]
    columns = ["nodes", "accuracy", "Brier", "NLL", "ECE"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("held out for")


def _pictures(model: DSSClassifier, read: TableGraph, table: pd.DataFrame, labels: NDArray[np.object_]) -> list[Figure]:
    import numpy as np

    from paperworks.dssgnn import plots

    judged = {role: _judged(model, table, labels, role) for role in ("test", "val") if (table["role"] == role).any()}
    drawn = []
    if judged:
        drawn.append(plots.reliability_diagram({f"{_NAMES[role]} nodes": each for role, each in judged.items()}))
        role, (proba, y) = next(iter(judged.items()))
        part = table[table["role"] == role]
        scores = {name: part[name].to_numpy() for name in ("total", "epistemic", "energy")}
        drawn.append(plots.rejection_curves(proba.argmax(1) == y, scores))
    small = len(table) <= _DRAWN
    data, network = read.data, _network(model)
    eigenvalues = None
    if small:
        shift = network.shift(data.edge_index, getattr(data, "edge_weight", None), len(table)).to_dense()
        eigenvalues = 1 - np.linalg.eigvalsh(shift.double().numpy())
    prior = network.filters.matrix @ network.filters.start
    drawn.append(plots.spectral_responses(network.filters, prior, eigenvalues))
    if small:
        proba = table[[f"p_{name}" for name in model.classes_]].to_numpy()
        mi, energy = table["epistemic"].to_numpy(), table["energy"].to_numpy()
        drawn.append(plots.uncertainty_map(data.edge_index, proba, mi, energy, list(map(str, model.classes_))))
    return drawn


def _write_run(
    out: Path,
    model: DSSClassifier,
    table: pd.DataFrame,
    measures: pd.DataFrame,
    facts: dict[str, Any],
    pictures: Sequence[Figure],
) -> None:
    """Write the folder in one piece."""
    from paperworks.core.atomic import atomic_folder
    from paperworks.core.report.page import Section, Table

    tried = Section(
        "Filters tried", "The one with the least negative log-likelihood on the validation nodes is kept.",
        Table(model.selection_),
    )  # fmt: skip
    unsure = table.sort_values("total", ascending=False, kind="stable").head(20).reset_index(drop=True)
    review = Section("The most uncertain nodes", Table(unsure))
    with atomic_folder(out) as part:
        model.save(part / _PARTS[0])
        write_frame(table, part / _PARTS[1])
        write_report(part / _PARTS[2], "Fit", "dssgnn", facts, measures, pictures, [tried, review])
