"""Errors of tables in one line: file, column, first bad row, remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError

FROM_ONE = "(the first row of data is 1)"
_SHOWN = 12  # names of columns listed in a message


def at_row(file: str, column: str, row: int, text: str) -> InvalidInputError:
    """Return the error for a value; its row is counted from 0."""
    return InvalidInputError(f"{file}: column {column!r}, row {row + 1} {FROM_ONE}: {text}")


def overflow_at(
    file: str, first: int, values: NDArray[Any], columns: Sequence[str], error: InvalidInputError
) -> InvalidInputError:
    """Return the error for sums that overflow with these rows, with the largest of their values.

    `values` of shape (T, k), T at least 1, holds the k `columns` of the rows from place `first` of the file.
    """
    sizes = np.where(np.isnan(values), 0.0, np.abs(values))
    row, column = divmod(int(sizes.argmax()), len(columns))
    return InvalidInputError(
        f"{file}: rows {first + 1} to {first + len(values)} {FROM_ONE}: {error} Of these rows, row "
        f"{first + row + 1} has the largest value: {values[row, column]:.3g} in column {columns[column]!r}."
    )


def no_column(file: str, column: str, names: Sequence[str], kind: str = "file") -> InvalidInputError:
    """Return the error for a column that a file, or a table of another kind, does not have."""
    listed = ", ".join(map(repr, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    hint = ""
    if len(names) == 1 and {";", "\t", "|"} & set(names[0]):
        hint = " Separate values by commas."
    elif close := next((name for name in names if name.strip() == column.strip()), None):
        hint = f" Spaces count: write '\"{close}\"' for {close!r}."
    return InvalidInputError(f"{file}: column {column!r} is missing; the {kind} has {listed}.{hint}")


def could_not_be_read(file: str, why: object) -> InvalidInputError:
    """Return the error for a file that is missing or damaged."""
    return InvalidInputError(f"{file} could not be read: {' '.join(str(why).split()).rstrip('.')}.")
