"""Which comparisons does a learner get wrong that has to remember an exception, and how conjunctive is yours?"""

from itertools import combinations

import numpy as np

import paperworks.transitive as pt

# Nine teams in order, every one beats the next, and number 5 nevertheless beats number 3.
task = pt.TransitiveTask(9, exception=(5, 3))
limit = pt.critical_conjunctivity(items_per_side=3, span=2)
print(f"pairs across the exception are reversed from a conjunctivity of {limit:.4f} on")
for kind, depth in (("nngp", 1), ("ntk", 1), ("ntk", 2)):
    alpha = pt.network_conjunctivity(depth, kind)
    wrong = pt.predict_margins(task, alpha).wrong_pairs().query("cls == 'cross'")[["first", "second"]].to_numpy()
    print(f"  {kind} of depth {depth}: {alpha:.4f}, wrong across: {wrong.tolist() or 'none'}")

# How conjunctive are the features that your model has of pairs? Here: 400 random ReLU features.
rng = np.random.default_rng(0)
pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
inputs = np.array([np.concatenate([np.eye(9)[i], np.eye(9)[j]]) for i, j in pairs])
features = np.maximum(inputs @ rng.normal(size=(18, 400)), 0)
geometry = pt.representation_geometry(features, pairs)
print(f"\nrandom features: conjunctivity {geometry.alpha:.3f} ± {geometry.alpha_se:.3f}")

# How conjunctive are monkeys, who chose between the items of an order of seven?
fit = pt.fit_theory(pt.load_jensen("monkeys"), pt.TransitiveTask(7), link="logistic")
print(f"monkeys: conjunctivity {fit.alpha:.3f}, ridge {fit.ridge:.3f}, R² {fit.r2:.3f}")
print(fit.predict(pt.TransitiveTask(7, exception=(4, 2))).round(2)[0], "expected of the best, with an exception")

# Rank from results, upsets remembered: your own are pairs of a winner and a loser.
names = ["Ann", "Bob", "Cy", "Dan", "Eve"]
games = [pair for pair in combinations(names, 2) if pair != ("Bob", "Dan")] * 2 + [("Dan", "Bob")]
ranker = pt.TransitiveRanker(conjunctivity=0.3).fit(games)
print("\n" + " > ".join(ranker.ranking_))
print(ranker.exceptions_.round(2).to_string(index=False))
print(f"Dan beats Bob again with probability {ranker.predict_proba([('Dan', 'Bob')])[0, 0]:.2f}")
