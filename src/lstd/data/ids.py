"""Ids of rows, and the first bad value of a column.

Two ids are one where :func:`lstd.data.identity.identity` gives the same key. Columns of files and of data frames are
converted by `lstd.data.parse_columns`; nothing here needs another package.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.identity import (
    NANOSECONDS,
    NO_VALUE,
    Identity,
    NotAnIdError,
    exact_below,
    identity,
    name_of,
    plain_keys,
)
from lstd.errors import InvalidInputError
from lstd.types import Flags

AS_DAYS = "convert it to numbers, such as days since a fixed date."
NO_TIME = f"{NO_VALUE}; give every row its time, or leave out its whole episode: single rows hold rewards and ends."
NO_TYPE = "which is no number, text or time; convert it to one of these."
_SHOWN = 40  # characters of a bad value in a message


class Fault(NamedTuple):
    """The first bad value of a column."""

    row: int  # counted from 0 in the rows that were parsed
    column: str
    text: str  # rule and remedy, to follow the place in a message

    @classmethod
    def first(cls, bad: Flags, column: Any, text: str) -> Fault | None:
        """Return the fault of the first row that is `bad`, (T,); None if none is."""
        row = first_true(bad)
        if row is None:
            return None
        return cls(row, str(column), text)


def first_true(mask: Flags) -> int | None:
    """Return the index of the first True; None if there is none."""
    if not mask.any():
        return None
    return int(np.argmax(mask))


def described(value: object) -> str:
    """Describe a bad value, to follow its place in a message."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or (isinstance(value, Real) and math.isnan(value)):
        return NO_VALUE
    if isinstance(value, (Real, Decimal)):
        return f"has {float(value):g}"
    if isinstance(value, str):
        return f"has {_start_of(value)!r}"
    return f"has {_start_of(repr(value))}"


def _start_of(text: str) -> str:
    """Return text, or the start of a long one."""
    if len(text) <= _SHOWN:
        return text
    return text[:_SHOWN] + "…"


def not_numeric(kind: str, *, is_time: bool) -> str:
    """Say that values of a type are no numbers, to follow their place in a message, and what to do."""
    remedy = "encode it in numbers."
    if is_time:
        remedy = AS_DAYS
    return f"is of type {kind}, which is not numeric; {remedy}"


def no_flag(value: object) -> str:
    """Say that a value is no flag, to follow its place in a message, and what to do."""
    text = described(value)
    if text == NO_VALUE:
        return f"{text}; fill in 0 or 1, 0 if the episode still goes on."
    return f"{text}, which is neither 0 nor 1, true nor false, yes nor no; recode it."


def quoting(text: str, cell: object) -> str:
    """Return what is wrong with a value with its text, if that counts as no value."""
    if not text.startswith(NO_VALUE) or not isinstance(cell, str) or not cell.strip():
        return text
    return f"has {cell.strip()!r}, which counts as no value{text.removeprefix(NO_VALUE)}"


# ------------------------------------------------------------ ids of rows


EPISODE_AGAIN = (
    "reappears after other episodes; sort the rows by episode and time (a stable sort by episode keeps the order of "
    "time), or give new episodes new ids."
)
GROUP_AGAIN = "reappears after other groups; sort the rows by group, episode and time."


_TAKEN_AS_ONE = (
    "is one of ids that differ, but that Python takes as equal, such as (1,) and (True,); convert ids to text."
)


class Ids(NamedTuple):
    """Ids of rows, stored where they change."""

    changes: NDArray[np.intp]  # row 0, and rows whose id differs from the row before
    names: list[Any]  # ids of these rows as they were given, in one form for each key
    keys: Sequence[Identity]

    def of_row(self, row: int) -> Any:
        """Return the id of a row."""
        return self.names[self._place(row)]

    def key_of_row(self, row: int) -> Identity:
        """Return the key of the id of a row."""
        return self.keys[self._place(row)]

    def _place(self, row: int) -> int:
        return int(np.searchsorted(self.changes, row, side="right")) - 1

    def starts(self, n_rows: int) -> Flags:
        """Whether the id of each row differs from that of the row before, (T,), as that of the first does."""
        found = np.zeros(n_rows, np.bool_)
        found[self.changes] = True
        return found

    def after(self, keys: Sequence[Identity]) -> Ids:
        """Return the ids of rows with these keys, one each, and of these rows, which follow them."""
        k = len(keys)
        names = [*map(name_of, keys), *self.names[:1]]
        keys = [*keys, *self.keys[:1]]
        new = [i for i, key in enumerate(keys) if not i or key != keys[i - 1]]
        changes = np.append(np.array(new, np.intp), self.changes[1:] + k)
        new_names = [names[i] for i in new]
        new_keys = [keys[i] for i in new]
        return Ids(changes, [*new_names, *self.names[1:]], [*new_keys, *self.keys[1:]])

    def per_row(self, n_rows: int) -> NDArray[Any]:
        """Return the id of each row, (T,)."""
        return np.repeat(array_of(self.names), np.diff(self.changes, append=n_rows))


NO_IDS_OF_ROWS = Ids(np.empty(0, np.intp), [], [])


def ids_of(
    changes: NDArray[np.intp], names: list[Any], column: str, fault: Fault | None = None
) -> tuple[Ids, Fault | None]:
    """Return the ids of rows up to the first one that is missing or no id, and the fault of that.

    `names` are those of the rows `changes`, (k,): row 0, and those that differ from the row before. `fault` is the
    first row without an id, if it comes after these rows.
    """
    keys = plain_keys(names)
    if keys is not None:
        return up_to(Ids(changes, names, keys), fault)
    keys, wrong = _keys_until_fault(names)
    if wrong:
        fault = Fault(int(changes[len(keys)]), column, wrong)
    names = [_plain(name) for name in names[: len(keys)]]
    if len({*keys}) == len(keys) == len({*names}):
        return up_to(Ids(changes[: len(keys)], names, keys), fault)
    forms = dict(zip(reversed(keys), reversed(names), strict=True))  # the first one of each key
    if len({*forms.values()}) < len(forms):  # Python takes True as 1
        for key, name in forms.items():
            if type(name) is bool:
                forms[key] = str(name)
        if len({*forms.values()}) < len(forms):  # as of tuples
            fault = Fault(int(changes[0]), column, _TAKEN_AS_ONE)
    new = [i for i, key in enumerate(keys) if not i or key != keys[i - 1]]
    kept = [keys[i] for i in new]
    names = [forms[key] for key in kept]
    return up_to(Ids(changes[new], names, kept), fault)


def _plain(name: Any) -> Any:
    """Return an id without white space around it, and numbers as those of Python."""
    if isinstance(name, str):
        return name.strip()
    if not isinstance(name, np.generic):
        return name
    if name.dtype.kind == "f":
        return float(name)
    if name.dtype.kind in "biu":
        return name.item()
    return name


def _keys_until_fault(names: list[Any]) -> tuple[list[Identity], str]:
    """Return the keys of ids up to the first that has none, and what is wrong with that one."""
    keys: list[Identity] = []
    try:
        for name in names:
            keys.append(identity(name))  # noqa: PERF401 - the keys before a bad id are kept
    except NotAnIdError as error:
        return keys, str(error)
    return keys, ""


def up_to(ids: Ids, fault: Fault | None) -> tuple[Ids, Fault | None]:
    """Let a row that is at fault have an id of its own, so that it does not continue the episode before."""
    if fault is None:
        return ids, None
    known = int((ids.changes < fault.row).sum())
    changes = np.append(ids.changes[:known], fault.row)
    return Ids(changes, [*ids.names[:known], ""], [*ids.keys[:known], "text "]), fault


# ------------------------------------------------------------ arrays of ids


def in_one_form(ids: NDArray[Any], column: str) -> tuple[NDArray[Any], Fault | None]:
    """Return ids (T,) whose elements are equal where ids are one, and the first that is missing or no id."""
    kind = ids.dtype.kind
    if kind in "iub":
        return ids, None
    if kind in "fmM":
        rows = np.flatnonzero(_doubtful(ids))
        _, fault = ids_of(rows, scalars(ids[rows]), column)
        return ids, fault
    same_kind = kind in "US"
    if not same_kind:
        names = ids.tolist()
        kinds = {*map(type, names)}
        same_kind = kinds == {str}
        if np.ndarray in kinds:  # of which those without an axis are single values
            names = [name[()] if type(name) is np.ndarray else name for name in names]
            kinds = {*map(type, names)}
        if len(kinds) > 1:
            names = [*map(_of_python, names)]
        if kinds == {int}:
            ids = array_of(names)
        if ids.dtype.kind == "i":
            return ids, None
    if same_kind:
        starts = _starts(ids)
        names = ids[starts].tolist()
    else:
        starts = _starts_of_objects(names)
        names = [names[row] for row in starts.tolist()]
    found, fault = ids_of(starts, names, column)
    if kind == "U" and found.names == names:
        return ids, fault
    return found.per_row(len(ids)), fault


def _of_python(name: Any) -> Any:
    """Return a time or a duration of NumPy, which cannot be compared with all objects, as Python has it, if it can."""
    if not isinstance(name, (np.datetime64, np.timedelta64)):
        return name
    moment = name.astype(f"{name.dtype.kind}8[us]").item()
    with contextlib.suppress(NotAnIdError):
        if identity(moment) == identity(name):
            return moment
    return name


def _doubtful(ids: NDArray[Any]) -> Flags:
    """Flag floats, times and durations that may be missing or no ids, (T,)."""
    if ids.dtype.kind == "f":
        return np.asarray(~(np.abs(ids) < exact_below(ids.dtype)))
    unit, _ = np.datetime_data(ids.dtype)
    if unit in NANOSECONDS:
        return np.asarray(np.isnat(ids))
    return np.ones(len(ids), np.bool_)  # as years, which have no fixed length


def _starts(ids: NDArray[Any]) -> NDArray[np.intp]:
    """Return row 0, and the rows whose element differs from that of the row before."""
    return np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])


def _starts_of_objects(names: list[Any]) -> NDArray[np.intp]:
    """Return row 0, and the rows with another object: those that are equal may be different ids, as True and 1 are."""
    differ = [one is not two for one, two in pairwise(names)]
    return np.flatnonzero([True, *differ][: len(names)])


def array_of(names: Sequence[Any]) -> NDArray[Any]:
    """Return ids as an array: of integers, text or times where all are, else of objects."""
    kinds = {*map(type, names)}
    if kinds == {int} and min(names) >= -(2**63) and max(names) < 2**63:
        return np.array(names, np.int64)
    if kinds == {str} and "\0" not in "".join(names):  # which NumPy leaves out at the end
        return np.array(names)
    if kinds in ({np.datetime64}, {np.timedelta64}) and len({name.dtype for name in names}) == 1:
        return np.array(names)
    return np.fromiter(names, dtype=object, count=len(names))


def scalars(ids: NDArray[Any]) -> list[Any]:
    """Return the elements of an array as Python has them, or as NumPy does where that is more exact."""
    if ids.dtype.kind in "mM" or (ids.dtype.kind == "f" and ids.dtype != np.float64):
        return list(ids)
    return ids.tolist()  # type: ignore[no-any-return]


def identities(ids: NDArray[Any]) -> Sequence[Identity]:
    """Return the keys of checked ids, (T,)."""
    names = scalars(ids)
    keys = plain_keys(names)
    if keys is None:
        return [identity(name) for name in names]
    return keys


def ids_of_keys(keys: Sequence[Identity]) -> NDArray[Any]:
    """Return ids that have these keys, (T,)."""
    return np.fromiter(map(name_of, keys), dtype=object, count=len(keys))


def joined_ids(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return checked ids of consecutive rows as one array, whose elements are equal where ids are one."""
    if len({part.dtype for part in parts}) == 1 and parts[0].dtype.kind in "iubfmM":
        return np.concatenate(parts)
    names = [name for part in parts for name in scalars(part)]
    objects = np.fromiter(names, dtype=object, count=len(names))
    ids, _ = in_one_form(objects, "")
    return ids


def numbered(ids: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first rows of the different ids, in order of appearance, and the number of each row's id, (T,)."""
    if ids.dtype.kind == "O":  # which may have no order
        places: dict[Identity, int] = {}
        numbers = [places.setdefault(key, len(places)) for key in identities(ids)]
        ids = np.array(numbers, np.intp)
    _, first, sorted_places = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[sorted_places.reshape(-1)]


def last_rows(ids: NDArray[Any]) -> Flags:
    """Flag the last row of each run of equal ids, shape (T,)."""
    last = np.ones(len(ids), dtype=np.bool_)
    last[:-1] = ids[1:] != ids[:-1]
    return last


def first_repeat(ids: NDArray[Any]) -> int | None:
    """Find the first row at which an id begins a second run; None if the rows of each id follow one another."""
    seen: set[Any] = set()
    starts = _starts(ids)
    names = ids[starts]
    if names.dtype.kind in "biuf" and (names[1:] > names[:-1]).all():
        return None
    for row, name in zip(starts.tolist(), names.tolist(), strict=True):
        if name in seen:
            return int(row)
        seen.add(name)
    return None


def not_contiguous(
    column: str, shown: str, row: int | None = None, where: str = " in a stream", remedy: str = ""
) -> InvalidInputError:
    """Return the error of an id of `column`, "episode" or "groups", that reappears after others."""
    kind = "id"
    again = EPISODE_AGAIN
    if column == "groups":
        kind = "group"
        again = GROUP_AGAIN
    place = ""
    if row is not None:
        place = f"at row {row}, "
    return InvalidInputError(f"`{column}` must be contiguous{where}; {place}{kind} {shown} {again}{remedy}")
