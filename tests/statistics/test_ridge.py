"""Warnings where the ridge term and not the data decides predictions."""

import numpy as np
import pytest

import naive
from lstd import LSTD, LSTDCV, LSTDStatistics, fit_chunks
from lstd.errors import IllConditionedWarning, RidgeWarning
from lstd.statistics.ridge import ridge_movement
from lstd.statistics.system import System
from tolerances import assert_close


def logs(endless, seed=0):
    """Episodes of states 0 and 1, which end, and with `endless`, of states 2 and 3, which do not; reward 1 per step."""
    random = np.random.default_rng(seed)
    parts = []
    for i in range(60):
        stays = endless and i % 3 == 0
        length = 6 if stays else random.integers(1, 6)
        ends = np.arange(length) == length - 1
        parts.append((random.integers(0, 2, length) + 2 * stays, np.full(length, i), ends & (not stays)))
    states, episode, terminated = (np.concatenate(part) for part in zip(*parts, strict=True))
    cut = np.append(np.diff(episode) > 0, True) & ~terminated
    return np.eye(4)[states], np.where(cut, np.nan, 1.0), {"episode": episode, "terminated": terminated}


@pytest.mark.parametrize("intercept", [False, True])
def test_it_is_the_movement_of_the_definition(intercept):
    random = np.random.default_rng(1)
    X, y = np.column_stack([random.normal(size=(30, 3)), np.ones(30)]), random.normal(size=(30, 2))
    sums = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.5)
    for alpha in (0.1, 10.0, 1000.0):
        ridge = alpha * np.array([1.0, 1.0, 1.0, not intercept])
        expected = [naive.ridge_movement(sums.matrix(), column, alpha, intercept) for column in sums.b.T]
        theta = np.linalg.solve(sums.matrix() + np.diag(ridge), sums.b)
        system = System.of(sums, "boyan", ridge[: 4 - intercept], intercept=intercept)
        assert_close(ridge_movement(system, theta), expected, "solve")
        assert_close(ridge_movement(system, theta, condition=10.0), expected, "solve")


def test_scales_and_singular_systems_are_not_solved_without_equilibration():
    scales = np.array([1e-6, 1.0, 1e6])
    random = np.random.default_rng(2)
    X = random.normal(size=(40, 3)) * scales
    for columns in (X, np.column_stack([X[:, 1], X[:, 1], np.zeros(40)])):
        gram, b = columns.T @ columns, columns.T @ random.normal(size=(40, 1))
        system = System.of_regression(gram, b, np.array([1.0, 0.0, 0.0]))
        theta = system.solve().weights
        np.testing.assert_array_equal(ridge_movement(system, theta, condition=1.0), ridge_movement(system, theta))


@pytest.mark.parametrize(("alpha", "intercept"), [(1.0, False), (1e-6, True)])
@pytest.mark.filterwarnings("ignore::lstd.errors.BiasWarning", "ignore::lstd.errors.MisfitWarning")
def test_states_from_which_no_end_is_reached_are_named_wherever_a_model_is_fitted(alpha, intercept):
    X, y, columns = logs(endless=True)
    settings = {"gamma": 1.0, "alpha": alpha, "fit_intercept": intercept}
    words = r"moves the predictions by (9\d|100) % of their .*grow without bound.*no end is reached.*Drop these states"
    with pytest.warns(RidgeWarning, match=words):
        model = LSTD(**settings).fit(X, y, **columns)
    with pytest.warns(RidgeWarning, match=words):
        LSTD(**settings).fit_statistics(model.statistics_)
    with pytest.warns(RidgeWarning, match=words):
        fit_chunks([{"X": X, "y": y, **columns}], lmbda=0.9, **settings)
    stream = LSTD(**settings).partial_fit(X, y, **columns)  # nobody asked for weights
    with pytest.warns(RidgeWarning, match=words):
        assert stream.coef_.shape == (4,)
    with pytest.warns(RidgeWarning, match=words):
        LSTDCV(1.0, alphas=[alpha], fit_intercept=intercept).fit(X, y, **columns)
    X, y, columns = logs(endless=False)
    LSTD(**settings).fit(X, y, **columns)


def test_a_ridge_term_that_is_too_large_is_said():
    X, y, columns = logs(endless=False)
    with pytest.warns(RidgeWarning, match=r"their size: the ridge term decides.*smaller `alpha`, or `fit_intercept`"):
        LSTD(1.0, alpha=1e4, fit_intercept=False).fit(X, y, **columns)
    with pytest.warns(RidgeWarning, match=r"of their spread: .*Use a smaller `alpha`; it may be 0 for some"):
        LSTD(1.0, alpha=1e4).fit(X, y + X[:, 0], **columns)
    LSTD(1.0, alpha=1e4).fit(X, y * 0.0, **columns)  # nothing to move


def test_a_singular_system_is_reported_as_such():
    X, y, columns = logs(endless=True)
    with pytest.warns(IllConditionedWarning, match="grow without bound .* Drop these rows") as given:
        LSTD(1.0, alpha=0.0).fit(X, y, **columns)
    assert [warning.category for warning in given] == [IllConditionedWarning]


def test_small_features_are_not_taken_for_predictions_without_bound():
    random = np.random.default_rng(0)
    X, ended = 1e-5 * random.normal(size=(3000, 2)), random.uniform(size=3000) < 0.1
    y = 1 + 1e5 * X[:, 0] + random.normal(size=3000)
    with pytest.warns(RidgeWarning, match="Use a smaller `alpha`"):
        LSTD(gamma=0.9).fit(X, y, terminated=ended)
