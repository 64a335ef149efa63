"""Weights, condition numbers and warnings of systems that are well, ill or not determined."""

import re
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd.errors import IllConditionedWarning, InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import equilibration, sure_digits
from lstd.statistics.system import System
from tolerances import TOLERANCES, assert_close

EPS = np.finfo(float).eps


def solve(A, b, ridge=0.0, penalty=None):
    """The solution of a system, with its warnings."""
    return System.of_regression(A, b, ridge, penalty=penalty, intercept=False).solve(report=True)


def scaled(M):
    """The system that is solved."""
    rows, columns = equilibration(M)
    return np.ldexp(M, rows[:, np.newaxis] + columns)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 3))
def test_residual_and_condition_number(seed, n, m):
    random = np.random.default_rng(seed)
    A, b, alpha = random.normal(size=(n, n)) + 5 * np.eye(n), random.normal(size=(n, m)), random.uniform(0, 2, n)
    found = solve(A, b, alpha)
    M = A + np.diag(alpha)
    assert_close(M @ found.weights, b, "solve")
    condition = np.linalg.cond(scaled(M), 1)
    assert condition / 3 <= found.condition_number <= condition * (1 + 1e-9)  # an estimate from below
    assert not found.singular


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.booleans())
def test_scales_of_powers_of_two_change_nothing_but_the_scale_of_the_weights(seed, n, zero_diagonal):
    """To the last bit, singular systems with the same ridge term too."""
    random = np.random.default_rng(seed)
    A, b = random.normal(size=(n, n)) * (random.uniform(size=(n, n)) < 0.7), random.normal(size=(n, 2))
    if zero_diagonal:
        A = np.diag(random.normal(size=n - 1), 1) + np.diag(random.normal(size=n - 1), -1)
        A[-1, -1] = 1.0  # by which the one before goes, and by that the one before, and so on
    exponents = random.integers(-60, 60, n)
    D = np.diag(2.0**exponents)
    with warnings.catch_warnings(action="ignore"):
        one = solve(A, b, penalty=4.0 ** -exponents.astype(float))
        two = solve(D @ A @ D, D @ b)
    np.testing.assert_array_equal(one.weights, D @ two.weights)
    assert (one.condition_number, one.singular) == (two.condition_number, two.singular)


def test_features_of_any_scale_are_fitted_to_all_digits():
    random = np.random.default_rng(0)
    X, y, scale = random.normal(size=(200, 3)), random.normal(size=200), np.array([1.0, 1e8, 1e-9])
    found = LSTDStatistics.from_arrays(X * scale, y, gamma=0.9, lmbda=0.7).solve(0.0)
    exact = exact_weights(X * scale, y, 0.9, 0.7, 0.0, "boyan")
    assert found.condition_number < 10
    assert np.abs(found.weights / exact - 1.0).max() < 1e3 * EPS


@pytest.mark.parametrize(
    "A",
    [
        [[0.0, 1e20], [1e-20, 0.0]],
        [[1e-16, 1.0, 1.0], [1.0, 1.0, 0.2], [1.0, 0.2, 1.0]],  # the diagonal is rounding: no scale to go by
        [[0.0, 1e9, 1.0], [1e9, 1e18, 0.2e9], [1.0, 0.2e9, 1.0]],
        [[1.0, 1e10, 1.0], [0.0, 1.0, 1e10], [0.0, 0.0, 1.0]],
        np.diag([1e-290, 1e290, 1.0]),
    ],
)
def test_rows_and_columns_are_brought_to_one_scale(A):
    A = np.array(A)
    S = scaled(A)
    assert np.linalg.cond(S, 1) < 20
    assert 0.2 < np.abs(S).max() < 2.0
    x = np.array([[1.0], [-2.0], [3.0]])[: len(A)]
    rows, columns = equilibration(A)
    weights = np.ldexp(x, columns[:, np.newaxis])
    found = solve(A, np.ldexp(S @ x, -rows[:, np.newaxis]), 0.0)
    assert not found.singular
    assert_close(found.weights / weights, np.ones_like(x), "solve")


@pytest.mark.parametrize("penalty", [[1.0, 1.0, 1.0], [1.0, 4.0, 0.25], [1.0, 1.0, 0.0]])
@pytest.mark.parametrize(
    "A",
    [
        np.ones((3, 3)),
        np.diag([1.0, 0.0, 2.0]),
        [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 2.0, -1.0], [2.0, 4.0, -2.0], [1.0, 1.0, 3.0]],
    ],
)
def test_a_singular_system_has_the_weights_that_a_vanishing_ridge_term_gives(A, penalty):
    A, penalty = np.array(A), np.array(penalty)
    b = A @ np.array([[1.0, 0.0], [3.0, -2.0], [0.5, 1.0]])
    with pytest.warns(IllConditionedWarning, match=r"singular .*\(condition number .*vanishing ridge term.*`alpha`"):
        found = solve(A, b, 0.0, penalty=penalty)
    assert found.singular
    assert not found.unbounded
    assert found.condition_number > 1e15
    limit = np.column_stack([naive.vanishing_ridge_weights(A, column, penalty) for column in b.T])
    assert_close(found.weights, limit, "solve")


@pytest.mark.parametrize(
    ("A", "b"),
    [(np.diag([1.0, 0.0]), [1.0, 1.0]), ([[0.0, 1.0], [0.0, 0.0]], [1.0, 0.0]), (np.ones((2, 2)), [1.0, 2.0])],
)
def test_weights_that_grow_without_bound_are_reported(A, b):
    A = np.array(A)
    assert np.abs(naive.vanishing_ridge_weights(A, b, [1.0, 1.0])).max() > 1e15
    with pytest.warns(IllConditionedWarning, match="grow without bound as the ridge term vanishes"):
        found = solve(A, np.array(b)[:, np.newaxis], 0.0)
    assert found.unbounded
    assert np.isfinite(found.weights).all()


def test_a_weight_that_is_neither_determined_nor_penalised_is_zero():
    for penalty in ([1.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        with pytest.warns(IllConditionedWarning, match="singular"):
            found = solve(np.diag([2.0, 0.0, 0.0]), np.array([[1.0], [0.0], [0.0]]), penalty=np.array(penalty))
        assert (found.weights.ravel().tolist(), found.unbounded) == ([0.5, 0.0, 0.0], False)


@pytest.mark.parametrize("penalty", [[1.0, 1.0, 0.0], [4.0, 0.25, 0.0]])
def test_a_ones_column_that_repeats_others_has_the_weights_that_a_vanishing_ridge_term_gives(penalty):
    A = np.array([[1.0, -0.5, 0.5], [0.0, 2.0, 2.0], [1.0, 1.5, 2.5]])  # the last is the sum of the others
    b = A @ np.array([[1.0, 0.0], [3.0, -2.0], [0.5, 1.0]])
    found = solve(A, b, 0.0, penalty=np.array(penalty))  # without a warning
    limit = np.column_stack([naive.vanishing_ridge_weights(A, column, penalty) for column in b.T])
    assert_close(found.weights, limit, "solve")
    with pytest.warns(IllConditionedWarning, match="singular"):  # twice the first column: no column of ones
        solve(A[[0, 2, 2]][:, [0, 2, 2]], b[[0, 2, 2]], 0.0, penalty=np.ones(3))


def test_rows_without_an_end_leave_the_column_of_ones_without_a_solution():
    """At γ = 1 the column of ones is zero but for rounding, which equilibration would enlarge."""
    random = np.random.default_rng(0)
    X, y = np.insert(random.normal(size=(500, 2)), 2, 1.0, axis=1), random.normal(size=500)
    sums = LSTDStatistics.from_arrays(X, y, gamma=1.0, lmbda=0.9)
    A = sums.matrix()
    assert 0.0 < np.abs(A[:, 2]).max() < 1e-10
    system = System.of(sums, "boyan", np.zeros(2), intercept=True)
    assert system.endless.tolist() == [False, False, True]
    assert system.solve().weights[2] == 0.0
    assert not System.of(
        sums, "uncorrected", np.zeros(2), intercept=True
    ).endless.any()  # the end of the data is an end
    assert System.of(sums, "boyan", np.zeros(3), intercept=False).A.tolist() == A.tolist()


def nearly_singular(gap):
    """A matrix of condition number (2 + gap)² / gap, which no scales make smaller."""
    return np.array([[1.0, 1.0], [1.0, 1.0 + gap]])


@pytest.mark.parametrize(("gap", "words"), [(2.0**-32, "4 digits"), (2.0**-40, "1 digits"), (2.0**-46, "no digits")])
def test_an_ill_conditioned_system_says_how_many_digits_are_left(gap, words):
    condition = f"{(2 + gap) ** 2 / gap:.1e}".replace("+", r"\+")
    with pytest.warns(
        IllConditionedWarning,
        match=rf"number {condition}\): with .*, {words} of the largest weights are accurate.*Increase `al",
    ):
        found = solve(nearly_singular(gap), np.ones((2, 1)), 0.0)
    assert not found.singular


def test_a_system_beyond_rounding_is_taken_as_singular():
    with pytest.warns(IllConditionedWarning, match=r"singular to working precision \(condition number 1\.8e\+16"):
        found = solve(nearly_singular(EPS), np.array([[1.0], [3.0]]), 0.0)
    assert found.singular
    assert_close(found.weights, [[1.0], [1.0]], "solve")


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


@pytest.mark.parametrize(("variant", "lmbda"), [("boyan", 0.9), ("mixed", 0.0), ("mixed", 0.9)])
@pytest.mark.parametrize("nearness", [1e-1, 1e-5, 1e-6])
@pytest.mark.parametrize("scale", [1.0, 2.0 ** np.array([20, -10, 3, 0])])
def test_digits_lost_are_those_of_the_condition_number(variant, nearness, lmbda, scale):
    """Features that nearly repeat one another: the relative error is within condition number × rounding of the sums."""
    random = np.random.default_rng(7)
    common = random.normal(size=(41, 1))
    X, y = (common + nearness * random.normal(size=(41, 4))) * scale, random.normal(size=41)
    statistics = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=lmbda)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = statistics.solve(0.0, variant)
    exact = exact_weights(X, y, 0.9, lmbda, 0.0, variant)
    alike = np.exp2(-equilibration(statistics.matrix(variant))[1])  # of the weights, with features scaled alike
    error = np.abs((found.weights - exact) * alike).max() / np.abs(exact * alike).max()
    assert error <= TOLERANCES["per_condition"].rtol * found.condition_number
    assert found.condition_number > 0.1 / nearness**2
    assert {warning.category for warning in given} <= {IllConditionedWarning}
    assert given or nearness > 1e-6
    digits = sure_digits(found.condition_number)
    assert error <= 10.0**-digits
    for warning in given:
        if promise := re.search(r"(\d+|no) digits", str(warning.message)):
            assert int(promise[1].replace("no", "0")) == digits
