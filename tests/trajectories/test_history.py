"""Earlier rows as features."""

import numpy as np
import pytest
from scipy import sparse

from lstd import Trajectories
from lstd.errors import InvalidInputError


def data(**changed):
    random = np.random.default_rng(0)
    given = {
        "X": random.normal(size=(9, 2)), "y": random.normal(size=9), "episode": [1, 1, 1, 1, 2, 3, 3, 3, 3],
        "terminated": [0, 0, 0, 1, 0, 0, 0, 0, 0], "actions": np.array([2, 0, 1, 2, 0, 0, 1, 2, 0]),
    }  # fmt: skip
    return Trajectories(**given | changed)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_columns_are_those_of_earlier_rows(k):
    one = data()
    found = one.with_history(k)
    assert found.X.shape == (9, 2 + k * 7)
    np.testing.assert_array_equal(found.X[:, :2], one.X)
    first = {1: 0, 2: 4, 3: 5}
    for t in range(9):
        for back in range(1, k + 1):
            part = found.X[t, 2 + (back - 1) * 7 : 2 + back * 7]
            if t - back < first[int(one.episode[t])]:
                assert not part.any()
                continue
            s = t - back
            assert part.tolist() == [*one.X[s], *np.eye(3)[one.actions[s]], one.y[s], 1.0]
    for name in ("y", "episode", "terminated", "actions", "horizon"):
        np.testing.assert_array_equal(getattr(found, name), getattr(one, name))


def test_sparse_features_and_several_rewards():
    one = data(actions=None, y=np.arange(18.0).reshape(9, 2))
    many = data(actions=None, y=np.arange(18.0).reshape(9, 2), X=sparse.csr_array(one.X)).with_history(2)
    assert sparse.issparse(many.X)
    np.testing.assert_array_equal(many.X.toarray(), one.with_history(2).X)
    assert many.feature_names[2:7] == ("x0_1_back", "x1_1_back", "reward_0_1_back", "reward_1_1_back", "known_1_back")


@pytest.mark.parametrize(
    ("actions", "names"),
    [
        (np.linspace(0.0, 1.0, 9), ["action_1_back"]),
        (np.ones((9, 2)), ["action_0_1_back", "action_1_1_back"]),
        (np.array(["b", "a", "b"] * 3), ["action_a_1_back", "action_b_1_back"]),
    ],
)
def test_actions_of_any_kind_are_columns(actions, names):
    found = data(actions=actions).with_history()
    assert list(found.feature_names[4:-2]) == names
    assert np.isfinite(found.X).all()


@pytest.mark.parametrize("k", [0, 1.5, "2"])
def test_bad_numbers_of_rows_are_refused(k):
    with pytest.raises(InvalidInputError, match="`k` must be"):
        data().with_history(k)
