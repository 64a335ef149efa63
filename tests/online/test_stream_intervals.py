"""Standard errors in a stream are those of the batch estimator on the same rows and blocks."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from lstd import LSTD, RecursiveLSTD
from lstd.errors import InvalidInputError
from tolerances import assert_close

N = 5


def rows(n_rows, seed=0):
    random = np.random.default_rng(seed)
    X = np.column_stack([random.normal(size=(n_rows, N - 1)), np.ones(n_rows)])
    return X, X[:, 0] + random.normal(size=n_rows)


def test_several_rewards_and_one_row_have_their_shapes():
    X, y = rows(500)
    model = RecursiveLSTD(N, 0.9, n_rewards=2).partial_fit(X, np.column_stack([y, 2.0 * y]))
    _, errors = model.predict(X[:3], return_std=True)
    assert errors.shape == (3, 2)
    assert_close(errors[:, 1], 2.0 * errors[:, 0], "solve")
    assert model.predict_interval(X[0]).lower.shape == (2,)


def test_with_forgetting_errors_are_of_the_effective_sample():
    """As after a stream of 1/(1 − f) · (1 + f)/… transitions: neither those of all, nor shrinking."""
    X, y = rows(20_000)
    model, found = RecursiveLSTD(N, 0.9, forgetting=0.998), []
    for first in range(0, len(X), 5000):
        model.partial_fit(X[first : first + 5000], y[first : first + 5000])
        found.append(model.predict(X[:200], return_std=True)[1].mean())
    batch = LSTD(0.9, fit_intercept=False).fit(X[:1000], y[:1000])  # 1/Σ w² rows, for weights f^k that sum to 1
    expected = batch.predict(X[:200], return_std=True)[1].mean()
    assert 0.7 < np.mean(found) / expected < 1.4
    assert len(model.reader.influence().shares) <= 28


def test_a_copy_and_a_snapshot_have_the_same_errors():
    X, y = rows(900)
    model = RecursiveLSTD(N, 0.9).partial_fit(X, y)
    again = RecursiveLSTD.restore(model.snapshot())
    other = copy.copy(model)
    other.partial_fit(X, y)
    for one in (again, model):
        assert np.array_equal(one.predict(X[:3], return_std=True)[1], model.predict(X[:3], return_std=True)[1])
    assert again.partial_fit(X, y).predict(X[0], return_std=True) == other.predict(X[0], return_std=True)


def test_a_refused_chunk_leaves_the_blocks_as_they_were():
    X, y = rows(900)
    model = RecursiveLSTD(N, 0.9).partial_fit(X, y)
    before = model.predict(X[:3], return_std=True)[1]
    y[500] = 1e300
    with pytest.raises(InvalidInputError):
        model.partial_fit(X, y)
    assert np.array_equal(model.predict(X[:3], return_std=True)[1], before)


@pytest.mark.parametrize(
    ("settings", "n_rows", "message"),
    [
        ({}, 10, "at least 20 rows; the model was fitted to 9"),
        ({"n_blocks": 0}, 500, "`n_blocks` of at least 10"),
    ],
)
def test_too_few_blocks_are_refused(settings, n_rows, message):
    X, y = rows(n_rows)
    model = RecursiveLSTD(N, 0.9, **settings).partial_fit(X, y)
    with pytest.raises(InvalidInputError, match=message):
        model.predict(X[0], return_std=True)
    with pytest.raises(InvalidInputError, match=message):
        model.predict_interval(X[0])
