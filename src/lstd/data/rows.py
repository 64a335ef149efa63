"""Rows of the data contract in one form, and the column of ones that an intercept adds to them.

A row holds the features of a state and the reward received on leaving it. It is a full transition if a row of the same
episode follows it, if it terminates, or if the features of its successor are given. Otherwise it is a horizon row: only
its features are used. The last row of a stream is a horizon row until the stream continues.

Every column of numbers is in the table `COLUMNS`. One that was not given is a broadcast scalar: it takes no memory, and
is read as any other. Its name is not in `Rows.given`, for warnings and for sums that can be shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypedDict, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.feature_arrays import Features, all_finite, dense, rows_of
from lstd.data.identity import Identity, identity
from lstd.data.ids import identities, ids_of_keys, joined_ids, last_rows
from lstd.data.read_only import lock
from lstd.types import Array, FeaturesLike, Flags

# ------------------------------------------------------------ records that are made and copied often


class Record:
    """Base of frozen dataclasses that are cheap to make and to copy with changes."""

    _cached: ClassVar[tuple[str, ...]] = ()  # properties that follow from the fields
    _read_only: ClassVar[bool] = False  # whether arrays cannot be written to

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._cached += tuple(name for name, value in vars(cls).items() if isinstance(value, cached_property))

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return an object with these values, and defaults for the others, in less time than the initialiser takes."""
        plain, made = _defaults(cls)  # type: ignore[arg-type]  # a class is hashable
        record = object.__new__(cls)
        record.__dict__.update(plain)
        for name, make in made.items():
            if name not in values:
                values[name] = make()
        record.__dict__.update(values)
        if cls._read_only:
            lock(record.__dict__.values())
        return record

    def changed(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields, as `dataclasses.replace` does in five times the time."""
        if self._read_only:
            lock(changes.values())
        other = object.__new__(type(self))
        values = other.__dict__
        values.update(self.__dict__)
        for name in self._cached:
            values.pop(name, None)
        values.update(changes)
        return other


@lru_cache(maxsize=64)
def _defaults(cls: Any) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Return the default values of fields, and the functions that make those of the others that have one."""
    given = fields(cls)
    plain = {field.name: field.default for field in given if field.default is not MISSING}
    made = {field.name: field.default_factory for field in given if field.default_factory is not MISSING}
    return plain, made


class ReadOnly(Record):
    """Base of records whose arrays cannot be written to, nor those of their copies and pickles."""

    _read_only = True

    def __post_init__(self) -> None:
        self._lock_all()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock_all()

    def _lock_all(self) -> None:
        """Lock the arrays of an object that comes from elsewhere, and those of its records."""
        lock(self.__dict__.values())
        for value in self.__dict__.values():
            if isinstance(value, Record):
                lock(value.__dict__.values())


# ------------------------------------------------------------ rows

PerRow = ArrayLike | None  # an optional array with one entry per row


class Column(NamedTuple):
    """A column of one number per row, at least 0."""

    high: float = np.inf
    usual: float | None = 1.0  # where it is not given; None for the discount `gamma`


class Columns(TypedDict, total=False):
    """The arguments of all that take rows, beside X and y."""

    episode: PerRow
    terminated: PerRow
    X_next: FeaturesLike | None
    discount: Annotated[PerRow, Column(high=1.0, usual=None)]
    importance_ratio: Annotated[PerRow, Column()]
    trace_coefficient: Annotated[PerRow, Column()]
    weight: Annotated[PerRow, Column()]
    groups: PerRow


_KINDS = get_type_hints(Columns, include_extras=True)
COLUMNS: dict[str, Column] = {name: get_args(kind)[1] for name, kind in _KINDS.items() if get_origin(kind) is Annotated}
ARGUMENTS = ("X", "y", *_KINDS)
FACTORS = ("importance_ratio", "trace_coefficient", "weight")  # columns that change how much a row counts
_PER_ROW = ("y", "known", "last", "terminated", *COLUMNS, "episode", "groups", "time")  # fields with one entry per row

ENTRIES_COMPARED = 2**17  # features, or stored entries, compared at a time, about one MiB
COMPARED = 2000  # rows of a fit, and rows to be predicted, whose features are looked at
_LEAST_COMPARED = 30  # of these rows, however many features they have
_PART_ENTRIES = 2**18  # most entries of the rows that are looked at, if these are more than the least
_ONE = struct.pack("d", 1.0)
_SAME = 1e-9  # relative difference between equal features that were computed in another order of summation


class SavedRows(NamedTuple):
    """What a file holds of the rows that a stream keeps."""

    X: Annotated[Array, "kept width"]
    X_next: Annotated[Array, "kept width"] | None
    y: Annotated[Array, "kept m"]
    flags: Mapping[str, Annotated[Flags, "kept"]]
    numbers: Mapping[str, Annotated[Array, "kept"]]  # those of `COLUMNS`
    episode: tuple[Annotated[Any, "episode"], ...] | None  # keys of the ids
    groups: tuple[Annotated[Any, "groups"], ...] | None
    centre: Annotated[Array, "width"] | None
    plain: Mapping[str, bool]
    gamma: Annotated[float, (0.0, 1.0)]
    given: frozenset[str]
    place: int


_FLAGS = ("known", "last", "terminated")
_PLAIN = ("single", "assumed", "intercept")


@dataclass(frozen=True)
class Rows(Record):
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    record_kind: ClassVar[Any] = SavedRows

    X: Features  # (T, n)
    y: Array  # (T, m), zero where the reward of a horizon row is missing
    known: Flags  # (T,) whether the reward and the other numbers of the transition have values
    last: Flags  # (T,) whether the row is the last one of its episode in this chunk
    terminated: Flags  # (T,)
    discount: Array  # (T,) of the transition that leaves the row; zero where it terminates
    importance_ratio: Array  # (T,) of that transition
    trace_coefficient: Array  # (T,) factor of the trace decay on arrival
    weight: Array  # (T,)
    X_next: Features | None  # (T, n)
    episode: NDArray[Any] | None  # (T,) id of each row's episode
    single: bool  # whether rewards were given as a vector
    gamma: float  # discount of rows without one of their own
    assumed: bool  # whether all episodes are assumed to be truncated
    names: tuple[str, ...] | None = None  # of the features, if `X` is a data frame
    intercept: bool = False  # whether the last feature is the column of ones
    groups: NDArray[Any] | None = None  # (T,) id of each row's group
    given: frozenset[str] = frozenset()  # which of `COLUMNS` were given
    order: NDArray[np.intp] | None = None  # (T,) places of the rows in the arguments, if in another order
    place: int = 0  # number of rows of the stream before these
    appended: int = 0  # columns of ones, 0 or 1, that `X` and `X_next` do not have; sums append them in batches
    time: Array | None = None  # (T,) steps since the earliest row of a log, for checks; a stream does not keep them
    centre: Array | None = None  # (n − 1,) that sums subtract from `X` and `X_next` in batches

    @classmethod
    def built(
        cls, X: Features, y: Array, numbers: Mapping[str, Array], *, gamma: float, terminated: Flags, **others: Any
    ) -> Rows:
        """Return rows of checked values: what is not given has its usual value, and what is missing is not known.

        `y` (T, m) and `numbers`, those of `COLUMNS` that were given, are NaN where they are missing; `others` are
        fields.
        """
        known: Flags = np.ones(len(y), np.bool_)
        if not all_finite(y):
            missing = np.isnan(y)
            known = np.asarray(~missing.any(axis=1))
            y = np.where(missing, 0.0, y)
        for values in numbers.values():
            known = np.asarray(known & ~np.isnan(values))
        columns = usual_columns(gamma, terminated)
        for name, values in numbers.items():
            usual = columns.get(name, 1.0)  # a probability of the log is none of the columns
            columns[name] = np.where(np.isnan(values), usual, values)
        if "discount" in numbers and terminated.any():
            columns["discount"] = np.where(terminated, 0.0, columns["discount"])
        return cls.of(
            X=X, y=y, known=known, terminated=terminated, gamma=gamma, given=frozenset(numbers), **columns, **others
        )

    def __len__(self) -> int:
        return len(self.known)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1]) + self.appended

    @property
    def first_episode(self) -> Identity | None:
        """Key of the id of the first row's episode; None without ids."""
        return key_at(self.episode, 0)

    @property
    def last_episode(self) -> Identity | None:
        """Key of the id of the last row's episode; None without ids."""
        return key_at(self.episode, -1)

    @property
    def first_group(self) -> Identity | None:
        """Key of the id of the first row's group; None without groups."""
        return key_at(self.groups, 0)

    @property
    def last_group(self) -> Identity | None:
        """Key of the id of the last row's group; None without groups."""
        return key_at(self.groups, -1)

    @property
    def begins(self) -> Flags:
        """Whether each row is the first of its group or, without groups, of its episode, (T,)."""
        if self.groups is None:
            return self.begins_episode
        return _after(last_rows(self.groups))

    @property
    def begins_episode(self) -> Flags:
        """Whether each row is the first of its episode, (T,)."""
        return _after(self.last)

    @property
    def episode_number(self) -> NDArray[np.intp]:
        """Number of each row's episode in these rows, from 0, (T,)."""
        return np.cumsum(self.begins_episode, dtype=np.intp) - 1

    @cached_property
    def full(self) -> Flags:
        """Whether each row is a full transition, (T,)."""
        if self.X_next is None:
            return self.terminated | ~self.last
        return np.ones(len(self), np.bool_)

    @property
    def cut(self) -> Flags:
        """Whether each row is the last one of an episode that did not terminate, (T,)."""
        return cut_off(self.last, self.terminated)

    @property
    def age(self) -> NDArray[np.intp]:
        """Steps since each row's episode began in this chunk, (T,)."""
        begins = np.flatnonzero(self.begins_episode)
        lengths = np.diff(np.append(begins, len(self)))
        return np.arange(len(self)) - np.repeat(begins, lengths)

    @cached_property
    def own_discounts(self) -> bool:
        """Whether some row that does not terminate, and misses nothing, has another discount than `gamma`."""
        if uniform(self.discount) and len(self) and self.discount[0] == self.gamma:
            return False
        usual = self.discount == self.gamma
        if usual.all():
            return False
        allowed = usual | self.terminated | ~self.known
        return not allowed.all()

    @property
    def unusual(self) -> frozenset[str]:
        """Names of the columns of numbers that make a difference: some known row has another value than the usual."""
        names = set()
        if self.own_discounts:
            names.add("discount")
        for name in self.given - {"discount"}:
            is_usual = getattr(self, name) == COLUMNS[name].usual
            if not (is_usual | ~self.known).all():
                names.add(name)
        return frozenset(names)

    @cached_property
    def part(self) -> Features:
        """Features of all rows, or of a part of them from all over the log, fewer where they have many features."""
        most = max(_LEAST_COMPARED, min(COMPARED, _PART_ENTRIES // self.X.shape[1]))
        if len(self) <= most:
            return self.X
        rows = spread(len(self), most)
        if isinstance(self.X, np.ndarray):
            return self.X.take(rows, axis=0)  # faster than an index
        return self.X[rows]

    @cached_property
    def ends(self) -> Flags:
        """Whether the future of each row ends with it, (T,): at ends of episodes and at breaks."""
        if self.X_next is None:
            return self.last
        return self.last | breaks(self)

    def with_ones(self) -> Rows:
        """Add a column of ones as the last feature."""
        X_next = self.X_next
        if X_next is not None:
            X_next = _with_ones(X_next)
        return self.changed(X=_with_ones(self.X), X_next=X_next, intercept=True)

    def with_intercept(self, centre: ArrayLike | None = None) -> Rows:
        """Add a column of ones for sums, and subtract a centre; neither takes memory where features are dense."""
        if centre is None and sparse.issparse(self.X):
            return self.with_ones()
        if centre is None:
            return self.changed(intercept=True, appended=1)
        X_next = self.X_next
        if X_next is not None:
            X_next = dense(X_next)
        return self.changed(X=dense(self.X), X_next=X_next, intercept=True, appended=1, centre=np.asarray(centre))

    def less(self, centre: Array) -> Rows:
        """Subtract the centre of each column, (n,), from dense features."""
        X_next = self.X_next
        if X_next is not None:
            X_next = X_next - centre
        return self.changed(X=self.X - centre, X_next=X_next)

    def row(self, features: Features, t: int) -> Array:
        """Return a copy of row t of `X` or `X_next` as float64, with the column of ones, (n,)."""
        row = np.ones(self.n_features)
        stored = row[: features.shape[1]]  # without the column of ones, if sums append it
        if isinstance(features, np.ndarray):
            stored[:] = features[t]
        else:
            stored[:] = rows_of(features, slice(t, t + 1)).toarray()[0]
        if self.centre is not None:
            row[:-1] -= self.centre
        return row

    def columns(self, rows: slice | NDArray[np.intp]) -> dict[str, Any]:
        """Return all but the features of some rows, in some order."""
        columns = {}
        for name in _PER_ROW:
            values = getattr(self, name)
            if values is not None:
                values = values[rows]
            columns[name] = values
        return columns

    def taken(self, rows: slice | NDArray[np.intp]) -> Rows:
        """Return some rows, in some order."""
        X = _taken(self.X, rows)
        X_next = self.X_next
        if X_next is not None:
            X_next = _taken(X_next, rows)
        return self.changed(X=X, X_next=X_next, **self.columns(rows))

    def kept(self, rows: slice | NDArray[np.intp]) -> Rows:
        """Return rows as a stream keeps them: read-only copies, dense, of float64 and without the column of ones."""
        width = self.n_features - self.intercept
        kept = self.changed(names=None, order=None, time=None, appended=int(self.intercept))
        values = kept.__dict__
        for name in ("X", "X_next"):
            if values[name] is not None:
                values[name] = _copied(values[name], rows, width)
        for name in _PER_ROW:
            column = values[name]
            if column is None:
                continue
            if not uniform(column):
                part = column[rows].copy()
                part.setflags(write=False)
                values[name] = part
            elif isinstance(rows, slice):
                values[name] = column[rows]
            else:  # an index would copy the one number to each row
                values[name] = column[: len(rows)]
        return kept

    def kept_each(self, places: Sequence[int]) -> list[Rows]:
        """Return single rows as :meth:`kept` does, in less time than one by one."""
        if len(places) == 1:
            (place,) = places
            return [self.kept(slice(place, place + 1))]
        several = self.kept(np.array(places))
        shared = several.__dict__
        per_row = [name for name in ("X", "X_next", *_PER_ROW) if shared[name] is not None]
        each = []
        for k in range(len(places)):
            one = object.__new__(Rows)
            values = one.__dict__
            values.update(shared)
            for name in per_row:
                values[name] = shared[name][k : k + 1]
            each.append(one)
        return each

    @property
    def last_row(self) -> Rows:
        """The last row, as a stream keeps it between two chunks."""
        return self.kept(slice(len(self) - 1, len(self)))

    def named(self, episode: Identity | None) -> Rows:
        """Return the rows, all of one episode, with the id of this key; None for rows without ids."""
        if episode is None:
            return self.changed(episode=None)
        return self.changed(episode=ids_of_keys([episode] * len(self)))

    def to_record(self) -> SavedRows:
        """Return what a file holds of rows that a stream keeps."""
        return SavedRows(
            X=self.X,
            X_next=self.X_next,
            y=self.y,
            flags={name: getattr(self, name) for name in _FLAGS},
            numbers={name: getattr(self, name) for name in COLUMNS},
            episode=_keys_of(self.episode),
            groups=_keys_of(self.groups),
            centre=self.centre,
            plain={name: getattr(self, name) for name in _PLAIN},
            gamma=self.gamma,
            given=self.given,
            place=self.place,
        )

    @classmethod
    def of_record(cls, record: SavedRows) -> Rows:
        """Return the rows of a file; raises LookupError or ValueError where it lacks a part or an id, or has others.

        A file from before a column was added has the column's usual value.
        """
        unknown = record.numbers.keys() - COLUMNS.keys()
        if unknown:
            raise ValueError(unknown)
        n_rows = len(record.y)
        episode = _ids_of_saved(record.episode, n_rows)
        groups = _ids_of_saved(record.groups, n_rows)
        if not n_rows:
            raise ValueError(record.y)
        flags = {name: record.flags[name] for name in _FLAGS}
        numbers = usual_columns(record.gamma, flags["terminated"])
        numbers.update(record.numbers)
        plain = {name: record.plain[name] for name in _PLAIN}
        return cls.of(
            X=record.X,
            X_next=record.X_next,
            y=record.y,
            episode=episode,
            groups=groups,
            centre=record.centre,
            gamma=record.gamma,
            given=record.given,
            place=record.place,
            appended=int(plain["intercept"]),
            **flags,
            **numbers,
            **plain,
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The rows as arguments of `fit`, by name; rewards that are not known are NaN."""
        y = np.where(self.known[:, np.newaxis], self.y, np.nan)
        if self.single:
            y = y[:, 0]
        arguments = {"X": self.X, "y": y}
        for name in ("episode", "terminated", "X_next", "groups", *sorted(self.given)):
            values = getattr(self, name)
            if values is not None:
                arguments[name] = values
        return arguments

    @classmethod
    def joined(cls, chunks: Sequence[Rows], **changes: Any) -> Rows:
        """Return consecutive chunks of a stream as one, with other values of some fields; ids say where episodes end.

        Without ids, `last` must be given.
        """
        changes["given"] = frozenset().union(*(chunk.given for chunk in chunks))
        for name in ("X", "X_next", "episode", *_PER_ROW):
            parts: list[Any] = [getattr(chunk, name) for chunk in chunks]
            if name in changes or parts[0] is None:
                continue
            if name == "last" and "episode" in changes:
                changes[name] = last_rows(changes["episode"])
            elif name in COLUMNS and all(map(uniform, parts)):
                changes[name] = repeated(parts[0][0], sum(map(len, parts)))
            elif any(map(sparse.issparse, parts)):
                changes[name] = sparse.vstack(parts, format="csr")
            elif name in ("episode", "groups"):
                changes[name] = joined_ids(parts)
            else:
                changes[name] = np.concatenate(parts)
        return chunks[0].changed(**changes)

    def whole_episodes(self, n_rows: int) -> list[tuple[int, int]]:
        """Return the first row and the end of consecutive parts with whole episodes, each of so many rows or more."""
        ends = np.append(np.flatnonzero(self.last) + 1, len(self))
        wanted = np.arange(n_rows, len(self), n_rows)
        cuts = ends[np.searchsorted(ends, wanted)]  # the next end of an episode
        edges = np.unique([0, *cuts, len(self)])
        return list(pairwise(edges.tolist()))

    def split(self, at: Iterable[int]) -> list[Rows]:
        """Split into consecutive chunks, of which one begins with each of the rows `at`."""
        edges = sorted({0, *at, len(self)})
        if len(edges) <= 2:
            return [self]
        return [self._chunk(first, end) for first, end in pairwise(edges)]

    def _chunk(self, first: int, end: int) -> Rows:
        last = self.last[first:end].copy()
        last[-1] = True
        return self.taken(slice(first, end)).changed(last=last, order=None, place=self.place + first)


def _after(last: Flags) -> Flags:
    """Return whether each row comes after a last one, or is the first row of all, (T,)."""
    begins = np.ones(len(last), np.bool_)
    begins[1:] = last[:-1]
    return begins


def cut_off(last: Flags, terminated: Flags) -> Flags:
    """Whether each row is the last one of an episode that did not terminate, (T,).

    It is a horizon row, unless its successor is given or it is an interval.
    """
    return np.asarray(last & ~terminated)


def key_at(ids: NDArray[Any] | None, row: int) -> Identity | None:
    """Return the key of the id of a row; None without ids or rows."""
    if ids is None or not len(ids):
        return None
    return identity(ids[row])


def _keys_of(ids: NDArray[Any] | None) -> tuple[Identity, ...] | None:
    """Return the keys of the ids of all rows; None without ids."""
    if ids is None:
        return None
    return tuple(identities(ids))


def _ids_of_saved(keys: Sequence[Identity] | None, n_rows: int) -> NDArray[Any] | None:
    """Return the ids that have the keys of a file; None without ids. Raises ValueError if there are too few or many."""
    if keys is None:
        return None
    ids = ids_of_keys(keys)
    if len(keys) != n_rows:
        raise ValueError(keys)
    return ids


def usual_columns(gamma: float, terminated: Flags) -> dict[str, Array]:
    """Return the columns of rows for which none is given."""
    columns: dict[str, Array] = {}
    for name, column in COLUMNS.items():
        usual = column.usual
        if usual is None:
            usual = gamma
        columns[name] = repeated(usual, len(terminated))
    if terminated.any():
        columns["discount"] = np.where(terminated, 0.0, columns["discount"])
    return columns


@lru_cache(maxsize=64)
def repeated(value: float, n_rows: int) -> Array:
    """Return a column of one value, which takes no memory and cannot be written to."""
    memory = _ONE  # all columns of ones share it
    if value != 1.0:
        memory = struct.pack("d", value)
    return np.ndarray(n_rows, np.float64, memory, strides=(0,))


def uniform(column: Array) -> bool:
    """Return whether a column is a broadcast scalar, because it was not given."""
    return column.strides == (0,)


def spread(n: int, most: int) -> NDArray[np.intp]:
    """Choose at most so many of n rows: one of each interval, at fractions of it that follow no period of the log."""
    n_intervals = min(n, most)
    edges = np.arange(n_intervals + 1) * n // max(1, n_intervals)
    fractions = (0.5 + np.arange(n_intervals) * 0.5 * (np.sqrt(5.0) - 1.0)) % 1.0
    return np.asarray(edges[:-1] + (fractions * np.diff(edges)).astype(np.intp))


def _taken(phi: Features, rows: slice | NDArray[np.intp]) -> Features:
    """Return the features of some rows, in some order."""
    if isinstance(rows, slice):
        return rows_of(phi, rows)
    return phi[rows]


def _copied(phi: Features, rows: slice | NDArray[np.intp], width: int) -> Array:
    """Return the first `width` features of some rows, dense."""
    if isinstance(phi, np.ndarray):
        part = phi[rows]
    elif isinstance(rows, slice):
        part = rows_of(phi, rows).toarray()
    elif sparse.issparse(phi):
        part = phi[rows].toarray()
    else:  # features that are made of slices of rows
        part = np.vstack([rows_of(phi, slice(t, t + 1)).toarray() for t in rows.tolist()])
    own = np.array(part[:, :width], np.float64)
    own.setflags(write=False)
    return own


def _with_ones(phi: Features) -> Features:
    """Return features with a column of ones as the last one."""
    T, n = phi.shape
    if not sparse.issparse(phi):
        return np.hstack([phi, np.ones((T, 1))])
    # The 1 of each row goes after its stored entries; SciPy's hstack takes three times as long for a few rows.
    ends = phi.indptr[1:]
    kind: type[np.signedinteger[Any]] = np.int32
    if max(phi.nnz + T, n + 1) >= 2**31:
        kind = np.int64
    data = np.insert(phi.data, ends, 1.0)
    indices = np.insert(phi.indices, ends, n).astype(kind)
    indptr = (phi.indptr + np.arange(T + 1)).astype(kind)
    return sparse.csr_array((data, indices, indptr), shape=(T, n + 1))


def breaks(rows: Rows) -> Flags:
    """Whether the next row of the same episode is not the successor of each row by `X_next`, (T,)."""
    X_next: Features = rows.X_next
    found = np.zeros(len(rows), dtype=np.bool_)
    n_followed = len(rows) - 1  # rows with a next one
    entries_per_row = rows.n_features
    if len(rows) and sparse.issparse(rows.X) and sparse.issparse(X_next):
        entries_per_row = 1 + rows.X.nnz // len(rows) + X_next.nnz // len(rows)
    size = max(1, ENTRIES_COMPARED // entries_per_row)
    for first in range(0, n_followed, size):
        end = min(first + size, n_followed)
        other = differ(X_next[first:end], rows.X[first + 1 : end + 1])
        found[first:end] = other & ~rows.last[first:end]
    return found


def differ(one: Features, two: Features) -> Flags:
    """Rows that differ by more than rounding, (T,)."""
    if sparse.issparse(one):
        difference = one - sparse.csr_array(two)
        return np.asarray(_largest(difference) > _SAME * _largest(one))
    if np.array_equal(one, two):
        return np.zeros(len(one), dtype=np.bool_)
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(one - two).max(axis=1) > _SAME * np.abs(one).max(axis=1))


def _largest(rows: Features) -> Array:
    """Largest absolute value in each sparse row, (T,)."""
    return np.asarray(np.abs(rows).max(axis=1).todense()).reshape(-1)
