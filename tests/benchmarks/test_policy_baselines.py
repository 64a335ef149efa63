"""Estimates that `lstd` is compared with, each against its formula."""

import numpy as np
import pytest

from lstd.ope import LSTDQ, importance_sampling

GAMMA = 0.9


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        from test_benchmarks import BENCHMARKS

        patch.syspath_prepend(str(BENCHMARKS))
        import policy_baselines
        import policy_problems

        yield policy_baselines, policy_problems


@pytest.fixture(scope="module")
def table(modules):
    """Three states and an end, two actions; episodes are cut off after 6 steps."""
    random = np.random.default_rng(0)
    P = np.zeros((4, 2, 4))
    P[:3] = random.dirichlet(np.ones(4), size=(3, 2))
    P[3, :, 3] = 1.0
    reward = random.normal(size=(4, 2, 4))
    return modules[1].Table(P, reward, np.arange(4) == 3, np.array([0.5, 0.3, 0.2, 0.0]), GAMMA, 6, 0.1)


@pytest.fixture(scope="module")
def target():
    return np.random.default_rng(1).dirichlet(np.ones(2), size=4)


@pytest.fixture(scope="module")
def data(modules, table, target):
    log = table.draw(np.full((4, 2), 0.5), 60, 0)
    return modules[0].Logged(log, target[log.state], np.full((len(log.state), 2), 0.5), np.eye(4)[log.state], GAMMA)


def test_the_moments_of_a_table_are_those_of_its_episodes(table, target):
    log = table._replace(steps=200).draw(target, 20_000, 3)
    age = np.arange(len(log.episode)) - np.flatnonzero(log.first)[log.episode]
    returns = np.bincount(log.episode, log.reward * GAMMA**age)
    exact = table.truth(target)
    assert abs(returns.mean() - exact.value) < 4 * exact.deviation / np.sqrt(20_000)
    assert returns.std() == pytest.approx(exact.deviation, rel=0.03)


def literal_partial_return(data, q, length):
    """A weighted doubly robust return that follows the log for `length` steps, by loops over steps and episodes."""
    log, total = data.log, 0.0
    episodes = [np.flatnonzero(log.episode == i) for i in range(log.episode[-1] + 1)]

    def weight(i, t):
        """Product of the ratios of the first t steps, as a share of that of all episodes."""
        R = [np.prod(data.ratio[rows[:t]]) for rows in episodes]
        return R[i] / sum(R)

    for i, rows in enumerate(episodes):
        for t, row in enumerate(rows[:length]):
            v = data.target[row] @ q[row]
            total += GAMMA**t * weight(i, t) * v
            if data.full[row]:
                total += GAMMA**t * weight(i, t + 1) * (log.reward[row] - q[row, log.action[row]])
        if length < len(rows):
            total += GAMMA**length * weight(i, length) * (data.target[rows[length]] @ q[rows[length]])
    return total


@pytest.mark.parametrize("length", [0, 1, 3, 7])
def test_partial_returns_are_those_of_the_definition(modules, data, length):
    q = np.random.default_rng(2).normal(size=data.target.shape)
    shares = modules[0].partial_returns(data, q, [length])
    assert shares.sum() == pytest.approx(literal_partial_return(data, q, length), abs=1e-12)


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_the_longest_partial_return_is_weighted_doubly_robust(modules, data):
    q = np.random.default_rng(2).normal(size=(4, 2))
    log = data.log
    found = importance_sampling(
        np.eye(4)[log.state], np.where(data.full, log.reward, np.nan), gamma=GAMMA, estimator="wdr", q=lambda X: X @ q,
        actions=log.action, target_policy=data.target, behavior_probability=data.mu, episode=log.episode,
        terminated=log.terminated,
    )  # fmt: skip
    assert modules[0].partial_returns(data, q[log.state], [7]).sum() == pytest.approx(found.value, abs=1e-12)


def test_a_mix_has_the_least_squared_bias_and_variance(modules):
    covariance, bias = np.array([[0.0, 0.0], [0.0, 4.0]]), np.array([1.0, 0.0])
    assert modules[0].mix(covariance, bias) == pytest.approx([0.8, 0.2], abs=1e-4)  # 4 / (1 + 4)
    assert modules[0].mix(np.diag([1.0, 3.0]), np.zeros(2)) == pytest.approx([0.75, 0.25], abs=1e-4)


def test_the_tabular_model_solves_that_of_the_frequencies(modules, data):
    log, P, r, count = data.log, np.zeros((4, 2, 4)), np.zeros((4, 2)), np.zeros((4, 2))
    for t in np.flatnonzero(data.full):
        count[log.state[t], log.action[t]] += 1
        r[log.state[t], log.action[t]] += log.reward[t]
        if not log.terminated[t]:
            P[log.state[t], log.action[t], log.state[t + 1]] += 1
    assert count[:3].min() > 0
    count[3] = 1
    policy = np.zeros((4, 2))
    policy[log.state] = data.target
    moves, reward = (policy[..., np.newaxis] * P / count[..., np.newaxis]).sum(1), (policy * r / count).sum(1)
    v = np.linalg.solve(np.eye(4) - GAMMA * moves, reward)
    assert modules[0].tabular(data, 4) == pytest.approx(v[log.state[log.first]].mean(), abs=1e-9)


def test_linear_fitted_q_ends_at_least_squares_temporal_differences(modules, data):
    X = np.random.default_rng(4).normal(size=(4, 1))[data.log.state]
    log = data.log
    model = LSTDQ(GAMMA, alpha=1e-3, fit_intercept=False, weighting="none").fit(
        np.column_stack([X, np.ones(len(X))]), np.where(data.full, log.reward, np.nan), actions=log.action,
        target_policy=data.target, episode=log.episode, terminated=log.terminated,
    )  # fmt: skip
    values = (model.action_values(np.column_stack([X, np.ones(len(X))])) * data.target).sum(axis=1)
    assert modules[0].linear_q(data, X) == pytest.approx(values[log.first].mean(), abs=1e-6)


def test_boosted_fitted_q_of_single_steps_is_the_mean_reward_of_each_pair(modules, table, target):
    log = table._replace(steps=1, noise=0.0).draw(np.full((4, 2), 0.5), 1500, 0)
    target, both = target[log.state], np.full((len(log.state), 2), 0.5)
    data = modules[0].Logged(log, target, both, np.eye(4)[log.state], 0.0)
    q = modules[0].boosted_q(data)
    for state, action in ((0, 0), (2, 1)):
        rows = (log.state == state) & (log.action == action) & data.full
        assert q[rows, action].mean() == pytest.approx(log.reward[rows].mean(), abs=0.08)


def test_the_first_choice_is_judged_beside_the_best_method(modules, monkeypatch):
    import policy_tables

    def file(methods):
        cell = {"truth": 1.0, "deviation": 10.0, "error": 0.0, "repeats": [0, 1], "methods": methods}
        return {"cells": {"lake | a log | a target | 100": cell}}

    chosen = [[4.0, 2.0, 6.0, "", "doubly robust"], [-2.0, -4.0, 0.5, "M", "doubly robust"]]  # errors of 3, bound 1
    found = file({"first choice, fine": chosen, "state values, fine": [[9.0, 8.0, 10.0]] * 2})
    (cell,) = policy_tables.cells(found, file({"WIS": [[3.0, 0.0, 9.0, "E", ""], [-1.0, 0.0, 0.5, "E", ""]]}))
    assert (cell.bound, cell.error("first choice"), cell.best) == (1.0, 3.0, (2.0, "WIS"))
    assert cell.ratio == 1.5
    assert cell.held("WIS").tolist() == [True, False]
    assert not cell.enough  # too few repeats to judge
    monkeypatch.setattr(policy_tables, "ENOUGH", 2)
    lines = policy_tables.goals([cell])
    assert "| error beside that of the best single method, largest | ≤ 2.5 | — | 1.50 |" in lines
    assert "| truth in the interval, or a warning, all | ≥ 0.9 | — | **0.50**, missed |" in lines
    assert "| features noticed where state values miss in 60 % or more, all | ≥ 0.5 | — | 0.50 |" in lines
    assert "| lake, a log, a target, fine | 100 | 2 | 0.50 | 3 | 8 |" in policy_tables.misses([cell])
    assert policy_tables.by_process([cell])[-1] == "| lake, 100 | 2 | 1.50 | 1.50 | 0.00 | 0.50 | 4.0 |"


def test_the_first_choice_measured_again_is_beside_what_it_was_on_the_same_logs(modules):
    import policy_tables

    def file(date, estimates):
        cell = {"truth": 1.0, "deviation": 10.0, "repeats": [*range(len(estimates))]}
        return {
            "date": date,
            "cells": {"lake | a log | a target | 100": cell | {"methods": {"first choice, fine": estimates}}},
        }

    new = file("later", [[2.0, 0.0, 3.0, "", ""], [2.0, 0.5, 3.0, "M", ""]])
    old = file("once", [[4.0, 2.0, 6.0, "", ""], [4.0, 2.0, 6.0, "M", ""], [900.0, 900.0, 900.0, "", ""]])
    lines = policy_tables.again(new, old).splitlines()
    assert lines[-4] == "| lake | 1 | 2 | 1.00 | 3.00 | 1.00 | 0.00 | 1.00 | 0.50 |"
    assert lines[-3] == "| all | 1 | 2 | 1.00 | 3.00 | 1.00 | 0.00 | 1.00 | 0.50 |"
    assert lines[-1].startswith("Where features are right, 0.50 of the logs")
