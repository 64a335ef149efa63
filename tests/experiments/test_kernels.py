"""Kernels of LSTD(λ): definition in `naive` = body run by Python = compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from streams import draw_rows
from tolerances import TOLERANCES
from twins import (
    BOTH,
    COMPILED,
    LENGTHS,
    PYTHON,
    assert_within,
    draw_discounts,
    draw_pairs,
    draw_weight,
    long_stream,
)

VARIANTS = ("boyan", "uncorrected", "mixed")  # rows of the errors
PANEL = COMPILED.sweep_onehot.PANEL

ALPHAS = st.sampled_from([1e-8, 1e-4, 2.0**-8, 0.1, 1.0, 2.0**8, 1e8])
bounded = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def feature_streams(draw):
    """phi (T + 1, n), rewards, discounts, weight and target of the error, λ and α of the pairs."""
    n_steps, n = draw(LENGTHS), draw(st.integers(1, 4))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    phi = draw_rows(draw, random, n_steps + 1, n)
    rewards, discounts = random.normal(size=n_steps), draw_discounts(draw, random, n_steps)
    weight = draw_weight(random, n)
    return (phi, rewards, discounts, weight, random.normal(size=n), *draw_pairs(draw, ALPHAS))


@st.composite
def walks(draw, most_states=20):
    """States that drift, so that some are visited once, some are left for good and some are never seen."""
    n_steps, k = draw(st.one_of(LENGTHS, st.integers(20, 45))), draw(st.integers(1, most_states))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    if draw(st.booleans()):
        position = np.cumsum(random.uniform(-0.3, 0.3 + k / (n_steps + 1), n_steps + 1))
        states = random.permutation(k)[np.clip(position, 0, k - 1).astype(np.int64)]
    else:
        states = random.randint(draw(st.integers(1, k)), size=n_steps + 1)
    rewards, discounts = random.normal(size=n_steps), draw_discounts(draw, random, n_steps)
    weight = draw_weight(random, k)
    return (states, rewards, discounts, weight, random.normal(size=k), *draw_pairs(draw, ALPHAS, most=3))


# ---------------------------------------------------------------- least squares


def sensitivity(phi, discounts, lmbda, alpha):
    """Factors by which rounding errors can grow on the way to the weights, by variant.

    For the Uncorrected recursion the largest inverse of the run times its largest matrix; for a variant read
    out of it also the inverse of its denominator, which is det(A_variant)/det(A_Uncorrected), twice.
    """
    n = phi.shape[1]
    A, z = alpha * np.eye(n), np.zeros(n)
    inverse, matrix, grown = 1 / alpha, alpha, {"uncorrected": 1.0, "boyan": 1.0, "mixed": 1.0}
    for t in range(len(phi) - 1):
        z_last, z = z, lmbda * discounts[t] * z + phi[t]
        A = A + np.outer(z - discounts[t] * z_last, phi[t])
        y = np.linalg.solve(A, z)
        inverse = max(inverse, np.linalg.norm(np.linalg.inv(A)))
        matrix = max(matrix, np.linalg.norm(A))
        for variant, share in (("boyan", 1.0), ("mixed", 1 - lmbda)):
            end = share * discounts[t + 1] * phi[t + 1]
            growth = 1 + np.linalg.norm(y) * np.linalg.norm(end) / abs(1 - end @ y)
            grown[variant] = max(grown[variant], growth**2)
    return {variant: inverse * matrix * factor for variant, factor in grown.items()}


def least_squares(phi, rewards, discounts, weight, target, lmbdas, alphas):
    """Errors (3, pairs) by their definition, and how far rounding may move each."""
    errors, moves = np.zeros((2, 3, len(lmbdas)))
    for k, (lmbda, alpha) in enumerate(zip(lmbdas, alphas, strict=True)):
        factor = sensitivity(phi, discounts, lmbda, alpha)
        for row, variant in enumerate(VARIANTS):
            theta = naive.weights_every_step_grouped(variant, phi, rewards, lmbda, alpha, discounts)[1:]
            errors[row, k] = np.sum((theta - target) ** 2 @ weight)
            size = np.abs(theta).max(initial=0.0) + np.abs(target).max()
            moves[row, k] = factor[variant] * len(theta) * weight.sum() * size**2
    return errors, TOLERANCES["per_condition"].rtol * moves


def run_dense(modules, phi, rewards, discounts, weight, target, lmbdas, alphas):
    errors = np.full((3, len(lmbdas)), np.nan)
    with np.errstate(all="ignore"):  # compiled code gives infinities and NaN silently
        modules.sweep_dense.lstd_dense(phi, rewards, discounts, weight, target, lmbdas, alphas, errors)
    return errors


def run_onehot(modules, states, rewards, discounts, weight, target, lmbdas, alphas):
    layout = modules.sweep_onehot.plan(states, len(weight))
    errors = np.full((3, len(lmbdas)), np.nan)
    with np.errstate(all="ignore"):
        modules.sweep_onehot.lstd_onehot(layout, rewards, discounts, weight, target, lmbdas, alphas, errors)
    return errors


@bounded
@given(feature_streams())
def test_lstd_dense(stream):
    expected, moves = least_squares(*stream)
    for modules in BOTH.values():
        assert_within(run_dense(modules, *stream), expected, moves)


@bounded
@given(walks())
def test_lstd_onehot(walk):
    states, *rest = walk
    expected, moves = least_squares(np.eye(len(rest[2]))[states], *rest)
    for modules in BOTH.values():
        assert_within(run_onehot(modules, *walk), expected, moves)


@pytest.mark.parametrize("n_pairs", [1, 64, 65, 130])
@pytest.mark.parametrize("run", [run_dense, run_onehot])
def test_a_pair_does_not_depend_on_the_others(run, n_pairs):
    random, (*rest, lmbdas, alphas) = long_stream(30, 5, n_pairs)
    first = random.normal(size=(31, 5)) if run is run_dense else random.randint(5, size=31)
    together = run(COMPILED, first, *rest, lmbdas, alphas)
    for k in {0, n_pairs // 2, n_pairs - 1}:
        alone = run(COMPILED, first, *rest, lmbdas[k : k + 1], alphas[k : k + 1])
        np.testing.assert_array_equal(together[:, k : k + 1], alone)
    some = list({0, n_pairs - 1})
    phi = first if run is run_dense else np.eye(5)[first]
    assert_within(together[:, some], *least_squares(phi, *rest, lmbdas[some], alphas[some]))


# ---------------------------------------------------------------- the layout of one-hot features


@pytest.mark.parametrize("n_steps", [1, PANEL, PANEL + 1, 2 * PANEL + 3])
@pytest.mark.parametrize("k", [1, 8, 17])
def test_lstd_onehot_at_the_edges_of_panels_and_cache_lines(n_steps, k):
    random, rest = long_stream(n_steps, k, 3)
    states = np.minimum(np.arange(n_steps + 1) * k // n_steps, k - 1)  # up through all states
    for walk in (states, states[::-1].copy(), random.randint(k, size=n_steps + 1)):
        expected, moves = least_squares(np.eye(k)[walk], *rest)
        for modules in BOTH.values():
            assert_within(run_onehot(modules, walk, *rest), expected, moves)


@bounded
@given(walks())
def test_plan_keeps_every_state_in_its_column(walk):
    states, k = walk[0], len(walk[3])
    for modules in BOTH.values():
        layout = modules.sweep_onehot.plan(states, k)
        check_plan(layout, states, k)
    for python, compiled in zip(
        PYTHON.sweep_onehot.plan(states, k), COMPILED.sweep_onehot.plan(states, k), strict=True
    ):
        np.testing.assert_array_equal(python, compiled)


def check_plan(layout, states, k):
    """Follow the slots panel by panel: each visit finds its state there, and no state that returns is dropped."""
    n_steps = len(states) - 1
    assert sorted(layout.order) == list(range(k))
    np.testing.assert_array_equal(layout.order[layout.row], states)
    _, first = np.unique(states[:-1], return_index=True)
    by_first_visit = states[:-1][np.sort(first)]
    np.testing.assert_array_equal(layout.order[: len(by_first_visit)], by_first_visit)
    occupants = []
    for panel in range(len(layout.n_rows)):
        steps = range(PANEL * panel, min(PANEL * (panel + 1), n_steps))
        del occupants[layout.first_slot[panel] :]
        new = layout.new_row[panel][layout.new_row[panel] >= 0]
        occupants += layout.order[new].tolist()
        assert len(occupants) == len(set(occupants)) == layout.n_slots[panel]
        assert [occupants[slot] for slot in layout.slot[steps]] == states[steps].tolist()
        assert layout.n_rows[panel] % COMPILED.alignment.LINE == 0
        assert layout.n_rows[panel] > max(layout.row[: steps.stop])
        for source, goal in zip(layout.move_from[panel], layout.move_to[panel], strict=True):
            if source < 0:
                break
            occupants[goal] = occupants[source]
        kept = layout.first_slot[panel + 1] if panel + 1 < len(layout.n_rows) else 0
        assert set(states[steps.stop : n_steps]) & set(states[: steps.stop]) <= set(occupants[:kept])


def test_columns_are_dropped_and_moved():
    states = np.array([0, 1, 2, 3, 4, 5, 6, 7, 1, 3, 9, 8, 9, 8, 9, 8, 3, 8, 3, 10, 3])
    layout = COMPILED.sweep_onehot.plan(states, 12)
    assert (layout.move_from[0] >= 0).any()
    assert layout.n_slots.tolist() == [8, 4, 3]  # of 11 states seen: those that come back, and new ones
    _, rest = long_stream(20, 12, 4)
    expected, moves = least_squares(np.eye(12)[states], *rest)
    for modules in BOTH.values():
        assert_within(run_onehot(modules, states, *rest), expected, moves)
