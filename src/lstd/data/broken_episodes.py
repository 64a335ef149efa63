"""Rows that do not follow one another although their episode goes on: found, and warned of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd.data import parsing
from lstd.data.feature_arrays import Features
from lstd.data.rows import Rows, breaks, differ
from lstd.errors import BrokenEpisodeWarning, MissingTerminationWarning
from lstd.errors import warn as give_warning
from lstd.types import Array

_COUNTED_TWICE = (
    ", and rows have an `importance_ratio`. If `{X_next}` holds expected successors under the target policy, leave the "
    "ratio out: it would count that policy twice. Use it only in `trace_coefficient`, as lstd.ope.LSTDQ does."
)
_TRACED = (
    ". The trace continues, because rows are taken in time order. If `{X_next}` holds expected successors, as for "
    "action values, pass `trace_coefficient`, such as min(1, ratio), in place of any `importance_ratio`, or use "
    "lstd.ope.LSTDQ. Give transitions that do not follow one another different ids in `episode`, or use lmbda=0."
)
_APART = " Give transitions that do not follow one another different ids in `episode`."
_ROWS_COUNTED, _FEWEST_COUNTED = 2**12, 20  # rows of which entries are counted: the first ones, and the fewest


class Break(NamedTuple):
    """Successors that disagree with the rows after them, in what they are used for."""

    row: int | None  # that is not the successor given for the row before; None if most successors mix features
    traced: bool  # whether a trace connects the rows; if not, ratios count for the successors
    place: Any = None  # chunk or file


def find_break(rows: Rows, lmbda: float, before: Array | None = None, *, ids: bool | None = None) -> Break | None:
    """Return the first row that is not the successor of the row before it, if that makes the sums wrong.

    It does if a trace connects the two rows. At `lmbda` 0 there are no traces, and trace coefficients say where they
    end. In both cases it does if there are ratios, and `ids` of episodes (by default: those of `rows`) that connect the
    rows. Without ids, successors that mix features as no row does show that they are expected ones.

    `before` is the successor, by `X_next`, of the row before these, if its episode continues.
    """
    if rows.X_next is None or not len(rows):
        return None
    traced = lmbda > 0.0 and "trace_coefficient" not in rows.given
    with_ratios = "importance_ratio" in rows.given
    if not traced and with_ratios and _are_mixed(rows):
        return Break(None, traced)
    if not traced and not (with_ratios and (rows.episode is not None if ids is None else ids)):
        return None
    if before is not None and differ(rows.X[:1], before[np.newaxis, : rows.X.shape[1]])[0]:
        row: int | None = 0
    elif (after := parsing.first_true(breaks(rows))) is not None:
        row = after + 1
    else:
        return None
    return Break(row if rows.order is None else int(rows.order[row]), traced)


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn of what :func:`find_break` returns; return whether there is one."""
    found = find_break(rows, lmbda, before)
    if found is not None:
        warn_of_break(found)
    return found is not None


def warn_of_assumed(what: str) -> None:
    """Warn that episodes are taken as truncated; `what` says which argument is missing."""
    give_warning(
        f"{what}: every episode is taken as truncated, and only the features of its last row are used. Give "
        "`terminated`: true on the last row of episodes that ended for good, false elsewhere.",
        MissingTerminationWarning,
    )


def warn_of_break(found: Break, where: str = "", *, columns: bool = False) -> None:
    """Warn of a break in the arrays X and X_next, or in named `columns`, of the data named by `where`."""
    X, X_next, of = ("X", "X_next", " of `X`")
    if columns:
        X, X_next, of = ("features", "next_features", " (the first row of data is 1)")
    if found.row is None:
        text = "most rows of `{X_next}` have more entries other than zero than any row of `{X}`" + _COUNTED_TWICE
    else:
        text = "row {row}{of} is not the successor that `{X_next}` gives for the row before it, in the same episode"
        text += _TRACED if found.traced else _COUNTED_TWICE + _APART
    text = text.format(X=X, X_next=X_next, of=of, row=found.row)
    give_warning(f"{where}: {text}" if where else text[0].upper() + text[1:], BrokenEpisodeWarning)


def _are_mixed(rows: Rows) -> bool:
    """Whether most successors have more entries other than zero than any row, as expected ones of one-hot actions do.

    Observed successors are rows like others. With dense features, or a policy that takes one action, it does not show.
    """
    first = slice(0, _ROWS_COUNTED)
    both: tuple[Features, Features] = (rows.X, rows.X_next)
    X, X_next = ((phi[first] != 0.0).sum(axis=1) for phi in both)
    of_inner = X_next[~rows.terminated[first]]
    return len(of_inner) >= _FEWEST_COUNTED and bool(np.mean(of_inner > X.max()) > 0.5)
