"""Kernels of TD(λ), walks and buffers: definition in `naive` = body run by Python = compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import naive
from lstd.experiments.sweep_td import ACCUMULATING, REPLACING, TRUE_ONLINE
from tolerances import TOLERANCES
from twins import BOTH, COMPILED, LENGTHS, assert_within, draw_discounts, draw_pairs, draw_weight, long_stream

bounded = settings(max_examples=40, deadline=None, derandomize=True)
KINDS = {"true_online_td": TRUE_ONLINE, "td": ACCUMULATING, "td_replacing": REPLACING}
STEP_SIZES = st.sampled_from([1e-8, 1e-3, 0.1, 0.5, 1.0, 2.0])


@st.composite
def featured_walks(draw):
    """features (k, n) some of them zero, states, rewards, discounts, metric and target, λ and α of the pairs."""
    n_steps, k, n = draw(LENGTHS), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    features = random.uniform(-1, 1, (k, n)) * (random.uniform(size=(k, n)) < draw(st.sampled_from([0.0, 0.5, 1.0])))
    states, rewards = random.randint(k, size=n_steps + 1), random.normal(size=n_steps)
    metric = draw_weight(random, n)[None]
    if draw(st.booleans()):
        root = random.normal(size=(n, n))
        metric = root @ root.T
    discounts = draw_discounts(draw, random, n_steps)
    return (features, states, rewards, discounts, metric, random.normal(size=n), *draw_pairs(draw, STEP_SIZES))


def run_td(modules, kind, features, states, rewards, discounts, metric, target, lmbdas, alphas):
    rows = csr_array(features)
    errors = np.full(len(lmbdas), np.nan)
    with np.errstate(all="ignore"):
        modules.td.td(
            rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data, states, rewards, discounts,
            metric, target, kind, lmbdas, alphas, errors,
        )  # fmt: skip
    return errors


def temporal_differences(algorithm, features, states, rewards, discounts, metric, target, lmbdas, alphas):
    """Errors (pairs,) by their definition, and how far rounding may move each."""
    full = np.diag(metric[0]) if len(metric) < len(target) else metric
    errors, moves = np.zeros((2, len(lmbdas)))
    for k, (lmbda, alpha) in enumerate(zip(lmbdas, alphas, strict=True)):
        theta = naive.TD[algorithm](features[states], rewards, lmbda, alpha, discounts)[1:]
        errors[k] = sum((w - target) @ full @ (w - target) for w in theta)
        size = np.abs(theta).max(initial=0.0) + np.abs(target).max()
        moves[k] = len(theta) * np.abs(full).sum() * size**2
    return errors, TOLERANCES["per_condition"].rtol * moves


@pytest.mark.parametrize("algorithm", KINDS)
@bounded
@given(walk=featured_walks())
def test_td(algorithm, walk):
    expected, moves = temporal_differences(algorithm, *walk)
    for modules in BOTH.values():
        assert_within(run_td(modules, KINDS[algorithm], *walk), expected, moves)


@pytest.mark.parametrize("n_pairs", [1, 64, 65, 130])
@pytest.mark.parametrize("kind", KINDS.values())
def test_a_td_pair_does_not_depend_on_the_others(kind, n_pairs):
    random, (rewards, discounts, weight, target, lmbdas, alphas) = long_stream(400, 5, n_pairs)
    alphas[1::3] = 50.0  # diverges
    states, features = random.randint(7, size=401), random.normal(size=(7, 5))
    walk = (features, states, rewards, discounts, weight[None], target)
    together = run_td(COMPILED, kind, *walk, lmbdas, alphas)
    for k in {0, min(1, n_pairs - 1), n_pairs - 1}:
        alone = run_td(COMPILED, kind, *walk, lmbdas[k : k + 1], alphas[k : k + 1])
        np.testing.assert_array_equal(together[k], alone[0])


# ---------------------------------------------------------------- walks and buffers


def literal_walk(cumulative, start, first, uniforms, restarts):
    """The first index with u below its cumulative probability; the last column terminates."""
    states, terminated = [next(i for i in range(len(start)) if first < start[i])], []
    for u, restart in zip(uniforms, restarts, strict=True):
        row = cumulative[states[-1]]
        successor = next(i for i in range(len(row)) if u < row[i])
        terminated.append(successor == len(start))
        if terminated[-1]:
            successor = next(i for i in range(len(start)) if restart < start[i])
        states.append(successor)
    return states, terminated


@bounded
@given(st.integers(1, 6), LENGTHS, st.integers(0, 2**31))
def test_walk(k, n_steps, seed):
    random = np.random.RandomState(seed)
    steps = random.randint(5, size=(k + 1, k + 1)) / 4.0  # zeros: outcomes that never come
    steps[:, random.randint(k + 1)] += 0.25
    cumulative = np.cumsum(steps[:k], axis=1) / steps[:k].sum(axis=1, keepdims=True)
    start = np.minimum(np.cumsum(steps[k, :k]), 1.0)
    start[-1] = 1.0
    # Quarters and eighths hit the bounds themselves, where u < cumulative must be strict.
    uniforms, restarts = random.randint(8, size=(2, n_steps)) / 8
    arguments = (cumulative, start, random.randint(8) / 8, uniforms, restarts)
    for modules in BOTH.values():
        states, terminated = modules.chain.walk(*arguments)
        expected_states, expected_terminated = literal_walk(*arguments)
        assert states.tolist() == expected_states
        assert terminated.tolist() == expected_terminated
        assert (states.dtype, terminated.dtype) == (np.int64, np.bool_)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 1001])
def test_padded(n):
    for modules in BOTH.values():
        assert modules.alignment.padded(n) == next(m for m in range(n, n + 8) if m % 8 == 0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (3, 16), (5, 64), (2, 3), (0, 8), (4, 0)])
def test_aligned_zeros(rows, columns):
    for modules in BOTH.values():
        kept = [modules.alignment.aligned_zeros(rows, columns) for _ in range(9)]  # at nine addresses
        for buffer in kept:
            assert buffer.shape == (rows, columns)
            assert not buffer.any()
            assert buffer.size == 0 or buffer.ctypes.data % 64 == 0
            buffer[:] = 1.0  # writable to its end
