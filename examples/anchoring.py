"""Make an iteration that goes round and round converge, with a guarantee; solve a game and a linear programme so."""

import numpy as np

from paperworks import anchoring as an

# A game, min over x and max over y of x·y. The forward step diverges, and the extragradient method has no rate to speak of.
game = np.array([[0.0, 1.0], [-1.0, 0.0]])
found = an.solve_equation(game, np.ones(2), lipschitz=1.0, tol=1e-3, distance=2**0.5)
print(
    f"extragradient, anchored: residual {found.residual:.2e} after {found.nfev} calls, at most {found.bound:.2e} by proof"
)

# L need not be known; and a wrong one is noticed.
unknown = an.solve_equation(lambda z: 3 * game @ z, np.ones(2), tol=1e-3)
wrong = an.solve_equation(lambda z: 3 * game @ z, np.ones(2), lipschitz=1.0, maxiter=50)
print(f"L found: {unknown.lipschitz:.2f}; with L = 1: recurrence violated {wrong.flags['recurrence_violated']}")

# A map: Picard's iteration turns for ever, Halpern's converges.
turn = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
fixed = an.fixed_point(lambda x: turn @ x, np.ones(2), tol=1e-3, distance=2**0.5)
print(f"Halpern: residual {fixed.residual:.2e} after {fixed.nit} iterations, at most {fixed.bound:.2e}")


# Your own method, unmodified: it only asks an operator. Here, steps projected on a box.
def my_step(query, x, state):
    y = np.clip(x - query(x), 0.2, 1.0)
    return np.clip(x - query(y), 0.2, 1.0), state


boxed = an.solve_equation(game, np.ones(2), method=my_step, lipschitz=1.0, maxiter=2000)
print(f"own method in a box: {boxed.x.round(3)}")

# How bad can your weights be? Worst case over all normal linear fields, and what is proved of all monotone ones.
mine = an.schedules.extragradient(a=2.0, b=10.0, mu=0.8)
worst, proved = an.spectral_worst_case("extragradient", mine, 100), an.apriori_bound("extragradient", mine, 100)
print(f"a = 2, b = 10, mu = 0.8 after 100 iterations: {worst[-1]:.4f} is attained, {proved[-1]:.4f} cannot be exceeded")

poker = an.solve_matrix_game(an.kuhn_poker())
print(
    f"\nKuhn poker: value {poker.value:.6f} (-1/18 = {-1 / 18:.6f}), gap {poker.gap:.0e} after {poker.nit} iterations"
)

# max 3x + 2y with x + y <= 4, x <= 3
plan = an.linprog([-3, -2], A_ub=[[1, 1], [1, 0]], b_ub=[4, 3])
print(
    f"linear programme: {plan.x.round(4)}, earns {-plan.fun:.4f}, worth of the limits {-plan.ineqlin.marginals.round(4)}"
)

P, R = an.cycle_mdp(50)
for method in ("plain", "anchored"):
    values = an.value_iteration(P, R, gamma=0.999, method=method, maxiter=1000)
    print(f"value iteration on a cycle, {method}: Bellman error {values.bellman_error:.1e} after {values.nit} sweeps")
