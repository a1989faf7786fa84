"""Divide 24 GPUs among six training jobs, and see what the bids alone certify."""

import paperworks.allocation as pa

jobs = pa.speedups()  # measured speed-ups of six training jobs; your own: pa.from_table("teams.csv")
found = pa.solve(jobs, alpha=0.25, capacity=24)
print(found.table()[["agent", "amount", "bid", "payment", "marginal_value", "regret"]].round(3).to_string(index=False))

print(f"\nprice of all GPUs {found.price:.2f}, largest regret {found.regret.max():.1e}")
print(f"guaranteed before any data: {pa.efficiency_bound(0.25, n=6):.3f} of the optimum")
print(f"certified by the shares:    {pa.efficiency_certificate(found.shares, alpha=0.25):.3f}")
print(f"measured, values known:     {jobs.value(found.amounts).sum() / pa.efficient(jobs, 24).welfare:.3f}")

out = pa.AlphaProportional(0.25, capacity=24).clear({"nlp": 9, "vision": 6, "speech": 2})
print("\n" + out.table().round(3).to_string(index=False))
print(f"under 3 % bid noise use alpha = {pa.choose_alpha(jobs, noise=0.03, capacity=24).alpha:.2f}")
