"""Remaining time at simulated visits, whose expected value is known: intervals, censoring and discounts are right."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lstd import LSTD, Trajectories

HAZARDS, VISIT_RATE = np.array([0.1, 0.3, 0.8]), 1.5
MOVES = np.array([[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.0, 0.2, 0.8]])


def visits(n_patients, seed):
    """Severity changes at visits, which come at a constant rate, as death does; observation stops within 4 years."""
    random, rows = np.random.default_rng(seed), []
    for patient in range(n_patients):
        now, severity, end = 0.0, random.integers(3), random.uniform(0.5, 4.0)
        while now < end:
            death, visit = now + random.exponential(1 / np.array([HAZARDS[severity], VISIT_RATE]))
            stop = min(death, visit, end)
            rows.append((patient, now, stop, stop == death, *np.eye(3)[severity]))
            if stop == death:
                break
            now, severity = stop, random.choice(3, p=MOVES[severity])
    return pd.DataFrame(rows, columns=["who", "start", "stop", "died", "a", "b", "c"])


@pytest.fixture(scope="module")
def table():
    return visits(3000, seed=5)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize("lmbda", [0.0, 0.8, 1.0])
def test_predictions_are_the_true_remaining_times_up_to_chance(table, gamma, lmbda):
    data = Trajectories.from_frame(
        table, features=["a", "b", "c"], episode="who", start="start", stop="stop", event="died", gamma=gamma
    )
    truth = np.linalg.solve(np.diag(HAZARDS + VISIT_RATE - np.log(gamma)) - VISIT_RATE * MOVES, np.ones(3))
    model = LSTD(lmbda=lmbda, alpha=0.0, fit_intercept=False).fit(**data.to_arrays())
    predicted, error = model.predict(np.eye(3), return_std=True)
    assert (np.abs(predicted - truth) < 3.5 * error).all()
    assert (error < 0.12 * truth).all()


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_without_the_last_intervals_of_the_living_lives_seem_short(table):
    alive = ~table.groupby("who")["died"].transform("any")
    last = table.groupby("who").cumcount(ascending=False) == 0
    data = Trajectories.from_frame(
        table[~(alive & last)], features=["a", "b", "c"], episode="who", start="start", stop="stop", event="died"
    )
    truth = np.linalg.solve(np.diag(HAZARDS + VISIT_RATE) - VISIT_RATE * MOVES, np.ones(3))
    model = LSTD(lmbda=0.0, alpha=0.0, fit_intercept=False).fit(**data.to_arrays())
    predicted, error = model.predict(np.eye(3), return_std=True)
    assert (predicted < truth - 3.5 * error).all()
