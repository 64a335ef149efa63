"""Features of a log of events that stay in the range that was seen: rates, and a limited recency.

Totals and ages only grow, so the rows to predict have the largest values of all, and no row shows what follows them. A
rate does not grow. With x events in s steps since the first one, and the mean m of all ids, it is

    (x + u m) / (s + u)        the mean counts as u steps, so that the rate of somebody new is the mean
    (x' + m) / (k + 1)         the same of the last k complete steps, k <= w, towards which the mean counts as one step

u is the window w, unless the log shows that w/4 or w/16 is better; see `credibility`.

The first rate times exp(-2 l / w), l steps since the last event, says who may have left: who came often and stopped
has; who comes seldom may not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array, Flags


class Known(NamedTuple):
    """What each of T rows of a log knows; its amounts are m."""

    who: NDArray[np.intp]  # (T,) place of the id
    edge: NDArray[np.intp]  # (T,) place of the edge at which the row begins
    sums: Array  # (T, 1 + m) number of events, and their amounts
    at_first: Array  # (T, m) amounts of the first events; (T, 0) where they are counted with the others
    since: Array  # (T, 2) steps since the last and since the first event


class Recent(NamedTuple):
    """What the last complete steps of each row's id brought."""

    sums: Array  # (T, 1 + m)
    n_steps: NDArray[np.intp]  # (T,)


def rate_names(amounts: Sequence[str], *, apart: bool) -> list[str]:
    """Return the names of the features, in order, without the age.

    They differ where the numbers do, so that no model reads those of another.
    """
    kinds = ["rate", "recent", "active"]
    if not apart:
        kinds = [f"all_{kind}" for kind in kinds]
    names = []
    for suffix in ("", *(f"_{amount}" for amount in amounts)):
        names += [f"{kind}{suffix}" for kind in kinds]
    if apart:
        names += [f"first_{amount}" for amount in amounts]
    names.append("recency")
    return names


def mean_rates(known: Known, gives_mean: Flags) -> Array:
    """Return the mean rates of all ids in the rows of `gives_mean`, (T,), of the number and of each amount."""
    means: Array = known.sums[gives_mean].sum(axis=0) / known.since[gives_mean, 1].sum()
    return means


def rate_features(
    known: Known, recent: Recent, means: Array, mean_steps: Array, window: int, *, with_age: bool
) -> Array:
    """Return the features of all rows; `mean_steps` has the steps that each mean counts as, (1 + m,)."""
    since_last = known.since[:, 0]
    since_first = known.since[:, 1]
    fades = np.exp(-2.0 * since_last / window)

    columns = []
    for j, mean in enumerate(means):
        rate = (known.sums[:, j] + mean_steps[j] * mean) / (since_first + mean_steps[j])
        recent_rate = (recent.sums[:, j] + mean) / (recent.n_steps + 1)
        columns += [rate, recent_rate, rate * fades]
    columns += [*known.at_first.T, np.minimum(since_last, window)]
    if with_age:
        columns.append(since_first)
    return np.column_stack(columns)
