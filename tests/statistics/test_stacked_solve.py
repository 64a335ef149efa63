"""Many systems at once have the solutions of one system at a time."""

from __future__ import annotations

import numpy as np
import pytest

from lstd import LSTDStatistics
from lstd.errors import InvalidInputError
from lstd.statistics.stacked_solve import solve_for_ridges
from lstd.statistics.system import System


def systems_of(n, m, seed, *, gamma=0.9, scales=1.0):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(3):
        X = np.column_stack([random.normal(size=(60, n)) * scales, np.ones(60)])
        sums = LSTDStatistics.from_arrays(X, random.normal(size=(60, m)), gamma=gamma, lmbda=0.6)
        found.append(System.of(sums, "boyan", np.zeros(n), intercept=True))
    return found


def ridges_of(systems, alphas):
    n = len(systems[0].A)
    factors = np.append(np.ones(n - 1), 0.0)
    return np.array([[alpha * (k + 1) * factors for alpha in alphas] for k in range(len(systems))])


def one_by_one(systems, ridges):
    solutions = [
        [system.with_ridge(ridge).solve() for ridge in rows] for system, rows in zip(systems, ridges, strict=True)
    ]
    weights = np.array([[solution.weights for solution in row] for row in solutions])
    return weights, np.array([[solution.condition_number for solution in row] for row in solutions])


@pytest.mark.parametrize("n", [1, 3, 20, 64])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("scales", [1.0, 2.0**40])
def test_weights_and_conditions_are_those_of_single_systems(n, m, scales):
    systems = systems_of(n, m, seed=n, scales=scales)
    ridges = ridges_of(systems, scales**2 * np.array([1e-6, 0.1, 1.0, 100.0]))
    weights, conditions = solve_for_ridges(systems, ridges, stacked=True)
    expected, expected_conditions = one_by_one(systems, ridges)
    size = np.abs(expected).max(axis=2, keepdims=True)
    assert (np.abs(weights - expected) <= 2e-11 * size).all()
    assert (conditions >= (1.0 - 1e-6) * expected_conditions).all()  # LAPACK's estimate is a lower bound
    assert (conditions <= 3.0 * expected_conditions).all()


def test_systems_that_need_care_are_solved_one_by_one():
    """Singular and nearly singular systems, columns without an end, and one of the usual kind, have the same bits."""
    usual, nearly, repeated, empty = systems_of(3, 1, seed=0) + systems_of(3, 1, seed=1)[:1]
    copies = np.eye(4)[[0, 1, 0, 3]]
    repeated = System(copies @ repeated.A @ copies.T, copies @ repeated.b, np.zeros(4), repeated.penalty)
    almost = np.eye(4)
    almost[1] = almost[0] + 1e-5 * almost[1]
    nearly = System(almost @ nearly.A @ almost.T, almost @ nearly.b, np.zeros(4), nearly.penalty)
    empty = System(np.zeros((4, 4)), np.zeros((4, 1)), np.zeros(4), empty.penalty)
    systems = [usual, nearly, repeated, empty, systems_of(3, 1, seed=2, gamma=1.0)[0]]
    ridges = np.zeros((5, 2, 4))
    weights, conditions = solve_for_ridges(systems, ridges, stacked=True)
    expected, expected_conditions = one_by_one(systems, ridges)
    np.testing.assert_array_equal(weights[1:], expected[1:])
    np.testing.assert_array_equal(conditions[1:], expected_conditions[1:])
    np.testing.assert_allclose(weights[0], expected[0], rtol=2e-11)


def test_overflow_is_refused():
    systems = systems_of(2, 1, seed=0)
    huge = System(np.full((3, 3), np.inf), systems[0].b, systems[0].ridge, systems[0].penalty)
    with pytest.raises(InvalidInputError, match="below 1e308"):
        solve_for_ridges([huge, *systems[1:]], ridges_of(systems, [1.0]), stacked=True)
