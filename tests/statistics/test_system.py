"""All that solves for weights takes the linear system from one place."""

import numpy as np
import pytest

from lstd import LSTD, LSTDStatistics
from lstd.errors import IllConditionedWarning
from lstd.metrics import effective_degrees_of_freedom
from lstd.statistics.intervals import sums_of_block
from lstd.statistics.system import System
from tolerances import assert_close

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(3000, 3)), RANDOM.normal(size=3000)


def without_block(model, e):
    """Weights of a model, (n, m), from all blocks of its data but one."""
    A, b = sums_of_block(model.blocks, model.system, e)
    system = model.system
    rest = System(system.A - A, system.b - b, system.ridge, system.intercept, system.variant, system.endless)
    return rest.solve().weights


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
