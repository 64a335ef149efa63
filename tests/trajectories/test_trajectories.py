"""`Trajectories` itself: the data contract, immutability, joining."""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from lstd import Trajectories
from lstd.data.ids import first_repeat, last_rows
from lstd.errors import InvalidInputError, LSTDError, MissingExtraError, MissingTerminationWarning

NAN = float("nan")
X4 = np.arange(8.0).reshape(4, 2)


def example(**changes):
    arguments = {
        "X": X4,
        "y": [0.0, 1.0, 0.5, NAN],
        "episode": ["a", "a", "b", "b"],
        "terminated": [False, True, False, False],
    }
    return Trajectories(**(arguments | changes))


def test_rows_of_the_contract():
    data = example()
    assert (len(data), data.n_features, data.n_episodes, data.n_transitions) == (4, 2, 2, 3)
    assert_array_equal(data.horizon, [False, False, False, True])
    arrays = data.to_arrays()
    assert list(arrays) == ["X", "y", "episode", "terminated"]
    assert_array_equal(arrays["X"], X4)
    assert_array_equal(arrays["y"], [0.0, 1.0, 0.5, NAN])
    assert arrays["episode"].tolist() == ["a", "a", "b", "b"]
    assert arrays["terminated"].dtype == np.bool_
    assert repr(data) == "Trajectories(n_rows=4, n_features=2, n_episodes=2, n_transitions=3, n_terminated=1)"


def test_without_ids_an_episode_ends_where_it_terminates():
    data = Trajectories(X4, [1.0, 2.0, 3.0, 4.0], terminated=[False, True, True, False])
    assert data.episode.tolist() == [0, 0, 1, 2]
    assert (data.n_episodes, data.n_transitions) == (3, 3)


def test_optional_arrays():
    data = example(discount=[0.9, 0.5, 0.9, 0.9], importance_ratio=2.0, feature_names=["p", "q"])
    assert_array_equal(data.discount, [0.9, 0.0, 0.9, 0.9])  # a transition that terminates has discount 0
    assert_array_equal(data.to_arrays()["importance_ratio"], np.full(4, 2.0))
    assert data.feature_names == ("p", "q")


def test_missing_termination_warns_and_nothing_terminated():
    with pytest.warns(MissingTerminationWarning, match="`terminated`") as caught:
        data = example(terminated=None, y=[0.0, 1.0, 0.5, 0.25])
    assert caught[0].filename == __file__
    assert not data.terminated.any()
    assert data.n_transitions == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0.0, NAN, 0.5, 0.0]}, r"`y` .* row 1 has no value"),
        ({"episode": [1, 1, "b", "b"]}, None),
        ({"episode": np.array([1, 1, "b", "b"], dtype=object)}, None),
        ({"episode": np.array(["2020", "2020", "NaT", "2021"], dtype="M8[D]")}, r"`episode` .* row 2 has"),
        ({"feature_names": ["p"]}, r"`feature_names` .* per feature, 2; got 1"),
        ({"feature_names": "pq"}, r"`feature_names` must be a sequence of str"),
    ],
)
def test_bad_arrays_are_refused(changes, message):
    if message is None:
        assert example(**changes).episode.tolist() == [1, 1, "b", "b"]
        return
    with pytest.raises(InvalidInputError, match=message):
        example(**changes)


def test_nothing_can_be_changed():
    X, y = X4.copy(), np.array([0.0, 1.0, 0.5, NAN])
    data = example(X=X, y=y)
    X[0, 0] = y[0] = 99.0
    assert data.X[0, 0] == 0.0
    assert data.y[0] == 0.0
    for array in (*data.to_arrays().values(), data.horizon):
        assert not array.flags.writeable
    with pytest.raises(AttributeError, match="immutable"):
        data.X = X
    with pytest.raises(AttributeError, match="immutable"):
        del data.X
    assert X.flags.writeable


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_features_are_copied_into_rows(form):
    source = sparse.csr_array(X4)
    given = source.asformat(form)
    data = example(X=given)
    assert data.X.format == "csr"
    given.data[:] = -1.0
    assert_array_equal(data.X.toarray(), X4)
    with pytest.raises(ValueError, match="read-only"):
        data.X.data[0] = 3.0


def test_concat():
    first, second = example(), example(episode=["c", "c", "d", "d"])
    both = Trajectories.concat([first, second])
    assert len(both) == 8
    assert both.episode.tolist() == list("aabbccdd")
    assert_array_equal(both.X, np.vstack([X4, X4]))
    assert both.n_transitions == 6


def test_concat_makes_missing_ratios_and_weights_one():
    both = Trajectories.concat([example(), example(episode=list("ccdd"), importance_ratio=2.0, weight=0.5)])
    assert_array_equal(both.importance_ratio, [1, 1, 1, 1, 2, 2, 2, 2])
    assert_array_equal(both.weight, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (list, "at least one"),
        (lambda: [example(), example()], r"'a' is in parts 0 and 1.*renumber=True"),
        (lambda: [example(), example(X=X4[:, :1], episode=list("ccdd"))], "same features; part 0 has 2, part 1 1"),
        (lambda: [example(), example(discount=0.5, episode=list("ccdd"))], "same discounts"),
        (lambda: [example(), example(y=np.ones((4, 2)), episode=list("ccdd"))], "same rewards"),
        (lambda: [example(feature_names=["p", "q"]), example(episode=list("ccdd"))], "same feature names"),
    ],
)
def test_concat_refuses_what_does_not_fit(parts, message):
    with pytest.raises(InvalidInputError, match=message):
        Trajectories.concat(parts())


KNOWN = {"actions": [2, 0, 1, 0], "behavior_probability": [0.5, 0.25, 1.0, NAN], "groups": ["p", "p", "q", "q"]}


def test_actions_go_with_their_rows():
    data = example(**KNOWN)
    both = Trajectories.concat([data, data], renumber=True)
    for name, values in KNOWN.items():
        assert_array_equal(getattr(both, name), [*values, *values])
        assert_array_equal(getattr(pickle.loads(pickle.dumps(data)), name), values)
        assert_array_equal(getattr(data[1:], name), values[1:])
    assert "actions" not in data.to_arrays()
    with pytest.raises(InvalidInputError, match="same actions"):
        Trajectories.concat([data, example(episode=list("ccdd"), groups=KNOWN["groups"])])


def test_rows_are_chosen_by_slices_and_masks_of_whole_episodes():
    data = example(**KNOWN, discount=[0.5, 0.0, 0.25, 1.0], feature_names=["u", "v"])
    cut = data[:1]
    assert (len(cut), cut.n_transitions, cut.horizon.tolist(), cut.feature_names) == (1, 0, [True], ("u", "v"))
    chosen = data[data.episode == "b"]
    assert_array_equal(chosen.y, [0.5, NAN])
    assert_array_equal(chosen.discount, [0.25, 1.0])
    with pytest.raises(InvalidInputError, match="in episode a it drops row 1 and keeps later ones"):
        Trajectories(X4, np.ones(4), episode=[*"aaaa"], terminated=[False] * 4)[np.array([True, False, True, True])]
    for bad in (slice(None, None, 2), 1, [0, 1], np.ones(3, dtype=bool)):
        with pytest.raises(InvalidInputError, match="indexed by a slice without a step, or by a mask of shape"):
            data[bad]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [1, 2]}, "`actions` must have one action per row, 4; got shape"),
        (
            {"actions": [1.0, NAN, 1.0, NAN]},
            "`actions` must have an action on every row but horizon rows; row 1 has none",
        ),
        ({"actions": ["x", None, "y", None]}, "row 1 has none"),
        ({"actions": [["x", "z"], ["x", None], ["y", "z"], [None, None]]}, "row 1 has none"),
        ({"actions": np.array([["x", 1], ["x", 2], [np.nan, 3], [None, None]], object)}, "row 2 has none"),
        ({"behavior_probability": [0.5, 0.0, 1.0, NAN]}, r"must be in \(0, 1\].*; row 1 has 0"),
        ({"behavior_probability": [50, 20, 100, 1]}, r"must be in \(0, 1\].*; row 0 has 50"),
        ({"behavior_probability": [0.5, 0.5]}, "must have one value per row"),
        (
            {"actions": [0.5, 0.1, 2.0, 1.0], "behavior_probability": [2.0, -1.0, 1.0, 1.0]},
            "above 0 and finite.*; row 1 has",
        ),
    ],
)
def test_actions_that_break_a_rule(change, message):
    with pytest.raises(InvalidInputError, match=message):
        example(**(KNOWN | change))


@given(st.lists(st.integers(0, 4), max_size=12))
def test_structure_by_definition(ids):
    array = np.array(ids, dtype=np.int64)
    runs = [i for i in range(len(ids)) if i == 0 or ids[i] != ids[i - 1]]
    again = next((i for i in runs if ids[i] in ids[:i]), None)
    assert first_repeat(array) == again
    assert last_rows(array).tolist() == [i == len(ids) - 1 or ids[i + 1] != ids[i] for i in range(len(ids))]


@pytest.mark.parametrize("package", ["pyarrow", "gymnasium"])
def test_a_missing_package_is_named_with_its_remedy(package, monkeypatch):
    for name in [name for name in sys.modules if name == "lstd.data.parse_columns"]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr("lstd.data.parse_columns")
    monkeypatch.setitem(sys.modules, package, None)
    extra, use = {
        "pyarrow": ("data", lambda: Trajectories.from_frame(None, features="x", reward="r")),
        "gymnasium": ("gymnasium", lambda: Trajectories.from_gymnasium(None, lambda observation: 0, n_steps=1)),
    }[package]
    with pytest.raises(
        MissingExtraError, match=rf'{package}\. Install it with: pip install "lstd\[{extra}\]"'
    ) as caught:
        use()
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, LSTDError)
