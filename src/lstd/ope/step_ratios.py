"""Importance ratios by time step: their mean, which is 1 where the log supports the policy, and what products leave."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lstd.ope.logged_rows import LoggedRows, Places
from lstd.ope.value_by_blocks import effective_size
from lstd.types import Array

_LAST_STEP = 1000  # of those that have numbers of their own


class StepRatios(NamedTuple):
    """Ratios of each step of the episodes, (n_steps,)."""

    mean: Array
    standard_error: Array  # over groups or episodes
    sizes: Array  # effective number of episodes by the product of the ratios up to the step


def step_ratios(logged: LoggedRows) -> StepRatios:
    """Compute means of the ratios of each step, and the effective numbers of episodes that their products leave."""
    ratio = logged.ratio
    assert ratio is not None
    group: Places = np.cumsum(logged.rows.begins, dtype=np.intp)[logged.full]
    rows_of = _by_step(logged.step)
    means = [float(ratio[at].mean()) for at in rows_of]
    errors = [_standard_error(ratio[at], group[at]) for at in rows_of]
    sizes = _product_sizes(ratio, np.cumsum(logged.begins) - 1, rows_of)
    return StepRatios(np.array(means), np.array(errors), sizes)


def _by_step(step: Places) -> list[Places]:
    """Return which transitions are of each step, of the first steps."""
    order = np.argsort(step, kind="stable")
    ends = np.searchsorted(step[order], np.arange(min(int(step.max()) + 1, _LAST_STEP) + 1))
    return [order[first:end] for first, end in pairwise(ends.tolist())]


def _product_sizes(ratio: Array, episode: Places, rows_of: list[Places]) -> Array:
    products = np.ones(int(episode[-1]) + 1)
    sizes = []
    for at in rows_of:
        products[episode[at]] *= ratio[at]
        products /= products.max() or 1.0  # only shares count
        sizes.append(effective_size(products))
    return np.array(sizes)


def _standard_error(ratio: Array, group: Places) -> float:
    """Return the standard error of the mean ratio over groups."""
    of_groups = np.bincount(group - group.min(), ratio - ratio.mean())
    return float(np.linalg.norm(of_groups)) / len(ratio)
