"""Blocks end where the definition says, in any split, and their prefix sums are those of the data before."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd.data.check_rows import check_rows
from lstd.data.variants import VARIANTS
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import Blocks, default_limit
from lstd.statistics.horizon_sums import LagBlocks
from lstd.statistics.merging import LSTDStatistics
from streams import Stream, cut, definition, streams
from tolerances import assert_close

quick = settings(derandomize=True, deadline=None, max_examples=50)


def rows_of(stream):
    return check_rows(stream.X, stream.y, gamma=stream.gamma, warn=False, finite=False, **stream.columns)


def blocks_of(chunks, limit):
    rows = [rows_of(chunk) for chunk in chunks]
    nothing = LSTDStatistics.empty(
        rows[0].n_features, rows[0].y.shape[1], gamma=rows[0].gamma, lmbda=chunks[0].lmbda, single=rows[0].single
    )
    blocks = Blocks(nothing, limit)
    for chunk in rows:
        blocks = blocks.extended(chunk)
    return blocks


def expected_blocks(stream, limit):
    """Rows with which a block begins, and the size of a block, from the whole stream at once."""
    starts = [episode.start for episode in stream.episodes]
    units = starts if len(starts) > 1 else list(range(len(stream)))
    size = 1
    while -(-len(units) // size) > (limit if len(starts) > 1 else min(limit, 28)):
        size *= 2
    return units[size::size], size, len(starts) > 1


@quick
@given(st.data(), streams(), st.integers(1, 7))
def test_blocks_end_where_the_data_says_in_any_split(data, stream, limit):
    blocks = blocks_of(cut(data.draw, stream), limit)
    places, size, by_episode = expected_blocks(stream, limit)
    assert [prefix.n_rows for prefix in blocks.prefixes] == places
    if len(stream):
        assert (blocks.size, blocks.by_episode) == (size, by_episode)
    count = len(stream.episodes) if by_episode else len(stream)
    edges = [*range(0, count, size), count]
    until = [*blocks.prefixes, blocks.total]
    transitions, total = (
        np.diff([0, *(getattr(s, name) for s in until)]) for name in ("n_transitions", "total_weight")
    )
    size = np.diff(edges) * np.where(transitions > 0, total / np.maximum(1, transitions), 1.0)[: len(edges) - 1]
    assert_close(blocks.shares, size / (size.sum() or 1.0), "sums")
    for prefix, place in zip((*blocks.prefixes, blocks.total), (*places, len(stream)), strict=True):
        before = stream[:place]
        for variant in VARIANTS:
            A, b = definition(before, variant)
            size_of = max(1.0, np.abs(A).max(), np.abs(b).max())
            assert_close(prefix.matrix(variant) / size_of, A / size_of, "sums")
            assert_close(prefix.b / size_of, b / size_of, "sums")


def pairs_of_lags(stream, horizon, first, end):
    """C_k and b_k side by side, and H_k, over the pairs whose later row is one of `first` to `end` − 1."""
    phi, y, discount = stream.X, np.nan_to_num(stream.columns_of_rewards), stream.leaving
    weight = np.ones(len(stream)) if stream.weight is None else stream.weight
    n, m = phi.shape[1], y.shape[1]
    full, cut = np.zeros((horizon, n, n + m)), np.zeros((horizon, n, n))
    for episode in stream.episodes:
        is_full = [u < episode.stop - 1 or stream.ended[u] for u in range(episode.start, episode.stop)]
        for u in range(max(first, episode.start), min(end, episode.stop)):
            for k in range(min(horizon, u - episode.start + 1)):
                t = u - k
                if not is_full[t - episode.start]:
                    continue
                factor = weight[t] * np.prod(discount[t:u])
                if is_full[u - episode.start]:
                    full[k] += factor * np.outer(phi[t], np.append(phi[u], y[u]))
                else:
                    cut[k] += factor * np.outer(phi[t], phi[u])
    return full, cut


@quick
@given(st.data(), streams(successors=False), st.integers(1, 7), st.integers(1, 4))
def test_blocks_of_horizons_are_the_same_list_and_hold_the_pairs_of_their_rows(data, stream, limit, horizon):
    used = replace(stream, importance_ratio=None, trace_coefficient=None)
    chunks = [rows_of(chunk) for chunk in cut(data.draw, used) if len(chunk)]
    if not chunks:
        return
    blocks = LagBlocks.empty(horizon, used.X.shape[1], used.columns_of_rewards.shape[1], limit)
    for chunk in chunks:
        blocks = blocks.extended(chunk)
    places, size, by_episode = expected_blocks(used, limit)
    assert [prefix.n_rows for prefix in blocks.prefixes] == places
    assert (blocks.size, blocks.by_episode) == (size, by_episode)
    edges = [0, *places, len(used)]
    for e in range(blocks.n_blocks):
        own = blocks.own(e)
        full, cut_off = pairs_of_lags(used, horizon, edges[e], edges[e + 1])
        size_of = max(1.0, np.abs(blocks.total.closed.full).max())
        assert_close(own.full / size_of, full / size_of, "sums")
        assert_close(own.cut / size_of, cut_off / size_of, "sums")


def stream_of(T, **columns):
    random = np.random.default_rng(T)
    return Stream(random.normal(size=(T, 2)), random.normal(size=T), 0.9, 0.5, **columns)


def test_no_blocks_without_a_limit():
    blocks = blocks_of([stream_of(30)], 0)
    assert blocks.prefixes == ()
    assert blocks.total.n_rows == 30


def test_a_chunk_that_breaks_a_rule_leaves_the_blocks_alone():
    blocks = blocks_of([stream_of(30)], 8)
    bad = stream_of(10)
    bad.X[4, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 4 has nan in column 1"):
        blocks.extended(rows_of(bad))
    assert blocks.total.n_rows == 30
    assert len(blocks.prefixes) == 7


@pytest.mark.parametrize(("n", "limit"), [(1, 64), (512, 64), (1000, 16), (1295, 10), (1296, 0), (10**5, 0)])
def test_the_default_limit_keeps_memory_bounded(n, limit):
    assert default_limit(n) == limit
    assert 16 * n**2 * limit <= 2**28
