"""TD(λ) and true online TD(λ): after every transition, the weights of the definition."""

import itertools
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from lstd.errors import InvalidInputError
from lstd.online import TD, TrueOnlineTD
from online_streams import FORMS, PYTHON, UNIT, online_lambda_return, streams, td_every_step
from tolerances import assert_close
from twins import compiled_only

KINDS = ("accumulating", "replacing", "true_online")
bounded = settings(max_examples=25, deadline=None, derandomize=True)


def make_td(kind, n, **parameters):
    return TrueOnlineTD(n, **parameters) if kind == "true_online" else TD(n, trace=kind, **parameters)


@pytest.mark.parametrize("kind", ["accumulating", "replacing"])
@bounded
@given(stream=streams(), lmbda=UNIT, form=st.sampled_from(list(FORMS)))
def test_td_is_the_definition(kind, stream, lmbda, form):
    model = TD(len(stream[0].x), lmbda=lmbda, step_size=0.05, trace=kind)
    for t, expected in enumerate(td_every_step(stream, lmbda, 0.05, kind)):
        stream[t].feed(model, FORMS[form])
        assert_close(model.weights, expected, "sums")


@bounded
@given(stream=streams(ratios=False), lmbda=UNIT)
def test_true_online_td_is_the_online_lambda_return_algorithm(stream, lmbda):
    model = TrueOnlineTD(len(stream[0].x), lmbda=lmbda, step_size=0.05)
    for t, expected in enumerate(online_lambda_return(stream, lmbda, 0.05)):
        stream[t].feed(model)
        assert_close(model.weights, expected, "sums")


@pytest.mark.parametrize("kind", KINDS)
def test_td_by_the_python_bodies(kind):
    random = np.random.RandomState(0)
    X, y = random.normal(size=(30, 3)), random.normal(size=30)
    X[random.uniform(size=X.shape) < 0.3] = 0.0
    arguments = {"episode": np.arange(30) // 7, "terminated": np.arange(30) % 14 == 6}
    compiled = make_td(kind, 3).partial_fit(X, y, **arguments).weights
    with mock.patch("lstd.online.td.kernels", PYTHON.td_update):
        body = make_td(kind, 3).partial_fit(X, y, **arguments)
        body.update(X[0], 1.0, X[1])
    twin = make_td(kind, 3).partial_fit(X, y, **arguments)
    assert_close(twin.weights, compiled, "sums")
    twin.update(X[0], 1.0, X[1])
    assert_close(body.weights, twin.weights, "sums")


@st.composite
def row_streams(draw):
    """X, y and the other arrays of the data contract, and where to split them."""
    n_rows, n = draw(st.integers(1, 20)), draw(st.sampled_from([1, 3, 17]))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    X = random.normal(size=(n_rows, n)) * (random.uniform(size=(n_rows, n)) < 0.7)
    episode = np.cumsum(random.uniform(size=n_rows) < 0.2)
    last = np.r_[episode[1:] != episode[:-1], draw(st.booleans())]
    terminated = last & (random.uniform(size=n_rows) < 0.5)
    arrays = {"X": X, "y": random.normal(size=n_rows), "episode": episode, "terminated": terminated}
    if draw(st.booleans()):
        arrays["discount"] = random.uniform(size=n_rows)
    if draw(st.booleans()):
        arrays["X_next"] = random.normal(size=(n_rows, n))
    splits = sorted(draw(st.lists(st.integers(0, n_rows), max_size=3)))
    return arrays, [0, *splits, n_rows]


def row_by_row(model, arrays):
    """What `partial_fit` means, by updates."""
    X, y, episode, terminated = (arrays[name] for name in ("X", "y", "episode", "terminated"))
    for t in range(len(X)):
        followed = t + 1 < len(X) and episode[t + 1] == episode[t]
        discount = arrays["discount"][t] if "discount" in arrays else None
        if "X_next" in arrays:
            x_next, truncated = arrays["X_next"][t], not followed
        elif followed or terminated[t]:
            x_next = None if terminated[t] else X[t + 1]
            truncated = followed and (t + 2 == len(X) or episode[t + 2] != episode[t]) and not terminated[t + 1]
            truncated &= t + 2 < len(X)
        else:
            continue
        model.update(X[t], y[t], x_next, terminated=bool(terminated[t]), truncated=bool(truncated), discount=discount)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_sparse", [False, True])
@bounded
@given(drawn=row_streams())
def test_partial_fit_is_update_row_by_row(kind, as_sparse, drawn):
    arrays, splits = drawn
    n = arrays["X"].shape[1]
    one, whole, chunked = (make_td(kind, n, lmbda=0.8, step_size=0.1) for _ in range(3))
    row_by_row(one, arrays)
    form = sparse.csr_array if as_sparse else np.asarray
    matrices = {name: form(arrays[name]) for name in ("X", "X_next") if name in arrays}
    with mock.patch("lstd.online.td.ENTRIES_AT_ONCE", 4 * n):
        assert whole.partial_fit(**{**arrays, **matrices}) is whole
        for first, stop in itertools.pairwise(splits):
            chunked.partial_fit(**{name: array[first:stop] for name, array in {**arrays, **matrices}.items()})
    assert whole.n_updates == chunked.n_updates == one.n_updates
    assert_close(whole.weights, one.weights, "sums")
    assert_close(chunked.weights, one.weights, "sums")


def test_updates_after_partial_fit_replace_the_pending_row():
    X, y = np.random.RandomState(0).normal(size=(8, 2)), np.arange(8.0)
    whole, updated, mixed = TD(2).partial_fit(X, y), TD(2), TD(2)
    for model in (updated, mixed):
        model.partial_fit(X[:4], y[:4])
        model.update(X[3], y[3], X[4])
    for t in range(4, 7):
        updated.update(X[t], y[t], X[t + 1])
    mixed.partial_fit(X[4:], y[4:])
    for model in (updated, mixed):
        assert model.n_updates == whole.n_updates == 7
        assert_close(model.weights, whole.weights, "sums")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["X", "X_next"])
@pytest.mark.parametrize("row", [0, 7])
def test_features_that_are_not_finite_leave_all_as_it_was(kind, name, row):
    random = np.random.RandomState(0)
    chunks = [{"X": random.normal(size=(8, 3)), "y": np.ones(8), "X_next": random.normal(size=(8, 3))} for _ in "012"]
    if name == "X":
        for chunk in chunks:
            del chunk["X_next"]
    model, twin = make_td(kind, 3).partial_fit(**chunks[0]), make_td(kind, 3).partial_fit(**chunks[0])
    before, n_updates = model.weights, model.n_updates
    bad = {key: array.copy() for key, array in chunks[1].items()}
    bad[name][row, 1] = np.nan
    with pytest.raises(InvalidInputError, match=f"`{name}` must be finite.*row {row} has nan in column 1"):
        model.partial_fit(**bad)
    np.testing.assert_array_equal(model.weights, before)
    assert model.n_updates == n_updates
    for chunk in chunks[1:]:
        model.partial_fit(**chunk)
        twin.partial_fit(**chunk)
    np.testing.assert_array_equal(model.weights, twin.weights)
    assert model.n_updates == twin.n_updates


def test_partial_fit_refuses_what_does_not_follow():
    X, y = np.eye(2), np.array([1.0, np.nan])
    model = TD(2).partial_fit(X, y)
    before = model.weights
    with pytest.raises(InvalidInputError, match="the last row of the chunk before has no value"):
        model.partial_fit(X, y)
    with pytest.raises(InvalidInputError, match="`X_next` must be given for all chunks"):
        model.partial_fit(X, np.ones(2), X_next=X)
    with pytest.raises(InvalidInputError, match="`episode` must be given for all chunks"):
        model.partial_fit(X, y, episode=[1, 1], terminated=[False, False])
    with pytest.raises(InvalidInputError, match="`importance_ratio` must be 1"):
        TrueOnlineTD(2).partial_fit(X, y, importance_ratio=[1.0, 2.0])
    np.testing.assert_array_equal(model.weights, before)


@compiled_only
def test_diverged_weights_are_an_error_and_not_a_nan():
    model = TD(1, step_size=1e9, lmbda=1.0)
    for _ in range(60):
        model.update([1.0], 1.0, [1.0])
    with pytest.raises(InvalidInputError, match="`step_size` must be small enough"):
        model.predict([1.0])


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_columns_of_frames_keep_their_names_and_order(kind):
    rows = np.random.default_rng(0).normal(size=(6, 2))
    frame, y = kind({"a": rows[:, 0], "b": rows[:, 1]}), np.ones(6)
    model = TD(2).partial_fit(frame, y).partial_fit(rows, y).partial_fit(frame, y)
    before = model.weights
    other = kind({"b": rows[:, 1], "a": rows[:, 0]})
    assert model.predict(other).tolist() == model.predict(rows).tolist()
    lacking = kind({"b": rows[:, 1], "c": rows[:, 0]})
    for call in (lambda: model.partial_fit(lacking, y), lambda: model.predict(lacking)):
        with pytest.raises(
            InvalidInputError, match=r"must have the columns \['a', 'b'\], in any order; 'a' is missing"
        ):
            call()
    with pytest.raises(InvalidInputError, match="`X_next` must have the columns"):
        TD(2).partial_fit(frame, y, X_next=lacking)
    assert model.weights.tolist() == before.tolist()
    one, two = (TD(2).partial_fit(frame, y, X_next=successors).weights for successors in (frame, other))
    assert one.tolist() == two.tolist()
    assert model.partial_fit(other, y).weights.tolist() != before.tolist()
