"""Tables prepared for a fit: rows sorted by group, episode and time, words and missing values as further columns.

A feature that is not a column, and is named COLUMN=WORD, is 1 where the column has that word; COLUMN= is 1 where it has
no value. A word without a column is 0 in all of them, and is reported. So the names of a model's features say how to
prepare other tables; the means for missing values are in its origin.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data import parse_columns as convert
from lstd.data.arrow_columns import from_numpy
from lstd.data.batch_rows import sorted_order
from lstd.data.ids import Fault, quoting
from lstd.data.open_table import open_table
from lstd.data.roles import Roles
from lstd.data.table import FrameTable, Table, at_row
from lstd.errors import ExtrapolationWarning, InvalidInputError, warn
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.model import Model
from lstd.tables.reader import RowReader
from lstd.tables.resolve_roles import resolved
from lstd.types import Array, Flags

_MOST_WORDS = 100  # of a column of categories


class Prepared(Table):
    """A table with further columns; see the module."""

    def __init__(self, table: Table, features: Sequence[str], fills: Mapping[str, float]) -> None:
        own = {*table.names}
        self._made: dict[str, tuple[str, str]] = {}  # the column and the word of each further column
        for name in features:
            if name in own:
                continue
            split = _split(name, own)
            if split is not None:
                self._made[name] = split
        self._table = table
        self._fills = fills
        self.kind = table.kind
        self.own = table.own or table.names
        super().__init__(table.file, table.size, [*table.names, *self._made])

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        of_words = {self._made[name][0] for name in columns if name in self._made}
        needed = dict.fromkeys(self._source(name) for name in columns)  # each once, in their order
        known = {*self._made.values()}
        unseen = Counter[tuple[str, str]]()
        for batch in self._table.records([*needed], most_rows):
            words = {column: _words(batch.column(column)) for column in of_words}
            for column in words.keys() - self._fills.keys():
                for word, n in Counter(words[column].tolist()).items():
                    if (column, word) not in known:
                        unseen[column, word] += n
            arrays = [self._column(batch, name, words) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, columns)
        warn(_of_unseen(self.file, unseen), ExtrapolationWarning)

    def _source(self, name: str) -> str:
        """Return the column of the table that a column is made from."""
        if name not in self._made:
            return name
        column, _ = self._made[name]
        return column

    def _column(self, batch: pa.RecordBatch, name: str, words: Mapping[str, NDArray[Any]]) -> pa.Array:
        if name in self._made:
            column, word = self._made[name]
            return from_numpy(np.asarray(words[column] == word, np.float64))
        if name not in self._fills:
            return batch.column(name)
        values, fault = convert.numbers(batch.column(name), name)
        if fault is not None:
            raise self.error(self.rows_read + fault.row, fault.column, fault.text)
        return from_numpy(np.where(np.isnan(values), self._fills[name], values))

    def unseen(self, X: Array, features: Sequence[str]) -> Flags:
        """Flag the rows (T,) of features (T, n) with a word that has no column, so that all of its columns are 0."""
        found: Flags = np.zeros(len(X), np.bool_)
        of_words = {column for column, _ in self._made.values()} - self._fills.keys()
        for column in of_words:
            is_of_column = np.array([name in self._made and self._made[name][0] == column for name in features])
            found |= ~X[:, is_of_column].any(axis=1)
        return found

    def error(self, row: int, column: str, text: str) -> InvalidInputError:
        return self._table.error(row, column, text)

    @property
    def done(self) -> float:
        return self._table.done


def _of_unseen(file: str, counts: Counter[tuple[str, str]]) -> str:
    """Say which words have no column, in how many rows, and what to do; empty if all have one."""
    if not counts:
        return ""
    texts = []
    for (column, word), n in counts.most_common(3):
        value = "no value"
        if word:
            value = repr(word)
        texts.append(f"column {column!r} has {value} in {n} row{'s' * (n > 1)}")
    others = ""
    if len(counts) > 3:
        others = f", and {len(counts) - 3} more"
    return (
        f"{file}: {', '.join(texts)}{others}: the fit had no such rows. They are predicted without that column. "
        "Correct the words, or fit to rows that have them."
    )


def _split(name: str, own: set[str]) -> tuple[str, str] | None:
    """Divide a name into a column and a word; None if no column fits."""
    for i, letter in enumerate(name):
        if letter == "=" and name[:i] in own:
            return name[:i], name[i + 1 :]
    return None


def _words(column: pa.Array) -> NDArray[Any]:
    """Return words of a column, without spaces around them; an empty one where there is no value."""
    words = convert.trimmed(column).to_pylist()
    return np.array([word or "" for word in words], dtype=object)


def prepared(
    data: Sequence[str], roles: Roles, categories: Sequence[str], impute: bool
) -> tuple[Sequence[Any], Roles, dict[str, float]]:
    """Return tables with the columns that features of words and missing values need, roles with them, and the means.

    Reads the tables once. Raises InvalidInputError when categories are not features, have too many words, or successors
    are given.
    """
    if not (categories or impute):
        return data, roles, {}
    if roles.next_features:
        raise InvalidInputError("`--next-features` must not be given with `--categories` or `--impute`.")
    tables = [open_table(path) for path in data]
    roles = resolved(roles, tables)
    features = roles.features or ()
    unknown = [name for name in categories if name not in features]
    if unknown:
        raise InvalidInputError(f"`--categories` must name features; {unknown[0]!r} is not one of them.")
    counted = []
    if impute:
        counted = [name for name in features if name not in categories]
    words, fills = _words_and_means(tables, categories, counted)
    names = []
    for name in features:
        if name in words:
            names += [f"{name}={word}" for word in sorted(words[name])]
        else:
            names.append(name)
        if name in fills:
            names.append(f"{name}=")
    roles = replace(roles, features=tuple(names))
    return [Prepared(table, names, fills) for table in tables], roles, fills


def _words_and_means(
    tables: Sequence[Table], categories: Sequence[str], counted: Sequence[str]
) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the words of columns of categories, and the means of those of the `counted` columns that miss values."""
    words: dict[str, set[str]] = {name: set() for name in categories}
    sums = {name: np.zeros(3) for name in counted}  # of values, known ones and missing ones
    for table in tables:
        for batch in table.records([*categories, *counted]):
            for name, found in words.items():
                found |= {*_words(batch.column(name))}
                if len(found) > _MOST_WORDS:
                    raise InvalidInputError(
                        f"column {name!r} has more than {_MOST_WORDS} words; join rare ones, or use numbers instead."
                    )
            for name in counted:
                values, _ = convert.numbers(batch.column(name), name)
                known = ~np.isnan(values)
                sums[name] += values[known].sum(), known.sum(), (~known).sum()
    fills = {}
    for name, (total, n, n_missing) in sums.items():
        if n_missing:
            fills[name] = float(total / max(n, 1))
    return words, fills


def prepared_as(model: Model | HorizonModel, data: Sequence[str]) -> Sequence[Any]:
    """Return tables with the columns that a model's features need, if its fit prepared some."""
    fills: Mapping[str, float] = {}
    if model.origin is not None:
        fills = model.origin.fills
    if not fills and not any("=" in name for name in model.feature_names):
        return data
    return [Prepared(open_table(path), model.feature_names, fills) for path in data]


# ------------------------------------------------------------ sorted rows


def sorted_tables(tables: Any, roles: Roles, memory: int, independent: bool = False) -> list[Table]:
    """Return one table of all rows, by group and episode in order of first appearance, and by time.

    Raises InvalidInputError when there is no column of time, rows take more than half of `memory`, or an id or a time
    has no value.
    """
    if roles.time is None:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    if independent:
        raise InvalidInputError("`independent` must be False with `sort`, which joins all tables.")
    if not isinstance(tables, list) or any(map(callable, tables)):
        raise InvalidInputError("`sort` needs files or data frames in this process; sort other sources beforehand.")
    reader = RowReader(tables, roles)
    batches: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in itertools.chain.from_iterable(table.records(reader.columns) for table in reader.tables):
        n_bytes += batch.nbytes
        if 2 * n_bytes > memory:
            raise InvalidInputError(
                f"`sort`: the rows take more than half of `memory`, {memory >> 20} MB. Give more, or sort the "
                "files beforehand by episode and time, for example with DuckDB or the command sort."
            )
        batches.append(batch)
    if not batches:
        return list(reader.tables)
    rows = pa.Table.from_batches([batch.cast(batches[0].schema) for batch in batches])
    return [SortedTable(reader.tables, rows, roles)]


class SortedTable(FrameTable):
    """All rows of tables, sorted; errors name rows by their files, their places there, and their ids and times."""

    def __init__(self, tables: Sequence[Table], rows: pa.Table, roles: Roles) -> None:
        self._tables = tables
        self._ends = np.cumsum([table.rows_read for table in tables])
        self._rows = rows
        self._named_by = [name for name in (roles.episode, roles.time) if name]
        self._order = np.arange(len(rows))
        self._order = sorted_order(rows, roles, self._known)
        super().__init__(", ".join(table.file for table in tables), rows.take(from_numpy(self._order)))

    def error(self, row: int, column: str, text: str) -> InvalidInputError:
        place = int(self._order[row])
        file = int(np.searchsorted(self._ends, place, side="right"))
        first_of_file = int([0, *self._ends][file])
        cells = (f"{name} {self._rows.column(name)[place].as_py()}" for name in self._named_by)
        text = quoting(text, self._rows.column(column)[place].as_py())
        return at_row(self._tables[file].file, place - first_of_file, column, text, f" ({', '.join(cells)})")

    def _known(self, values: Any, fault: Fault | None) -> Any:
        if fault is not None:
            raise self.error(fault.row, fault.column, fault.text)
        return values
