"""Any split of a stream, joined in any bracketing, has the sums of the definition for the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd import LSTDStatistics
from lstd.statistics import adding
from streams import FORMS, all_streams, cut, definition
from tolerances import assert_close

VARIANTS = naive.VARIANTS

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # successors and ratios are drawn at random


@dataclass
class Node:
    """Statistics of the rows from `first` to `end`, and whether no row before or after them continues an episode."""

    statistics: Any
    first: int
    end: int
    apart: tuple[bool, bool] = (False, False)

    @property
    def empty(self):
        return self.first == self.end


def leaf(stream, first, form):
    options = {name: stream.settings[name] for name in ("gamma", "lmbda", "fit_intercept")}
    return Node(LSTDStatistics.from_arrays(**replace(stream, form=form).data, **options), first, first + len(stream))


def joined(one, two, added):
    """The node of two neighbours, and whether an episode was cut between them."""
    if added and not (one.empty and two.empty):  # nothing and nothing is nothing, which ends no episode
        return Node(one.statistics + two.statistics, one.first, two.end, (True, True)), True
    statistics = one.statistics.then(two.statistics)
    if one.empty or two.empty:
        return replace(two if one.empty else one, statistics=statistics, first=one.first, end=two.end), False
    return Node(statistics, one.first, two.end, (one.apart[0], two.apart[1])), one.apart[1] or two.apart[0]


def expected_stream(stream, cuts, weight):
    """The stream with an id for each episode, cut before rows of `cuts` too."""
    number = np.zeros(len(stream), dtype=int)
    for place in {rows.start for rows in stream.episodes} | cuts:
        number[place:] += 1
    return replace(stream, episode=number, weight=weight)


def assert_definition(statistics, stream):
    """Sums, counts and weights of the definition."""
    wide, transitions = stream.regressors, np.ones(len(stream), bool)
    if stream.X_next is None:
        transitions[[rows.stop - 1 for rows in stream.episodes if not stream.ended[rows][-1]]] = False
    for variant in VARIANTS:
        A, b = definition(wide, variant)
        size = max(1.0, np.abs(A).max(), np.abs(b).max())
        assert_close(statistics.matrix(variant) / size, A / size, "sums")
        assert_close(statistics.b / size, b / size, "sums")
        if np.linalg.cond(A + np.eye(len(A))) < 1e4:
            scale = max(1.0, np.abs(b).max())
            weights = statistics.solve(1.0, variant).weights.reshape(b.shape)
            assert_close(weights / scale, naive.weights(A, b, 1.0) / scale, "solve")
    counts = (statistics.n_rows, statistics.n_transitions, statistics.n_episodes)
    assert counts == (len(stream), transitions.sum(), len(stream.episodes))
    assert_close(statistics.total_weight, stream.weight[transitions].sum(), "sums")
    share = np.nan if statistics.observed_share is None else statistics.observed_share
    assert_close(share, observed_share(stream, transitions), "sums")


def observed_share(stream, transitions):
    """Share of the discounted weight of returns that lies before a cut; NaN where it is not known."""
    kept = np.ones(len(stream)) if stream.trace_coefficient is None else stream.trace_coefficient
    seen = np.zeros(len(stream))
    for rows in stream.episodes:
        full = np.arange(rows.start, rows.stop)[transitions[rows]]
        for t, row in enumerate(full):
            cut_off = not stream.ended[rows][-1]
            seen[row] = 1.0 - naive.unobserved_share(t, stream.leaving[full], cut_off, kept[full])
    weight = stream.weight * transitions
    return weight @ seen / weight.sum() if stream.X_next is None and weight.any() else np.nan


@settings(max_examples=100)
@given(all_streams(), st.data())
def test_any_split_in_any_bracketing_has_the_sums_of_the_whole(stream, data):
    """Chunks of any form; joined by `then` or `+`, and multiplied in between."""
    draw, nodes, first = data.draw, [], 0
    weight = np.ones(len(stream)) if stream.weight is None else stream.weight.copy()
    kinds = draw(st.sampled_from([[stream.form], list(FORMS)]))
    ways = {"DENSE_FROM": draw(st.sampled_from([0.25, np.inf])), "SPARSE_BATCH": draw(st.sampled_from([2, 8192]))}
    for chunk in cut(draw, stream):
        with mock.patch.multiple(adding, **ways):  # entry by entry, however few zeros there are, and in batches
            nodes.append(leaf(chunk, first, draw(st.sampled_from(kinds))))
        first += len(chunk)
    cuts, sums, factors = set(), draw(st.sampled_from([[False], [False, False, True]])), draw(st.booleans())
    while len(nodes) > 1:
        i = draw(st.integers(0, len(nodes) - 2))
        one, two = nodes[i : i + 2]
        if factors:
            factor = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
            one = replace(one, statistics=factor * one.statistics)
            weight[one.first : one.end] *= factor
        node, is_cut = joined(one, two, draw(st.sampled_from(sums)))
        nodes[i : i + 2] = [node]
        cuts |= {one.end} if is_cut and one.end < len(stream) else set()
    assert_definition(nodes[0].statistics, expected_stream(stream, cuts, weight))
