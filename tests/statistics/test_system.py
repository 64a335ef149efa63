"""All that solves for weights takes the linear system from one place."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import naive
from lstd import LSTD, LSTDStatistics
from lstd.errors import IllConditionedWarning, InvalidInputError, RidgeWarning
from lstd.metrics import effective_degrees_of_freedom
from lstd.statistics.system import System
from tolerances import assert_close

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(3000, 3)), RANDOM.normal(size=3000)


def without_block(model, e):
    """Weights of a model, (n, m), from all blocks of its data but one."""
    A, b = model.blocks.own(e, model.system)
    return model.system.without(A, b).solve().weights


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_intervals_are_those_of_the_predicted_weights_in_an_endless_stream(gamma):
    """At γ = 1 the column of ones is rounding: predictions leave it out, and intervals must leave it out too."""
    estimator = LSTD(gamma, 0.5, 1.0)
    if gamma == 1.0:
        with pytest.warns(IllConditionedWarning, match="no end is reached"):
            estimator.fit(X, Y)
    else:
        estimator.fit(X, Y)
    interval = estimator.predict_interval(X[:5])
    prediction = estimator.predict(X[:5])
    assert_close(interval.prediction, prediction, "solve")
    assert (interval.lower < prediction).all()
    assert (prediction < interval.upper).all()

    model = estimator.model_
    shares = model.blocks.shares
    moves = np.array([without_block(model, e)[:, 0] for e in range(len(shares))]) - model.solution.weights[:, 0]
    along = moves @ np.insert(X[:5], 3, 1.0, axis=1).T
    jackknife = np.sqrt(((1.0 - shares[:, np.newaxis]) * along**2).sum(axis=0))
    np.testing.assert_allclose(interval.standard_error, jackknife, rtol=1e-4)
    assert (effective_degrees_of_freedom(estimator) > 0.9).all()


def test_the_ones_have_no_ridge_coefficient_and_no_penalty():
    sums = LSTDStatistics.from_arrays(X, Y, gamma=0.9, lmbda=0.5, fit_intercept=True)
    system = System.of(sums, "boyan", np.full(3, 2.0), intercept=True)
    assert system.ridge.tolist() == [2.0, 2.0, 2.0, 0.0]
    assert system.penalty.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert_close(
        system.solve().weights[:, 0], np.linalg.solve(sums.matrix() + np.diag(system.ridge), sums.b[:, 0]), "solve"
    )
    right = np.eye(4)[:, :2]
    assert_close(
        system.solve_transposed(right).weights, np.linalg.solve(sums.matrix().T + np.diag(system.ridge), right), "solve"
    )


# ---------------------------------------------------------------- at γ = 1, with ends, cuts and without


N_EPISODES, LENGTH = 12, 40
EPISODE = np.repeat(np.arange(N_EPISODES), LENGTH)
LAST = np.tile(np.arange(LENGTH) == LENGTH - 1, N_EPISODES)
ENDS = {
    "endless": np.zeros(len(EPISODE)),  # one stream
    "one end": np.where(np.arange(len(EPISODE)) == len(EPISODE) - 1, 1.0, 0.0),  # of one stream
    "cut": np.zeros(len(EPISODE)),
    "one ended": np.where(EPISODE == 4, LAST, False),
    "ended": LAST,
}
ONE_STREAM = ("endless", "one end")


def features(kind):
    random = np.random.default_rng(1)
    if kind == "one-hot":
        return np.eye(3)[random.integers(3, size=len(EPISODE))]
    if kind == "constant":  # in each episode
        return np.column_stack([0.5 + EPISODE % 3, random.normal(size=len(EPISODE))])
    return random.normal(size=(len(EPISODE), 2))


def columns_of(ends, kept=slice(None)):
    columns = {"terminated": ENDS[ends][kept]}
    if ends not in ONE_STREAM:
        columns["episode"] = EPISODE[kept]
    return columns


def has_ends(variant, ends):
    """How many ends there are: of episodes, or, for variants that take cuts as ends, of the data."""
    cuts = {"endless": 1, "one end": 0, "cut": N_EPISODES, "one ended": N_EPISODES - 1, "ended": 0}[ends]
    return int(ENDS[ends].sum()) + (0 if variant == "boyan" else cuts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("alpha", [0.0, 1e-9, 2.0])
@pytest.mark.parametrize("kind", ["normal", "one-hot", "constant"])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("variant", naive.VARIANTS)
def test_at_discount_one_intervals_are_the_jackknife_or_refused(variant, ends, kind, alpha):
    """No weight comes from the rounding of a sum that is zero, nor a standard error."""
    phi = features(kind)
    y = 1.0 + np.random.default_rng(2).normal(size=len(phi))
    model = LSTD(1.0, 0.7, alpha, variant).fit(phi, y, **columns_of(ends))
    n_ends = has_ends(variant, ends)
    assert (model.intercept_ == 0.0) == (n_ends == 0)
    if n_ends == 1:
        with pytest.raises(InvalidInputError, match="no block alone decides"):
            model.predict_interval(phi)
        return
    interval = model.predict_interval(phi)
    if n_ends == 0 and kind != "normal" and alpha < 1.0:
        return  # values without a bound, of which warnings say so
    assert np.abs(interval.prediction).max() < 1e5
    assert interval.standard_error.max() < 1e4
    if ends in ONE_STREAM or alpha == 2.0:
        return
    kept = [e != EPISODE for e in range(N_EPISODES)]
    rest = [LSTD(1.0, 0.7, alpha, variant).fit(phi[k], y[k], **columns_of(ends, k)).predict(phi) for k in kept]
    jackknife = np.sqrt((1.0 - 1.0 / N_EPISODES) * np.sum((np.array(rest) - interval.prediction) ** 2, axis=0))
    np.testing.assert_allclose(interval.standard_error, jackknife, rtol=1e-6)


@pytest.mark.parametrize("solver", ["direct", "iterative"])
@pytest.mark.parametrize("variant", ["uncorrected", "mixed"])
def test_cuts_that_are_the_only_ends_are_said(variant, solver):
    phi = sparse.csr_array(features("normal"))
    estimator = LSTD(1.0, 0.7, variant=variant, solver=solver)
    with pytest.warns(IllConditionedWarning, match="no row reaches an end"):
        estimator.fit(phi, np.ones(len(EPISODE)))
    with pytest.raises(InvalidInputError, match="no block alone decides"):
        estimator.predict_interval(phi)
    assert estimator.model_.no_intervals


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"weight": np.random.default_rng(3).uniform(size=len(EPISODE))},
        {"importance_ratio": np.random.default_rng(4).lognormal(-0.125, 0.5, size=len(EPISODE))},
        {"discount": np.ones(len(EPISODE))},
    ],
)
@pytest.mark.parametrize("lmbda", [0.0, 0.3, 1.0])
def test_without_an_end_the_intercept_is_zero_and_the_rest_a_model_without_it(lmbda, more):
    phi = features("normal")
    y = np.column_stack([np.random.default_rng(5).normal(size=len(phi)), phi[:, 0]])
    gamma = 0.9 if "discount" in more else 1.0
    with warnings.catch_warnings(action="ignore"):
        one = LSTD(gamma, lmbda).fit(phi, y, **more)
        two = LSTD(gamma, lmbda, fit_intercept=False).fit(phi, y, **more)
        sums = LSTDStatistics.from_arrays(phi, y, gamma=gamma, lmbda=lmbda, fit_intercept=True, **more)
        solved = sums.solve([1.0, 1.0])
    assert not np.any(one.intercept_)
    assert_close(one.coef_, two.coef_, "solve")
    assert_close(solved.weights[:2].T, two.coef_, "solve")
    assert not solved.weights[2].any()


@pytest.mark.parametrize("variant", ["boyan", "mixed"])
def test_a_constant_feature_without_an_end_and_a_ridge_term_has_no_weight(variant):
    """Beside γ = 1, it has one; a ridge term alone decides it, which a warning says."""
    phi = np.insert(features("normal"), 2, 1.5, axis=1)
    y = phi[:, 0] + 1.0
    with pytest.warns(IllConditionedWarning, match="constant from row to row"):
        model = LSTD(1.0, 0.0, 0.0, variant, fit_intercept=False).fit(phi, y)
    assert model.coef_[2] == 0.0
    assert_close(model.coef_[:2], LSTD(1.0, 0.0, 0.0, fit_intercept=False).fit(phi[:, :2], y).coef_, "solve")
    assert LSTD(0.9, 0.0, 0.0, variant, fit_intercept=False).fit(phi, y).coef_[2] > 1.0
    with pytest.warns(RidgeWarning, match="grow without bound"):
        LSTD(1.0, 0.0, 1e-6, variant, fit_intercept=False).fit(phi, y)


SHARES = np.random.default_rng(8).dirichlet(np.ones(3), size=len(EPISODE))  # whose sum is 1, as of one-hot columns


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("variant", "ends"), [("uncorrected", "endless"), ("boyan", "one end"), ("boyan", "one ended")]
)
@pytest.mark.parametrize("scale", [[1.0, 1.0, 1.0], [3.0, 0.1, 0.7]])
@pytest.mark.parametrize("lmbda", [0.0, 0.3, 0.7])
def test_shares_whose_only_end_is_in_one_block_have_no_intervals(lmbda, scale, variant, ends):
    """Without that block, the matrix is singular but for the rounding of sums, which is not an interval of ±1e16."""
    y = 1.0 + np.random.default_rng(9).normal(size=len(SHARES))
    model = LSTD(1.0, lmbda, 0.0, variant, fit_intercept=False).fit(SHARES * scale, y, **columns_of(ends))
    assert np.isfinite(model.predict(SHARES)).all()
    with pytest.raises(InvalidInputError, match="no block alone decides"):
        model.predict_interval(SHARES * scale)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_shares_without_an_end_have_no_weights_of_rounding(fit_intercept):
    y = 1.0 + np.random.default_rng(9).normal(size=len(SHARES))
    with pytest.warns(IllConditionedWarning):
        model = LSTD(1.0, 0.3, 0.0, fit_intercept=fit_intercept).fit(SHARES, y, terminated=False)
    assert np.abs(model.predict(SHARES)).max() < 100.0
