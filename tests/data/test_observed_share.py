"""The observed share of returns from sums: that of the definition, at any split of the data."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstd
import naive
from lstd import LSTDStatistics
from lstd._kernels.traces import behind_cuts
from streams import cut, streams
from tolerances import assert_close


def sums(part):
    return LSTDStatistics.from_arrays(part.X, part.y, gamma=part.gamma, lmbda=part.lmbda, **part.columns)


def definition(stream, factor=1.0):
    """Return the observed weight of the full transitions of a stream, and their weight."""
    seen = total = 0.0
    kept, weight = (
        np.ones(len(stream)) if column is None else column for column in (stream.trace_coefficient, stream.weight)
    )
    for rows in stream.episodes:
        ended = bool(stream.ended[rows][-1])
        full = slice(rows.start, rows.stop - (not ended))
        for t in range(full.stop - full.start):
            w = factor * weight[full][t]
            seen += w * (1 - naive.unobserved_share(t, stream.leaving[full], not ended, kept[full]))
            total += w
    return np.array([seen, total])


@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")
@settings(derandomize=True, deadline=None, max_examples=60)
@given(streams(successors=False), st.data())
def test_it_is_the_share_of_the_definition_at_any_split(stream, data):
    parts = [sums(part) for part in cut(data.draw, stream)]
    left, right = reduce(LSTDStatistics.then, parts), reduce(lambda two, one: one.then(two), parts[::-1])
    seen, total = definition(stream)
    for merged in (left, right):
        if total > 0:
            assert_close(merged.observed_share, seen / total, "sums")
            assert_close((left + 3.0 * right).observed_share, seen / total, "sums")
        else:
            assert merged.observed_share is None


def test_forgetting_scales_what_was_seen(tmp_path):
    X, y = np.ones((10, 1)), np.zeros(10)
    one, two = (LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.9) for _ in range(2))
    (0.25 * one).then(two).save(tmp_path / "sums")
    weight = np.repeat([0.25, 1.0], [10, 9])
    expected = weight @ (1 - 0.5 ** np.arange(19, 0, -1)) / weight.sum()
    assert_close(lstd.load(tmp_path / "sums").observed_share, expected, "sums")


def test_the_python_body_gives_the_sums_of_the_compiled_kernel():
    random = np.random.default_rng(1)
    columns = (
        random.uniform(size=12),
        random.uniform(size=12) < 0.8,
        random.uniform(0.0, 1.5, 12),
        random.uniform(size=12),
    )
    none = np.empty(0)
    for given_columns in (columns, (*columns[:2], none, none)):
        assert_close(behind_cuts(*given_columns), getattr(behind_cuts, "py_func", behind_cuts)(*given_columns), "sums")


def test_successors_leave_it_unknown():
    X, y = np.ones((10, 1)), np.zeros(10)
    known = LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.9)
    unknown = LSTDStatistics.from_arrays(X, y, X_next=X, gamma=0.5, lmbda=0.9)
    assert unknown.observed_share is (known + unknown).observed_share is None
