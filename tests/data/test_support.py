"""The warning of mean importance ratios other than one: without support or with wrong probabilities, and only then."""

import re

import numpy as np
import pandas
import pytest
from scipy import sparse

from logged_actions import PROCESS
from lstd import LSTD, LSTDCV
from lstd.data.check_rows import check_rows
from lstd.data.doubts import support_doubt
from lstd.errors import SupportWarning
from lstd.ope import LSTDQ, importance_sampling

STATES, STEPS = 3, 10
NAMES = ("X", "y", "episode", "terminated")
TARGET = np.array([[0.2, 0.8], [0.5, 0.5], [0.7, 0.3]])


def log_of(seed=0, n=200, mu=(0.5, 0.5, 0.5), target=TARGET, taken=lambda *_: True):
    """Rows of a log whose policy takes action 1 with probability mu[state], where it may take it at all."""
    random = np.random.default_rng(seed)
    states, episode, step = (
        random.integers(STATES, size=n * STEPS),
        np.repeat(np.arange(n), STEPS),
        np.arange(n * STEPS),
    )
    p = np.array(mu)[states] * taken(states, step % STEPS, step)
    actions = (random.random(len(p)) < p).astype(int)
    return {
        "X": np.eye(STATES)[states], "y": random.normal(size=len(p)), "episode": episode, "actions": actions,
        "terminated": step % STEPS == STEPS - 1, "target_policy": np.array(target)[states],
        "behavior_probability": np.where(actions, p, 1.0 - p),
    }  # fmt: skip


def ratios(log):
    return log["target_policy"][np.arange(len(log["y"])), log["actions"]] / log["behavior_probability"]


def fitted(log, estimator=None, **changes):
    """Fit LSTD with the ratios of a log."""
    columns = {name: log[name] for name in NAMES} | {"importance_ratio": ratios(log)} | changes
    return (LSTD(0.9, 0.0) if estimator is None else estimator).fit(**columns)


def said(log, **changes):
    """What the check of ratios says; empty if nothing."""
    columns = {name: log[name] for name in NAMES} | {"importance_ratio": ratios(log)} | changes
    rows = check_rows(**columns, gamma=0.9, warn=False)
    return support_doubt(rows, rows.importance_ratio)


@pytest.mark.parametrize(
    ("taken", "rows", "mean"),
    [
        (lambda s, *_: s < 0, "of rows with x0 above 0.3", 0.2),
        (lambda s, *_: s != 0, r"of rows with x0 above 0\.3", 0.2),
        (lambda s, step, t: step < 6, r"of steps [68] to [79] of episodes", None),
        (lambda s, step, t: t < 1500, "of rows 1500 to 1749", None),
    ],
)
def test_it_says_where_the_log_never_takes_an_action(taken, rows, mean):
    log = log_of(taken=taken)
    with pytest.warns(SupportWarning, match=f"The mean importance ratio ({rows}).*does not take all actions") as caught:
        fitted(log)
    value, error = re.search("is ([0-9.]+), with a standard error of ([0-9.e-]+),", str(caught[0].message)).groups()
    assert float(value) == pytest.approx(0.2 if mean else float(value), abs=1e-9)
    assert 0.0 <= float(error) < 0.1


def test_it_says_at_which_predicted_values_it_is():
    value, n = np.random.default_rng(0).normal(size=4000), 4000
    low = value < np.quantile(value, 0.1)
    ratio = np.where(low, 0.2, np.tile([0.5, 1.5], n // 2))
    columns = {"y": np.zeros(n), "terminated": np.ones(n, bool), "importance_ratio": ratio}
    rows = check_rows(X=np.ones((n, 1)), **columns, gamma=0.9, warn=False)
    text = support_doubt(rows, ratio, value)
    assert re.search(r"of rows with a predicted value of -[0-9.]+ to -1\.\d+ is 0\.2,", text)
    assert "predicted value" not in support_doubt(rows, ratio)


def test_probabilities_that_are_too_small_or_of_another_row_are_noticed():
    log = log_of(mu=(0.3, 0.5, 0.8))
    assert not said(log)
    found = said(log | {"behavior_probability": 0.8 * log["behavior_probability"]})
    assert "of all rows is 1.2" in found
    assert "of logged actions are too small" in found
    assert said(log | {"behavior_probability": np.roll(log["behavior_probability"], 1)})
    assert said(log | {"behavior_probability": np.full(len(log["y"]), 0.4)})


@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")
@pytest.mark.parametrize(
    "fit",
    [
        lambda log: fitted(log, LSTDCV(0.9, lmbdas=[0.0])),
        lambda log: LSTDQ(0.9).fit(**log),
        lambda log: importance_sampling(gamma=0.9, **log),
        lambda log: fitted(log, X=sparse.csr_array(log["X"])),
        lambda log: fitted(log, X=pandas.DataFrame(log["X"], columns=list("bcd"))),
    ],
)
def test_all_that_know_the_ratios_of_a_whole_log_warn(fit):
    log = log_of(taken=lambda s, *_: s != 0)
    with pytest.warns(SupportWarning, match=r"The mean importance ratio of rows with (x0|b) above 0.* is 0\.2,"):
        fit(log)


def test_a_log_that_happens_to_lack_a_rare_action_is_told_how_rare_it_would_have_to_be():
    """A log takes an action of the target one time in 500: where it is missing, the warning leaves that open."""
    found = [said(log_of(seed, 20, (0.002, 0.998, 0.998), np.eye(2)[[1, 1, 1]])) for seed in range(60)]
    larger = [float(re.search("takes some more than ([0-9.e+]+) times less often", text)[1]) for text in found if text]
    assert len(larger) > 20
    assert min(larger) > 2.0
    assert max(larger) < 500.0


def test_habits_of_episodes_that_average_to_the_probabilities_are_no_lack_of_support():
    called = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        habit, episode = random.choice([0.2, 0.8], size=40), np.repeat(np.arange(40), 50)
        actions = (random.random(2000) < habit[episode]).astype(int)
        log = {
            "X": np.ones((2000, 1)), "y": np.zeros(2000), "episode": episode, "actions": actions,
            "terminated": np.arange(2000) % 50 == 49, "target_policy": np.full((2000, 2), [0.2, 0.8]),
            "behavior_probability": np.full(2000, 0.5),
        }  # fmt: skip
        called += bool(said(log))
    assert called <= 3


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_rows_that_are_no_transitions_do_not_count():
    data = PROCESS.simulate(60, 5, 1)
    ratio = data["target_policy"][np.arange(360), data["actions"]] / np.nan_to_num(
        data["behavior_probability"], nan=1.0
    )
    last = np.isnan(data["behavior_probability"])
    columns = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    LSTD(0.9, 0.0).fit(**columns, importance_ratio=np.where(last, 1e3, ratio))
    with pytest.warns(SupportWarning, match="of all rows is 1.98"):
        LSTD(0.9, 0.0).fit(**columns, importance_ratio=np.where(last, 1e3, 2.0 * ratio))
