"""Speed of `paperworks.anchoring`, beside loops written by hand, the products of a linear programme alone, and HiGHS.

Run: python benchmarks/bench_anchoring.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from paperworks.anchoring import LPModel, fixed_point, lp, netlib, solve_equation, solve_mps
from paperworks.anchoring.data import EMBEDDED, OPTIMA
from paperworks.anchoring.lp import METHODS as LP_METHODS
from paperworks.anchoring.lp import _Run
from paperworks.core.extras import MissingExtra, require
from paperworks.core.timing import best_of

Floats = NDArray[np.float64]
Field = Callable[[Floats], Floats]

STEPS = 50


def verdict(value: float, target: float) -> str:
    return f"target {target:g}: {'met' if value <= target else 'MISSED'}"


def halpern_by_hand(T: Field, x0: Floats, iterations: int) -> Floats:
    """Iterate T, and compute the residual of every iterate, as the driver does."""
    x = x0.copy()
    residual = math.inf
    for k in range(iterations):
        value = T(x)
        residual = min(residual, float(np.linalg.norm(x - value)))
        delta = 1 / (k + 2)
        value *= 1 - delta
        x = value
        x += delta * x0
    return x


def extragradient_by_hand(F: Field, x0: Floats, iterations: int) -> Floats:
    """Iterate with L = 1 and the default weights, and compute the residual of every iterate, as the driver does."""
    x = x0.copy()
    residual = math.inf
    for k in range(iterations):
        delta = 1.5 / (k + 8)
        eta = 0.75 - delta
        value = F(x)
        residual = min(residual, float(np.linalg.norm(value)))
        y = x - (eta * value + delta * (x - x0))
        x = x - (eta * F(y) + delta * (y - x0))
    return x


def turn(z: Floats) -> Floats:
    """Return the field of min over x, max over y of x·y, or a map that turns by a right angle."""
    half = z.size // 2
    out = np.empty_like(z)
    out[:half] = z[half:]
    np.negative(z[:half], out=out[half:])
    return out


def _maps(x0: Floats, iterations: int, every: int) -> Callable[[], object]:
    return lambda: fixed_point(turn, x0, tol=0.0, maxiter=iterations, check_every=every)


def _fields(x0: Floats, iterations: int, every: int) -> Callable[[], object]:
    return lambda: solve_equation(turn, x0, lipschitz=1.0, tol=0.0, maxiter=iterations, check_every=every)


METHODS: dict[str, tuple[Callable[..., Callable[[], object]], Callable[..., Floats], int]] = {
    "Halpern": (_maps, halpern_by_hand, 1),
    "extragradient": (_fields, extragradient_by_hand, 2),
}


def side_by_side(first: Callable[[], object], second: Callable[[], object], rounds: int = 7) -> tuple[float, float]:
    """Return the CPU seconds of the fastest call of each, in turns, without what they wait for others."""
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for k, call in enumerate((first, second)):
            start = time.thread_time()
            call()
            best[k] = min(best[k], time.thread_time() - start)
    return best[0], best[1]


def iterations() -> None:
    """Compare an iteration with one by hand where memory is the limit, and with the user's calls where Python is."""
    rng = np.random.default_rng(0)
    for name, (ours, by_hand, calls) in METHODS.items():
        x0, count = rng.standard_normal(1_000_000), 100
        own, hand = side_by_side(ours(x0, count, 1), partial(by_hand, turn, x0, count))
        print(
            f"{name}, n = 1,000,000: {1e3 * own / count:.2f} ms an iteration, by hand {1e3 * hand / count:.2f} ms, "
            f"ratio {own / hand:.2f}, {verdict(own / hand, 1.3)}"
        )
        for n in (2, 100):
            x0, count = rng.standard_normal(n), 2000
            alone = calls * best_of(lambda x0=x0, count=count: [turn(x0) for _ in range(count)], 5) / count  # type: ignore[misc]
            for every in (1, 10):
                extra = 1e6 * (best_of(ours(x0, count, every), 5) / count - alone)
                print(
                    f"  n = {n}, checked every {every}: {extra:.1f} µs an iteration beyond {calls} calls of "
                    f"{1e6 * alone / calls:.1f} µs, {verdict(extra, 30)}"
                )


def random_programme(rows: int, columns: int, entries: int, seed: int = 0) -> LPModel:
    """Return a feasible programme with a finite optimum: min cᵀx, A x ≥ b, 0 ≤ x ≤ 1."""
    rng = np.random.default_rng(seed)
    A = sparse.random_array((rows, columns), density=entries / rows / columns, format="csr", rng=rng)
    b = A @ rng.uniform(0, 1, columns) - 0.1
    return LPModel(rng.standard_normal(columns), A, b, np.full(rows, np.inf), np.zeros(columns), np.ones(columns))


def products() -> None:
    """Compare an iteration of a linear programme with its two products alone."""
    for rows, columns, entries in ((10_000, 20_000, 100_000), (20_000, 40_000, 1_000_000)):
        run = _Run(random_programme(rows, columns, entries), LP_METHODS["r2halpern"], 0.0, 100, None, None)
        iterate, A, transposed = run._map, run._map.A, run._map.transposed
        iterate.apply()
        x, w = np.ones(columns), np.ones(rows)
        alone, own = side_by_side(
            lambda A=A, T=transposed, x=x, w=w: [(A @ x, T @ w) for _ in range(STEPS)],  # type: ignore[misc]
            partial(iterate.run, 0, STEPS),
        )
        share = alone / own
        print(
            f"linear programme of {entries:,} entries: {1e3 * own / STEPS:.3f} ms an iteration, its two products "
            f"{1e3 * alone / STEPS:.3f} ms, share {share:.2f}, target 0.6: {'met' if share >= 0.6 else 'MISSED'}"
        )


def beside_highs(tol: float = 1e-6) -> None:
    """Count iterations beside those of PDLP in HiGHS, which is compiled, on the embedded programmes of Netlib."""
    try:
        highspy = require("highspy", "anchoring")
    except MissingExtra as error:
        print(f"PDLP: {error}")
        return
    ratios = []
    for name in (name for name in EMBEDDED if name in OPTIMA):
        model = netlib(name)
        seconds = best_of(partial(solve_mps, model, tol=tol), 1)
        found = solve_mps(model, tol=tol)
        highs = highspy._Highs()
        options = {
            "output_flag": False, "solver": "pdlp", "presolve": "off", "pdlp_optimality_tolerance": tol,
            "primal_feasibility_tolerance": tol, "dual_feasibility_tolerance": tol,
        }  # fmt: skip
        for option, value in options.items():
            highs.setOptionValue(option, value)
        highs.readModel(str(Path(lp.__file__).with_name(f"{name}.mps")))
        theirs = best_of(highs.run, 1)
        info = highs.getInfo()
        ratios.append(found.nit / info.pdlp_iteration_count)
        wrong = abs(found.fun - OPTIMA[name]) / abs(OPTIMA[name])
        print(
            f"{name}: {found.nit:,} iterations, {seconds:.2f} s, objective wrong by {wrong:.1e}; PDLP of HiGHS "
            f"{info.pdlp_iteration_count:,} iterations, {theirs:.3f} s"
        )
    mean = math.exp(float(np.mean(np.log(ratios))))
    print(f"  geometric mean of the ratios of iterations {mean:.2f}, {verdict(mean, 1.5)}")


def main() -> None:
    iterations()
    products()
    beside_highs()


if __name__ == "__main__":
    main()
