"""
Customer value: what will they buy next?
========================================

2357 customers of an online shop bought, or did not, for 39 weeks. How often will each of them buy in the 39 weeks that
follow? What they did buy is known, so the prediction can be checked. The baseline says: as often as before.
"""

import warnings
from importlib.metadata import distribution

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import HorizonLSTD, Trajectories
from lstd.errors import UnobservedWarning

# %%
# The log, CDNOW (it comes with the package ``lifetimes``), has a row per purchase. Purchases of a day count as one.

path = distribution("lifetimes").locate_file("lifetimes/datasets/CDNOW_sample.txt")
log = pd.read_csv(path, sep=r"\s+", header=None, usecols=[1, 2], names=["customer", "date"])
log = log.drop_duplicates().assign(date=lambda log: pd.to_datetime(log["date"].astype(str)))
today = "1997-10-01"
print(log.head(3).to_string(index=False))

# %%
# ``from_events`` turns the log into weeks: one row per customer and week since the first purchase, and a last row for
# today. Purchases after today are left out. With ``window``, the columns are rates of what came after the first
# purchase, which everybody has made: of all weeks, of the last 13, and one that fades; and weeks since the last one.
# They stay in the range that was seen. Totals and ages only grow: no row shows what follows their largest values.

steps = {"episode": "customer", "time": "date", "step": "week", "until": today}
weeks = Trajectories.from_events(log, **steps, window=13)
features = weeks.to_arrays(frame="pandas")["X"]
print(weeks)
print(features.head(3).round(2).to_string())

# %%
# Of 39 weeks that follow a row, less than half was observed, and ``fit`` says so. What came is compared below.

warnings.simplefilter("ignore", UnobservedWarning)
model = HorizonLSTD(39, low=0.0)  # nobody buys less than nothing
_ = model.fit(features, weeks.y, episode=weeks.episode, terminated=False)  # and nobody says goodbye

# %%
# Now predict for today, and look at what came.

now = weeks.horizon
came = log[log["date"] >= today].groupby("customer").size()
came = came.reindex(weeks.episode[now]).fillna(0.0).to_numpy()
before = log[log["date"] < today].groupby("customer").size().reindex(weeks.episode[now]).to_numpy() - 1
found = {"LSTD, next 39 weeks": model.predict(features[now]), "baseline: as often as before": before}
total = model.predict_interval(features[now], weights=np.ones(len(came)), of="return")
print(f"total: {total.prediction:.0f}, from {total.lower:.0f} to {total.upper:.0f}; came: {came.sum():.0f}")

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
group = np.minimum(before, 7).astype(int)
ax.bar(range(8), [came[group == k].mean() for k in range(8)], color="0.88", label="came in weeks 40 to 78")
looks = {"color": "C0", "marker": "o"}, {"color": "0.5", "ls": "--"}
for (name, predicted), look in zip(found.items(), looks, strict=True):
    ax.plot(range(8), [predicted[group == k].mean() for k in range(8)], label=name, **look)
    error = np.sqrt(np.mean((predicted - came) ** 2))
    print(f"{name:28} error of a customer (root mean square): {error:.2f} purchases")
ax.set(xlabel="repeat purchases in weeks 1 to 39 (7 and more)", ylabel="purchases afterwards", title="CDNOW customers")
_ = ax.legend()

# %%
# Those who bought often buy less often later, which the baseline misses. :doc:`/results/next-steps` compares with
# Pareto/NBD, which was made for such logs and has a smaller error, and with shorter horizons.
