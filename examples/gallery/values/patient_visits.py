"""
Remaining life at every visit: survival, censoring, churn
=========================================================

How long will a patient live, or a customer stay, given what the last visit showed? Visits come at irregular times, and
a third of the patients are still alive when the data end. Here they are simulated, so the true answer is known. The
baseline is the mean over the lives that were observed whole, which are mostly short.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import LSTD, Trajectories

hazards = np.array([0.05, 0.15, 0.4, 1.0])  # deaths per year at each severity
visit_rate = 1.5  # visits per year
moves = np.array([[0.8, 0.2, 0, 0], [0.1, 0.7, 0.2, 0], [0, 0.1, 0.7, 0.2], [0, 0, 0.1, 0.9]])  # at each visit


def visits(n_patients, seed):
    """Return a table with a row per patient and interval between visits, as survival packages have it."""
    random, rows = np.random.default_rng(seed), []
    for patient in range(n_patients):
        now, severity, lost_to_follow_up = 0.0, random.integers(4), random.uniform(1.0, 8.0)
        while now < lost_to_follow_up:
            death = now + random.exponential(1.0 / hazards[severity])
            visit = now + random.exponential(1.0 / visit_rate)
            stop = min(death, visit, lost_to_follow_up)
            rows.append((patient, now, stop, stop == death, *np.eye(4)[severity]))
            if stop == death:
                break
            now, severity = stop, random.choice(4, p=moves[severity])
    return pd.DataFrame(rows, columns=["patient", "start", "stop", "died", "s0", "s1", "s2", "s3"])


# %%
# An interval ends at the next visit, at death, or where observation stops. Its reward is the time that passed. The last
# interval of a patient who was lost to follow-up counts in full. The prediction at its end stands for the time after
# it.

table, names = visits(n_patients=500, seed=1), ["s0", "s1", "s2", "s3"]
data = Trajectories.from_frame(table, features=names, episode="patient", start="start", stop="stop", event="died")
print(data)
model = LSTD(lmbda=0.8, alpha=1e-3, fit_intercept=False).fit(**data.to_arrays())
found = model.predict_interval(np.eye(4))

# %%
# With exponential times between visits, the expected remaining life solves one linear system.

truth = np.linalg.solve(np.diag(hazards + visit_rate) - visit_rate * moves, np.ones(4))
last = table.groupby("patient").tail(1).set_index("patient")
left = last.loc[table["patient"], "stop"].to_numpy() - table["start"]
whole = last.loc[table["patient"], "died"].to_numpy()
seen = [left[whole & (table[name] == 1)].mean() for name in names]
print(f"{'severity':<20}", *(f"{severity:8}" for severity in range(4)))
for label, values in (("truth", truth), ("LSTD(0.8)", found.prediction), ("lives seen whole", seen)):
    print(f"{label:<20}", *(f"{value:8.1f}" for value in values))

fig, ax = plt.subplots(figsize=(7, 4))
errors = np.abs(np.array([found.lower, found.upper]) - found.prediction)
ax.errorbar(range(4), found.prediction, errors, fmt="o", color="C0", capsize=4, label="LSTD(0.8), 95 % interval")
ax.plot(range(4), truth, "k_", markersize=24, label="truth")
ax.plot(range(4), seen, "s", color="0.5", label="baseline: mean of the lives seen whole")
ax.set(
    xlabel="severity at the visit",
    ylabel="expected years to live",
    xticks=range(4),
    ylim=(0, None),
    title="Remaining life",
)
ax.legend()

# %%
# How this compares with Kaplan–Meier curves and Cox models on real patients, and how to predict the probability of
# death within some years: see the guide's page on remaining time.
