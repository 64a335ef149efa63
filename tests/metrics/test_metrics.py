"""Metrics against their definitions: value error, observed returns, calibration, effective degrees of freedom."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd import LSTD
from lstd.data.returns import ObservedReturns
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.experiments import run_sweep
from lstd.metrics import calibration, effective_degrees_of_freedom, observed_returns, value_error
from lstd.mrp import BoyanChain, RandomMRP, make_features
from tolerances import assert_close

# ---------------------------------------------------------------- value error


@pytest.mark.parametrize("normalise", [False, True])
def test_value_error_is_the_weighted_mean_of_squares(normalise):
    model = RandomMRP(10, 3, 0.1, seed=4)
    predicted = np.random.default_rng(0).normal(size=10)
    values = naive.true_values(model.transition, model.expected_reward, model.gamma)
    d = naive.stationary(model.transition)
    expected = sum(d[s] * (predicted[s] - values[s]) ** 2 for s in range(10))
    if normalise:
        expected /= sum(d[s] * values[s] ** 2 for s in range(10))
    assert_close(value_error(predicted, model, normalise=normalise), expected, "fixed_point")


def test_value_error_of_an_estimator_is_that_of_its_predictions():
    model = BoyanChain(gamma=0.9)
    features = model.interpolating_features
    trajectory = model.simulate(500, 1)
    X = features[trajectory.states[:-1]]
    for y in (trajectory.rewards, trajectory.rewards[:, np.newaxis]):
        fitted = LSTD(gamma=0.9, fit_intercept=False).fit(X, y, terminated=trajectory.terminated)
        expected = value_error(features @ fitted.coef_.ravel(), model)
        assert value_error(fitted, model, features) == pytest.approx(expected, rel=1e-12)


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")  # one step
def test_value_error_against_the_best_fit_is_the_error_of_the_paper():
    model = RandomMRP(10, 3, 0.1, seed=1000)
    features = make_features(model, "binary")
    w = np.random.default_rng(1).normal(size=features.shape[1])
    theta = naive.best_fit(features, model.values, model.stationary)
    expected = naive.normalised_error(w, features, model.stationary, theta)
    options = {"reference": "best_fit", "normalise": True}
    assert_close(value_error(features @ w, model, features, **options), expected, "fixed_point")
    swept = run_sweep("small", "binary", "boyan", lmbdas=[0.5], alphas=[1.0], run_seeds=[1], n_steps=1)
    states, rewards = naive.simulate(model.transition, model.reward, 0.1, 1, seed=1)
    y = np.append(rewards, np.nan)
    fitted = LSTD(0.99, 0.5, 1.0, fit_intercept=False).fit(features[states], y)
    assert_close(swept[0, 0, 0], value_error(fitted, model, features, **options), "fixed_point")


def test_value_error_with_visits_as_weights():
    chain = BoyanChain()
    visits = np.zeros(13)
    visits[3], visits[5] = 3, 1
    predicted = chain.values.copy()
    predicted[3] += 2.0
    predicted[7] += 100.0
    assert value_error(predicted, chain, weights=visits) == pytest.approx(3.0, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([np.zeros(12)], {}, "`prediction` must have shape"),
        ([np.full(13, np.nan)], {}, "`prediction` must be finite"),
        ([np.zeros(13)], {"reference": "best"}, "`reference` must be one of 'values', 'best_fit'; got 'best'"),
        ([np.zeros(13)], {"reference": "best_fit"}, "`features` must be given with reference="),
        ([np.zeros(13)], {"weights": -np.ones(13)}, "`weights` must be at least 0"),
        ([np.zeros(13)], {"weights": np.zeros(13)}, "`weights` must be at least 0 with a positive sum"),
        ([np.zeros(13)], {"features": np.zeros((12, 2))}, "`features` must have shape"),
    ],
)
def test_value_error_refuses(arguments, options, message):
    with pytest.raises(InvalidInputError, match=message):
        value_error(*arguments, BoyanChain(), **options)


# ---------------------------------------------------------------- observed returns


@st.composite
def rewarded(draw):
    """Rewards, ids, flags and discounts of a few episodes."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = random.integers(1, 8, draw(st.integers(1, 4)))
    ids = np.repeat(np.arange(len(lengths)), lengths)
    ended = np.zeros(len(ids), dtype=bool)
    ended[np.cumsum(lengths) - 1] = random.random(len(lengths)) < 0.5
    discount = random.choice([0.0, 0.3, 0.9, 1.0], len(ids))
    return random.normal(size=len(ids)), ids, ended, discount


@given(rewarded(), st.sampled_from([0.01, 0.5, 1.0]))
@settings(max_examples=50, deadline=None)
def test_observed_returns_are_double_sums(data, tolerance):
    y, ids, ended, discount = data
    prediction = np.random.default_rng(0).normal(size=len(y))
    found = observed_returns(
        y, gamma=0.5, prediction=prediction, episode=ids, terminated=ended, discount=discount, tolerance=tolerance
    )
    for t in range(len(y)):
        rows = [k for k in range(t, len(y)) if ids[k] == ids[t]]
        expected, share = 0.0, 1.0
        for k in rows if ended[rows[-1]] else rows[:-1]:
            expected += share * y[k]
            share *= 0.0 if ended[k] else discount[k]
        assert_close(found.returns[t], expected + share * prediction[rows[-1]], "sums")
        assert_close(found.unobserved[t], share, "sums")
        assert found.weight[t] == (ended[rows[-1]] or t < rows[-1])


@pytest.mark.parametrize("unobserved", ["predict", "ipcw", "drop"])
def test_score_is_over_these_returns(unobserved):
    from sklearn.metrics import r2_score

    random = np.random.default_rng(2)
    X, y, weights = random.normal(size=(300, 3)), random.normal(size=(300, 2)), random.uniform(size=300)
    y[29::30] = np.nan
    cut = {"episode": np.arange(300) // 30, "terminated": np.zeros(300, dtype=bool)}
    cut["discount"] = random.uniform(0.5, 0.8, 300)
    for columns in ({}, cut):
        rewards = y if columns else np.nan_to_num(y)
        fitted = LSTD(gamma=0.8).fit(X, rewards, **columns)
        found = observed_returns(rewards, gamma=0.8, prediction=fitted.predict(X), unobserved=unobserved, **columns)
        assert found.returns.shape == (300, 2)
        expected = r2_score(found.returns, fitted.predict(X), sample_weight=weights * found.weight)
        assert fitted.score(X, rewards, weights, unobserved=unobserved, **columns) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("unobserved", ["predict", "ipcw"])
def test_weights_of_observed_returns_are_those_of_the_rows_times_those_of_the_treatment(unobserved):
    rows = {"gamma": 0.5, "prediction": np.zeros(6), "episode": [1, 1, 1, 2, 2, 2], "terminated": [0, 0, 1, 0, 0, 0]}
    weight = np.array([2.0, 2.0, 2.0, 0.5, 0.5, np.nan])  # the last row is a horizon row
    plain = observed_returns(np.ones(6), unobserved=unobserved, tolerance=0.6, **rows)
    found = observed_returns(np.ones(6), unobserved=unobserved, tolerance=0.6, weight=weight, **rows)
    assert found.returns.tolist() == plain.returns.tolist()
    assert_close(found.weight, plain.weight * np.nan_to_num(weight), "sums")


def test_observed_returns_of_a_stream_and_of_nothing():
    found = observed_returns([1.0, 1.0, np.nan], gamma=0.5, unobserved="drop", tolerance=0.3)
    assert found.returns.tolist() == [1.5, 1.0, 0.0]
    assert found.unobserved.tolist() == [0.25, 0.5, 1.0]
    assert found.weight.tolist() == [1.0, 0.0, 0.0]
    assert found.share == 0.75
    for unobserved in ("ipcw", "drop"):
        nothing = observed_returns([], gamma=0.5, unobserved=unobserved)
        assert (nothing.returns.shape, nothing.share) == ((0,), 0.0)
    whole = observed_returns(np.ones((2, 1)), gamma=0.5, terminated=[False, True], unobserved="ipcw")
    assert whole.returns.tolist() == [[1.5], [1.0]]


def test_observed_returns_warns_and_refuses():
    with pytest.warns(MissingTerminationWarning) as caught:
        observed_returns([1.0, 1.0], gamma=0.5, prediction=[0.0, 0.0], episode=[1, 1])
    assert caught[0].filename == __file__
    for columns, message in (
        ({"episode": [1]}, r"`episode` must have one entry per row of `y`, shape \(2,\); got \(1,\)"),
        ({"terminated": [True, False, False]}, "`terminated` must have one entry per row of `y`"),
        ({"discount": [0.5, 2.0]}, "`discount` must be in"),
        ({"tolerance": 0.0}, "`tolerance` must be in"),
        ({"gamma": 1.5}, "`gamma` must be in"),
        ({"unobserved": "keep"}, "`unobserved` must be one of"),
        ({"prediction": None}, '`prediction` must be given with unobserved="predict"'),
        ({"prediction": [1.0]}, "`prediction` must have shape"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            observed_returns([1.0, 1.0], **({"gamma": 0.5, "prediction": [0.0, 0.0]} | columns))
    with pytest.raises(InvalidInputError, match="`y` must have shape"):
        observed_returns(3.0, gamma=0.5)
    with pytest.raises(InvalidInputError, match="`y` must be finite"):
        observed_returns([np.nan, 1.0], gamma=0.5, prediction=[0.0, 0.0])


# ---------------------------------------------------------------- calibration


def test_deciles_have_as_many_rows_each_and_plain_standard_errors():
    random = np.random.default_rng(3)
    predicted = random.permutation(200) / 7.0
    observed = predicted + random.normal(size=200)
    found = calibration(predicted, observed)
    order = np.argsort(predicted)
    assert found.count.tolist() == found.n_groups.tolist() == [20] * 10
    for i in range(10):
        rows = order[20 * i : 20 * (i + 1)]
        assert_close(found.predicted[i], predicted[rows].mean(), "sums")
        assert_close(found.observed[i], observed[rows].mean(), "sums")
        assert_close(found.standard_error[i], observed[rows].std(ddof=1) / np.sqrt(20), "sums")


def test_groups_of_rows_count_once():
    random = np.random.default_rng(4)
    groups = random.permutation(np.repeat(["a", "b", "c", "d", "e", "f"], 5))
    predicted, observed = random.normal(size=30), random.normal(size=30)
    found = calibration(predicted, observed, 3, groups=groups)
    order = np.argsort(predicted)
    for i in range(3):
        rows = order[10 * i : 10 * (i + 1)]
        names = set(groups[rows])
        sums = [(observed[rows] - observed[rows].mean())[groups[rows] == name].sum() for name in names]
        expected = np.sqrt(len(names) / (len(names) - 1) * np.sum(np.square(sums))) / 10
        assert found.n_groups[i] == len(names)
        assert_close(found.standard_error[i], expected, "sums")


def test_weights_of_calibration_are_numbers_of_copies():
    random = np.random.default_rng(9)
    predicted, returns = random.integers(0, 2, 40) + 0.0, random.normal(size=40)
    groups, copies = random.integers(0, 9, 40), random.integers(0, 4, 40)
    found = calibration(predicted, replace(ObservedReturns.whole(returns), weight=copies + 0.0), groups=groups)
    plain = calibration(*(np.repeat(a, copies) for a in (predicted, returns)), groups=np.repeat(groups, copies))
    for name in ("predicted", "observed", "standard_error", "n_groups"):
        assert_close(getattr(found, name), getattr(plain, name), "sums")


def test_bins_from_which_no_end_is_seen_have_no_mean():
    y, prediction = np.ones(8), np.array([1.0, 1.0, 2.0, 2.0, 3.0, 2.0, 1.0, 1.0])
    columns = {"episode": [0, 0, 1, 1, 2, 2, 3, 3], "terminated": [0, 1, 0, 0, 0, 0, 0, 0]}
    found = calibration(prediction, observed_returns(y, gamma=1.0, prediction=prediction, **columns))
    assert found.predicted.tolist() == [1.0, 2.0, 3.0]
    assert_close(found.observed[0], 2.0, "sums")  # the mean m of 2, 1 and 1 + m
    assert np.isnan(found.observed[1:]).all()
    assert np.isnan(found.standard_error[1:]).all()


def test_equal_predictions_stay_together_but_for_rounding():
    states = np.random.default_rng(6).integers(0, 4, 500)
    predicted = np.array([1.0, 1.1, 5.0, 9.0])[states]
    predicted = predicted * (1.0 + 1e-15 * np.random.default_rng(7).integers(-3, 4, 500))
    found = calibration(predicted, states)
    assert found.count.tolist() == np.bincount(states).tolist()
    assert_close(found.observed, np.arange(4), "sums")
    many = calibration(np.arange(500) // 9, states, 10)
    assert many.count.sum() == 500
    assert set(many.count % 9) <= {0, 5}  # 500 = 55 · 9 + 5
    assert len(many.count) == 10


def test_calibration_refuses():
    for arguments, message in (
        (([], []), "`prediction` must have at least one row"),
        (([1.0], [1.0, 2.0]), "`returns` must have shape"),
        (([1.0], [np.nan]), "`returns` must be finite"),
        (([1.0], [1.0], 0), "`n_bins` must be at least 1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            calibration(*arguments)
    with pytest.raises(InvalidInputError, match=r"`groups` must have one id per row of `prediction`, shape \(1,\)"):
        calibration([1.0], [1.0], groups=[1, 2])


# ---------------------------------------------------------------- effective degrees of freedom


@pytest.mark.parametrize("variant", naive.VARIANTS)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_effective_degrees_of_freedom_are_the_diagonal(variant, fit_intercept):
    random = np.random.default_rng(8)
    X, y = random.normal(size=(30, 3)), random.normal(size=30)
    fitted = LSTD(gamma=0.9, lmbda=0.6, alpha=2.0, variant=variant, fit_intercept=fit_intercept).fit(X, y)
    phi = np.column_stack([X, np.ones(30)]) if fit_intercept else X
    A = naive.MATRIX[variant](phi, 0.6, 0.9)
    ridge = np.diag([2.0, 2.0, 2.0, 0.0]) if fit_intercept else 2.0 * np.eye(3)
    expected = np.diag(np.linalg.inv(A + ridge) @ A)[:3]
    assert_close(effective_degrees_of_freedom(fitted), expected, "solve")
