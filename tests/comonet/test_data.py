"""Generated tables against independent formulas, embedded and fetched tables against their known sizes."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from paperworks.comonet.data import (
    FILES,
    black_scholes,
    eight_regimes,
    load_abalone,
    load_auto_mpg,
    load_compas,
    load_diabetes,
    load_electricity,
    load_heart,
    load_ordinal,
    load_rice_farms,
    make_black_scholes,
    make_cobb_douglas,
    make_eight_regimes,
    make_saddle,
)
from paperworks.comonet.shapes import Shape

GENERATORS = [make_eight_regimes, make_black_scholes, make_cobb_douglas, make_saddle]


def call(spot: float, strike: float, maturity: float, vol: float, rate: float) -> float:
    return float(black_scholes(*np.array([[spot], [strike], [maturity], [vol], [rate]]))[0])


def lines(low: np.ndarray, high: np.ndarray, column: int, points: int = 31, n: int = 60) -> np.ndarray:
    """Random points of a box, each repeated along a grid of one column: (points, n, columns)."""
    x = np.repeat(np.random.default_rng(0).uniform(low, high, (1, n, len(low))), points, axis=0)
    x[:, :, column] = np.linspace(low[column], high[column], points)[:, None]
    return x


def assert_shape(y: np.ndarray, shape: Shape) -> None:
    """The values y (points, lines) on an equidistant grid have `shape`."""
    small = 1e-12 * np.abs(y).max()
    if shape.monotonicity:
        assert (shape.monotonicity * np.diff(y, axis=0) >= -small).all()
    if shape.curvature:
        assert (shape.curvature * np.diff(y, n=2, axis=0) >= -small).all()


class TestGenerated:
    @pytest.mark.parametrize("make", GENERATORS)
    def test_seed_noise_and_truth(self, make) -> None:
        clean, noisy, again, other = (
            make(4000, noise=noise, random_state=seed) for noise, seed in [(0.0, 1), (0.5, 1), (0.5, 1), (0.5, 2)]
        )
        np.testing.assert_array_equal(clean.target, clean.truth)
        np.testing.assert_array_equal(noisy.truth, clean.truth)
        np.testing.assert_array_equal(noisy.target, again.target)
        assert not np.array_equal(noisy.target, other.target)
        assert np.std(noisy.target - noisy.truth) == pytest.approx(0.5 * clean.truth.std(), rel=0.05)
        assert set(noisy.shapes) == set(noisy.data.columns)

    @pytest.mark.parametrize("make", GENERATORS)
    @pytest.mark.untyped
    def test_bad_numbers(self, make) -> None:
        with pytest.raises(ValueError, match="n must be at least 1, got 0"):
            make(0)
        with pytest.raises(ValueError, match="noise must be non-negative, got -1"):
            make(5, noise=-1)

    def test_eight_regimes_by_hand(self) -> None:
        zero = 0.7 + 0.7 + math.log(1.3) - 0.6
        ones = math.sin(3) + math.tanh(3) - 1 + 1.5 * (1 + math.sin(2) / 2) - 1.5
        ones += 0.7 * math.exp(1.3) + 0.7 / math.e + math.log(2.3) - 0.6 * math.e + 1
        np.testing.assert_allclose(eight_regimes(np.array([[0.0] * 9, [1.0] * 9])), [zero, ones], rtol=1e-14)

    def test_eight_regimes_has_all_nine_shapes(self) -> None:
        shapes = list(make_eight_regimes(5).shapes.values())
        assert len(shapes) == 9
        assert set(shapes) == set(Shape)
        for j, shape in enumerate(shapes):
            x = lines(-np.ones(9), np.ones(9), j)
            assert_shape(eight_regimes(x.reshape(-1, 9)).reshape(x.shape[:2]), shape)

    def test_eight_regimes_couples_columns_5_and_6(self) -> None:
        x = np.zeros((4, 9))
        x[:, 5:7] = [[0, 0], [1, -1], [0, -1], [1, 0]]  # raising u = (a5, -a6)
        f = eight_regimes(x)
        assert f[0] + f[1] - f[2] - f[3] == pytest.approx(-1)

    def test_black_scholes_known_values(self) -> None:
        assert call(100, 100, 1, 0.2, 0.05) == pytest.approx(10.450584, abs=5e-7)
        assert call(100, 110, 1, 0.2, 0.05) == pytest.approx(6.040088, abs=5e-7)
        up, mid, down = (call(100 + h, 100, 1, 0.2, 0.05) for h in (1e-2, 0, -1e-2))
        assert (up - down) / 2e-2 == pytest.approx(0.636831, abs=1e-6)
        assert (up - 2 * mid + down) / 1e-4 == pytest.approx(0.018762, abs=1e-6)

    def test_black_scholes_is_the_discounted_mean_of_the_payoff(self) -> None:
        """And so is the put, whose price parity gives."""
        spot, strike, maturity, vol, rate = 90.0, 105.0, 0.7, 0.35, 0.03

        def mean(payoff, kink: float) -> float:
            def weighted(z: float) -> float:
                end = spot * math.exp((rate - vol**2 / 2) * maturity + vol * math.sqrt(maturity) * z)
                return payoff(end) * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

            return math.exp(-rate * maturity) * (quad(weighted, -12, kink)[0] + quad(weighted, kink, 12)[0])

        kink = (math.log(strike / spot) - (rate - vol**2 / 2) * maturity) / (vol * math.sqrt(maturity))
        price = call(spot, strike, maturity, vol, rate)
        assert price == pytest.approx(mean(lambda end: max(end - strike, 0), kink), abs=1e-8)
        put = price - spot + strike * math.exp(-rate * maturity)
        assert put == pytest.approx(mean(lambda end: max(strike - end, 0), kink), abs=1e-8)

    def test_black_scholes_shapes(self) -> None:
        made = make_black_scholes(2000)
        assert made.data.columns.tolist() == ["spot", "strike", "maturity", "vol", "rate"]
        low, high = np.array([50, 50, 0.05, 0.05, 0]), np.array([150, 150, 2, 0.6, 0.08])
        np.testing.assert_allclose(made.data.min(), low, atol=0.01 * (high - low).max())
        np.testing.assert_allclose(made.data.max(), high, atol=0.01 * (high - low).max())
        for j, shape in enumerate(made.shapes.values()):
            x = lines(low, high, j)
            assert_shape(black_scholes(*x.reshape(-1, 5).T).reshape(x.shape[:2]), shape)

    def test_cobb_douglas(self) -> None:
        made = make_cobb_douglas(500)
        capital, labour = made.data.to_numpy().T
        np.testing.assert_allclose(np.log(made.target), 0.3 * np.log(capital) + 0.6 * np.log(labour), atol=1e-12)
        assert made.data.min().min() >= 0.1
        assert made.data.max().max() <= 4
        assert set(made.shapes.values()) == {Shape.CONCAVE_INCREASING}
        assert make_cobb_douglas(5, alpha=1.5).shapes["capital"] is Shape.CONVEX_INCREASING

    def test_cobb_douglas_inputs_are_complements(self) -> None:
        """The mixed difference over the whole box, by which separable concave units must fail."""
        made = make_cobb_douglas(50)
        powers = np.linalg.lstsq(np.log(made.data.to_numpy()), np.log(made.target))[0]

        def corner(*inputs: float) -> float:
            return float((np.array(inputs) ** powers).prod())

        assert corner(4, 4) + corner(0.1, 0.1) - corner(4, 0.1) - corner(0.1, 4) == pytest.approx(2.075938, abs=5e-7)

    @pytest.mark.untyped
    def test_cobb_douglas_bad_numbers(self) -> None:
        with pytest.raises(ValueError, match="alpha must be positive, got 0"):
            make_cobb_douglas(5, alpha=0)
        with pytest.raises(ValueError, match="high must be"):
            make_cobb_douglas(5, low=2.0, high=2.0)

    def test_saddle(self) -> None:
        made = make_saddle(500)
        x, y = made.data.to_numpy().T
        np.testing.assert_allclose(made.target**2, 16 * x**4 * y, atol=1e-12)


class TestEmbedded:
    def test_auto_mpg(self) -> None:
        cars = load_auto_mpg()
        assert cars.data.shape == (392, 7)
        assert cars.data.notna().all().all()
        assert cars.target.mean() == pytest.approx(23.445918, abs=1e-6)
        assert cars.shapes == dict.fromkeys(["displacement", "horsepower", "weight"], Shape.DECREASING)

    def test_heart(self) -> None:
        patients = load_heart()
        assert patients.data.shape == (303, 13)
        assert set(patients.target) == {0, 1}
        assert patients.shapes == dict.fromkeys(["trestbps", "chol"], Shape.INCREASING)

    def test_heart_split_covers_every_patient_once(self) -> None:
        train, test = load_heart(split=True)
        assert (train.data.shape, test.data.shape) == ((242, 13), (61, 13))
        both = pd.concat([part.data.assign(target=part.target) for part in (train, test)])
        whole = load_heart()
        names = both.columns.tolist()
        pd.testing.assert_frame_equal(
            both.sort_values(names, ignore_index=True),
            whole.data.assign(target=whole.target).sort_values(names, ignore_index=True),
        )

    def test_diabetes(self) -> None:
        patients = load_diabetes()
        assert patients.data.shape == (442, 10)
        assert set(patients.shapes) == {"bmi", "bp", "s5"} <= set(patients.data.columns)


class TestFetched:
    @pytest.mark.data("comonet/compas.csv")
    def test_compas(self) -> None:
        people = load_compas()
        assert people.data.shape == (6172, 12)
        assert people.target.mean() == pytest.approx(0.4551, abs=5e-5)
        raw = load_compas(one_hot=False).data
        assert raw.shape == (6172, 7)
        assert (people.data.filter(like="race_").sum(axis=1) == 1).all()
        np.testing.assert_array_equal(people.data["sex_Male"] == 1, raw["sex"] == "Male")
        assert set(people.shapes) <= set(people.data.columns)

    @pytest.mark.data("comonet/electricity1970.csv")
    def test_electricity(self) -> None:
        logs, raw = load_electricity(), load_electricity(log=False)
        assert logs.data.shape == raw.data.shape == (158, 4)
        np.testing.assert_allclose(np.exp(logs.data), raw.data)
        np.testing.assert_allclose(np.exp(logs.target), raw.target)
        assert list(logs.shapes) == logs.data.columns.tolist()
        # Three utilities' shares are misprinted in the source and miss 1 by up to 0.2.
        assert ((raw.cost_shares.sum(axis=1) - 1).abs() <= 1e-3).sum() == 155

    @pytest.mark.data("comonet/rice_farms.csv")
    def test_rice_farms(self) -> None:
        farms = load_rice_farms()
        assert farms.data.shape == (1026, 5)
        assert farms.target.mean() == pytest.approx(1405.166667, abs=1e-6)
        assert set(farms.shapes.values()) == {Shape.CONCAVE_INCREASING}

    @pytest.mark.data("comonet/abalone.csv")
    def test_abalone(self) -> None:
        shells = load_abalone()
        assert shells.data.shape == (4177, 10)
        assert (shells.data.dtypes == np.float64).all()
        assert set(shells.shapes) <= set(shells.data.columns)

    @pytest.mark.data("comonet/era.csv")
    @pytest.mark.data("comonet/esl.csv")
    @pytest.mark.data("comonet/lev.csv")
    @pytest.mark.data("comonet/swd.csv")
    @pytest.mark.parametrize(
        ("name", "shape", "classes", "constrained"),
        [("era", (1000, 4), 9, 4), ("esl", (488, 4), 9, 4), ("lev", (1000, 4), 5, 4), ("swd", (1000, 10), 4, 7)],
    )
    def test_ordinal(self, name: str, shape: tuple[int, int], classes: int, constrained: int) -> None:
        table = load_ordinal(name)
        assert table.data.shape == shape
        assert len(np.unique(table.target)) == classes
        assert len(table.shapes) == constrained
        assert set(table.shapes) <= set(table.data.columns)

    @pytest.mark.untyped
    def test_no_other_ordinal_table(self) -> None:
        with pytest.raises(ValueError, match="name must be one of 'era', 'esl', 'lev', 'swd', got 'iris'"):
            load_ordinal("iris")

    def test_every_file_is_described(self) -> None:
        assert len({str(file) for file in FILES}) == len(FILES) == 12
        assert all(file.slug == "comonet" and file.size for file in FILES)

    @pytest.mark.data("comonet/auto-mpg.csv")
    @pytest.mark.data("comonet/heart.csv")
    @pytest.mark.data("comonet/heart_train.csv")
    @pytest.mark.data("comonet/heart_test.csv")
    def test_the_tool_rebuilds_what_is_embedded(self) -> None:
        from paperworks.comonet import data

        root = Path(__file__).resolve().parents[2]
        spec = importlib.util.spec_from_file_location("make_comonet_data", root / "tools" / "make_comonet_data.py")
        assert spec is not None
        assert spec.loader is not None
        tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tool)
        folder = Path(data.__file__).parent
        assert tool.auto_mpg() == (folder / "auto_mpg.csv").read_text(encoding="utf-8")
        assert tool.heart() == (folder / "heart.csv").read_text(encoding="utf-8")
