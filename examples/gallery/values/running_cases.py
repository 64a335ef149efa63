"""
Running cases of a process
==========================

Process mining asks how long a running case will still take. An event log names the case, the activity and the
timestamp. Some cases are complete; others are running when the log is extracted, and those that take long are more
often among them. Leaving them out, as is common, makes the rest look fast. A row that is a *horizon row* keeps them.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import LSTD, Trajectories

ACTIVITIES = ["register", "check", "repair", "approve"]
DAYS = {"register": 1.0, "check": 4.0, "repair": 15.0, "approve": 3.0}  # mean time until the next activity
NEXT = {"register": "check", "repair": "check", "approve": None}  # after a check: repair or approve, half and half
EXTRACTED = 60.0  # day on which the log was extracted


def event_log(n_cases, seed):
    """Return the events up to the day of the extraction, as process-mining tools hold them."""
    random, events = np.random.default_rng(seed), []
    for case in range(n_cases):
        day, activity = random.uniform(0, EXTRACTED), "register"
        while activity and day < EXTRACTED:
            events.append((case, activity, day))
            day += random.exponential(DAYS[activity])
            activity = random.choice(["repair", "approve"]) if activity == "check" else NEXT[activity]
        if activity is None and day < EXTRACTED:
            events.append((case, "complete", day))
    return pd.DataFrame(events, columns=["case:concept:name", "concept:name", "time:timestamp"])


log = event_log(1500, seed=0)

# %%
# Each event opens an interval up to the next event of its case, or up to the extraction if the case is running.

rows = log.rename(columns={"case:concept:name": "case", "concept:name": "activity", "time:timestamp": "start"})
rows["stop"] = rows.groupby("case")["start"].shift(-1).fillna(EXTRACTED)
rows["complete"] = rows.groupby("case")["activity"].shift(-1) == "complete"
rows = rows[rows["activity"] != "complete"].join(pd.get_dummies(rows["activity"], dtype=float)[ACTIVITIES])
data = Trajectories.from_frame(
    rows, features=ACTIVITIES, episode="case", start="start", stop="stop", event="complete"
)  # the reward of an interval is its length
print(data)

# %%
# The value of an activity is the remaining time of a case that has just begun it.

model = LSTD(gamma=1.0, lmbda=0.5, alpha=1e-6, fit_intercept=False).fit(**data.to_arrays())
found = model.predict_interval(np.eye(4))

# %%
# The baseline is the mean remaining time in complete cases. The truth follows from how the log was made.

cases = rows.groupby("case")
left = cases["stop"].transform("max") - rows["start"]
baseline = left[cases["complete"].transform("any")].groupby(rows["activity"]).mean().reindex(ACTIVITIES)
check = 2 * (DAYS["check"] + DAYS["repair"] / 2 + DAYS["approve"] / 2)  # v = days + (repair + v) / 2 + approve / 2
truth = np.array([DAYS["register"] + check, check, DAYS["repair"] + check, DAYS["approve"]])
answer = pd.DataFrame({"lstd": found.prediction, "from": found.lower, "to": found.upper}, index=ACTIVITIES)
print(answer.assign(baseline=baseline, truth=truth).round(1).to_string())

fig, ax = plt.subplots(figsize=(7, 3.5))
place = np.arange(4)
errors = [found.prediction - found.lower, found.upper - found.prediction]
ax.errorbar(place, found.prediction, errors, fmt="o", label="LSTD, running cases kept")
ax.plot(place, baseline, "s", color="C1", label="baseline: complete cases only")
ax.plot(place, truth, "k_", ms=18, label="truth")
ax.set(xticks=place, xticklabels=ACTIVITIES, ylabel="remaining days", ylim=(0, None)), ax.legend()
