"""A table as pages show it, with the numbers behind."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | float | int | None


@dataclass(frozen=True)
class Table:
    """A table to be read (text in `header` and `rows`) and to be computed with (`csv_header`, `csv_rows`).

    Attributes
    ----------
    name : str
        File name without its suffix.
    title, caption : str
    header : tuple of str
    rows : tuple of tuples of str
    groups : tuple of int
        Indices of the rows above which a rule is drawn.
    n_labels : int
        How many of the first columns are words, the others being numbers.
    csv_header, csv_rows
        The numbers behind, one row each, not rounded.
    """

    name: str
    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    groups: tuple[int, ...]
    n_labels: int
    csv_header: tuple[str, ...]
    csv_rows: tuple[tuple[Value, ...], ...]
