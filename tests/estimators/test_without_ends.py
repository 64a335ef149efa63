"""γ = 1 without ends: what decides the level of predictions from features that add up to a constant, by any solver."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from lstd import LSTD, LSTDStatistics
from lstd.data.variants import VARIANTS
from lstd.errors import IllConditionedWarning, InvalidInputError

T, N = 300, 3
RANDOM = np.random.default_rng(4)
Y = RANDOM.normal(size=T)
FEATURES = {
    "shares": RANDOM.dirichlet(np.ones(N), size=T),  # which add up to one but for rounding
    "one-hot": np.eye(N)[RANDOM.integers(N, size=T)],
    "percent": 100.0 * RANDOM.dirichlet(np.ones(N), size=T),
}
EPISODES = {"episode": np.arange(T) // 15}
CUT = {"terminated": np.zeros(T, dtype=bool)}
ENDS = {"terminated": (np.arange(T) % 15 == 14) & (EPISODES["episode"] % 2 == 0)}
AS_ENDS = "takes the places where the data were cut off as ends"


def fitted(X, variant, columns, **options):
    """A fitted model, and what it warned of an ill-conditioned system."""
    options = {"gamma": 1.0, "lmbda": 0.5, "alpha": 0.0, "tol": 1e-12} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LSTD(variant=variant, **options).fit(X, Y, **columns)
    return model, [str(one.message) for one in caught if one.category is IllConditionedWarning]


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("columns", [{}, EPISODES | CUT])
@pytest.mark.parametrize("variant", ["uncorrected", "mixed"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_warning_says_that_cuts_decide_the_level(features, columns, variant, alpha):
    X = FEATURES[features]
    for options in ({}, {"solver": "iterative"}):
        of = sparse.csr_array(X) if options else X
        _, said = fitted(of, variant, columns, alpha=alpha, fit_intercept=False, **options)
        assert len(said) == 1
        assert AS_ENDS in said[0]


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("variant", ["uncorrected", "mixed"])
def test_merged_sums_say_so_too(features, variant):
    sums = LSTDStatistics.from_arrays(FEATURES[features], Y, gamma=1.0, lmbda=0.5)
    with pytest.warns(IllConditionedWarning, match=AS_ENDS):
        sums.solve(1.0, variant)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_nothing_is_said_where_there_are_ends_or_no_sum_is_constant(features, variant, fit_intercept):
    X = FEATURES[features]
    for of, columns, gamma in [(X, EPISODES | ENDS, 1.0), (X[:, :2], {}, 1.0), (X, {}, 0.9)]:
        if fit_intercept and not columns and gamma == 1.0:
            continue  # the ones are such a sum
        for options in ({}, {"solver": "iterative"}):
            rows = sparse.csr_array(of) if options else of
            assert fitted(rows, variant, columns, gamma=gamma, fit_intercept=fit_intercept, **options)[1] == []


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("columns", [{}, EPISODES | CUT, EPISODES | ENDS], ids=["stream", "cut", "ends"])
def test_the_iterative_solver_is_the_direct_one(features, variant, fit_intercept, columns):
    X = FEATURES[features]
    sparse_X = sparse.csr_array(X)
    direct, said = fitted(X, variant, columns, fit_intercept=fit_intercept)
    iterative, also_said = fitted(sparse_X, variant, columns, fit_intercept=fit_intercept, solver="iterative")
    assert len(said) == len(also_said)
    is_endless = variant == "boyan" and not columns.get("terminated", np.zeros(T)).any()
    if is_endless or not columns:
        with pytest.raises(InvalidInputError, match="no end is reached"):
            iterative.predict_interval(X[:3])
    else:
        one, two = (model.predict_interval(X[:3]).standard_error for model in (direct, iterative))
        np.testing.assert_allclose(one, two, rtol=0.01)
    if not is_endless:  # which has no solution
        np.testing.assert_allclose(iterative.predict(X), direct.predict(X), rtol=1e-6)
        np.testing.assert_allclose(iterative.coef_, direct.coef_, atol=1e-6 * np.abs(direct.coef_).max())
