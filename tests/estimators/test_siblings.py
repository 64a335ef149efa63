"""What one estimator checks, its siblings check: a table of checks and estimators."""

import copy
import pickle
import warnings
from functools import cache

import numpy as np
import pytest

from lstd import LSTD, LSTDCV, TD, HorizonLSTD, RecursiveLSTD, TrueOnlineTD
from lstd.errors import (
    EffectiveSampleWarning,
    InvalidInputError,
    MissingTerminationWarning,
)
from lstd.inference import ReturnSpread, difference

X = np.array([[1.0], [2.0], [3.0], [1.0], [2.0], [4.0]])
Y = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
EPISODE = np.array([1, 1, 1, 2, 2, 2])
TERMINATED = np.array([False, False, True, False, False, True])
SIBLINGS = {
    "LSTD": lambda: LSTD(0.9), "HorizonLSTD": lambda: HorizonLSTD(2, 0.9),
    "RecursiveLSTD": lambda: RecursiveLSTD(1, 0.9),
}  # fmt: skip
LARGEST = np.finfo(np.float64).max


def with_value(array, row, value):
    array = np.array(array, np.float64)
    array[row] = value
    return array


# The arguments of the second chunk that break a rule, and what the message names.
CHECKS = {
    "a huge feature": ({"X": with_value(X, 1, LARGEST)}, "1e308|below 1e"),
    "a huge negative feature": ({"X": with_value(X, 1, -LARGEST)}, "1e308|below 1e"),
    "a huge feature in the last row": ({"X": with_value(X, 4, LARGEST)}, "1e308|below 1e"),
    "a huge reward": ({"y": with_value(Y, 1, LARGEST)}, "1e308|below 1e"),
    "a huge negative reward": ({"y": with_value(Y, 1, -LARGEST)}, "1e308|below 1e"),
    "a huge weight": ({"weight": np.full(6, LARGEST)}, "1e308|below 1e"),
    "a feature that is NaN": ({"X": with_value(X, 1, np.nan)}, "`X` must be finite"),
    "an infinite reward": ({"y": with_value(Y, 1, np.inf)}, "`y` must be finite"),
    "a reward that is NaN": ({"y": with_value(Y, 1, np.nan)}, "`y` must be finite"),
    "text": ({"X": np.full((6, 1), "a")}, "`X` must be an array of real numbers"),
    "times": ({"X": np.full((6, 1), "2024-01-01", "M8[D]")}, "`X` must be an array of real numbers"),
    "objects that are times": ({"y": np.full(6, np.datetime64("2024-01-01"), object)}, "`y` must be an array of real"),
    "flags of words": ({"terminated": np.full(6, "maybe")}, "`terminated` must hold True and False"),
    "a missing id": ({"episode": np.array([3, 3, 3, 4, 4, np.nan])}, "`episode` must have an id .*; row 5"),
    "the text of a missing id": ({"episode": np.array(list("333444"), object) * np.array([1, 1, 1, 0, 1, 1])}, "row 3"),
    "an id again": ({"episode": np.array([3, 3, 3, 1, 1, 1])}, "`episode` must be contiguous"),
    "an id again as text": ({"episode": np.array([" 3", "3.0", "3", "1.0", "1", "1"])}, "`episode` must be contiguous"),
    "floats beyond integers": ({"episode": np.array([3, 3, 3, 4, 4, 2.0**53])}, "tell integers apart"),
    "a negative weight": ({"weight": np.full(6, -1.0)}, "`weight` must be finite and at least 0"),
    "rows that are missing": ({"y": Y[:5]}, "`y` must have one reward per row"),
}


@pytest.mark.parametrize("sibling", SIBLINGS)
@pytest.mark.parametrize("check", CHECKS)
def test_every_sibling_refuses_and_stays_as_it_was(check, sibling):
    changes, message = CHECKS[check]
    model = SIBLINGS[sibling]().partial_fit(X, Y, episode=EPISODE, terminated=TERMINATED)
    before = model.predict(X)
    arguments = {"X": X, "y": Y, "episode": np.array([3, 3, 3, 4, 4, 4]), "terminated": TERMINATED} | changes
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(**arguments)
    np.testing.assert_array_equal(model.predict(X), before)
    if "huge" in check:
        with pytest.raises(InvalidInputError, match=message):
            SIBLINGS[sibling]().partial_fit(**arguments)


@pytest.mark.parametrize("weight", [None, np.zeros(2)], ids=["one row", "no weight"])
@pytest.mark.parametrize("make", [LSTD, lambda: HorizonLSTD(4)], ids=["LSTD", "HorizonLSTD"])
def test_counts_need_no_weights(make, weight):
    """Before the first full transition, or the first with a weight, the rows so far are counted."""
    n_rows = 1 if weight is None else 2
    model = make().partial_fit(X[:n_rows], Y[:n_rows], weight=weight)
    assert model.n_transitions_ == n_rows - 1
    assert model.n_episodes_ == 1
    whole = model.partial_fit(X[n_rows:], Y[n_rows:], terminated=np.arange(n_rows, 6) == 5)
    assert (whole.n_transitions_, whole.n_episodes_) == (6, 1)


@pytest.mark.parametrize("sibling", SIBLINGS)
def test_every_sibling_continues_ids_of_every_kind(sibling):
    """Tuples, which NumPy would make a matrix of, and objects of several types."""
    whole = SIBLINGS[sibling]().partial_fit(X, Y, episode=EPISODE, terminated=TERMINATED)
    for one, two in [((1, "a"), (2, "b")), (True, 1), (b"\xff", "7"), (np.datetime64("2024"), "2024-01-02")]:
        ids = np.fromiter([one] * 3 + [two] * 3, dtype=object, count=6)
        model = SIBLINGS[sibling]()
        for part in (slice(2), slice(2, 4), slice(4, 6)):
            model.partial_fit(X[part], Y[part], episode=ids[part], terminated=TERMINATED[part])
        np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------ warnings of predictions


def rows(n_episodes=60, length=6, seed=0):
    """Episodes of two features between 0 and 1, the second of which is an age, and rewards from 0 to 2."""
    random = np.random.default_rng(seed)
    T = n_episodes * length
    X = np.column_stack([random.uniform(size=T), np.tile(np.arange(float(length)), n_episodes)])
    y = X[:, 0] + random.uniform(size=T)
    return {"X": X, "y": y, "episode": np.repeat(np.arange(n_episodes), length), "terminated": np.arange(T) % 6 == 5}


def fitted(name):
    """The spread about a model; neither has predicted yet."""
    return copy.deepcopy(fitted_once(name))


@cache
def fitted_once(name):
    data = rows()
    with warnings.catch_warnings(action="ignore"):
        return ReturnSpread(model_of(name, data)).fit(**data)


def model_of(name, data):
    if name == "LSTD of chunks":
        return LSTD(0.5, alpha=1e-3).partial_fit(**data)
    if name == "HorizonLSTD with age":
        return HorizonLSTD(3, age=1, alpha=1e-3).fit(**data)
    kinds = {"LSTD": LSTD(0.5), "LSTDCV": LSTDCV(0.5), "HorizonLSTD": HorizonLSTD(3)}
    return kinds[name].fit(**data)


FAR = np.column_stack([np.linspace(5.0, 9.0, 40), np.full(40, 2.0)])
FAR_TOO = np.add(FAR, [0.0, 50.0])
MODELS = ["LSTD", "LSTDCV", "HorizonLSTD", "HorizonLSTD with age", "LSTD of chunks"]
METHODS = {  # of a spread, its model and features
    "predict": lambda _, model, X: model.predict(X),
    "standard errors": lambda _, model, X: model.predict(X, return_std=True),
    "an interval of a Pipeline": lambda _, model, X: model.predict(X, return_interval=0.9),
    "predict_interval": lambda _, model, X: model.predict_interval(X),
    "a weighted sum": lambda _, model, X: model.predict_interval(X, weights=np.ones(len(X))),
    "contributions": lambda _, model, X: model.contributions(X),
    "predict_curve": lambda _, model, X: (
        model.predict_curve(X) if hasattr(model, "predict_curve") else model.predict(X)
    ),
    "a difference": lambda _, model, X: difference(model, model, X) if isinstance(model, LSTD) else model.predict(X),
    "another difference": lambda _, model, X: (
        difference(model, model, rows()["X"][:40], X_b=X) if isinstance(model, LSTD) else model.predict(X)
    ),
    "ranges": lambda spread, _, X: spread.predict_interval(X),
    "standard deviations": lambda spread, _, X: spread.predict_std(X),
}


def given(method, spread, X):
    """Return the categories of the warnings that a method gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        METHODS[method](spread, spread.model, X)
    return sorted({one.category.__name__ for one in found})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_what_predict_warns_of_every_sibling_does_once(method, name):
    spread = fitted(name)
    expected = given("predict", copy.deepcopy(spread), FAR)
    assert "ExtrapolationWarning" in expected
    assert ("BoundsWarning" in expected) == (name == "LSTD of chunks")
    assert given(method, spread, rows()["X"][:40]) == []
    assert given(method, spread, FAR) == expected
    for other in METHODS:
        assert given(other, spread, FAR) == []
    assert given(method, spread, FAR_TOO) == ["ExtrapolationWarning"]
    assert given(method, pickle.loads(pickle.dumps(spread)), FAR) == expected


def test_a_spread_says_once_that_groups_are_few():
    spread = fitted("LSTD")
    X = rows()["X"][:5]
    with pytest.warns(EffectiveSampleWarning, match="too few groups"):
        spread.predict_interval(X, level=0.99)
    spread.predict_interval(X, level=0.99)
    with warnings.catch_warnings(action="ignore"):
        spread.fit(**rows())
    with pytest.warns(EffectiveSampleWarning, match="too few groups"):
        spread.predict_interval(X, level=0.99)


# ------------------------------------------------------------ missing ends


@pytest.mark.parametrize("make", [RecursiveLSTD, TD, TrueOnlineTD])
def test_a_stream_asks_once_whether_ends_were_seen_and_when_it_matters(make):
    model = make(1, 0.9)
    for _ in range(3):  # one episode goes on: nothing is taken as cut off
        model.partial_fit(X, Y, episode=np.zeros(6))
    before = model.weights
    with warnings.catch_warnings(action="error"), pytest.raises(MissingTerminationWarning, match="Were ends seen"):
        model.partial_fit(X, Y, episode=np.ones(6))
    np.testing.assert_array_equal(model.weights, before)
    with pytest.warns(MissingTerminationWarning, match="Were ends seen"):
        model.partial_fit(X, Y, episode=np.ones(6))
    model.partial_fit(X, Y, episode=np.repeat([2, 3, 4], 2))
    with pytest.warns(MissingTerminationWarning):
        make(1, 0.9).partial_fit(X, Y, episode=EPISODE)
    after_an_end = make(1, 0.9).partial_fit(X[:3], Y[:3], episode=EPISODE[:3], terminated=TERMINATED[:3])
    after_an_end.partial_fit(X[3:], Y[3:], episode=EPISODE[3:])
    make(1, 0.9).partial_fit(X, Y, episode=EPISODE, terminated=False)
