"""Errors that theorems and references foretell: what separable units must miss, what the others reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score

from paperworks.comonet import COMONetRegressor, load_auto_mpg, load_electricity, make_cobb_douglas, make_saddle

SMALL: dict[str, Any] = {"width": 4, "max_iter": 40, "random_state": 0}
LOW, HIGH = 0.1, 4.0


def error(model: COMONetRegressor, table: Any) -> float:
    """Mean squared error relative to the variance."""
    return float(np.mean((model.predict(table.data) - table.truth) ** 2) / np.var(table.truth))


def test_separable_units_miss_a_production_function_and_maxout_does_not() -> None:
    """Its inputs are complements: concave relu units miss the corners of the box by a quarter of 2.075938."""
    train, test = make_cobb_douglas(200), make_cobb_douglas(500, random_state=1)
    models = {
        unit: COMONetRegressor(train.shapes, unit=unit, **SMALL).fit(train.data, train.target)
        for unit in ("maxout", "relu")
    }
    assert error(models["maxout"], test) <= 0.002
    assert error(models["relu"], test) >= 0.02
    corners = pd.DataFrame([(a, b) for a in (LOW, HIGH) for b in (LOW, HIGH)], columns=list(train.data))
    exact = corners["capital"] ** 0.3 * corners["labour"] ** 0.6
    assert exact[3] + exact[0] - exact[1] - exact[2] == pytest.approx(2.075938, abs=5e-7)
    missed = {unit: np.abs(model.predict(corners) - exact).max() for unit, model in models.items()}
    assert missed["relu"] >= 0.51898
    assert missed["maxout"] < 0.4  # below what separable units can reach


def test_separable_units_miss_the_maximum_by_a_quarter() -> None:
    """Of two columns on [0, 1]², which are substitutes."""
    X = np.stack(np.meshgrid(*[np.linspace(0, 1, 7)] * 2), -1).reshape(-1, 2)
    options = SMALL | {"alpha": 1e-4}
    missed = {
        unit: np.abs(COMONetRegressor("convex increasing", unit=unit, **options).fit(X, X.max(1)).predict(X) - X.max(1))
        for unit in ("relu", "maxout")
    }
    assert missed["relu"].max() >= 0.25
    assert missed["maxout"].max() < 0.1


def test_the_saddle_needs_products() -> None:
    """4x²√y is convex in x and concave in y, and no sum of a function of each kind."""
    train, test = make_saddle(200), make_saddle(500, random_state=1)
    options = SMALL | {"product_rank": 4, "product_knots": 6, "domain": {0: (0, 1), 1: (0, 1)}}
    errors = {
        kind: error(COMONetRegressor(train.shapes, interactions=kind, **options).fit(train.data, train.target), test)
        for kind in ("additive", "product")
    }
    assert errors["product"] <= 0.005
    assert errors["additive"] >= 0.05


@pytest.mark.data("comonet/electricity1970.csv")
def test_the_cost_of_electricity_rises_with_output_and_prices() -> None:
    firms = load_electricity()
    model = COMONetRegressor(firms.shapes, width=2, max_iter=30, random_state=0)
    folds = KFold(5, shuffle=True, random_state=0)
    assert r2_score(firms.target, cross_val_predict(model, firms.data, firms.target, cv=folds)) >= 0.98


def test_fuel_economy_with_default_settings():
    cars = load_auto_mpg()
    folds = KFold(3, shuffle=True, random_state=0)
    model = COMONetRegressor(cars.shapes, random_state=0)
    scores = cross_val_score(model, cars.data, cars.target, cv=folds, scoring="neg_mean_squared_error")
    assert -scores.mean() <= 9
