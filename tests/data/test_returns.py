"""Returns that were cut off: completed, weighted or dropped by their definitions, and what is refused."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import naive
from lstd.data.check_rows import check_rows
from lstd.data.returns import Cuts, completed_returns, observed, steps_to_complete
from lstd.errors import InvalidInputError
from streams import streams
from tolerances import assert_close


def rows_of(stream):
    return check_rows(stream.X, stream.y, gamma=stream.gamma, warn=False, **stream.columns)


def segments(stream):
    """Rows between which returns run, and whether each ends in a horizon row, by the definition."""
    for episode in stream.episodes:
        first = episode.start
        for t in range(first, episode.stop):
            follows = t + 1 < episode.stop and (
                stream.X_next is None or np.allclose(stream.X_next[t], stream.X[t + 1], rtol=1e-9, atol=0)
            )
            if not follows:
                yield slice(first, t + 1)
                first = t + 1


@given(streams(), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_completed_returns_are_sums_to_the_cut(stream, seed):
    values, ahead = np.random.default_rng(seed).normal(size=(2, len(stream)))
    y = np.nan_to_num(stream.columns_of_rewards)
    columns = [np.tile(column[:, np.newaxis], y.shape[1]) for column in (values, ahead)]
    found = observed(rows_of(stream), columns[0], None if stream.X_next is None else columns[1])
    names, ones = ("importance_ratio", "trace_coefficient", "weight"), np.ones(len(stream))
    ratios, kept, weights = (ones if getattr(stream, name) is None else getattr(stream, name) for name in names)
    for part in segments(stream):
        ended = stream.ended[part][-1]
        n = part.stop - part.start - (stream.X_next is None and not ended)
        full = slice(part.start, part.start + n)
        after = ahead[part.stop - 1] if stream.X_next is not None else values[part.stop - 1]
        for t in range(n):
            for j in range(y.shape[1]):
                expected = naive.completed_return(
                    t, y[full, j], stream.leaving[full], ratios[full], [*values[full], after], not ended, kept[full]
                )
                assert_close(found.returns.reshape(y.shape)[part.start + t, j], expected, "sums")
            share = naive.unobserved_share(t, stream.leaving[full], not ended, kept[full])
            assert_close(found.unobserved[part.start + t], share, "sums")
        assert found.weight[part].tolist() == [*weights[full], *[0.0] * (part.stop - part.start - n)]


@given(streams(successors=False), st.floats(0, 1), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_lambda_returns_are_sums_of_errors(stream, lmbda, seed):
    w = np.random.default_rng(seed).normal(size=stream.X.shape[1])
    y = np.nan_to_num(stream.columns_of_rewards)[:, 0]
    values = np.tile((stream.X @ w)[:, np.newaxis], stream.columns_of_rewards.shape[1])
    found = completed_returns(rows_of(stream), values, None, lmbda)
    ones = np.ones(len(stream))
    ratios = ones if stream.importance_ratio is None else stream.importance_ratio
    decays = lmbda * (ones if stream.trace_coefficient is None else stream.trace_coefficient)
    for episode in stream.episodes:
        ended = stream.ended[episode][-1]
        phi = np.vstack([stream.X[episode], np.zeros(len(w))]) if ended else stream.X[episode]
        n, discounts = len(phi) - 1, np.append(0.0, stream.leaving[episode])
        part = slice(episode.start, episode.start + n)
        expected = naive.reference_returns(phi, y[part], w, decays[part], discounts[: n + 1], ratios[part])
        assert_close(found[part, 0], expected, "sums")


# ---------------------------------------------------------------- the inverse probability of a complete return


@st.composite
def episodes(draw):
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=12))
    return np.array(lengths), np.array(draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))


def rows_of_episodes(lengths, ended, gamma, rewards=1.0):
    n_rows = lengths + ~ended
    n_rows[n_rows == 0] = 1  # an episode that ends has a row at least
    episode = np.repeat(np.arange(len(lengths)), n_rows)
    last = np.append(episode[1:] != episode[:-1], True)
    y = np.where(last & ~ended[episode], np.nan, rewards)
    return check_rows(np.ones((len(y), 1)), y, gamma=gamma, episode=episode, terminated=last & ended[episode]), episode


def reach(lengths, ended):
    """Age of the last cut, unless an episode has more rows than that one."""
    last = lengths[~ended].max(initial=-1)
    return np.inf if last < 0 or lengths.max() > last + 1 else last


@given(episodes())
@settings(max_examples=40, deadline=None)
def test_the_curve_of_cuts_is_that_of_the_definition(drawn):
    lengths, ended = drawn
    cuts = Cuts(lengths, ended)
    ages = np.arange(15)
    assert_close(cuts.after(ages), [naive.cut_survival(a, lengths, ended) for a in ages], "sums")
    assert_close(cuts.not_before(ages), [naive.cut_survival(a - 1, lengths, ended) for a in ages], "sums")
    assert cuts.reach == reach(lengths, ended)


@given(episodes(), st.sampled_from([0.3, 0.6, 1.0]), st.sampled_from([0.01, 0.2, 0.5]))
@settings(max_examples=50, deadline=None)
def test_weights_are_inverse_probabilities_of_a_complete_return(drawn, gamma, tolerance):
    lengths, ended = drawn
    lengths = np.maximum(lengths, ended)
    rows, episode = rows_of_episodes(lengths, ended, gamma)
    needed = next((h for h in range(1, 20) if gamma**h < tolerance), np.inf)
    until = reach(lengths, ended)
    if needed > until:
        assume(lengths.any())
        with pytest.raises(InvalidInputError, match=f"episodes are cut off after {until} steps"):
            observed(rows, np.zeros((len(rows), 1)), unobserved="ipcw", tolerance=tolerance)
        return
    found = observed(rows, np.zeros((len(rows), 1)), unobserved="ipcw", tolerance=tolerance)
    ages = np.concatenate([np.arange(np.sum(episode == e)) for e in range(len(lengths))])
    for t, (a, e) in enumerate(zip(ages, episode, strict=True)):
        complete = a + needed <= lengths[e] or (ended[e] and a < lengths[e])
        expected = 0.0
        if complete and a + needed <= until:
            expected = 1 / naive.completion_probability(a, min(a + needed, lengths[e]), lengths, ended)
        assert_close(found.weight[t], expected, "sums")
    # By the Kaplan-Meier identity, the weights of all that can be complete add up to the number of such rows.
    assert_close(found.weight.sum(), np.sum(rows.full & (ages + needed <= until)), "sums")


def test_the_steps_of_a_complete_return():
    assert [steps_to_complete(g, 0.01) for g in (0.0, 0.5, 0.8, 0.99, 1.0)] == [1, 7, 21, 459, np.inf]
    assert steps_to_complete(0.5, 1.0) == 1
    assert 0.9 ** steps_to_complete(0.9, 1e-3) < 1e-3 <= 0.9 ** (steps_to_complete(0.9, 1e-3) - 1)


def test_drop_takes_complete_returns_of_episodes_that_all_ended_or_were_all_cut():
    for ended, expected in ((True, 12), (False, 6)):
        rows, _ = rows_of_episodes(np.array([6, 6]), np.array([ended, ended]), 0.5)
        found = observed(rows, np.full((len(rows), 1), 2.0), unobserved="drop", tolerance=0.1)
        assert found.weight.sum() == expected  # 0.5^4 is below 0.1: half of the rows have four steps left
        if not ended:
            assert_close(found.returns, np.full(len(rows), 2.0), "sums")  # 1 + 1/2 + …, completed by 2
    rows, _ = rows_of_episodes(np.array([6, 6]), np.array([True, False]), 0.5)
    with pytest.raises(InvalidInputError, match=r"all terminated or were all cut off; 1 terminated, and 3 of 12 rows"):
        observed(rows, np.zeros((len(rows), 1)), unobserved="drop", tolerance=0.1)
