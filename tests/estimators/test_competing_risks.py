"""`HorizonLSTD` with a feature per step and a ridge that vanishes is the estimator of Aalen and Johansen."""

import numpy as np
import pytest

import naive
from lstd import HorizonLSTD
from tolerances import assert_close

HORIZON = 12
LMBDAS = [0.0, 0.5, 0.9, 1.0]
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # few subjects are left at the last steps


def subjects(seed, n=60, n_causes=2, longest=16):
    """Steps in which subjects leave, and of which cause; 0 for those last seen before."""
    random = np.random.default_rng(seed)
    leaves = random.geometric(0.04, size=(n, n_causes))
    seen = random.integers(1, longest + 1, n)
    seen[:5] = longest  # some are seen for long, so that every step has subjects
    leaves[:5] = longest
    exits = np.minimum(leaves.min(axis=1), seen)
    causes = np.where(leaves.min(axis=1) <= seen, leaves.argmin(axis=1) + 1, 0)
    return exits, causes


def rows_of(exits, causes, entries=None):
    """A row per step of each subject, in which a cause is the reward; a horizon row for those still there."""
    entries = np.zeros_like(exits) if entries is None else entries
    step, cause, subject, ended = [], [], [], []
    for i, (begin, end) in enumerate(zip(entries, exits, strict=True)):
        left = causes[i] > 0
        steps = range(begin, end if left else end + 1)
        step += steps
        subject += [i] * len(steps)
        ended += [left and u == end - 1 for u in steps]
        cause += [causes[i] if left and u == end - 1 else 0 for u in steps]
    y = (np.array(cause)[:, np.newaxis] == np.arange(1, causes.max() + 1)).astype(float)
    return np.array(step), y, {"episode": subject, "terminated": ended}


def one_hot(step):
    return np.eye(step.max() + 1)[step]


@pytest.mark.parametrize("lmbda", LMBDAS)
@pytest.mark.parametrize("options", [{}, {"penalty": "raw"}, {"penalty": "spread"}, {"fit_intercept": True}])
def test_two_causes(lmbda, options):
    exits, causes = subjects(0)
    step, y, columns = rows_of(exits, causes)
    settings = {"lmbda": lmbda, "alpha": 1e-12, "fit_intercept": False, "low": 0.0, "high": 1.0}
    model = HorizonLSTD(HORIZON, check=False, **settings | options).fit(one_hot(step), y, **columns)
    curve = model.predict_curve(one_hot(step)[:1])
    expected = [naive.aalen_johansen(exits, causes, 2, h) for h in range(1, HORIZON + 1)]
    assert_close(curve[0], expected, "solve")


@pytest.mark.parametrize("lmbda", LMBDAS)
def test_from_any_step_on(lmbda):
    """The prediction of a later row is the probability for those who are still there at its step."""
    exits, causes = subjects(1)
    step, y, columns = rows_of(exits, causes)
    model = HorizonLSTD(5, check=False, lmbda=lmbda, alpha=1e-12, fit_intercept=False).fit(one_hot(step), y, **columns)
    for begin in (0, 3, 7):
        later = exits > begin
        expected = naive.aalen_johansen(exits[later] - begin, causes[later], 2, 5)
        assert_close(model.predict(np.eye(step.max() + 1)[begin : begin + 1])[0], expected, "solve")


@pytest.mark.parametrize("lmbda", LMBDAS)
def test_one_cause_is_kaplan_meier(lmbda):
    exits, causes = subjects(2, n_causes=1)
    step, y, columns = rows_of(exits, causes)
    model = HorizonLSTD(HORIZON, check=False, lmbda=lmbda, alpha=1e-12, fit_intercept=False).fit(
        one_hot(step), y[:, 0], **columns
    )
    survival = 1.0
    for h, predicted in enumerate(model.predict_curve(one_hot(step)[:1])[0], start=1):
        survival *= 1.0 - ((exits == h) & (causes == 1)).sum() / (exits >= h).sum()
        assert_close(1.0 - predicted, survival, "solve")


def test_subjects_that_are_seen_late():
    """With λ = 0. With λ > 0, the steps of those who came late count only for their own later steps."""
    exits, causes = subjects(3)
    entries = np.where(np.arange(len(exits)) % 3 == 0, np.minimum(2, exits - 1), 0)
    step, y, columns = rows_of(exits, causes, entries)
    model = HorizonLSTD(HORIZON, check=False, lmbda=0.0, alpha=1e-12, fit_intercept=False).fit(
        one_hot(step), y, **columns
    )
    expected = naive.aalen_johansen(exits, causes, 2, HORIZON, entries)
    assert_close(model.predict(np.eye(step.max() + 1)[:1])[0], expected, "solve")


def paths_of(seed, n=80, longest=10):
    """Paths through the states healthy, ill and dead, the last of which is never left."""
    random = np.random.default_rng(seed)
    chances = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2]])
    paths = []
    for i in range(n):
        seen = longest if i < 5 else int(random.integers(1, longest + 1))
        path = [0]
        while len(path) <= seen and path[-1] != 2:
            path.append(int(random.choice(3, p=chances[path[-1]])))
        paths.append(path)
    return paths


def test_several_states():
    """Rewards of a step in each state: their sum over h steps is the expected time in it, its growth a probability."""
    horizon, n_states = 6, 3
    paths = paths_of(0)
    dead = [path + [2] * (12 - len(path)) if path[-1] == 2 else path for path in paths]
    probabilities = [naive.state_probabilities(dead, n_states, 0, h) for h in range(horizon)]
    columns = {"episode": [], "terminated": []}
    features, y = [], []
    for number, path in enumerate(paths):
        alive = path[:-1] if path[-1] == 2 else path
        for u, state in enumerate(alive):
            row = np.zeros((12, 2))
            row[u, state] = 1.0
            features.append(row.ravel())
            y.append(np.eye(2)[state])
            columns["episode"].append(number)
            columns["terminated"].append(path[-1] == 2 and u == len(alive) - 1)
    model = HorizonLSTD(horizon, check=False, lmbda=0.0, alpha=1e-12, fit_intercept=False).fit(
        np.array(features), y, **columns
    )
    start = np.zeros((1, 24))
    start[0, 0] = 1.0
    curve = model.predict_curve(start)[0]
    assert_close(curve, np.cumsum(probabilities, axis=0)[:, :2], "solve")
    assert_close(np.diff(curve, axis=0, prepend=0.0), np.array(probabilities)[:, :2], "solve")


def test_standard_errors_are_about_those_of_greenwood():
    """At the size of 600 subjects; the blocks of the jackknife hold ten subjects each."""
    ratios = []
    for seed in range(4):
        exits, causes = subjects(seed, n=600, n_causes=1)
        step, y, columns = rows_of(exits, causes)
        model = HorizonLSTD(HORIZON, check=False, alpha=1e-12, fit_intercept=False).fit(
            one_hot(step), y[:, 0], **columns
        )
        for h in (3, 6, HORIZON):
            n = np.array([(exits >= u).sum() for u in range(1, h + 1)])
            d = np.array([((exits == u) & (causes == 1)).sum() for u in range(1, h + 1)])
            greenwood = np.prod(1 - d / n) * np.sqrt(np.sum(d / (n * (n - d))))
            std = model.predict(one_hot(step)[:1], horizon=h, return_std=True)[1][0]
            ratios.append(std / greenwood)
    assert 0.9 < np.mean(ratios) < 1.1
    assert 0.6 < min(ratios) <= max(ratios) < 1.4
