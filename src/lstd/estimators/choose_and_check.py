"""Choose the settings by `lstd.estimators.cross_validation`, then check the chosen model for bias and misfit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import IllConditionedWarning, InvalidInputError, LSTDWarning, RidgeWarning, UnobservedWarning, warn
from lstd.estimators.bias_check import check_bias
from lstd.estimators.check_results import Checks
from lstd.estimators.cross_validation import OnProgress, select
from lstd.estimators.misfit_check import check_misfit
from lstd.estimators.model import QUIET, Model, Selection
from lstd.statistics.blocks import Blocks, no_blocks

T = TypeVar("T")
Choice = tuple[Settings, Selection, Checks]

_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does
_ENTRIES = 2**20  # features of the rows that are checked for a report, 8 MiB
_ENTRIES_OF_CHOICE, _ROWS_OF_CHOICE, _GROUPS_OF_CHOICE = 2**16, 2000, 64  # after it, so that checks take less time


def choose(rows: Rows, settings: Settings, on_progress: OnProgress | None = None) -> Choice:
    """Choose the settings in `settings.choose` from the first rows of large data.

    `on_progress` is given the work in bytes that could be read meanwhile. Raises as :func:`select` does.
    """
    if isinstance(settings.alpha, tuple):
        settings = replace(settings, alpha=1.0, penalty=settings.alpha)
    n = rows.n_features
    work = (len(rows) * n**2 + 200.0 * n**3) / _OPERATIONS_PER_BYTE

    def report(text: str, done: float, total: float) -> None:
        if on_progress is not None:
            on_progress(text, done * work, total * work)

    return choose_settings(
        rows, settings,
        lmbdas=None if "lmbda" in settings.choose else [settings.lmbda],
        alphas=None if "alpha" in settings.choose else [settings.alpha], on_progress=report,
    )  # fmt: skip


def choose_settings(rows: Rows, settings: Settings, **options: Any) -> Choice:
    """Choose λ and α, then check the model of the first rows for bias and misfit; `options` are those of `select`."""
    selection = select(
        rows, variant=settings.variant, fit_intercept=settings.fit_intercept, penalty=settings.penalty, **options
    )
    settings = replace(settings, lmbda=selection.lmbda, alpha=selection.alpha)
    if settings.gamma == 1.0 and selection.observed_share < 0.5:
        warn(
            f"Only {100 * selection.observed_share:.0f} % of the discounted weight of the held-out returns was "
            "observed; predictions complete the rest. So the data can hardly tell which `lmbda` and `alpha` are best, "
            "and predictions may be far off. Use a `gamma` below 1, or longer episodes.",
            UnobservedWarning,
        )
    first = _first(rows, min(_rows_of_choice(rows), _ENTRIES // rows.n_features))
    with_lmbda, with_one = (no_blocks(first, lmbda, "auto").extended(first) for lmbda in (settings.lmbda, 1.0))
    model = Model(with_lmbda, settings, warned=QUIET)
    blocks = (with_lmbda, with_one) if with_one.limit else None
    note = f" Only the first {len(first)} rows were checked." if len(first) < len(rows) else ""
    return settings, selection, checks_of(first, model, blocks, tree=False, note=note)


def checks_of(
    rows: Rows, model: Model, blocks: tuple[Blocks, Blocks] | None = None, *, tree: bool = True, note: str = ""
) -> Checks:
    """Check a model of the first rows for bias and misfit; with an intercept, rows have the column of ones.

    `blocks` are those of the first rows with λ and with λ = 1, if known. Warnings end with `note`.
    """
    rows = _first(rows, _ENTRIES // rows.n_features)
    one = None if blocks is None else blocks[1]

    def result(check: Callable[..., T], **options: Any) -> T | str:
        try:
            with warnings.catch_warnings():
                for given in (IllConditionedWarning, RidgeWarning):
                    warnings.simplefilter("ignore", given)  # the model gives its own
                return check(rows, model, note=note, **options)
        except InvalidInputError as error:
            return str(error)

    return Checks(result(check_bias, blocks=blocks), result(check_misfit, tree=tree, blocks=one))


def checks_for_report(rows: Rows, model: Model) -> Checks:
    """Check a fitted model of rows without the column of ones; gives no warnings, as the report has what they say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        return checks_of(rows.with_ones() if model.settings.fit_intercept else rows, model)


def _rows_of_choice(rows: Rows) -> int:
    """Return how many rows to check after a choice: more if the first groups or episodes have more."""
    starts = np.append(np.flatnonzero(rows.begins), len(rows))
    whole = 0 if len(starts) == 2 else int(starts[min(_GROUPS_OF_CHOICE, len(starts) - 1)])
    return max(_ENTRIES_OF_CHOICE // rows.n_features, _ROWS_OF_CHOICE, whole)


def _first(rows: Rows, most: int) -> Rows:
    """Return the first rows, at most `most`; whole groups or episodes unless the first is longer."""
    most = max(1, most)
    if len(rows) <= most:
        return rows
    starts = np.flatnonzero(rows.begins[: most + 1])
    return rows.split([int(starts[-1]) or most])[0]
