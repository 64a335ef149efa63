"""
Nightly files: all nights, or the last seven?
=============================================

Sum each night once, keep the sums, and fit to those of any nights. After prices change on night 60, the model of all
nights is wrong for weeks. The model of the last seven nights is right again after a week. The baseline is a regression
of the returns of the same seven nights on the features, which needs all their rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import lstd
from lstd import LSTD, LSTDStatistics
from lstd.metrics import observed_returns

settings = {"gamma": 0.9, "lmbda": 0.8}


def night(number):
    """Draw the visits of a night, each of which ends for good; prices rise on night 60."""
    random = np.random.default_rng(number)
    done = random.random(1000) < 0.2
    done[-1] = True
    x = random.normal(size=(1000, 2))
    price = 1.0 if number < 60 else 1.6
    return {"X": x, "y": price * (1.0 + x[:, 0]) + random.normal(size=1000), "terminated": done}


# %%
# Write one file per night. It has a few hundred bytes: the sums and a label, which ensures that no night counts twice.

folder = Path(tempfile.mkdtemp())
for number in range(100):
    sums = LSTDStatistics.from_arrays(**night(number), **settings, fit_intercept=True, label=f"night {number}")
    sums.save(folder / f"{number:03}.lstd")
files = [lstd.load(path) for path in sorted(folder.glob("*.lstd"))]
print(f"{len(files)} files of {(folder / '000.lstd').stat().st_size} bytes")

# %%
# Every morning, fit to all nights so far, and to the last seven. Each night is a block, so there are intervals.

x = np.array([[1.0, 0.0]])
mornings, curves = np.arange(10, 100, 2), {"all nights": [], "last seven nights": []}
for morning in mornings:
    for name, chosen in zip(curves, (files[:morning], files[morning - 7 : morning]), strict=True):
        interval = LSTD(**settings).fit_statistics(chosen).predict_interval(x)
        curves[name].append((interval.prediction[0], interval.lower[0], interval.upper[0]))


def regression(morning):
    """Regress the returns of the last seven nights on the features."""
    rows = [night(number) for number in range(morning - 7, morning)]
    returns = [observed_returns(r["y"], gamma=0.9, terminated=r["terminated"], unobserved="drop").returns for r in rows]
    features = np.concatenate([np.column_stack([r["X"], np.ones(1000)]) for r in rows])
    return np.append(x, 1) @ np.linalg.lstsq(features, np.concatenate(returns))[0]


price = np.where(mornings <= 60, 1.0, 1.6)
true = price * (1 + 1 + 0.9 * 0.8 / (1 - 0.9 * 0.8))  # this row, then a geometric number of average ones

fig, ax = plt.subplots(figsize=(8, 4.5))
for style, (name, curve) in zip(("--", "-"), curves.items(), strict=True):
    prediction, low, high = np.array(curve).T
    ax.plot(mornings, prediction, style, color="C0", label=f"LSTD, {name}")
    ax.fill_between(mornings, low, high, color="C0", alpha=0.2)
    print(f"{name:18} mean error after the change: {np.abs(prediction - true)[mornings > 60].mean():.2f}")
baseline = np.array([regression(morning) for morning in mornings])
print(f"regression         mean error after the change: {np.abs(baseline - true)[mornings > 60].mean():.2f}")
ax.plot(mornings, baseline, "-.", color="0.5", label="baseline: regression of the returns of seven nights")
ax.plot(mornings, true, "k:", label="truth")
ax.set(xlabel="morning", ylabel="predicted return at x = (1, 0), in money", title="Prices rise on night 60")
_ = ax.legend()
