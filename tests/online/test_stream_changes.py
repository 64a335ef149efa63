"""The chart of errors that says when a stream has changed: its definition, jumps that it notices, and its messages."""

import itertools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

import naive
from lstd import RecursiveLSTD
from lstd._kernels.change_detection import COUNT, ERRORS
from lstd.errors import ChangeWarning
from tolerances import assert_close

BEFORE = 6000


def rows(n_rows, seed=0, jump=0.0, episodes=False):
    """Normal features and a constant; the mean reward jumps after `BEFORE` rows."""
    random = np.random.default_rng(seed)
    X = np.column_stack([random.normal(size=(n_rows, 2)), np.ones(n_rows)])
    y = X[:, 0] + random.standard_t(4, size=n_rows) + jump * (np.arange(n_rows) >= BEFORE)
    terminated = (random.random(n_rows) < 0.05) & episodes
    return X, y, {"terminated": terminated, "episode": np.cumsum(terminated) - terminated} if episodes else {}


def learned(model, X, y, first, size):
    """Learn rows from a place on, so many at a time."""
    for at in range(first, len(y), size):
        model.partial_fit(X[at : at + size], y[at : at + size])


def updated(model, X, y, first):
    for t in range(first, len(y) - 1):
        model.update(X[t], y[t], X[t + 1])


@pytest.mark.parametrize(("gamma", "episodes"), [(0.5, True), (0.97, False)])
def test_drift_is_that_of_the_definition(gamma, episodes):
    X, y, ends = rows(8000, episodes=episodes)
    model, stops, values, drifts = RecursiveLSTD(3, gamma), range(5000, 8001, 50), [], []
    for first, stop in itertools.pairwise([0, *stops]):
        chunk = {name: each[first:stop] for name, each in ends.items()}
        values += model.partial_fit(X[first:stop], y[first:stop], return_predictions=True, **chunk).tolist()
        drifts.append(model.drift_)
    following = np.append(values[1:], 0.0)
    if episodes:
        following[ends["terminated"]] = 0.0
    length, errors = 16 if gamma == 0.5 else 32, y + gamma * following - values
    levels = naive.change_levels(errors, gamma, 3)
    known = [stop - 2 + bool(episodes and ends["terminated"][stop - 1]) for stop in stops]
    assert_close(drifts, [levels[count // length - 1] for count in known], "solve")
    assert 0.1 < max(drifts) < 1.0


def test_errors_are_monitored_while_ratios_leave_enough_runs_of_rows():
    X, y, _ = rows(80)
    ratios = np.random.default_rng(0).choice([0.7, 1.3], size=80)
    ratios[:5] = 1.0
    model = RecursiveLSTD(3, 0.5, 0.2, 1.0)
    values = model.partial_fit(X, y, importance_ratio=ratios, return_predictions=True)
    kept = naive.monitored_errors(y[:-2] + 0.5 * values[1:-1] - values[:-2], ratios[:-2], 0.1)
    assert 5 < len(kept) < 60
    assert model.reader.charts[0, ERRORS] + model.reader.charts[0, COUNT] == len(kept)


def test_errors_that_are_correlated_do_not_hide_a_jump():
    random = np.random.default_rng(0)
    noise = lfilter([np.sqrt(1.0 - 0.95**2)], [1.0, -0.95], random.normal(size=20_000))
    y = noise + 0.5 * random.normal(size=20_000)
    model = RecursiveLSTD(1, 0.98).partial_fit(np.ones((15_000, 1)), y[:15_000])
    with pytest.warns(ChangeWarning, match="higher than predicted"):
        model.partial_fit(np.ones((5000, 1)), y[15_000:] + 1.2)


@pytest.mark.parametrize(
    ("jump", "words", "forgetting"), [(1.5, "higher", 1.0), (-1.5, "lower", 0.999), (1.5, "higher", "auto")]
)
def test_a_jump_is_noticed_and_the_history_begins_anew(jump, words, forgetting):
    X, y, _ = rows(BEFORE + 400, jump=jump)
    model = RecursiveLSTD(3, 0.97, forgetting=forgetting)
    model.partial_fit(X[:BEFORE], y[:BEFORE])
    with pytest.warns(ChangeWarning, match=f"rewards {words} than predicted") as given:
        learned(model, X, y, BEFORE, 20)
    assert len(given) == 1
    assert int(re.search(r"After (\d+) updates", str(given[0].message))[1]) < BEFORE + 5 / 0.03
    assert ("Set `forgetting` below 1" in str(given[0].message)) == (forgetting == 1.0)
    assert np.isnan(model.drift_)  # as the new history is short


def test_update_warns_as_recorded_rows_do():
    X, y, _ = rows(BEFORE + 300, jump=2.0)
    model = RecursiveLSTD(3, 0.97).partial_fit(X[:BEFORE], y[:BEFORE])
    again = RecursiveLSTD.restore(model.snapshot())
    with pytest.warns(ChangeWarning) as one:
        model.partial_fit(X[BEFORE:], y[BEFORE:])
    with pytest.warns(ChangeWarning) as other:
        updated(again, X, y, BEFORE - 1)
    named, plain = (str(given[0].message) for given in (one, other))
    row = BEFORE + int(re.match(r"Row (\d+): After", named)[1])
    assert named.partition(": ")[2] == plain
    assert abs(int(plain.split()[1]) - row) <= 1
    model = RecursiveLSTD(3, 0.97).partial_fit(X[:BEFORE], y[:BEFORE])
    frame = pd.DataFrame(X, index=pd.date_range("2024-01-01", periods=len(X)))[BEFORE:]
    with pytest.warns(ChangeWarning, match=rf"Row {row - BEFORE} \({frame.index[row - BEFORE]}\): After"):
        model.partial_fit(frame, y[BEFORE:])
    assert np.isnan([again.drift_, model.drift_]).all()


def test_drift_is_nan_until_a_change_could_be_noticed():
    X, y, _ = rows(4000)
    model, other = RecursiveLSTD(3, 0.5), RecursiveLSTD(3, 0.5)
    model.partial_fit(X, y, return_predictions=True)
    known = np.isfinite(model.drifts_[:, 0])
    assert np.isnan(other.drift_)
    assert known.argmax() > 1500
    assert known[2000:].all()
    learned(other, X, y, 0, 500)
    assert other.drift_ == model.drift_ >= 0.0


def test_steady_streams_give_no_warning():
    for seed in range(3):
        X, y, ends = rows(20_000, seed, episodes=seed == 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ChangeWarning)
            RecursiveLSTD(3, 0.97).partial_fit(X, y, **ends)
