"""Standard errors and intervals against their definition from scores, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

import naive
from lstd import LSTD
from lstd.data.variants import VARIANTS
from lstd.errors import InvalidInputError
from lstd.statistics.intervals import FEW
from lstd.statistics.merging import LSTDStatistics
from streams import Stream, definition
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")  # rewards are drawn at random

quick = settings(derandomize=True, deadline=None, max_examples=40)
ALPHA = 4.0


@st.composite
def long_streams(draw):
    """Streams that are long enough for intervals: one episode, or eight and more."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = random.integers(1, 7, size=draw(st.integers(8, 20))) if draw(st.booleans()) else [40]
    n_rows, n = int(np.sum(lengths)), draw(st.integers(1, 3))
    m = draw(st.sampled_from([None, 1, 2]))
    terminated = np.zeros(n_rows, dtype=bool)
    terminated[np.cumsum(lengths) - 1] = random.uniform(size=len(lengths)) < 0.6
    return Stream(
        random.normal(size=(n_rows, n)), random.normal(size=(n_rows,) if m is None else (n_rows, m)),
        gamma=0.9, lmbda=random.choice([0.0, 0.7, 1.0]),
        episode=np.repeat(np.arange(len(lengths)), lengths), terminated=terminated,
        discount=random.choice([0.5, 0.9, 1.0], n_rows) if draw(st.booleans()) else None,
        importance_ratio=random.choice([0.5, 1.0, 1.3], n_rows) if draw(st.booleans()) else None,
    )  # fmt: skip


def fitted(stream, variant="boyan", **options):
    return LSTD(stream.gamma, stream.lmbda, ALPHA, variant, fit_intercept=False, **options).fit(
        stream.X, stream.y, **stream.columns
    )


def expected_influence(stream, variant, limit):
    """q_e of each reward (E, m, n), α S⁻¹ θ (m, n) and shares (E,), from the definition of A and b."""
    starts = [episode.start for episode in stream.episodes]
    by_episode = len(starts) > 1
    units = starts if by_episode else list(range(len(stream)))
    size = 1
    while -(-len(units) // size) > (limit if by_episode else min(limit, 28)):
        size *= 2
    edges = units[size::size]
    sums = [definition(stream[:edge], variant if by_episode else "boyan") for edge in edges]
    A, b = definition(stream, variant)
    ridge = np.full(len(A), ALPHA)
    S = A + np.diag(ridge)
    theta = np.linalg.solve(S, b)
    counts = np.diff([*range(0, len(units), size), len(units)])
    matrices = [*(matrix for matrix, _ in sums), A]
    q = [
        naive.influence(matrices, [*(v[:, j] for _, v in sums), b[:, j]], theta[:, j], ridge, counts)
        for j in range(theta.shape[1])
    ]
    worst = max(np.linalg.cond(S - (A - before)) for A, before in pairwise([0 * S, *matrices]))
    return np.stack(q, axis=1), ALPHA * np.linalg.solve(S, theta).T, counts / counts.sum(), worst


@quick
@given(long_streams(), st.sampled_from(VARIANTS), st.sampled_from([64, 10]))
def test_standard_errors_and_intervals_are_those_of_the_definition(stream, variant, limit):
    model = fitted(stream, variant, n_blocks=limit)
    q, shift, shares, condition = expected_influence(stream, variant, limit)
    assume(condition < 1e4)
    u = np.einsum("emn,tn->tme", q, stream.X)
    error = np.sqrt(np.sum(u**2, axis=2))
    along = stream.X @ shift.T
    freedom = np.array([[naive.degrees_of_freedom(u_e, shares) for u_e in row] for row in u])
    if stream.y.ndim == 1:
        error, along, freedom = error[:, 0], along[:, 0], freedom[:, 0]
    prediction, std = model.predict(stream.X, return_std=True)
    assert_close(std, error, "solve")
    found = model.predict_interval(stream.X, 0.9)
    half = np.sqrt(error**2 + along**2) * stats.t.ppf(0.95, freedom)
    assert_close(found.lower, prediction - half, "solve")
    assert_close(found.upper, prediction + half, "solve")
    assert_close(found.degrees_of_freedom, freedom, "solve")
    assert_close(found.shift, -along, "solve")
    assert np.array_equal(found.little_data, found.degrees_of_freedom < FEW)
    covariance = np.einsum("emi,emj->mij", q, q)
    assert_close(model.coef_covariance_, covariance[0] if stream.y.ndim == 1 else covariance, "solve")


def test_an_intercept_is_a_column_of_ones_without_a_ridge_term():
    random = np.random.default_rng(9)
    X, y = random.normal(size=(60, 2)), random.normal(size=60)
    ends = {"episode": np.repeat(np.arange(20), 3), "terminated": np.arange(60) % 3 == 2}
    ones = np.column_stack([X, np.ones(60)])
    with_intercept = LSTD(0.9, alpha=0.0).fit(X, y, **ends)
    with_column = LSTD(0.9, alpha=0.0, fit_intercept=False).fit(ones, y, **ends)
    one, two = with_intercept.predict_interval(X), with_column.predict_interval(ones)
    for name in ("lower", "upper", "standard_error", "degrees_of_freedom"):
        assert_close(getattr(one, name), getattr(two, name), "solve")
    assert_close(with_intercept.coef_covariance_, with_column.coef_covariance_[:2, :2], "solve")


def test_reduces_to_the_standard_error_of_a_mean():
    y = np.random.default_rng(1).normal(size=30)
    model = LSTD(gamma=1.0, alpha=0.0).fit(np.ones((30, 1)), y, episode=np.arange(30), terminated=np.ones(30, bool))
    mean, std = model.predict([[1.0]], return_std=True)
    assert_close(mean, [y.mean()], "solve")
    assert_close(std, [stats.sem(y)], "solve")


def test_a_feature_that_one_episode_alone_has_seen():
    random = np.random.default_rng(11)
    X, y = random.normal(size=(40, 2)), random.normal(size=40)
    X[:, 1] = np.arange(40) < 4
    y += 50 * X[:, 1]
    ends = {"episode": np.repeat(np.arange(10), 4), "terminated": np.arange(40) % 4 == 3}
    found = LSTD(0.9, alpha=0.0).fit(X, y, **ends).predict_interval([[0.0, 1.0], [1.0, 0.0]])
    assert np.isfinite(found.upper).all()
    assert found.little_data[0]
    assert found.degrees_of_freedom[0] == 2.0
    assert found.standard_error[0] > 0.5 * abs(found.prediction[0])


@pytest.mark.filterwarnings("ignore::lstd.errors.ExtrapolationWarning")
def test_a_constant_reward_leaves_no_doubt_and_a_zero_feature_no_error():
    X = np.column_stack([np.ones(40), np.zeros(40)])
    ends = {"episode": np.repeat(np.arange(10), 4), "terminated": np.arange(40) % 4 == 3}
    model = LSTD(gamma=0.0, lmbda=0.0, alpha=1e-6, fit_intercept=False).fit(X, np.ones(40), **ends)
    found = model.predict_interval([[1.0, 0.0], [0.0, 0.0]])
    assert_close(found.standard_error, [0.0, 0.0], "solve")
    shift = 1e-6 * 40 / (40 + 1e-6) ** 2  # the ridge term is all that is wrong
    quantile = stats.t.ppf(0.975, found.degrees_of_freedom[0])
    assert_close(found.upper - found.prediction, [shift * quantile, 0.0], "solve")
    assert_close(found.shift, [-shift, 0.0], "solve")


EPISODES = {"episode": np.repeat([1, 2, 3], 4), "terminated": np.arange(12) % 4 == 3}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (EPISODES, {}, r"at least \d+ episodes.* was fitted to 3"),
        ({}, {"n_blocks": 0}, "n_blocks"),
        ({}, {"n_blocks": 2}, "n_blocks"),
    ],
)
def test_too_little_to_tell_apart_is_an_error(columns, options, message):
    X, y = np.random.default_rng(5).normal(size=(2, 12, 1))
    model = LSTD(0.9, **options).fit(X, y[:, 0], **columns)
    with pytest.raises(InvalidInputError, match=message):
        model.predict_interval(X)
    with pytest.raises(InvalidInputError, match=message):
        model.predict(X, return_std=True)
    with pytest.raises(InvalidInputError, match=message):
        _ = model.coef_covariance_


def test_a_short_stream_and_merged_statistics_have_no_intervals():
    X, y = np.random.default_rng(6).normal(size=(2, 40, 1))
    with pytest.raises(InvalidInputError, match="at least 20 rows"):
        LSTD(0.9).fit(X[:5], y[:5, 0]).predict_interval(X)
    merged = LSTDStatistics.from_arrays(X, y[:, 0], gamma=0.9, lmbda=0.9)
    with pytest.raises(InvalidInputError, match="merged"):
        LSTD(0.9, fit_intercept=False).fit_statistics(merged).predict_interval(X)


def test_rewards_whose_squares_overflow_are_an_error_and_large_ones_are_not():
    random = np.random.default_rng(12)
    X, y = random.normal(size=(2, 60, 1))
    plain = LSTD(0.9).fit(X, y[:, 0]).predict_interval(X)
    large = LSTD(0.9).fit(X, y[:, 0] * 1e120).predict_interval(X)
    assert_close(large.upper / 1e120, plain.upper, "solve")
    assert_close(large.degrees_of_freedom, plain.degrees_of_freedom, "solve")
    with pytest.raises(InvalidInputError, match="overflowed"):
        LSTD(0.9).fit(X, y[:, 0] * 1e200).predict_interval(X)


def fitted_to_two_rewards(fit_intercept):
    random = np.random.default_rng(5)
    X, y = random.normal(size=(60, 3)), random.normal(size=(60, 2))
    ends = {"episode": np.repeat(np.arange(20), 3), "terminated": np.arange(60) % 3 == 2}
    return LSTD(0.9, alpha=ALPHA, fit_intercept=fit_intercept).fit(X, y, **ends), X


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_weighted_sum_of_rows_is_one_row_of_weighted_features(fit_intercept):
    model, X = fitted_to_two_rewards(fit_intercept)
    ones = np.column_stack([X, np.ones(60)]) if fit_intercept else X
    weights = np.random.default_rng(6).normal(size=60)
    found = model.predict_interval(X, weights=weights)
    q = model.model_.influence.vectors
    assert_close(found.prediction, weights @ model.predict(X), "solve")
    assert_close(found.standard_error, np.sqrt(np.sum((q @ (weights @ ones)) ** 2, axis=0)), "solve")
    sparse_found = model.predict_interval(sparse.csr_array(X), weights=weights)
    alone = model.predict_interval(X[7:8])
    unit = model.predict_interval(X, weights=np.arange(60) == 7)
    for name in ("prediction", "lower", "upper", "standard_error", "degrees_of_freedom", "shift"):
        assert_close(getattr(sparse_found, name), getattr(found, name), "solve")
        assert_close(getattr(unit, name), getattr(alone, name)[0], "solve")
    assert found.lower.shape == found.little_data.shape == (2,)


@pytest.mark.parametrize("scale", ["identity", "log"])
@pytest.mark.parametrize("level", [0.9, 1.0 - 1e-10])
def test_an_interval_that_ends_beyond_the_largest_number_is_an_error(scale, level):
    """Where all episodes are equal, nothing scatters, and the shift by the ridge term alone overflows."""
    model = LSTD(alpha=64.0, fit_intercept=False).fit(np.ones((64, 1)), np.ones(64), terminated=np.ones(64))
    assert model.predict_interval([[1.0]], level, scale=scale).standard_error == 0.0
    with pytest.raises(InvalidInputError, match="overflowed"):
        model.predict_interval([[1.7e308]], level, scale=scale)


@pytest.mark.parametrize(
    ("scale", "forward", "slope"),
    [("log", np.log, lambda v: 1 / v), ("logit", lambda v: np.log(v / (1 - v)), lambda v: 1 / (v * (1 - v)))],
)
def test_intervals_are_symmetric_on_their_scale(scale, forward, slope):
    random = np.random.default_rng(7)
    X, y = random.uniform(0.5, 1.0, size=(200, 2)), random.binomial(1, 0.2, size=200).astype(float)
    ends = {"episode": np.arange(200) // 4, "terminated": np.arange(200) % 4 == 3}
    model = LSTD(0.2, alpha=0.0, fit_intercept=True).fit(X, y, **ends)
    plain, found = model.predict_interval(X[:9]), model.predict_interval(X[:9], scale=scale)
    half = (plain.upper - plain.lower) / 2 * slope(plain.prediction)
    assert_close(forward(found.upper), forward(plain.prediction) + half, "solve")
    assert_close(forward(found.lower), forward(plain.prediction) - half, "solve")
    assert_close(found.standard_error, plain.standard_error, "solve")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, r"`weights` must have shape \(60,\)"),
        ({"weights": np.full(60, np.nan)}, "`weights` must be finite"),
        ({"weights": np.full(60, 1e308)}, "overflow"),
        ({"scale": "log"}, '`scale` "log" needs predictions above 0; row 0 has -'),
        ({"scale": "probit"}, "`scale` must be one of"),
    ],
)
def test_weights_and_scales_that_do_not_fit_are_refused(options, message):
    model, X = fitted_to_two_rewards(False)
    with pytest.raises(InvalidInputError, match=message):
        model.predict_interval(X, **options)
