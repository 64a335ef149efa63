"""The paper's problems as `naive` draws them: check values, models, features, and the error of a run."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from tolerances import assert_close


@pytest.mark.parametrize(("lmbda", "expected"), [(0.0, 1.0023869926), (0.1, 1.0014221751)])
def test_check_values(lmbda, expected):
    error = naive.sweep_entry("deterministic", "normal", "true_online_td", lmbda, 1e-3, 1)
    assert_close(error, expected, "check_value")


def test_draws_one_by_one_equal_draws_of_arrays():
    random = np.random.RandomState(1000)
    random.uniform(size=100)
    for _ in range(10):
        random.choice(10, 3, replace=False)
        random.uniform(size=2)
    R = random.normal(size=100).reshape(10, 10)
    random.uniform(size=10)
    raw = random.normal(size=(10, 5))
    _, drawn, source = naive.random_mrp(10, 3, 1000)
    np.testing.assert_array_equal(drawn, R)
    rows = naive.make_features("normal", 10, source)
    assert_close(rows, raw / np.linalg.norm(raw, axis=1, keepdims=True), "sums")


def test_binary_features_are_the_bits_of_the_state_plus_one():
    rows = naive.make_features("binary", 10, None)
    assert rows.shape == (10, 4)
    np.testing.assert_array_equal(rows[0], [0, 0, 0, 1])
    assert_close(rows[4], np.array([0, 1, 0, 1]) / np.sqrt(2), "sums")
    assert naive.make_features("binary", 100, None).shape == (100, 7)


@pytest.mark.parametrize("name", naive.PROBLEMS)
def test_problem_values_and_stationary_distribution(name):
    P, R, _, D, _ = naive.problem(name, "tabular")
    r = (P * R).sum(axis=1)
    values = np.linalg.solve(np.eye(len(P)) - naive.GAMMA * P, r)
    assert_close(naive.true_values(P, r, naive.GAMMA), values, "power_series")
    assert_close(D @ P, D, "stationary")
    assert_close(D.sum(), 1.0, "stationary")
    assert np.count_nonzero(D == 0) == (10 if name == "deterministic" else 0)


def test_stationary_of_periodic_transient_and_separate_chains():
    P = np.zeros((6, 6))
    P[0, [1, 3]] = 0.25, 0.75  # state 0 is left for the cycle {1, 2} or the cycle {3, 4}; 5 is never reached
    P[1, 2] = P[2, 1] = P[3, 4] = P[4, 3] = P[5, 0] = 1.0
    expected = np.array([0, 0.125, 0.125, 0.375, 0.375, 0])
    assert_close(naive.stationary(P), expected, "stationary")
    assert_close(naive.stationary(P, start=1), [0, 0.5, 0.5, 0, 0, 0], "stationary")
    average, distribution = np.zeros(6), np.eye(6)[0]
    for _ in range(2000):
        average += distribution / 2000
        distribution = distribution @ P
    assert_close(average, expected, "cesaro")


def test_stationary_restarts_after_termination():
    P = np.array([[0.0, 1.0], [0.0, 0.5]])  # state 1 ends half of the time
    assert_close(naive.stationary(P, restart=np.array([1.0, 0.0])), [1 / 3, 2 / 3], "stationary")


def test_sweep_entry_of_a_diverging_run_is_infinite():
    assert naive.sweep_entry("large", "binary", "td", 1.0, 2.0, 1) == np.inf
