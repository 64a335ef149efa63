"""The centre and the spread of columns, against their definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import naive
from lstd.data.feature_arrays import column_spread
from support.tolerances import assert_close

COLUMNS = {
    "normal": lambda random, T: random.normal(3.0, 2.0, T),
    "a rare state": lambda random, T: (np.arange(T) == T // 2).astype(float),
    "a usual state": lambda random, T: (np.arange(T) != T // 2).astype(float),
    "half of the rows": lambda random, T: (np.arange(T) < T // 2).astype(float),
    "many zeros": lambda random, T: random.normal(5.0, 1.0, T) * (random.random(T) < 0.3),
    "few zeros": lambda random, T: random.normal(5.0, 1.0, T) * (random.random(T) < 0.8),
    "constant": lambda random, T: np.full(T, 0.1),
    "zero": lambda random, T: np.zeros(T),
    "a date": lambda random, T: 7e5 + random.integers(0, 500, T),
}


def columns(seed, T):
    random = np.random.default_rng(seed)
    return np.column_stack([column(random, T) for column in COLUMNS.values()]), random.integers(0, 4, T) + np.eye(T)[0]


def defined(X, weight, centred):
    return np.transpose([naive.column_units(x, weight, centred) for x in X.T])


@pytest.mark.parametrize("to_input", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("T", [1, 2, 3, 40, 41])
def test_it_is_the_definition(to_input, centred, T):
    X, weight = columns(T, T)
    for given_weight, by in ((None, np.ones(T)), (weight, weight)):
        found = column_spread(to_input(X), given_weight, about_zero=not centred)
        for numbers, wanted in zip(found, defined(X, by, centred), strict=True):
            assert_close(numbers, wanted, "solve")


@given(st.integers(-100, 100).map(lambda k: 2.0**k), st.sampled_from([-1.0, 1.0]), st.integers(2, 9))
@settings(max_examples=50, deadline=None)
def test_scales_and_signs_go_through(scale, sign, T):
    X, _ = columns(0, T)
    (centre, spread, square), (centre_2, spread_2, square_2) = map(column_spread, (X, sign * scale * X))
    varies = np.ptp(X, axis=0) > 0
    assert (square_2 == scale**2 * square).all()
    assert (spread_2[varies] == (scale**2 * spread)[varies]).all()
    assert (spread_2[~varies] == 1.0).all()
    mean = square == spread
    assert (centre_2[mean] == (sign * scale * centre)[mean]).all()


def test_blocks_of_columns(monkeypatch):
    X, weight = columns(1, 60)
    whole = column_spread(X, weight)
    monkeypatch.setattr("lstd.data.feature_arrays.ENTRIES", 128)
    for numbers, wanted in zip(column_spread(X, weight), whole, strict=True):
        assert (numbers == wanted).all()


def test_one_hot_columns_have_spread_one():
    X = np.eye(5)[np.random.default_rng(0).permutation(np.repeat(np.arange(5), [1, 2, 4, 8, 30]))]
    assert (column_spread(X)[1] == 1.0).all()
    assert column_spread(X)[0].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_column_that_is_constant_but_for_rounding():
    assert column_spread(np.array([[0.3], [0.1 + 0.2], [0.3], [0.1 + 0.2]]))[1] == [1.0]
