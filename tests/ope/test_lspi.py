"""Policy iteration on stored data."""

import numpy as np
import pytest

from lstd.errors import InvalidInputError
from lstd.ope import StateActionFeatures, lspi
from tolerances import assert_close


def chain(n_rows=3000, n_states=4, seed=0):
    """Random transitions of a chain walk: moves succeed with probability 0.9; the inner states pay 1."""
    random = np.random.default_rng(seed)
    states, actions = random.integers(n_states, size=n_rows), random.integers(2, size=n_rows)
    moves = np.where(random.uniform(size=n_rows) < 0.9, 2 * actions - 1, 1 - 2 * actions)
    after = np.clip(states + moves, 0, n_states - 1)
    X = np.eye(n_states)
    return {
        "X": X[states], "y": 1.0 * np.isin(after, [1, 2]), "actions": actions, "X_next": X[after],
        "episode": np.arange(n_rows),
    }  # fmt: skip


def test_it_stops_on_a_repeated_policy_which_is_the_best_one():
    found = lspi(chain(), StateActionFeatures(2), gamma=0.9)
    assert (found.stopped, found.cycle) == ("repeated", 1)
    assert found.policy(np.eye(4)).argmax(axis=1).tolist() == [1, 1, 0, 0]
    values = [one.value for one in found.path]
    assert values[-1] > values[0]
    assert all(one.lower < one.value < one.upper for one in found.path)
    best = found.model.state_values(np.eye(4))
    assert_close(best, found.policy.values(np.eye(4)).max(axis=1), "solve")


@pytest.mark.parametrize("given", [True, False])
def test_policies_are_compared_in_states_that_only_begin_episodes(given):
    episodes = [([0], [0], [0.6]), ([0, 1], [1, 0], [0.0, 0.0]), ([0, 1], [1, 1], [0.0, 1.0])]  # states, actions, y
    episodes = [episodes[i] for i in (0, 0, 1, 2)] * 10
    states, actions, y = (np.concatenate(column) for column in zip(*episodes, strict=True))
    data = {
        "X": np.eye(2)[states], "y": y, "actions": actions,
        "episode": np.repeat(np.arange(40), [len(one[0]) for one in episodes]),
    }  # fmt: skip
    data["terminated"] = np.append(np.diff(data["episode"]) != 0, True)
    if given:
        data["X_next"] = np.where(data["terminated"][:, np.newaxis], 0.0, np.roll(data["X"], -1, axis=0))
    found = lspi(data, StateActionFeatures(2), gamma=1.0, alpha=1e-9)
    assert found.stopped == "repeated"
    np.testing.assert_allclose([one.value for one in found.path], [0.55, 0.6, 1.0], atol=1e-6)
    assert found.policy(np.eye(2)).argmax(axis=1).tolist() == [1, 1]


def test_it_says_when_the_limit_was_reached():
    found = lspi(chain(), StateActionFeatures(2), gamma=0.9, max_iterations=1)
    assert (found.stopped, found.cycle, len(found.path)) == ("limit", 0, 1)
    assert "policies still change at `max_iterations`" in str(found)


def test_it_says_when_policies_come_back():
    random = np.random.default_rng(0)
    for seed in range(40):  # features that cannot represent the values: some cycle
        data, basis = chain(60, seed=seed), random.normal(size=(4, 2))
        data |= {"X": data["X"] @ basis, "X_next": data["X_next"] @ basis}
        found = lspi(data, StateActionFeatures(2), gamma=0.95, max_iterations=30)
        if found.stopped == "cycle":
            break
    assert found.stopped == "cycle"
    assert found.cycle >= 2
    assert f"come back in a cycle of {found.cycle} after {len(found.path)} evaluations" in str(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": {"X": 1}}, "`data` must have 'y'"),
        ({"data": 3}, "`data` must have 'X'"),
        ({"data": chain(50) | {"importance_ratio": np.ones(50)}}, "`importance_ratio` must not be given"),
        ({"features": None}, "`features` must be StateActionFeatures unless"),
        ({"max_iterations": 0}, "`max_iterations`"),
        ({"epsilon": 2.0}, "`epsilon`"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        lspi(**{"data": chain(50), "features": StateActionFeatures(2), "gamma": 0.9} | options)
