"""Predictions outside of what the rewards allow: said by fit, score, summary and saved files, and only then."""

import numpy as np
import pytest

import lstd
from lstd import LSTD, LSTDCV, LSTDStatistics
from lstd.errors import BoundsWarning, InvalidInputError
from support.tolerances import assert_close

PLAIN = {"fit_intercept": False}


def chain(n=200, reward=lambda state: 1.0 + state):
    """Episodes of three states in a row."""
    states = np.tile(np.arange(3), n)
    return np.eye(3)[states], reward(states), {"terminated": states == 2}


def bounds_of(model):
    return model.model_.bounds[:, 0].tolist()


@pytest.mark.parametrize(
    ("rewards", "gamma", "ends", "bounds"),
    [
        ([1.0, 3.0], 0.5, True, [1.0, 6.0]),
        ([1.0, 3.0], 0.5, False, [2.0, 6.0]),
        ([-1.0, 3.0], 0.5, True, [-2.0, 6.0]),
        ([-3.0, -1.0], 0.5, True, [-6.0, -1.0]),
        ([-3.0, -1.0], 0.5, False, [-6.0, -2.0]),
        ([1.0, 3.0], 1.0, True, [1.0, np.inf]),
        ([-1.0, 3.0], 1.0, True, [-np.inf, np.inf]),
        ([-3.0, -1.0], 1.0, True, [-np.inf, -1.0]),
    ],
)
def test_bounds_follow_from_the_least_and_the_greatest_reward(rewards, gamma, ends, bounds):
    y = np.resize(rewards, 20)
    X = np.random.default_rng(0).normal(size=(20, 1))
    model = LSTD(gamma, lmbda=0.0).fit(X, y, terminated=np.arange(20) % 5 == 4 if ends else None)
    assert_close(bounds_of(model), bounds, "solve")


def test_bounds_know_discounts_variants_and_a_missing_intercept():
    X, y = np.random.default_rng(0).normal(size=(20, 1)), np.resize([1.0, 3.0], 20)
    assert_close(bounds_of(LSTD(0.9).fit(X, y, discount=np.full(20, 0.5))), [1.0, 6.0], "solve")
    assert_close(bounds_of(LSTD(0.5, variant="mixed").fit(X, y)), [1.0, 6.0], "solve")
    assert_close(bounds_of(LSTD(0.5, fit_intercept=False).fit(X, y)), [0.0, 6.0], "solve")


def test_rewards_that_are_not_used_are_no_bounds():
    X, y = np.random.default_rng(0).normal(size=(40, 1)), np.tile([1.0, 3.0, 2.0, np.nan], 10)
    model = LSTD(0.5).fit(X, y, episode=np.arange(40) // 4, terminated=np.zeros(40, bool))
    assert_close(bounds_of(model), [2.0, 6.0], "solve")


@pytest.mark.parametrize("estimator", [LSTD(0.5, 1.0, **PLAIN), LSTDCV(0.5, [1.0], [1e-3], **PLAIN)])
@pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning")
def test_fit_score_summary_and_files_say_so(tmp_path, estimator):
    X, y, columns = far_from_zero()
    with pytest.warns(BoundsWarning, match=r"% are below 0, down to -.*At least \d+ % of their variance"):
        estimator.fit(X, y, **columns)
    (doubt,) = estimator.model_.doubts
    assert doubt in str(estimator.summary())
    with pytest.warns(BoundsWarning, match="below 0"):
        estimator.score(X, y, **columns)
    estimator.save(tmp_path / "model")
    loaded = lstd.load(tmp_path / "model")
    assert loaded.model_.doubts == (doubt,)
    assert bounds_of(loaded) == bounds_of(estimator)


@pytest.mark.filterwarnings("ignore::lstd.errors.BoundsWarning")
@pytest.mark.parametrize("m", [0, 1, 2])
def test_clipped_predictions_are_within_the_bounds(tmp_path, m):
    X, y, columns = far_from_zero()
    y = np.column_stack([y, -y][:m]) if m else y
    model = LSTD(0.5, 1.0, **PLAIN).fit(X, y, **columns)
    plain, bounds = model.predict(X), model.model_.bounds
    assert_close(model.predict(X, clip=True), np.clip(plain, *(bounds if m else bounds[:, 0])), "sums")
    assert (model.predict(X, clip=True) != plain).any()
    model.save(tmp_path / "model")
    value, error = lstd.load(tmp_path / "model").predict(X, True, clip=True)
    assert_close(value, model.predict(X, clip=True), "sums")
    assert_close(error, model.predict(X, return_std=True)[1], "sums")


def test_clip_needs_rewards_and_is_a_flag():
    X, y, columns = far_from_zero()
    model = LSTD(0.5, 1.0, **PLAIN).fit_statistics(LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=1.0, **columns))
    with pytest.raises(InvalidInputError, match=r"`clip` must be False for a model fitted to tables.*`numpy.clip`"):
        model.predict(X, clip=True)
    with pytest.raises(InvalidInputError, match="`clip`"):
        model.predict(X, clip="yes")


def far_from_zero(n=4000):
    """Rewards about one and a feature about zero, which cannot follow them without an intercept."""
    X, y = np.linspace(-2.0, 2.5, n)[:, np.newaxis], np.resize([0.5, 1.5], n)
    return X, y, {"terminated": np.ones(n, bool)}


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_a_right_model_is_silent(gamma):
    X, y, columns = chain()
    model = LSTD(gamma, alpha=1e-6).fit(X, y, **columns)
    assert model.model_.doubts == ()
    assert model.score(X, y, **columns) > 0.9


def test_constant_rewards_are_silent():
    X, y, columns = chain(reward=lambda state: np.full(len(state), 1.0))
    for intercept in (False, True):
        for done in (columns, {}):
            assert LSTD(0.9, fit_intercept=intercept).fit(X, y, **done).model_.doubts == ()


def test_few_rows_say_nothing():
    X, y, columns = far_from_zero(29)
    assert LSTD(0.5, 1.0, **PLAIN).fit(X, y, **columns).model_.doubts == ()


def test_each_of_several_rewards_has_bounds():
    X, y, columns = far_from_zero()
    with pytest.warns(BoundsWarning, match="below 0"):
        model = LSTD(0.5, 1.0, **PLAIN).fit(X, np.column_stack([np.abs(X[:, 0]) + X[:, 0], y]), **columns)
    assert model.model_.bounds.shape == (2, 2)


def test_long_data_are_looked_at_in_part():
    X, y, columns = far_from_zero(30_001)
    with pytest.warns(BoundsWarning):
        LSTD(0.5, 1.0, n_blocks=0, **PLAIN).fit(X, y, **columns)
