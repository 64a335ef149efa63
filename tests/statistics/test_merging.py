"""What merged statistics know of their data: names, intercept, labels, rewards that are not used, and blocks."""

from functools import reduce

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import lstd
import naive
from lstd import LSTD, LSTDCV, LSTDStatistics, fit_chunks
from lstd.errors import InvalidInputError, MissingTerminationWarning, UnusedRewardWarning
from streams import cut, streams
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.BrokenEpisodeWarning")  # successors are drawn at random

MERGES = {
    "then": lambda one, two: one.then(two),
    "+": lambda one, two: one + two,
    "fit_statistics": lambda one, two: LSTD(fit_intercept=one.has_intercept).fit_statistics([one, two]).statistics_,
}


def frame(names, *, kind=pd.DataFrame, seed=0):
    values = np.random.default_rng(seed).normal(size=(6, len(names)))
    return kind(dict(zip(names, values.T, strict=True)))


def sums(X, **options):
    return LSTDStatistics.from_arrays(X, np.arange(1.0, 1.0 + X.shape[0]), **{"gamma": 0.99, "lmbda": 0.9, **options})


@pytest.fixture(params=MERGES)
def merge(request):
    return MERGES[request.param]


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")  # of a sum of two streams
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_names_are_those_of_the_frame(kind, merge, tmp_path):
    one = sums(frame("ab", kind=kind), fit_intercept=True, label="Monday")
    assert (one.feature_names, one.has_intercept, one.labels) == (("a", "b"), True, {"Monday"})
    assert one.A[-1, -1] == one.matrix("uncorrected")[-1, -1] > 0.0
    two = sums(frame("ab", kind=kind, seed=1), fit_intercept=True, label="Tuesday")
    both = merge(one, two)
    both.save(tmp_path / "both")
    for found in (both, lstd.load(tmp_path / "both")):
        assert (found.feature_names, found.has_intercept, found.labels) == (("a", "b"), True, {"Monday", "Tuesday"})
    assert LSTD(fit_intercept=True).fit_statistics(both).feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (sums(frame("ab")), sums(frame("ba")), "feature 0 is '[ab]' in one and '[ab]' in the other"),
        (sums(frame("abc")), sums(frame("abd")), "feature 2 is '[cd]' in one and '[cd]' in"),
        (sums(frame("ab")), sums(frame("a"), fit_intercept=True), "all have an intercept or none has"),
        (sums(frame("ab")), sums(frame("ab"), fit_intercept=True), "all have an intercept or none has"),
        (sums(np.eye(3)), sums(np.eye(3)[:, 1:], fit_intercept=True), "all have an intercept or none has"),
        (sums(np.eye(3), label="x"), sums(np.eye(3), label="x"), "they share no data; both have the label 'x'"),
        (sums(np.eye(3), label="b") + sums(np.eye(3), label="c"), sums(np.eye(3), label="c"), "have the label 'c'"),
    ],
)
def test_other_features_and_the_same_data_are_refused(one, two, message, merge):
    for pair in ((one, two), (two, one)):
        with pytest.raises(InvalidInputError, match=message):
            merge(*pair)


def test_names_that_are_not_known_fit_any(merge):
    known, unknown = sums(frame("ab")), sums(sparse.csr_array(9.0 * np.eye(2)))
    assert merge(known, unknown).feature_names == merge(unknown, known).feature_names == ("a", "b")
    assert merge(unknown, unknown).feature_names is None


def test_a_night_without_rows_keeps_its_label():
    night = sums(frame("ab"), fit_intercept=True, label="1")
    unit = LSTDStatistics.empty(3, gamma=0.99, lmbda=0.9)
    nothing = sums(frame("ab")[:0], fit_intercept=True, label="2")
    for merged in (night.then(nothing), nothing.then(night), night + nothing, nothing + night):
        assert merged.labels == {"1", "2"}
        assert merged.n_rows == 6
        assert unit.then(merged).then(unit).labels == (unit + merged).labels == {"1", "2"}
        with pytest.raises(InvalidInputError, match="the label '2'"):
            merged.then(nothing)


@pytest.mark.parametrize("label", [1, b"x", ["x"]])
def test_a_label_is_text(label):
    with pytest.raises(InvalidInputError, match="`label` must be text; got "):
        sums(frame("ab"), label=label)


@pytest.mark.parametrize(("X", "y"), [(1e154, 1.0), (0.5, 1e308), (1.0, 1e308)])
def test_a_merge_that_overflows_is_refused(X, y, merge):
    huge = LSTDStatistics.from_arrays(np.full((2, 1), X), np.full(2, y), gamma=0.99, lmbda=0.9)
    with pytest.raises(InvalidInputError, match="must be below 1e308; they overflowed"):
        reduce(merge, [huge] * 300)
    assert np.isfinite(huge.solve(1.0).weights).all()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(streams(successors=False), st.data())
def test_rewards_of_horizon_rows_are_counted_at_any_split(stream, data):
    ends = [rows.stop - 1 for rows in stream.episodes if len(stream)]
    rewards = stream.columns_of_rewards
    known = [t for t in ends if not stream.ended[t] and not np.isnan(rewards[t]).any()]
    expected = sum(bool(rewards[t].any()) for t in known)
    parts = [
        LSTDStatistics.from_arrays(part.X, part.y, gamma=part.gamma, lmbda=part.lmbda, **part.columns)
        for part in cut(data.draw, stream)
    ]
    merged = reduce(LSTDStatistics.then, parts)
    assert merged.n_unused_rewards == expected
    assert (merged + merged).n_unused_rewards == 2 * expected


# ---------------------------------------------------------------- blocks


def nights(count=12, episodes=4, *, seed=0, **options):
    """Statistics of each night, and the whole: episodes of five rows, every other one truncated."""
    random = np.random.default_rng(seed)
    n = count * episodes * 5
    X, y, rows = pd.DataFrame(random.normal(size=(n, 3)), columns=list("abc")), random.normal(size=n), np.arange(n)
    last, ids = rows % 5 == 4, rows // 5
    columns = {"episode": ids, "terminated": last & (ids % 2 == 0)}
    y = np.where(last & (ids % 2 == 1), np.nan, y)
    found = []
    for night in range(count):
        of = slice(night * n // count, (night + 1) * n // count)
        part = {name: values[of] for name, values in columns.items()}
        options = {"fit_intercept": True, "gamma": 0.9, "lmbda": 0.8}
        found.append(LSTDStatistics.from_arrays(X[of], y[of], label=str(night), **options, **part))
    return found, X, y, columns


@pytest.mark.parametrize("variant", naive.VARIANTS)
def test_each_of_several_statistics_is_a_block(variant):
    found, X, y, columns = nights()
    settings = {"gamma": 0.9, "lmbda": 0.8, "variant": variant, "fit_intercept": True}
    whole = LSTD(**settings, n_blocks=12).fit(X, y, **columns)  # blocks of a power of two episodes
    for merged in (
        LSTD(**settings).fit_statistics(found),
        LSTD(**settings).fit_statistics(iter(found), independent=True),
    ):
        assert merged.statistics_.labels == {str(night) for night in range(12)}
        assert merged.n_episodes_ == 48
        for one, two in zip(merged.predict(X, return_std=True), whole.predict(X, return_std=True), strict=True):
            assert_close(one, two, "solve")


def test_blocks_of_merged_statistics_are_limited():
    found, X, *_ = nights(100, 1)
    merged = LSTD(gamma=0.9, lmbda=0.8, fit_intercept=True).fit_statistics(found)
    assert len(merged.model_.influence.shares) == 64
    assert len(LSTD(0.9, 0.8, fit_intercept=True, n_blocks=20).fit_statistics(found).model_.influence.shares) == 20
    with pytest.raises(InvalidInputError, match="`n_blocks` of at least 10; the model was fitted with 0"):
        LSTD(0.9, 0.8, fit_intercept=True, n_blocks=0).fit_statistics(found).predict_interval(X)


def test_all_ways_in_say_that_rewards_of_last_rows_are_not_used():
    X, y, episode, ends = np.eye(2)[[0, 1] * 6], np.ones(12), np.arange(12) // 3, np.zeros(12, dtype=bool)
    data = {"X": X, "y": y, "episode": episode, "terminated": ends}
    padded = {**data, "y": np.where(np.arange(12) % 3 == 2, 0.0, 1.0)}
    chunks = [{name: values[part] for name, values in data.items()} for part in (slice(0, 7), slice(7, 12))]
    words = {"match": "4 rewards of last rows are not used: their successor is unknown. Append a row"}
    rewards = np.random.default_rng(0).normal(size=12)
    streamed = LSTD(0.5)
    for chunk in chunks:
        streamed.partial_fit(**chunk)
    for fit in (
        lambda: LSTD(0.5).fit(**data),
        lambda: LSTDCV(0.5, lmbdas=[0.0, 1.0], alphas=[0.1, 1.0]).fit(**{**data, "y": rewards}),
        lambda: fit_chunks(chunks, gamma=0.5),
        lambda: LSTD(0.5, 0.9).fit_statistics(
            LSTDStatistics.from_arrays(**data, gamma=0.5, lmbda=0.9, fit_intercept=True)
        ),
        lambda: streamed.coef_,
    ):
        with pytest.warns(UnusedRewardWarning, **words):
            fit()
    streamed.partial_fit(X[:3], y[:3], episode=[4, 4, 4], terminated=ends[:3])
    _ = streamed.coef_  # a stream says it once
    LSTD(0.5).fit(**padded)  # zeros pad
    LSTD(0.5).fit(X, y)  # one stream goes on
    with pytest.warns(UnusedRewardWarning, **words), pytest.warns(MissingTerminationWarning, match="^Were ends seen"):
        LSTD(0.5).fit(X, y, episode=episode)  # the question hides no other warning
