from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from sklearn.exceptions import NotFittedError

from paperworks.comonet import plots
from paperworks.comonet.certificates import Certificate, ColumnCertificate, Witness, certify
from paperworks.comonet.data import make_eight_regimes
from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor
from paperworks.comonet.shapes import Shape
from paperworks.core.plotting import PALETTE, svg

BOX = ((-1.0, 1.0), (-2.0, 3.0))
GREEN, RED, GREY, DARK = PALETTE[2], PALETTE[1], "#9aa2ae", "#1c2330"
BENT = Witness("concave", ((0.5, -1.0), (0.5, 0.0), (0.5, 1.0)), (1.0, 0.0, 1.0))


def column(name, status, *, required=Shape.CONCAVE, proved=Shape.FREE, index=1, **more):
    return ColumnCertificate(index, name, required, proved, status, **{"method": "interval", **more})


def texts(ax):
    return [text.get_text() for text in ax.texts]


def line(ax, label):
    """Return the data of the line whose label starts so."""
    (found,) = (each for each in ax.get_lines() if str(each.get_label()).startswith(label))
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def table(**columns):
    names = {"method", "unit", "target", "data", "rows", "noise", "strength"}
    frame = pd.DataFrame(columns)
    frame = frame.rename(columns=lambda name: f"param.{name}" if name in names else f"value.{name}")
    return frame.assign(**{"param.seed": 0})


@pytest.fixture(scope="module")
def regimes():
    """Two seeds and two sizes; the errors of the larger size would spoil every mean."""
    rows = [
        (method, n, noise, nmse * factor + (n > 600), share)
        for method, nmse, share in (("comonet", 0.04, 0.0), ("mlp", 0.2, 0.1), ("xgboost", 0.08, 0.15))
        for n in (600, 2400)
        for noise in (0.1, 0.5, 1.0)
        for factor in (0.5, 1.5)
    ]
    method, n, noise, nmse, violated = zip(*rows, strict=True)
    return table(method=method, rows=n, noise=noise, nmse=nmse, violated=violated)


@pytest.fixture(scope="module")
def fitted():
    data = make_eight_regimes(60)
    X = data.data[["increasing", "convex", "concave"]].rename(columns={"concave": "price in $_{"})
    shapes = {"increasing": "increasing", "convex": "convex", "price in $_{": "concave"}
    return COMONetRegressor(shapes, width=2, depth=1, max_iter=5, random_state=0).fit(X, data.target), X


# A user's own model


def test_the_strip_is_coloured_by_status():
    strip = plots.certificate_strip(
        Certificate(
            (
                column("a", "proved", proved=Shape.CONCAVE, method="structural", index=0),
                column("b", "violated", domain=BOX, witness=BENT, boxes=1),
                column("c", "unknown", domain=BOX, boxes=50_000),
                column("d", "invalid", method="none"),
            )
        )
    )
    (ax,) = strip.axes
    assert [to_hex(patch.get_facecolor()).upper() for patch in ax.patches] == [
        colour.upper() for colour in (GREEN, RED, GREY, DARK)
    ]
    lines = np.array_split(texts(ax)[5:], 4)
    assert [" | ".join(cells) for cells in lines] == [
        "a | concave | concave | all of R^d | structural | proved",
        "b | concave | not concave | box, here -2 to 3 | interval (1 box) | violated",
        "c | concave | – | box, here -2 to 3 | interval (50000 boxes) | unknown",
        "d | concave | – | – | – | invalid",
    ]
    assert strip.get_suptitle() == "Certificate of the prediction: NOT proved in 3 of 4 columns"


def test_no_name_breaks_the_strip_or_runs_into_the_next_cell():
    names = ["$_{x", "W" * 80, "i", "ß & <b>"]
    strip = plots.certificate_strip(
        Certificate(tuple(column(name, "violated", domain=BOX, witness=BENT) for name in names))
    )
    canvas = FigureCanvasAgg(strip)
    canvas.draw()
    (ax,) = strip.axes
    boxes = np.array([text.get_window_extent().extents for text in ax.texts])
    for height in np.unique(boxes[:, [1, 3]].mean(axis=1).round(-1)):
        row = boxes[np.abs(boxes[:, [1, 3]].mean(axis=1) - height) < 8]
        row = row[np.argsort(row[:, 0])]
        assert (row[1:, 0] > row[:-1, 2]).all()
    assert boxes[:, 2].max() <= canvas.get_width_height()[0]


def test_profiles_draw_single_curves_and_their_mean(fitted):
    model, X = fitted
    figure = plots.profiles(model, X, rows=12)
    assert [ax.get_title() for ax in figure.axes] == ["increasing", "convex", "price in $_{: concave"]
    for ax, name in zip(figure.axes, X, strict=True):
        *single, mean = [each.get_ydata() for each in ax.get_lines()]
        assert len(single) == 12
        np.testing.assert_allclose(np.mean(single, axis=0), mean)
        x = ax.get_lines()[0].get_xdata()
        assert (x[0], x[-1]) == (X[name].min(), X[name].max())
    assert all((np.diff(each.get_ydata()) >= 0).all() for each in figure.axes[0].get_lines())
    assert "<svg" in svg(plots.profiles(model, X, "price in $_{", rows=2))


def test_profiles_of_chosen_columns_of_a_classifier_without_names(fitted):
    X = fitted[1].to_numpy()[:20]
    model = COMONetClassifier("increasing", width=2, depth=1, max_iter=2, random_state=0).fit(X, X[:, 0] > 0)
    figure = plots.profiles(model, X.tolist(), 2)
    assert [ax.get_title() for ax in figure.axes] == ["x2: increasing"]
    assert len(figure.axes[0].get_lines()) == 21
    assert figure.get_supylabel() == "decision function"


@pytest.mark.untyped
def test_profiles_refuse_bad_input(fitted):
    model, X = fitted
    with pytest.raises(ValueError, match="columns must name columns of X, got 'age'"):
        plots.profiles(model, X, ["age"])
    with pytest.raises(ValueError, match="at least one column"):
        plots.profiles(model, X, [])
    with pytest.raises(ValueError, match="rows must be at least 2, got 1"):
        plots.profiles(model, X, rows=1)
    with pytest.raises(ValueError, match="0 sample"):
        plots.profiles(model, X.head(0))
    with pytest.raises(NotFittedError):
        plots.profiles(COMONetRegressor(), X)


def test_the_witness_of_a_curved_shape_with_the_chord_that_refutes_it():
    figure = plots.witness_points(
        column("b", "violated", domain=BOX, witness=BENT), lambda rows: rows[:, 1] ** 2 * 2 * rows[:, 0], points=31
    )
    (ax,) = figure.axes
    x, y = line(ax, "model")
    np.testing.assert_allclose(y, x**2)
    assert (x[0], x[-1]) == (-2.0, 2.0)  # half the points' distance around them, if that is in the domain
    assert set(BENT.values) <= set(y)
    assert [axis.tolist() for axis in line(ax, "witness")] == [[-1, 0, 1], [1, 0, 1]]
    assert [axis.tolist() for axis in line(ax, "chord")] == [[-1, 1], [1, 1]]
    gap = ax.get_lines()[2]
    assert gap.get_xydata().tolist() == [[0, 0], [0, 1]]
    assert to_rgba(gap.get_color()) == to_rgba(RED)
    assert ax.get_xlabel() == "b"


def test_the_witness_of_a_monotone_shape_stays_in_its_domain():
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double().requires_grad_(False)
    net[0].weight[:], net[0].bias[:] = torch.tensor([[1.0], [-1.0]]), 0
    net[2].weight[:], net[2].bias[:] = 1, 0
    (found,) = certify(net, "increasing", domain=[(-1, 2)]).columns
    (ax,) = plots.witness_points(found, lambda rows: net(torch.from_numpy(rows)).numpy()).axes
    x, y = line(ax, "model")
    np.testing.assert_allclose(y, np.abs(x))
    assert x[0] >= -1
    assert x[-1] <= 2
    at, values = line(ax, "witness")
    assert len(at) == 2
    assert values[0] > values[1]


@pytest.mark.untyped
def test_witness_points_need_a_witness_and_one_number_a_row():
    with pytest.raises(ValueError, match="column must have a witness, got 'a', which is proved"):
        plots.witness_points(column("a", "proved"), lambda rows: rows[:, 0])
    with pytest.raises(ValueError, match="reshape"):
        plots.witness_points(column("a", "violated", witness=BENT), lambda rows: rows)


# The ledger's tables


@pytest.mark.parametrize("methods", [("truth", "comonet", "xgboost"), ("truth", "comonet")])
def test_shape_curves_of_nine_columns(regimes, methods):
    names = list(map(str, Shape))
    rows = [
        (method, name, x, k + x * j)
        for j, name in enumerate(names)
        for k, method in enumerate(methods)
        for x in (1.0, -1.0, 0.0)
    ]
    method, where, x, prediction = zip(*rows, strict=True)
    figure = plots.shape_curves(regimes, table(method=method, column=where, x=x, prediction=prediction))
    assert [ax.get_title() for ax in figure.axes] == [name.replace("_", " ") for name in names]
    for j, ax in enumerate(figure.axes):
        assert len(ax.get_lines()) == len(methods)
        assert [axis.tolist() for axis in line(ax, "COMONet")] == [[-1, 0, 1], [1 - j, 1, 1 + j]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["truth", "COMONet: 0 % of the checks violated"]
    assert labels[2:] == ["XGBoost: 15 % of the checks violated"] * (len(methods) - 2)


def test_noise_curves_are_means_over_seeds_of_the_smallest_size(regimes):
    left, right = plots.noise_curves(regimes).axes
    assert [axis.tolist() for axis in line(left, "MLP")] == [[0.1, 0.5, 1.0], pytest.approx([0.2] * 3)]
    assert line(right, "XGBoost")[1] == pytest.approx([0.15] * 3)
    assert line(right, "COMONet")[1].tolist() == [0, 0, 0]
    assert (left.get_xscale(), left.get_yscale(), right.get_yscale()) == ("log", "log", "symlog")
    band = left.collections[1].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((0.1, 0.3))
    assert right.get_ylim()[0] < 0  # zero is in the picture


def test_noise_curves_without_some_methods(regimes):
    kept = regimes[regimes["param.method"] == "comonet"]
    figure = plots.noise_curves(pd.concat([kept, kept.assign(**{"param.method": "new_peer"})]))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["COMONet", "new peer"]


@pytest.fixture
def targets():
    return table(
        unit=["mlp", "relu", "maxout", "relu"],
        target=["cobb_douglas", "cobb_douglas", "cobb_douglas", "min"],
        nmse=[1e-5, 0.03, 1e-4, 0.2],
    )


def maps(*methods):
    x, y = map(np.ravel, np.meshgrid([1.0, 2.0, 4.0], [1.0, 3.0]))
    frames = [
        table(method=[method] * 6, x=x, y=y, prediction=x * y + 10 * k).sample(frac=1, random_state=0)
        for k, method in enumerate(methods)
    ]
    return pd.concat(frames, ignore_index=True)


def test_blind_spot_has_three_maps_of_one_scale_and_the_errors(targets):
    figure = plots.blind_spot(targets, maps("truth", "relu", "maxout"))
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["truth", "relu", "maxout", "error on each target"]
    for k, ax in enumerate(panels[:3]):
        mesh = ax.collections[0]
        assert mesh.get_array().tolist() == [[v + 10 * k for v in row] for row in ([1, 2, 4], [3, 6, 12])]
        assert mesh.get_clim() == (1, 32)
    assert [text.get_text() for text in panels[3].get_yticklabels()] == ["Cobb–Douglas", "min"]
    assert line(panels[3], "relu")[0].tolist() == [0.03, 0.2]
    assert panels[3].get_xscale() == "log"


def test_blind_spot_without_a_map(targets):
    figure = plots.blind_spot(targets, maps("relu", "maxout"))
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == ["relu", "maxout", "error on each target"]


def test_option_smile_shades_what_is_negative():
    strikes = [90.0, 80.0, 100.0, 110.0]
    densities = {"truth": [2, 1, 2, 1], "comonet": [1, 0, 1, -1e-14], "mlp": [-1, 3, -100, 1], "xgboost": [np.nan] * 4}
    smile = pd.concat(
        [table(method=[method] * 4, strike=strikes, price=[3.0, 4, 2, 1], density=d) for method, d in densities.items()]
    )
    other = smile.assign(**{"param.seed": 1, "value.price": 0.0, "value.density": 0.0})
    figure = plots.option_smile(pd.concat([other, smile]))  # of two seeds the first is drawn
    prices, ours, mlp = figure.axes  # XGBoost has prices, but no density
    assert [len(ax.get_lines()) for ax in figure.axes] == [4, 2, 2]
    assert [axis.tolist() for axis in line(prices, "XGBoost")] == [[80, 90, 100, 110], [4, 3, 2, 1]]
    assert ours.get_title() == "COMONet: negative at 0 % of the strikes"
    assert mlp.get_title() == "MLP: negative at 50 % of the strikes"
    red = mlp.collections[0].get_paths()[0].vertices
    assert (red[:, 1].min(), red[:, 1].max()) == (-100, pytest.approx(0))
    assert mlp.get_ylim() == (-3, pytest.approx(3.3))  # spikes are cut off


def test_option_smile_without_the_truth():
    smile = table(method=["mlp"] * 3, strike=[1.0, 2, 3], price=[3.0, 2, 1], density=[0.0, 0, 0])
    assert len(plots.option_smile(smile).axes) == 2


def test_penalties_beside_the_guarantee(regimes):
    penalty = table(strength=[1e-4, 1e-4, 1.0], nmse=[0.1, 0.3, 0.5], violated=[0.1, 0.2, 0.05])
    figure = plots.penalties(penalty, regimes)
    (ax,) = figure.axes
    assert np.ravel(line(ax, "COMONet")) == pytest.approx([0.04, 0])
    assert np.ravel(line(ax, "penalty, weight 0.0001")) == pytest.approx([0.2, 0.15])
    assert np.ravel(line(ax, "penalty, weight 1")) == pytest.approx([0.5, 0.05])
    assert ax.get_ylim()[0] < 0
    without = plots.penalties(penalty, regimes[regimes["param.method"] == "mlp"])
    assert len(without.legends[0].get_texts()) == 2


def test_witness_beside_the_shares_of_violated_checks(regimes):
    x = [-1.0, 0.0, 1.0]
    subset = table(
        kind=["line"] * 3 + ["witness"] * 3 + ["chord"] * 3, x=x * 3, prediction=[0.0, 0, 1, 0, 0, 1, 0, 0.5, 1]
    )
    left, right = plots.witness(regimes, subset).axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx([0, 0.1, 0.15])
    assert texts(left) == ["0 %", "10 %", "15 %"]
    assert [axis.tolist() for axis in line(right, "witness")] == [x, [0, 0, 1]]
    assert right.get_lines()[2].get_ydata().tolist() == [0, 0.5]  # from the point up to the chord
    nothing = plots.witness(regimes, table(kind=["none"], x=[0.0], prediction=[0.0])).axes[1]
    assert len(nothing.get_lines()) == 0


def test_real_scores_are_relative_to_the_best_peer():
    real = table(
        data=["auto_mpg"] * 6 + ["heart"] * 3,
        method=["comonet", "comonet", "xgboost", "xgboost", "mlp", "mlp", "comonet-relu", "pygam", "xgboost"],
        score=[8.0, 10.0, 7.0, 9.0, 16.0, 16.0, 0.80, 0.82, 0.79],
        metric=["mse"] * 6 + ["accuracy"] * 3,
    )
    mpg, heart = plots.real_scores(real).axes
    assert [text.get_text() for text in mpg.get_yticklabels()] == ["XGBoost", "COMONet", "MLP"]
    drawn = [each.get_xdata().tolist() for each in mpg.get_lines()[:6]]
    assert drawn == [[0.875, 1.125], [1.0], [1.0, 1.25], [1.125], [2.0, 2.0], [2.0]]
    assert [each.get_xdata()[0] for each in mpg.get_lines()[6:]] == [1.0, 1.1]
    assert mpg.get_lines()[2].get_color() == PALETTE[0]
    assert [text.get_text() for text in heart.get_yticklabels()] == ["pyGAM", "COMONet, relu", "XGBoost"]
    assert [each.get_xdata()[0] for each in heart.get_lines()[1::2][:3]] == pytest.approx([0, -0.02, -0.03])
    assert heart.get_lines()[-1].get_xdata()[0] == -0.03


def test_real_scores_without_peers():
    real = table(data=["heart"] * 2, method=["comonet", "comonet-relu"], score=[0.8, 0.7], metric=["accuracy"] * 2)
    (ax,) = plots.real_scores(real).axes
    assert [each.get_xdata()[0] for each in ax.get_lines()[1:4:2]] == pytest.approx([0, -0.1])


def test_product_scores():
    products = table(
        target=["saddle", "power", "saddle"], method=["product", "product", "additive"], nmse=[1e-4, 2e-4, 0.1]
    )
    (ax,) = plots.product_scores(products).axes
    x, y = line(ax, "product")
    assert x.tolist() == [1e-4, 2e-4]
    assert y.round().tolist() == [0, 1]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["saddle", "power"]


def test_certifier_boxes_marks_wrong_answers():
    certifier = table(
        case=["a", "b", "c"],
        expected=["proved", "violated", "proved"],
        status=["proved", "violated", "unknown"],
        boxes=[39, 0, 5000],
    )
    (ax,) = plots.certifier_boxes(certifier).axes
    assert [bar.get_width() for bar in ax.patches] == [39, 0, 5000]
    assert [to_rgba(bar.get_facecolor()) for bar in ax.patches] == [to_rgba(c) for c in (GREEN, RED, GREY)]
    assert texts(ax) == ["39", "0, violated", "5000, unknown, EXPECTED proved"]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["proved", "violated", "unknown"]
