"""Errors of predictions beside returns completed at a horizon, against the definition."""

import copy
import pickle

import numpy as np
import pytest

import naive
from lstd.online.forgetting import CompletedReturns, horizon_of
from tolerances import assert_close


def draw_episodes(seed, n_rows):
    """Rewards, discounts, ratios, coefficients, predictions, and ends: 0 goes on, 1 terminates, 2 is cut off."""
    random = np.random.default_rng(seed)
    ends = random.choice(3, n_rows, p=[0.9, 0.05, 0.05])
    return (
        random.normal(size=(n_rows, 2)), random.choice([0.0, 0.5, 0.9, 1.0], n_rows), random.uniform(0, 2, n_rows),
        random.choice([0.0, 0.5, 1.0], n_rows, p=[0.1, 0.2, 0.7]), random.normal(size=(n_rows + 1, 2)), ends,
    )  # fmt: skip


def expected_errors(data, horizon):
    """Errors of the rows whose return is complete, row by row in time order, by the definition."""
    rewards, discounts, ratios, coefficients, values, ends = data
    found, first = [], 0

    def complete(row, stop, cut):
        part = slice(row, stop)
        for k in range(2):
            returned = naive.completed_return(
                0, rewards[part, k], discounts[part], ratios[part], values[row : stop + 1, k], cut, coefficients[part]
            )
            found.append(values[row, k] - returned)

    for t in range(len(rewards)):
        if t - horizon >= first:
            complete(t - horizon, t, True)
            first += 1
        if ends[t]:
            for row in range(first, t + 1):
                complete(row, t + 1, ends[t] == 2)
            first = t + 1
    return np.array(found).reshape(-1, 2)


@pytest.mark.parametrize("horizon", [1, 2, 7, 40])
def test_errors_equal_the_definition(horizon):
    data = draw_episodes(horizon, 120)
    rewards, discounts, ratios, coefficients, values, ends = data
    window, found = CompletedReturns(horizon, 2), []
    for t in range(len(rewards)):
        found.extend(window.add(values[t], rewards[t], discounts[t], ratios[t], coefficients[t]))
        if t == 60:
            window = pickle.loads(pickle.dumps(copy.deepcopy(window)))
        if ends[t]:
            found.extend(window.close(values[t + 1] if ends[t] == 2 else None))
            assert len(window) == 0
        assert len(window) <= horizon
    assert_close(np.array(found).reshape(-1, 2), expected_errors(data, horizon), "sums")


def test_the_horizon_leaves_less_than_the_share():
    assert horizon_of(0.0) == horizon_of(0.005) == 1
    assert 0.9 ** horizon_of(0.9) < 0.01 <= 0.9 ** (horizon_of(0.9) - 1)
    assert horizon_of(1.0) == horizon_of(1.0 - 1e-12) == 100_000
