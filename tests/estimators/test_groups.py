"""Groups: no fold and no block divides one, in memory in any order, in a stream one after another."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd import LSTD, LSTDCV, LSTDStatistics, Trajectories
from lstd.data.check_rows import check_rows
from lstd.errors import BrokenEpisodeWarning, InvalidInputError
from lstd.estimators.folds import folds_of
from lstd.statistics.blocks import no_blocks
from streams import Stream, cut, definition
from tolerances import assert_close

quick = settings(derandomize=True, deadline=None, max_examples=30)
FIELDS = ("prediction", "lower", "upper", "standard_error", "degrees_of_freedom")


def grouped(seed=0, n_groups=30, most=4, n=2, *, shuffled=True):
    """Up to `most` episodes of each group, mixed with those of the others unless they are in order."""
    random = np.random.default_rng(seed)
    names = np.sort(random.permutation(999)[:n_groups])
    owner = np.repeat(names, random.integers(1, most + 1, n_groups))
    if shuffled:
        random.shuffle(owner)
    lengths = random.integers(2, 6, len(owner))
    T, ends = int(lengths.sum()), np.cumsum(lengths) - 1
    terminated = np.zeros(T, dtype=bool)
    terminated[ends] = random.uniform(size=len(ends)) < 0.6
    groups = np.repeat(owner, lengths)
    X = random.normal(size=(T, n)) + (groups % 7 / 7.0)[:, np.newaxis]
    y = X.sum(axis=1) + groups % 5 + random.normal(size=T)
    y[ends[~terminated[ends]]] = np.nan
    episode = np.repeat(random.permutation(len(lengths)), lengths)
    return Stream(X, y, 0.9, 0.7, episode=episode, terminated=terminated, groups=groups)


def in_order(stream):
    return stream[np.argsort(stream.groups, kind="stable")]


def fit(stream, **options):
    return LSTD(stream.gamma, stream.lmbda, **options).fit(stream.X, stream.y, **stream.columns)


def rows_of(stream, *, sort=False):
    return check_rows(stream.X, stream.y, gamma=stream.gamma, sort=sort, finite=False, **stream.columns)


@pytest.mark.parametrize("n_groups", [6, 40])
def test_the_covariance_is_the_jackknife_over_groups(n_groups):
    stream = grouped(n_groups, n_groups)
    sums = []
    for name in np.unique(stream.groups):
        A, b = definition(stream[stream.groups == name], "boyan")
        sums.append((A, b[:, 0]))
    model = fit(stream, alpha=0.0, fit_intercept=False)
    assert model.statistics_.n_groups == n_groups
    assert_close(model.coef_covariance_, naive.cluster_jackknife(sums), "solve")


@pytest.mark.filterwarnings("ignore::lstd.errors.BiasWarning", "ignore::lstd.errors.MisfitWarning")
@pytest.mark.parametrize("n_groups", [7, 150])
def test_the_order_of_episodes_makes_no_difference(n_groups):
    stream = grouped(n_groups, n_groups)
    order = in_order(stream)
    one, two = fit(stream), fit(order)
    found, expected = (model.predict_interval(np.eye(2)) for model in (one, two))
    for name in FIELDS:
        assert_close(getattr(found, name), getattr(expected, name), "solve")
    check, other = (m.bias_check(s.X, s.y, **s.columns) for m, s in ((one, stream), (two, order)))
    for name, value in vars(check).items():
        assert_close(value, getattr(other, name), "solve")
    one, two = (LSTDCV(0.9, lmbdas=[0.0, 0.8], alphas=[0.1, 1.0]).fit(s.X, s.y, **s.columns) for s in (stream, order))
    for name, value in one.cv_results_.items():
        assert_close(value, two.cv_results_[name], "solve")


@quick
@given(st.data(), st.integers(0, 99), st.integers(1, 40), st.sampled_from([64, 10, 3]))
def test_no_block_divides_a_group_in_any_split(data, seed, n_groups, limit):
    stream = grouped(seed, n_groups, shuffled=False)
    whole = no_blocks(rows_of(stream), stream.lmbda, limit)
    apart = whole = whole.extended(rows_of(stream))
    parts = whole = no_blocks(rows_of(stream), stream.lmbda, limit)
    merged = None
    for chunk in cut(data.draw, stream):
        rows = rows_of(chunk)
        parts = parts.extended(rows)
        alone = whole.extended(rows)
        merged = alone if merged is None else merged.then(alone)
    starts = {0, *(1 + np.flatnonzero(np.diff(stream.groups))).tolist()}
    for blocks in (apart, parts, merged):
        assert {prefix.n_rows for prefix in blocks.prefixes} <= starts
        assert len(blocks.shares) == len(blocks.prefixes) + 1 <= limit
        assert blocks.total.n_groups == n_groups
        assert blocks.unit == "groups"
    assert [prefix.n_rows for prefix in parts.prefixes] == [prefix.n_rows for prefix in apart.prefixes]
    assert_close(parts.shares, apart.shares, "sums")


@quick
@given(st.integers(0, 99), st.integers(2, 40), st.sampled_from([None, 2, 5]))
def test_no_fold_divides_a_group(seed, n_groups, cv):
    stream = grouped(seed, n_groups)
    rows = check_rows(stream.X, stream.y, gamma=0.9, warn=False, sort=True, **stream.columns)
    folds = [{*fold.groups.tolist()} for fold in folds_of(rows, cv)]
    assert sum(map(len, folds)) == n_groups
    assert len(folds) == min(n_groups, cv or 10)


# ---------------------------------------------------------------- what is refused

TEXT = np.array(["a", "a", "b", "b", "a", "a"])
SIX = {"X": np.arange(12.0).reshape(6, 2), "y": np.ones(6), "terminated": [False, True] * 3}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"groups": TEXT[:5]}, r"`groups` must have one id per row of `X`, shape \(6,\); got \(5,\)"),
        ({"groups": [1, 1, np.nan, 2, 3, 3]}, "`groups` must have an id on every row; row 2 has no value"),
        ({"groups": list("aabccc")}, "row 3 has 'c', and the row before it, of the same episode, has 'b'"),
        (
            {"groups": list("aabccc"), "episode": [7, 7, 8, 8, 9, 9]},
            "the same on all rows of an episode; row 3 has 'c', .* has 'b'. Give rows",
        ),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "score", "bias_check"])
def test_groups_are_checked(columns, message, method):
    model = LSTD().fit(**SIX) if method in ("score", "bias_check") else LSTD()
    with pytest.raises(InvalidInputError, match=message):
        getattr(model, method)(**SIX, **columns)


def test_a_stream_refuses_a_group_that_comes_again():
    with pytest.raises(
        InvalidInputError, match="contiguous in a stream; at row 4, group 'a' reappears after other groups; sort"
    ):
        LSTD().partial_fit(**SIX, groups=TEXT)
    with pytest.raises(InvalidInputError, match="at row 4, group 'a' reappears"):
        LSTDStatistics.from_arrays(**SIX, groups=TEXT, gamma=0.9, lmbda=0.5)
    model = LSTD().partial_fit(**SIX, groups=np.sort(TEXT))
    before = pickle.dumps(model.statistics_)
    for again in (["b", "b", "c", "c", "a", "a"], ["a", "a", "c", "c", "d", "d"]):
        with pytest.raises(InvalidInputError, match=f"at row {again.index('a')}, group 'a' reappears"):
            model.partial_fit(**SIX, groups=again)
        assert pickle.dumps(model.statistics_) == before
    assert model.partial_fit(**SIX, groups=list("bbccdd")).statistics_.n_groups == 4
    with pytest.raises(InvalidInputError, match="`groups` must be given for all chunks of a stream or for none"):
        model.partial_fit(**SIX)


def test_an_episode_does_not_continue_in_another_group():
    model = LSTD().partial_fit([[1.0]], [1.0], episode=[1], terminated=[False], groups=["a"])
    with pytest.raises(
        InvalidInputError, match="the first row of the next chunk has 'b', and the row before it, of the"
    ):
        model.partial_fit([[1.0]], [1.0], episode=[1], terminated=[False], groups=["b"])


def test_too_few_groups():
    stream = grouped(0, 4)
    with pytest.raises(InvalidInputError, match="Intervals need at least 5 groups; the model was fitted to 4"):
        fit(stream).predict_interval(stream.X)
    with pytest.raises(InvalidInputError, match="`groups` must have at least two groups to hold some out"):
        LSTDCV(0.9).fit(stream.X, stream.y, **{**stream.columns, "groups": np.zeros(len(stream))})


def test_messages_count_rows_as_they_were_given():
    stream = grouped(1)
    row = int(np.flatnonzero(stream.groups == stream.groups.min())[0])
    assert row > 0
    stream.X[row, 1] = np.nan
    with pytest.raises(InvalidInputError, match=f"row {row} has nan in column 1"):
        fit(stream)
    X, y = np.arange(6.0)[:, np.newaxis], np.ones(6)
    X_next = X + 1
    X_next[0] = 9.0  # not the row after it
    with pytest.warns(BrokenEpisodeWarning, match="Row 1 of `X`"):
        LSTD().fit(X, y, X_next=X_next, episode=[0, 0, 1, 1, 2, 2], terminated=[False] * 6, groups=list("ccbbaa"))


def test_independent_sums_add_their_groups():
    one = LSTDStatistics.from_arrays(**SIX, groups=np.sort(TEXT), gamma=0.9, lmbda=0.5)
    plain = LSTDStatistics.from_arrays(**SIX, gamma=0.9, lmbda=0.5)
    assert (one + one).n_groups == 4
    assert one.then(one + one).n_groups == 6
    assert (one + plain).n_groups is None
    assert plain.n_groups is None


# ---------------------------------------------------------------- the rest of the package


LONG = {"visit": [1, 2, 2, 1, 1], "who": ["b", "b", "a", "a", "a"], "run": [1, 1, 2, 3, 3], "x": [1.0, 2, 3, 4, 5]}


def test_trajectories_carry_groups():
    frame = pd.DataFrame(LONG | {"r": 1.0, "done": [0, 1, 1, 0, 1]})
    roles = {"features": ["x"], "reward": "r", "episode": "run", "terminated": "done", "groups": "who"}
    data = Trajectories.from_frame(frame, **roles)
    assert data.groups.tolist() == LONG["who"]
    assert not data.groups.flags.writeable
    model = LSTD().fit(**data.to_arrays())
    assert model.statistics_.n_groups == 2
    assert np.isfinite(model.score(**data.to_arrays()))
    again = pickle.loads(pickle.dumps(data))
    assert again.groups.tolist() == LONG["who"]
    both = Trajectories.concat([data, again], renumber=True)
    assert LSTD().fit(**both.to_arrays()).statistics_.n_groups == 2
    plain = Trajectories.from_frame(frame, **{**roles, "groups": None})
    with pytest.raises(InvalidInputError, match="`parts` must have the same groups"):
        Trajectories.concat([data, plain], renumber=True)
    by_time = Trajectories.from_frame(frame.iloc[::-1], **roles, time="x", sort=True)
    assert by_time.groups.tolist() == ["a", "a", "a", "b", "b"]
    with pytest.raises(
        InvalidInputError,
        match=r"Column 'who' \(`groups`\), row 1 .*: has 'c', and the row before it, of the same episode",
    ):
        Trajectories.from_frame(frame.assign(who=list("bcaaa")), **roles)
    with pytest.raises(
        InvalidInputError, match=r"Column 'who' \(`groups`\), row 3 .*: has no value .* every row needs an"
    ):
        Trajectories.from_frame(frame.assign(who=["b", "b", "a", None, None]), **roles)
