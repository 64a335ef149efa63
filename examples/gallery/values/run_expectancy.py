"""
Run expectancy: what is a situation worth?
==========================================

How many runs will a baseball team still score in this half-inning, with these runners and outs? Analysts call it *run
expectancy*; the same for places on a pitch is *expected threat* in football. Both are values: the reward is a run and
the end the third out. The game is simulated with a few simple rules, so the truth is known. The baseline is the usual
table: the mean of the runs that followed each situation.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD

CHANCES = {"out": 0.66, "walk": 0.09, "single": 0.16, "double": 0.06, "home run": 0.03}
BASES = {"single": 1, "double": 2, "home run": 4}


def play(runners, event):
    """Return the runners, bits for first, second and third base, and the runs after a batter."""
    if event == "out":
        return runners, 0
    if event == "walk":  # runners move only if they are forced to
        filled = next((base for base in range(3) if not runners >> base & 1), 3)
        return (runners | 1 << filled, 0) if filled < 3 else (7, 1)
    moved = runners << BASES[event] | 1 << BASES[event] - 1
    return moved & 7, (moved >> 3).bit_count()


def half_innings(n, seed):
    """Return the situation of each batter (runners + 8 outs), the runs, the half-inning, and whether it ended."""
    random, rows = np.random.default_rng(seed), []
    for inning in range(n):
        runners = outs = 0
        while outs < 3:
            event = random.choice([*CHANCES], p=[*CHANCES.values()])
            after, runs = play(runners, event)
            rows.append((runners + 8 * outs, runs, inning, outs + (event == "out") == 3))
            runners, outs = after, outs + (event == "out")
    return (np.array(column) for column in zip(*rows, strict=True))


situation, runs, inning, ended = half_innings(1500, seed=1)
print(f"{len(runs)} batters, {runs.sum()} runs")

# %%
# One column per situation. Every half-inning ends, so all returns are observed. LSTD gains by sharing: what follows a
# rare situation is mostly a common one, whose value is known well.

model = LSTD(gamma=1.0, lmbda=0.0, alpha=0.5).fit(np.eye(24)[situation], runs, episode=inning, terminated=ended)
seen = np.unique(situation)  # with these rules, nobody is on third base alone
found = model.predict_interval(np.eye(24)[seen])
total = runs.cumsum()
followed = total[np.flatnonzero(ended)[inning]] - total + runs
table = np.array([followed[situation == s].mean() for s in seen])

P, gained = np.zeros((24, 24)), np.zeros(24)
for s in range(24):
    for event, chance in CHANCES.items():
        after, scored = play(s % 8, event)
        outs = s // 8 + (event == "out")
        gained[s] += chance * scored
        if outs < 3:
            P[s, after + 8 * outs] += chance
truth = np.linalg.solve(np.eye(24) - P, gained)[seen]
for name, values in {"LSTD(0)": found.prediction, "baseline: table of means": table}.items():
    print(f"{name:25} error: {np.sqrt(np.mean((values - truth) ** 2)):.3f} runs")

fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
x, names = np.arange(len(seen)), ["none", "1", "2", "1, 2", "3", "1, 3", "2, 3", "all"]
half = (found.prediction - found.lower, found.upper - found.prediction)
ax.errorbar(x, found.prediction, half, fmt="o", color="C0", capsize=3, label="LSTD(0), 95 % interval")
ax.plot(x, table, "x", color="0.5", label="baseline: mean of the runs that followed")
ax.plot(x, truth, "k_", markersize=12, label="truth")
ax.set(xticks=x, xticklabels=[names[s % 8] for s in seen], xlabel="bases with runners; no out, one out, two outs")
_ = ax.legend(), ax.set(ylabel="runs still to come", title="1500 half-innings"), ax.tick_params("x", rotation=90)
