"""
A live sensor, and a machine that wears out
===========================================

How much will a machine overheat in the next hour? ``RecursiveLSTD`` learns from one reading a minute, and every
prediction is made before the readings that it predicts. With ``forgetting="auto"`` it chooses from the stream how much
old readings count. The baseline predicts that the present excess of heat continues. True online TD has the best step
size in hindsight.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import RecursiveLSTD, TrueOnlineTD
from lstd.metrics import observed_returns

gamma, limit, n = 0.966, 60.0, 15_000  # half of the weight is on the next 20 minutes


def readings(n, seed):
    """Draw temperatures and vibrations; after 60 % of the time the cooling is worn."""
    random = np.random.default_rng(seed)
    temperature, vibration, warm, load = np.empty(n), np.empty(n), 40.0, 0.2
    for t in range(n):
        if random.random() < 1 / 60:
            load = random.choice([0.2, 0.6, 1.0], p=[0.4, 0.4, 0.2])
        worn = t > 0.6 * n
        warm += 0.05 * (20 + 5 * np.sin(t / 229) + (55 if worn else 45) * load - warm) + random.normal(0, 0.15)
        temperature[t] = warm + random.normal(0, 0.3)
        vibration[t] = 1 + (2.5 if worn else 2.0) * load + random.normal(0, 0.2)
    return temperature, vibration


def smooth(x, rate):
    """Return the exponential average of a sequence."""
    average = np.empty(len(x))
    average[0] = x[0]
    for t in range(1, len(x)):
        average[t] = average[t - 1] + rate * (x[t] - average[t - 1])
    return average


temperature, vibration = readings(n, seed=3)
level, shake = (smooth(temperature, 0.3) - limit) / 20, smooth(vibration, 0.4) - 2
hinges = [np.maximum(0, x - knot) for x in (level, level + shake / 2) for knot in (-0.4, -0.2, 0, 0.2)]
phi = np.column_stack([np.ones(n), level, shake, smooth(vibration, 0.1) - 2, *hinges])
excess = np.maximum(0, temperature - limit)

# %%
# One loop per model: predict, then learn.


def follow(model):
    """Return the predictions, each made before the next reading."""
    predicted = np.zeros(n - 1)
    for t in range(n - 1):
        predicted[t] = model.predict(phi[t])
        model.update(phi[t], excess[t + 1], phi[t + 1])
    return predicted


came = observed_returns(np.append(excess[1:], np.nan), gamma=gamma, prediction=np.zeros(n)).returns[:-1]
rates = {"RecursiveLSTD": 1.0, 'RecursiveLSTD, forgetting="auto"': "auto"}
found = {name: follow(RecursiveLSTD(phi.shape[1], gamma=gamma, forgetting=rate)) for name, rate in rates.items()}
tried = [follow(TrueOnlineTD(phi.shape[1], gamma=gamma, lmbda=0.9, step_size=2.0**k)) for k in range(-11, -3, 2)]
found["TrueOnlineTD, best step size"] = min(tried, key=lambda predicted: np.mean((predicted - came) ** 2))
found["baseline: the present excess"] = excess[:-1] / (1 - gamma)

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
shown = slice(9900, 10_600)
top.plot(came[shown], "k", lw=1, label="came afterwards")
looks = {"c": "C0", "lw": 3, "alpha": 0.4}, {"c": "C0", "ls": "--"}, {"c": "C3", "lw": 1}, {"c": "0.5", "lw": 1}
for look, (name, predicted) in zip(looks, found.items(), strict=True):
    top.plot(predicted[shown], label=name, **look)
    squares = (predicted - came)[: n - 200].reshape(-1, 370) ** 2
    bottom.plot(np.sqrt(squares.mean(axis=1)) / came.std(), **look)
    print(f"{name:32} error ÷ spread: {np.sqrt(squares.mean()) / came.std():.2f}")
top.set(xlabel="minutes, after the wear", ylabel="discounted excess, K", title="A machine that wears out")
top.legend(fontsize=8), bottom.axvline(0.6 * 40, color="gray", ls=":")
_ = bottom.set(xlabel="time, in blocks of 370 minutes; the line marks the wear", ylabel="error ÷ spread")
