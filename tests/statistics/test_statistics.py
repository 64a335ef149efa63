"""LSTDStatistics against the definition, in any split and bracketing, dense and sparse."""

import copy
import pickle
from dataclasses import replace
from functools import reduce
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import lstd.statistics.adding as running_module
import lstd.statistics.adding as summing_module
from lstd.data.check_rows import check_rows
from lstd.data.variants import VARIANTS
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from streams import Stream, cut, streams
from tolerances import assert_close

pytestmark = [  # successors, ratios and weights are drawn at random
    pytest.mark.filterwarnings(f"ignore::lstd.errors.{name}")
    for name in ("BrokenEpisodeWarning", "EffectiveSampleWarning")
]


quick = settings(derandomize=True, deadline=None, max_examples=40)


def of(stream):
    return LSTDStatistics.from_arrays(stream.X, stream.y, gamma=stream.gamma, lmbda=stream.lmbda, **stream.columns)


def assert_sums(statistics, expected_matrix, expected_b):
    """Sums close to those expected, {variant: A} and b, relative to the largest of them where that is above 1."""
    size = max(1.0, *(np.abs(A).max() for A in expected_matrix.values()), np.abs(expected_b).max())
    for variant, A in expected_matrix.items():
        assert_close(statistics.matrix(variant) / size, A / size, "sums")
    assert_close(statistics.b / size, expected_b / size, "sums")


def assert_alike(one, two):
    assert_sums(one, {variant: two.matrix(variant) for variant in VARIANTS}, two.b)
    for name in ("n_rows", "n_transitions", "n_episodes", "single"):
        assert getattr(one, name) == getattr(two, name), name
    assert_close(one.total_weight, two.total_weight, "sums")


def plain(T=6, n=2, seed=0, **columns):
    random = np.random.default_rng(seed)
    settings = {"gamma": 0.9, "lmbda": 0.5, **columns}
    return Stream(random.normal(size=(T, n)), random.normal(size=T), **settings)


# ---------------------------------------------------------------- the definition


def test_many_blocks_of_rows_and_long_streams():
    """More rows than a block holds, against the sums of one trace after another, which is no definition but exact."""
    stream = plain(T=9000, n=3, seed=1, gamma=0.99, lmbda=0.9)
    ends = np.arange(9000) % 700 == 699
    stream = replace(stream, terminated=ends & (np.arange(9000) % 1400 == 699), episode=np.arange(9000) // 700)
    parts = [of(stream[rows]) for rows in stream.episodes]
    merged = reduce(LSTDStatistics.then, parts)
    assert_alike(of(stream), merged)
    assert_alike(of(stream.sparse), merged)
    A, z = np.zeros((3, 3)), np.zeros(3)
    for t in range(700):
        u = 0.99 * z if t else 0 * z
        z = 0.9 * u + stream.X[t]
        A += np.outer(z - u, stream.X[t])
    assert_close(parts[0].matrix("uncorrected") / 700, A / 700, "sums")


def test_a_stream_of_a_million_steps_does_not_drift():
    """φ = 1, r = 1: every estimator is 1/(1−γ) but for the end of the data; sums of one sign, known exactly."""
    T, gamma, lmbda = 1_000_000, 0.99, 0.9
    found = LSTDStatistics.from_arrays(np.ones((T + 1, 1)), np.ones(T + 1), gamma=gamma, lmbda=lmbda)
    x = lmbda * gamma
    total = (T - x * (1 - x**T) / (1 - x)) / (1 - x)  # Σ z_t = Σ (1 − x^{t+1})/(1 − x)
    assert_close(found.b[0, 0], total, "long_stream")
    assert_close(found.matrix("boyan")[0, 0], total * (1 - gamma), "long_stream")
    assert_close(found.solve(0.0, "boyan").weights[0], 100.0, "long_stream")


@quick
@given(streams())
def test_python_bodies_of_the_kernels_give_the_sums_of_the_compiled_ones(stream):
    names = ("add_few", "add_transition", "dense_traces", "sparse_sums", "add_entries")
    bodies = {name: getattr(getattr(running_module, name), "py_func", getattr(running_module, name)) for name in names}
    cases = (stream, 0.0, 2**14), (stream, 0.0, 0), (stream.sparse, 0.0, 0), (stream.sparse, np.inf, 0)
    for one, dense_from, few in cases:
        with mock.patch.multiple(running_module, DENSE_FROM=dense_from, FEW_PRODUCTS=few):
            compiled = of(one)
            with mock.patch.multiple(running_module, **bodies):
                assert_alike(of(one), compiled)


@quick
@given(st.data(), streams())
def test_few_rows_have_the_sums_of_many(data, stream):
    """The sums of rows added one by one are those of a matrix product, alone, in chunks and after other rows."""
    parts = cut(data.draw, stream)
    found = reduce(LSTDStatistics.then, map(of, parts))
    with mock.patch.object(running_module, "FEW_PRODUCTS", 0):
        assert_alike(reduce(LSTDStatistics.then, map(of, parts)), found)
        assert_alike(of(stream), found)
    one, many = [followed(parts, few) for few in (2**14, 0)]
    assert_alike(one, many)
    assert_close(one.counts.observed, many.counts.observed, "sums")


def followed(parts, few):
    """The statistics of a stream whose chunks follow one another."""
    found = None
    with mock.patch.object(running_module, "FEW_PRODUCTS", few):
        for part in parts:
            rows = check_rows(part.X, part.y, gamma=part.gamma, warn=False, finite=False, **part.columns)
            if found is None:
                found = LSTDStatistics.empty_like(rows, part.lmbda)
            if len(rows):
                found = found.followed(rows, [len(rows)])[0]
    return found


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf"), "2", True])
def test_statistics_times_other_things_are_refused(factor):
    with pytest.raises(InvalidInputError, match="`factor` must be"):
        of(plain()) * factor


# ---------------------------------------------------------------- merging


def test_adding_statistics_of_no_data_changes_nothing():
    stream = of(plain())
    nothing = LSTDStatistics.empty(2, gamma=0.9, lmbda=0.5)
    assert_alike(stream + nothing, stream)
    assert_alike(sum([stream, stream], nothing), stream + stream)
    assert_alike(sum([stream, stream]), stream + stream)
    assert nothing.then(stream) is stream
    assert stream.then(nothing) is stream


def test_the_caller_may_say_whether_a_chunk_begins_an_episode():
    flags = np.zeros(6, dtype=bool)
    one, other, two = (of(plain(episode=np.full(6, name), terminated=flags)) for name in (1, 1, 2))
    assert_alike(one.then(other, begins=True), one.then(two))
    assert_alike(one.then(two, begins=False), one.then(other))
    ended = of(plain(episode=np.full(6, 1), terminated=np.arange(6) == 5))
    with pytest.raises(InvalidInputError, match="`begins` must be True after a row that terminated; got False"):
        ended.then(two, begins=False)


def test_a_sum_remembers_whether_successors_were_given():
    one, two = plain(), plain(X_next=np.ones((6, 2)))
    nothing = LSTDStatistics.empty(2, gamma=0.9, lmbda=0.5)
    assert (nothing + of(two)).successors is True
    assert (of(one) + nothing).successors is False
    assert (of(one) + of(two)).successors is None
    with pytest.raises(InvalidInputError, match="X_next"):
        (nothing + of(two)).then(of(one))


def test_other_things_cannot_be_added():
    for add in (lambda s: s + 1, lambda s: 1 + s, lambda s: 0.0 + s):
        with pytest.raises(TypeError):
            add(of(plain()))
    with pytest.raises(InvalidInputError, match="Statistics merge with statistics only; got 1"):
        of(plain()).then(1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (plain(lmbda=0.4), "same lmbda; got 0.5 and 0.4"),
        (plain(gamma=0.8), "same gamma; got 0.9 and 0.8"),
        (plain(n=3), "same number of features; got 2 and 3"),
        (replace(plain(), y=np.zeros((6, 2))), "same number of rewards; got 1 and 2"),
        (replace(plain(), y=np.zeros((6, 1))), r"`y` must be a vector in all"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(other, message):
    for merged in (LSTDStatistics.then, LSTDStatistics.__add__):
        with pytest.raises(InvalidInputError, match=message):
            merged(of(plain()), of(other))


@pytest.mark.parametrize("order", [1, -1])
def test_successors_are_given_for_all_chunks_or_none(order):
    one, two = [of(plain()), of(plain(X_next=np.ones((6, 2))))][::order]
    with pytest.raises(InvalidInputError, match="`X_next` must be given for all chunks"):
        one.then(two)


@pytest.mark.parametrize("order", [1, -1])
def test_ids_are_given_for_all_chunks_or_none_where_an_episode_may_go_on(order):
    flags = np.zeros(6, dtype=bool)
    one, two = [of(plain()), of(plain(episode=np.ones(6), terminated=flags))][::order]
    with pytest.raises(InvalidInputError, match="`episode` must be given for all chunks"):
        one.then(two)
    flags[-1] = True
    ended = of(plain(terminated=flags))
    assert ended.then(of(plain(episode=np.ones(6), terminated=flags))).n_episodes == 2


@pytest.mark.parametrize("successors", [False, True])
def test_an_episode_that_terminated_cannot_go_on(successors):
    columns = {"episode": np.full(6, 3), "terminated": np.arange(6) == 5}
    columns |= {"X_next": np.ones((6, 2))} if successors else {}
    one = of(plain(**columns))
    for following in (one, one.then(of(plain(**{**columns, "episode": np.full(6, 4)})))):
        with pytest.raises(
            InvalidInputError, match="the last row of the chunk before is followed by a row of the same episode, 3"
        ):
            one.then(following)
    other = of(plain(**{**columns, "episode": np.full(6, 4)}))
    assert one.then(other).then(one).n_episodes == 3  # an id that comes again later begins an episode
    without = of(plain(terminated=np.arange(6) == 5))
    assert without.then(without).n_episodes == 2


# ---------------------------------------------------------------- solving


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1,), "`n_features` must be at least 1; got -1"),
        ((2.5,), "`n_features` must be an integer; got 2.5"),
        ((2, 0), "`n_rewards` must be at least 1; got 0"),
    ],
)
def test_statistics_of_nothing_have_features_and_rewards(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        LSTDStatistics.empty(*arguments, gamma=0.9, lmbda=0.5)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_arrays_cannot_be_written_to(duplicate):
    found = duplicate(of(plain()))
    arrays = [found.A, found.B, found.b, found.sums, found.trace]
    for array in (*arrays, found.last.X, found.last.y):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


def test_matrices_given_out_are_copies():
    found = of(plain())
    for variant in VARIANTS:
        found.matrix(variant)[:] = 0.0
        assert np.abs(found.matrix(variant)).max() > 0


@quick
@given(streams(), st.booleans())
@example(Stream(np.ones((3, 1)), np.ones(3), 0.5, 0.5), True)
def test_data_are_left_as_they_were(stream, as_sparse):
    stream = stream.sparse if as_sparse else stream
    before = [np.array(a, copy=True) for a in (stream.y, *stream.columns.values()) if not sparse.issparse(a)]
    features = stream.X.copy()
    of(stream)
    after = [a for a in (stream.y, *stream.columns.values()) if not sparse.issparse(a)]
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, two)
    assert (features != stream.X).sum() == 0


# ---------------------------------------------------------------- pieces summed by several threads


@quick
@given(streams(), st.sampled_from([1, 2, 3, 5]), st.sampled_from([0, 2**24]))
def test_chunks_of_any_size_give_the_same(stream, size, work):
    whole = of(stream)
    with mock.patch.multiple(summing_module, ENTRIES_AT_ONCE=size * stream.X.shape[1], CHUNK_WORK=work):
        pieces = of(stream)
    assert_alike(pieces, whole)
    assert (pieces.first_episode, pieces.last_episode) == (whole.first_episode, whole.last_episode)


def test_chunks_that_are_left_undone_leave_the_blas_as_it_was():
    before = threadpool_info()
    rows = check_rows(sparse.eye_array(3000, 4, format="csr"), np.ones(3000), gamma=0.9)
    with mock.patch.multiple(summing_module, ENTRIES_AT_ONCE=1000, CHUNK_WORK=0):
        totals = iter(LSTDStatistics.empty_like(rows, 0.5).totals(rows, threads=2))
        assert next(totals).n_rows < 3000
        del totals
    assert threadpool_info() == before


def test_the_number_of_threads_does_not_change_a_bit():
    random = np.random.RandomState(0)
    X, y = sparse.random_array((3000, 4), density=0.2, rng=random, format="csr"), random.normal(size=3000)
    found = []
    with mock.patch.multiple(summing_module, ENTRIES_AT_ONCE=1000, CHUNK_WORK=0):
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                found.append(LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.8))
    for name in ("A", "B", "b", "trace"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))


def test_the_mark_of_rewards_is_that_of_the_data():
    """It does not depend on the pieces; other rewards and other weights have another one."""
    random = np.random.default_rng(0)
    X, y, weight = random.normal(size=(40, 2)), random.normal(size=(40, 2)), random.random(40)

    def summed(first, end, y=y, weight=weight):
        some = slice(first, end)
        return LSTDStatistics.from_arrays(X[some], y[some], weight=weight[some], gamma=0.9, lmbda=0.5)

    whole = summed(0, 40).counts
    assert summed(0, 3).then(summed(3, 20)).then(summed(20, 40)).counts.reward_mark == whole.reward_mark
    for other in (summed(0, 40, y=2.0 * y), summed(0, 40, weight=weight**2)):
        assert other.counts.mark == whole.mark
        assert other.counts.reward_mark != whole.reward_mark
