"""Weights, condition numbers and warnings of systems that are well, ill or not determined."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd.errors import IllConditionedWarning, InvalidInputError
from lstd.solve import solve
from lstd.statistics import VARIANTS, LSTDStatistics
from tolerances import TOLERANCES, assert_close

EPS = np.finfo(float).eps


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 3))
def test_residual_and_condition_number(seed, n, m):
    random = np.random.default_rng(seed)
    A, b, alpha = random.normal(size=(n, n)) + 5 * np.eye(n), random.normal(size=(n, m)), random.uniform(0, 2, n)
    found = solve(A, b, alpha)
    M = A + np.diag(alpha)
    condition = np.linalg.cond(M, 1)
    assert_close(M @ found.weights, b, "solve")
    assert condition / 3 <= found.condition_number <= condition * (1 + 1e-9)  # an estimate from below
    assert not found.singular


def test_arguments_are_left_as_they_were():
    A, b = np.diag([1.0, 3.0]), np.ones((2, 1))
    solve(A, b, 1.0)
    assert A.tolist() == [[1.0, 0.0], [0.0, 3.0]]
    assert b.tolist() == [[1.0], [1.0]]


def test_no_features():
    found = solve(np.zeros((0, 0)), np.zeros((0, 2)), 1.0)
    assert found.weights.shape == (0, 2)
    assert found.condition_number == 1.0


@pytest.mark.parametrize("A", [np.zeros((2, 2)), np.ones((2, 2)), np.diag([1.0, 0.0]), np.diag([1.0, 1e-17])])
def test_a_singular_system_gives_weights_of_least_norm(A):
    b = A @ np.array([[1.0], [3.0]])
    with pytest.warns(IllConditionedWarning, match=r"singular to working precision \(condition number .*`alpha`"):
        found = solve(A, b, 0.0)
    assert found.singular
    assert found.condition_number > 1e15
    assert_close(found.weights, np.linalg.pinv(A, rcond=1e-15) @ b, "solve")


def test_an_ill_conditioned_system_says_how_many_digits_are_left():
    with pytest.warns(IllConditionedWarning, match=r"condition number 1\.0e\+12\): about 4 digits .*Increase `alpha`"):
        found = solve(np.diag([1.0, 1e-12]), np.ones((2, 1)), 0.0)
    assert not found.singular
    assert_close(found.weights, [[1.0], [1e12]], "solve")


def test_silence_may_be_asked_for():
    assert solve(np.zeros((1, 1)), np.ones((1, 1)), 0.0, warn=False).singular


@pytest.mark.parametrize(
    ("A", "b"), [([[np.inf]], [[1.0]]), ([[np.nan]], [[1.0]]), ([[1.0]], [[np.inf]]), ([[1e-200]], [[1e200]])]
)
def test_overflow_is_refused(A, b):
    with pytest.raises(InvalidInputError, match="must be below 1e308; they overflowed"):
        solve(np.array(A), np.array(b), 0.0)


def exact_weights(X, y, gamma, lmbda, alpha, variant):
    """Weights at 50 digits from A = Σ z (φ − g φ₊)ᵀ, b = Σ z r, the last row only a successor."""
    with mpmath.workdps(50):
        X, rewards = mpmath.matrix(X.tolist()), [mpmath.mpf(r) for r in y.tolist()]
        gamma, lmbda, n = mpmath.mpf(gamma), mpmath.mpf(lmbda), X.cols
        end = {"boyan": 1, "uncorrected": 0, "mixed": 1 - lmbda}[variant]
        A, b, z = mpmath.diag([mpmath.mpf(alpha)] * n), mpmath.zeros(n, 1), mpmath.zeros(n, 1)
        for t in range(X.rows - 1):
            phi, phi_next = X[t, :].T, X[t + 1, :].T
            z = lmbda * gamma * z + phi
            A += z * (phi - (gamma if t < X.rows - 2 else end * gamma) * phi_next).T
            b += z * rewards[t]
        return np.array([float(w) for w in mpmath.lu_solve(A, b)])


@pytest.mark.filterwarnings("ignore::lstd.errors.IllConditionedWarning")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("nearness", [1e-1, 1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("lmbda", [0.0, 0.9])
def test_digits_lost_are_those_of_the_condition_number(variant, nearness, lmbda):
    """Features that nearly repeat one another: the relative error is within condition number × rounding of the sums."""
    random = np.random.default_rng(7)
    common = random.normal(size=(41, 1))
    X, y = common + nearness * random.normal(size=(41, 4)), random.normal(size=41)
    found = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=lmbda).solve(0.0, variant)
    exact = exact_weights(X, y, 0.9, lmbda, 0.0, variant)
    error = np.linalg.norm(found.weights - exact) / np.linalg.norm(exact)
    assert error <= TOLERANCES["per_condition"].rtol * found.condition_number
    assert found.condition_number > 0.1 / nearness**2


@pytest.mark.parametrize("variant", VARIANTS)
def test_exact_to_rounding_where_the_system_is_well_conditioned(variant):
    random = np.random.default_rng(3)
    X, y = random.normal(size=(41, 3)), random.normal(size=41)
    found = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.7).solve(1.0, variant)
    assert found.condition_number < 100
    assert np.abs(found.weights - exact_weights(X, y, 0.9, 0.7, 1.0, variant)).max() < 1e3 * EPS
