"""Run the checks for bias and misfit on the first rows, after a choice of settings and for a report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import IllConditionedWarning, InvalidInputError, LSTDWarning, RidgeWarning
from lstd.estimators.bias_check import check_bias
from lstd.estimators.check_results import Checks
from lstd.estimators.misfit_check import check_misfit
from lstd.estimators.model import QUIET, Model
from lstd.statistics.blocks import Blocks, no_blocks

T = TypeVar("T")

_ENTRIES = 2**20  # features of the rows that are checked for a report, 8 MiB
_ENTRIES_OF_CHOICE, _ROWS_OF_CHOICE, _GROUPS_OF_CHOICE = 2**16, 2000, 64  # after it, so that checks take less time


def checks_of_choice(rows: Rows, settings: Settings) -> Checks:
    """Check a model with chosen settings on the first rows; with an intercept, rows have the column of ones."""
    starts = np.append(np.flatnonzero(rows.begins), len(rows))
    whole = 0 if len(starts) == 2 else int(starts[min(_GROUPS_OF_CHOICE, len(starts) - 1)])
    most = max(_ENTRIES_OF_CHOICE // rows.n_features, _ROWS_OF_CHOICE, whole)
    first = _first(rows, min(most, _ENTRIES // rows.n_features))
    with_lmbda, with_one = (no_blocks(first, lmbda, "auto").extended(first) for lmbda in (settings.lmbda, 1.0))
    model = Model(with_lmbda, settings, warned=QUIET)
    blocks = (with_lmbda, with_one) if with_one.limit else None
    note = f" Only the first {len(first)} rows were checked." if len(first) < len(rows) else ""
    return _checks(first, model, blocks, tree=False, note=note)


def checks_for_report(rows: Rows, model: Model) -> Checks:
    """Check a fitted model of rows without the column of ones; gives no warnings, as the report has what they say."""
    rows = _first(rows.with_ones() if model.settings.fit_intercept else rows, _ENTRIES // model.statistics.n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        return _checks(rows, model)


def _checks(
    rows: Rows, model: Model, blocks: tuple[Blocks, Blocks] | None = None, *, tree: bool = True, note: str = ""
) -> Checks:
    """Run both checks; `blocks` are those of the rows with λ and with λ = 1, if known. Warnings end with `note`."""

    def result(check: Callable[..., T], **options: Any) -> T | str:
        try:
            with warnings.catch_warnings():
                for given in (IllConditionedWarning, RidgeWarning):
                    warnings.simplefilter("ignore", given)  # the model gives its own
                return check(rows, model, note=note, **options)
        except InvalidInputError as error:
            return str(error)

    one = None if blocks is None else blocks[1]
    return Checks(result(check_bias, blocks=blocks), result(check_misfit, tree=tree, blocks=one))


def _first(rows: Rows, most: int) -> Rows:
    """Return the first rows, at most `most`; whole groups or episodes unless the first is longer."""
    most = max(1, most)
    if len(rows) <= most:
        return rows
    starts = np.flatnonzero(rows.begins[: most + 1])
    return rows.split([int(starts[-1]) or most])[0]
