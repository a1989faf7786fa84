"""Pictures hold the numbers they should, name them, and nothing in them runs into anything else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from paperworks.anchoring import claims, plots, schedules
from paperworks.anchoring.certificates import apriori_bound
from paperworks.anchoring.drive import AnchorResult, fixed_point
from paperworks.core.claims import Trial
from paperworks.core.plotting import svg
from paperworks.core.results import table as join

TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])


def line(ax: Axes, label: str) -> Any:
    """Return the data of the line with this label."""
    (found,) = (each for each in ax.get_lines() if each.get_label() == label)
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def keys(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def assert_legible(figure: Figure) -> None:
    """Nothing written leaves the picture or runs into something else written."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    width, height = canvas.get_width_height()
    hidden = set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                hidden |= {tick.label1, tick.label2}
    written = [t for t in figure.findobj(Text) if t.get_visible() and t not in hidden and t.get_text().strip()]
    boxes = [text.get_window_extent().extents for text in written]
    for text, (left, bottom, right, top) in zip(written, boxes, strict=True):
        assert left > -1, text
        assert bottom > -1, text
        assert right < width + 1, text
        assert top < height + 1, text
    for (one, a), (other, b) in itertools.combinations(zip(written, boxes, strict=True), 2):
        gap = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        assert gap.min() <= 1.5, (one.get_text(), other.get_text())


def table(trials: list[Trial], measure: Any) -> pd.DataFrame:
    records = []
    for trial in trials:
        rows = measure(trial)
        params = {**trial.params, "seed": trial.seed}
        records.append({"params": params, "rows": [rows] if isinstance(rows, dict) else rows, "run": {}})
    return join(records)


@pytest.fixture(scope="module", name="orbits")
def _orbits() -> pd.DataFrame:
    return table(claims._orbit_trials("quick"), claims._measure_orbits)


@pytest.fixture(scope="module", name="runs")
def _runs() -> dict[str, AnchorResult]:
    start = np.ones(2)
    return {
        "plain": fixed_point(lambda x: TURN @ x, start, schedule="plain", maxiter=200, tol=0.0),
        "anchored": fixed_point(lambda x: TURN @ x, start, maxiter=200, tol=0.0),
        "anew": fixed_point(lambda x: TURN @ x, start, maxiter=200, tol=0.0, restart=50),
    }


def test_convergence(runs: dict[str, AnchorResult]) -> None:
    bound = apriori_bound("picard", schedules.halpern(), 200, 2**0.5)
    figure = plots.convergence(runs, bound)
    (ax,) = figure.axes
    k, residual = line(ax, "plain")
    assert k[[0, -1]].tolist() == [1, 201]
    assert residual == pytest.approx(2)
    assert line(ax, "anchored")[1][-1] == pytest.approx(runs["anchored"].residual)
    ticks = [each.get_xdata() for each in ax.get_lines() if each.get_marker() == "|" and len(each.get_xdata())]
    assert np.asarray(ticks[0]).tolist() == [51, 101, 151]
    assert keys(figure)[-2:] == ["restarts of anew", "excluded for anchored runs without restarts"]
    assert [text.get_text() for text in ax.texts] == ["1/√k", "1/k"]
    assert_legible(figure)


def test_convergence_needs_runs_of_single_problems(runs: dict[str, AnchorResult]) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        plots.convergence({})
    many = fixed_point(lambda x: -x, np.ones((3, 2)), batch_dims=1, maxiter=5)
    with pytest.raises(ValueError, match="single problems"):
        plots.convergence({"many": many})


def test_rates() -> None:
    trials = [
        Trial({"method": m, "a": a, "b": None, "mu": None, "n": 300})
        for m, a in (("forward", None), ("forward", 1.5), ("popov", None))
    ]
    found = table(trials, claims._measure_spectral)
    figure = plots.rates(found)
    forward, popov = figure.axes
    k, residual = line(forward, "default")
    assert residual[k == 2] == pytest.approx(2 / 3**0.5)
    assert len(line(forward, "a = 1.5")[0]) == len(k)
    assert [ax.get_title() for ax in (forward, popov)] == ["forward step", "Popov"]
    assert keys(figure) == ["excluded by the proof, with the default"]
    assert_legible(figure)


def test_sandwich_marks_what_the_solver_doubts() -> None:
    rows = [
        {"param.method": method, "param.n": n, "value.spectral": 1 / n, "value.pep": 1.5 / n, "value.recurrence": 3 / n,
         "value.status": "optimal" if n < 4 else "optimal_inaccurate"}
        for method in ("picard", "forward", "extragradient", "popov") for n in (1, 2, 4)
    ]  # fmt: skip
    figure = plots.sandwich(pd.DataFrame(rows))
    assert len(figure.axes) == 4
    n, scaled = line(figure.axes[1], "performance estimation (upper bound)")
    assert scaled == pytest.approx(1.5 / n * (n + 1) ** 0.5)
    assert keys(figure)[-1] == "solver: inaccurate"
    assert_legible(figure)


def test_constants() -> None:
    rows = [
        {"param.method": method, "value.a": a, "value.mu": mu, "value.constant": None if a / 8 >= mu else 3 + a}
        for method in ("extragradient", "popov")
        for a, mu in itertools.product((1.0, 2.0, 3.0), (0.2, 0.4, 0.55))
    ]
    figure = plots.constants(pd.DataFrame(), pd.DataFrame(rows))
    drawn = figure.axes[0].collections[0].get_array()
    assert drawn.shape == (3, 3)
    assert np.ma.getmaskarray(np.ma.masked_invalid(drawn)).sum() == 2
    assert figure.axes[1].get_lines()[-1].get_xydata().tolist() == [[1.5, 0.45]]
    assert_legible(figure)


def test_phase_portrait(orbits: pd.DataFrame) -> None:
    figure = plots.phase_portrait(pd.DataFrame(), orbits)
    extragradient = figure.axes[2]
    x, y = line(extragradient, "anchored iterates")
    assert (x[:2], y[:2]) == (pytest.approx([1, 0.68359375]), pytest.approx([0, 0.45703125]))
    px, py = line(extragradient, "plain iterates")
    assert np.hypot(px, py)[-1] < 1e-3
    assert len(line(figure.axes[1], "plain iterates")[0]) < claims.ORBIT  # it leaves the picture
    assert_legible(figure)


def test_query_pattern(orbits: pd.DataFrame) -> None:
    figure = plots.query_pattern(orbits, pd.DataFrame())
    called = [line(ax, "operator is called")[0] for ax in figure.axes]
    assert [len(each) for each in called] == [6, 6, 12, 7]
    pulled = [line(ax, "anchor pulls at this point")[0] for ax in figure.axes]
    assert [len(each) for each in pulled] == [6, 6, 12, 12]
    assert set(called[3]) <= set(pulled[3])
    assert_legible(figure)


def test_pictures_of_claims_exist_and_are_svg(orbits: pd.DataFrame) -> None:
    assert {claim.plot for claim in claims.CLAIMS if claim.plot} <= set(plots.__all__)
    assert svg(plots.query_pattern(orbits, pd.DataFrame())).startswith("<svg role=")
