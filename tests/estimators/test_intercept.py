"""The intercept: on by default, not penalised, and without influence at `alpha` 0 where features are one-hot."""

import inspect
import warnings

import numpy as np
import pytest
from scipy import sparse

import lstd
import naive
from lstd import LSTD, LSTDCV, LSTDStatistics
from lstd.data.settings import Settings
from lstd.data.variants import VARIANTS
from lstd.errors import IllConditionedWarning
from lstd.metrics import effective_degrees_of_freedom
from tolerances import assert_close

STATES = np.eye(4)


def walk(n_rows=240):
    random = np.random.default_rng(5)
    place, ends = np.arange(n_rows), np.arange(n_rows) % 12 == 11
    X = STATES[random.integers(0, 4, n_rows)]
    y = X @ [1.0, 5.0, -2.0, 3.0] + random.normal(size=n_rows)
    y[ends & (place >= 200)] = 0.0
    return X, y, {"episode": place // 12, "terminated": ends & (place < 200)}


def test_there_is_one_unless_it_is_declined():
    for where in (LSTD, LSTDCV, lstd.fit_tables, lstd.fit_chunks, Settings, Settings.with_choice):
        assert inspect.signature(where).parameters["fit_intercept"].default is True


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("alpha", [0.0, 1e-13])
def test_with_one_hot_features_a_tiny_penalty_leaves_the_predictions_of_the_model_without_it(variant, alpha):
    X, y, columns = walk()
    model = LSTD(0.9, alpha=alpha, variant=variant).fit(X, y, **columns)  # without a warning
    plain = LSTD(0.9, alpha=alpha, variant=variant, fit_intercept=False).fit(X, y, **columns)
    for one, two in zip(model.predict(STATES, return_std=True), plain.predict(STATES, return_std=True), strict=True):
        assert_close(one, two, "solve")
    assert_close(model.coef_.sum(), 0.0, "solve")
    assert_close(model.condition_number_, plain.condition_number_, "solve")
    assert_close(effective_degrees_of_freedom(model).sum(), 3.0, "solve")


@pytest.mark.parametrize("variant", VARIANTS)
def test_intervals_are_those_without_it_where_a_state_is_seen_in_one_episode(variant):
    X, y, columns = walk()
    X = np.insert(X, 4, 0.0, axis=1)
    X[30] = np.eye(5)[4]
    models = [
        LSTD(0.9, alpha=0.0, variant=variant, fit_intercept=fitted).fit(X, y, **columns) for fitted in (True, False)
    ]
    one, two = (model.predict_interval(X[:40]) for model in models)
    others = np.arange(40) != 30  # the weight of that state itself is uncertain as a whole
    assert one.little_data.tolist() == two.little_data.tolist() == (~others).tolist()
    for name in ("standard_error", "degrees_of_freedom"):
        np.testing.assert_allclose(getattr(one, name)[others], getattr(two, name)[others], rtol=1e-4)


def horizon_states(scale=1.0):
    """States 0 → 1 → 0 …; state 1 ends half of the episodes, states 2 and 3 follow it at the cut of the others."""
    random = np.random.default_rng(2)
    states = np.array([0, 1, 0, 1, 2, 0, 1, 0, 1, 3] * 12)
    columns = {"episode": np.repeat(np.arange(48), [2, 3] * 24), "terminated": np.tile([0, 1, 0, 0, 0], 24) == 1}
    return scale * np.eye(4)[states], np.where(states < 2, random.integers(0, 5, 120), np.nan), columns


@pytest.mark.parametrize(("variant", "lmbda"), [("boyan", 0.5), ("uncorrected", 0.0), ("mixed", 1.0)])
@pytest.mark.parametrize("scale", [1.0, [1.0, 2.0, 0.5, 4.0]])
def test_states_seen_in_horizon_rows_only_have_the_predictions_and_flags_of_the_model_without_it(variant, lmbda, scale):
    X, y, columns = horizon_states(scale)
    states = scale * np.eye(4)
    models = [LSTD(0.5, lmbda, 0.0, variant, fit_intercept=fitted) for fitted in (True, False)]
    for model, without in zip(models, (" without the intercept", ""), strict=True):
        rest = f"gives{without}: zero for the 2 features that no full transition starts from"
        with pytest.warns(IllConditionedWarning, match=rest):
            model.fit(X, y, **columns)
    one, two = (model.predict_interval(states) for model in models)
    for name, values in vars(one).items():
        assert_close(values, getattr(two, name), "solve")
    assert one.little_data.tolist() == [False, False, True, True]
    fitted = columns["terminated"] | np.append(np.diff(columns["episode"]) == 0, False)
    ones = np.insert(X, 4, 1.0, axis=1)
    sums = LSTDStatistics.from_arrays(ones, y, gamma=0.5, lmbda=lmbda, **columns)
    exact = naive.predictions_without_ridge(ones, fitted, sums.matrix(variant), sums.b[:, 0])
    assert_close(models[0].predict(X), exact, "solve")
    assert models[0].intercept_ == 0.0


@pytest.mark.parametrize("lmbda", [0.0, 0.9])
def test_states_from_which_no_end_is_reached_do_not_change_the_others(lmbda):
    X, y, columns = walk(120)  # all episodes terminate
    loop = np.tile(np.eye(6)[[4, 5, 4, 5]], (6, 1))
    X = np.vstack([np.insert(X, [4, 4], 0.0, axis=1), loop])
    y = np.append(y, np.tile([1.0, 2.0, 1.0, np.nan], 6))
    episode, ends = np.append(columns["episode"], 10 + np.arange(24) // 4), np.append(columns["terminated"], [0] * 24)
    models = [LSTD(1.0, lmbda, alpha=0.0, fit_intercept=fitted) for fitted in (True, False)]
    with pytest.warns(IllConditionedWarning, match="grow without bound"):
        one, two = (model.fit(X, y, episode=episode, terminated=ends).predict_interval(np.eye(6)) for model in models)
    alone = LSTD(1.0, lmbda, alpha=0.0, fit_intercept=False).fit(X[:120, :4], y[:120], **columns)
    for found in (one, two):
        assert_close(found.prediction[:4], alone.predict(STATES), "solve")
        assert found.standard_error[4:].min() > 1e6  # any value is possible there
    np.testing.assert_allclose(one.standard_error[:4], two.standard_error[:4], rtol=1e-6)


def test_an_intercept_that_horizon_rows_need_stays():
    """Rows of zeros have no value but the intercept; two one-hot groups have more than one way to do without it."""
    X, y, columns = horizon_states()
    fitted = columns["terminated"] | np.append(np.diff(columns["episode"]) == 0, False)
    for features in (X[:, :2], np.hstack([X, X[:, ::-1]])):
        ones = np.insert(features, len(features.T), 1.0, axis=1)
        sums = LSTDStatistics.from_arrays(ones, y, gamma=0.5, lmbda=0.5, **columns)
        with warnings.catch_warnings(action="ignore"):
            model = LSTD(0.5, 0.5, 0.0).fit(features, y, **columns)
        exact = naive.predictions_without_ridge(ones, fitted, sums.matrix(), sums.b[:, 0])
        assert_close(model.predict(features), exact, "solve")
        assert model.intercept_ != 0.0


def test_a_state_that_no_transition_starts_from_is_flagged_for_any_alpha():
    X, y, columns = horizon_states()
    for model in (LSTD(0.5, alpha=1e-3), LSTD(0.5, alpha=1e-3, fit_intercept=False)):
        model.fit(X, y, **columns)
        assert model.predict_interval(np.eye(4)).little_data.tolist() == [False, False, True, True]
        assert model.predict_interval(sparse.csr_array(np.eye(4))).little_data.tolist() == [False, False, True, True]
        assert model.predict_interval(np.eye(4), weights=[1.0, 1.0, 1.0, 0.0]).little_data
        assert not model.predict_interval(np.eye(4), weights=[1.0, 1.0, 0.0, 0.0]).little_data
