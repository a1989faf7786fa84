"""Fit option prices with the shapes that theory demands, prove them, and check a network that promises nothing."""

import torch
from torch import nn

import paperworks.comonet as pc

options = pc.make_black_scholes(300, noise=0.02, random_state=0)  # your own: a DataFrame and its target
model = pc.COMONetRegressor(
    {"spot": "convex increasing", "strike": "convex decreasing", "maturity": "increasing", "vol": "increasing"},
    width=4,
    max_iter=60,
    random_state=0,
).fit(options.data, options.target)
print(model.certificate_)
print(f"R² of the true prices: {model.score(options.data, options.truth):.4f}")

delta, vega = model.derivatives(options.data, ["spot", "vol"]).T
print(f"delta between {delta.min():.3f} and {delta.max():.3f}, vega at least {vega.min():.3f}")

# softplus(2x) - softplus(x) increases from -0.8814 on: any such network is proved on a box, or refuted by a point.
foreign = nn.Sequential(nn.Linear(1, 2), nn.Softplus(), nn.Linear(2, 1)).double()
weights = {"0.weight": [[2.0], [1.0]], "0.bias": [0.0, 0.0], "2.weight": [[1.0, -1.0]], "2.bias": [0.0]}
foreign.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
for domain in ([(-0.88, 3.0)], [(-0.9, 3.0)]):
    print(pc.certify(foreign, "increasing", domain=domain, feature_names=["x"]))

# Of anything that predicts, violations can be found, though not excluded.
print(pc.audit(lambda X: X["spot"] * X["vol"], options.data, {"vol": "increasing", "spot": "decreasing"}))
