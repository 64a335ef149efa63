"""λ and α for tables, chosen from their first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import check_rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.tables.row_reader import OnProgress, RowReader
from lstd.tables.sample import Sample

if TYPE_CHECKING:
    from lstd.estimators.model import Selection

ENTRIES = 2**25  # features of the rows to choose from, 256 MiB
_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does


def choose(
    reader: RowReader,
    settings: Settings,
    *,
    max_entries: int = ENTRIES,
    on_progress: OnProgress | None = None,
) -> Selection:
    """Choose what `settings` leaves open, from as many of the first rows as have `max_entries` features in all.

    Parameters are else those of :func:`lstd.tables.fitting.fit_tables`.

    Raises
    ------
    InvalidInputError
        At the first bad row among them, when there are too few rows, or no pair has a well-conditioned system.
    """
    from lstd.estimators.cross_validation import select

    sample = Sample(len(reader.features), len(reader.roles.rewards), max_entries, ones=settings.fit_intercept)
    for chunk in reader.chunks():
        sample.add(chunk)
        if sample.is_full:
            break
    rows = check_rows(
        sample.X, sample.y, gamma=settings.gamma, episode=sample.episode, terminated=sample.terminated, warn=False,
        finite=False,
    )  # fmt: skip
    n = rows.n_features
    work = (len(rows) * n**2 + 200.0 * n**3) / _OPERATIONS_PER_BYTE

    def tell(text: str, done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(text, done * work, total * work)

    try:
        return select(
            rows,
            lmbdas=None if "lmbda" in settings.choose else [settings.lmbda],
            alphas=None if "alpha" in settings.choose else [settings.alpha],
            variant=settings.variant, fit_intercept=settings.fit_intercept, on_progress=tell,
        )  # fmt: skip
    except InvalidInputError as error:
        if _overflows(rows.X) or _overflows(rows.y):
            raise _named(error, reader.again(), len(sample)) from error
        raise


def _overflows(values: NDArray[np.float64]) -> bool:
    """Whether squares of values do, or their sum."""
    with np.errstate(over="ignore"):
        return not np.isfinite(np.square(np.nanmax(np.abs(values))) * len(values))


def _named(error: InvalidInputError, reader: RowReader, n_rows: int) -> InvalidInputError:
    """The error with the largest value among the first rows."""
    largest, found = -1.0, None
    for chunk in reader.chunks():
        size = max(np.abs(chunk.X).max(), np.nanmax(np.abs(chunk.y), initial=0.0))
        if size > largest:
            largest, found = size, chunk
        n_rows -= len(chunk)
        if n_rows <= 0:
            break
    return error if found is None else reader.overflow(found, error)
