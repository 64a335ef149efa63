"""What counts as a missing value and as one id, and the first bad value of a column.

7, 7.0, "7" and "7.0" are one id: some libraries write integers as "7.0" if the column has had a missing value. Columns
of files and of data frames are converted by `lstd.data.parse_columns`; nothing here needs another package.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import date
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.types import Flags

# Text that means a missing value, in lower case and without white space.
MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"))
NO_VALUE = "has no value (it is empty, NaN, n/a or the like)"
AS_DAYS = "convert it to numbers, such as days since a fixed date."
NO_TIME = f"{NO_VALUE}; give every row its time, or leave out its whole episode: single rows hold rewards and ends."
_SHOWN = 40  # characters of a bad value in a message


class Fault(NamedTuple):
    """The first bad value of a column."""

    row: int  # counted from 0 in the rows that were parsed
    column: str
    text: str  # rule and remedy, to follow the place in a message

    @classmethod
    def first(cls, bad: Flags, column: Any, text: str) -> Fault | None:
        """Return the fault of the first row that is `bad`, (T,); None if none is."""
        return cls(int(np.argmax(bad)), str(column), text) if bad.any() else None


def first_true(mask: Flags) -> int | None:
    """Return the index of the first True; None if there is none."""
    return int(np.argmax(mask)) if mask.any() else None


def described(value: Any) -> str:
    """Describe a bad value, to follow its place in a message."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or (isinstance(value, Real) and math.isnan(value)):
        return NO_VALUE
    if isinstance(value, Real):
        return f"has {float(value):g}"
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"has {text!r}" if isinstance(value, str) else f"has {text}"


def quoting(text: str, cell: Any) -> str:
    """Return what is wrong with a value with its text, if that counts as no value."""
    if not text.startswith(NO_VALUE) or not isinstance(cell, str) or not cell.strip():
        return text
    return f"has {cell.strip()!r}, which counts as no value{text.removeprefix(NO_VALUE)}"


# ------------------------------------------------------------ ids


NEEDS_ID = "every row needs an id."
EPISODE_AGAIN = (
    "reappears after other episodes; sort the rows by episode and time (a stable sort by episode keeps the order of "
    "time), or give new episodes new ids."
)
GROUP_AGAIN = "reappears after other groups; sort the rows by group, episode and time."
_EXACT = 2**53  # whole floats below are integers exactly
KEY_WIDTH = 24  # most bytes of the key of a text


class Ids(NamedTuple):
    """Ids of rows, stored where they change."""

    changes: NDArray[np.intp]  # row 0, and rows whose id differs from the row before
    names: list[Any]  # ids of these rows

    def of_row(self, row: int) -> Any:
        """Return the id of a row."""
        return self.names[int(np.searchsorted(self.changes, row, side="right")) - 1]

    def starts(self, n_rows: int) -> Flags:
        """Whether the id of each row differs from that of the row before, (T,), as that of the first does."""
        found = np.zeros(n_rows, np.bool_)
        found[self.changes] = True
        return found

    def after(self, names: Sequence[Any]) -> Ids:
        """Return the ids of rows, one name each, and these, which follow them."""
        every, k = [*names, *self.names], len(names)
        new = [i for i, name in enumerate(every[: k + 1]) if not i or id_key(name) != id_key(every[i - 1])]
        changes = np.append(np.array(new, np.intp), self.changes[1:] + k)
        return Ids(changes, [*(every[i] for i in new), *self.names[1:]])

    def per_row(self, n_rows: int) -> NDArray[Any]:
        """Return the id of each row, (T,)."""
        return np.repeat(np.array(self.names), np.diff(self.changes, append=n_rows))


NO_IDS_OF_ROWS = Ids(np.empty(0, np.intp), [])


def not_contiguous(
    column: str, shown: str, row: int | None = None, where: str = " in a stream", remedy: str = ""
) -> InvalidInputError:
    """Return the error of an id of `column`, "episode" or "groups", that reappears after others."""
    kind, again = ("id", EPISODE_AGAIN) if column == "episode" else ("group", GROUP_AGAIN)
    place = "" if row is None else f"at row {row}, "
    return InvalidInputError(f"`{column}` must be contiguous{where}; {place}{kind} {shown} {again}{remedy}")


def whole_number(text: str) -> int | None:
    """Parse the integer in an id, 7 for "7" and "7.0"; None for other text, such as "07" or "7e3"."""
    whole = text.removesuffix(".0")
    digits = whole.removeprefix("-")
    canonical = digits.isascii() and digits.isdigit() and (digits[0] != "0" or whole == "0")
    return int(whole) if canonical else None


def id_key(name: Any) -> int | bytes:
    """Return the key that identifies an id: an integer for 7, 7.0, "7" and "7.0", otherwise text.

    That is of at most `KEY_WIDTH` bytes in UTF-8, which end in a digest if the id is longer.
    """
    if not isinstance(name, (str, int, float)):
        name = str(name)  # of NumPy's numbers, and of times
    if isinstance(name, str):
        number = whole_number(name)
        if number is not None:
            return number
    elif isinstance(name, float):
        if name.is_integer() and abs(name) < _EXACT:
            return int(name)
    elif -(2**63) < name < 2**63:
        return int(name)
    text = str(name).encode()
    if len(text) > KEY_WIDTH:  # among 10⁹ ids the chance that any two share a digest is 10⁻²¹
        text = text[: KEY_WIDTH - 16] + hashlib.blake2b(text, digest_size=16).digest()
    return text.rstrip(b"\0")  # as NumPy does


def id_keys(names: list[Any]) -> list[int | bytes]:
    """Return the key of each id."""
    if {*map(type, names)} == {int} and min(names) >= -(2**63) and max(names) < 2**63:
        return names
    return [id_key(name) for name in names]


def same_id(one: Any, two: Any) -> bool:
    """Return whether two ids are one: as 7, 7.0, "7" and "7.0" are, or a number or a time and its text."""
    if one is None and two is None:
        return True
    if type(one) is type(two) and not isinstance(one, str):
        return bool(np.all(one == two))
    text, other = _python_id(one), _python_id(two)
    if isinstance(other, str):
        text, other = other, text
    if not isinstance(text, str):
        return bool(np.all(text == other))
    if isinstance(other, bool):  # tables read flags as "true" and "false"
        return text.lower() == str(other).lower()
    if isinstance(other, (str, int, float)) and id_key(text) == id_key(other):
        return True
    try:
        if isinstance(other, (int, float)) and whole_number(text) is None:
            return float(text) == other
        return isinstance(other, (date, np.datetime64)) and bool(np.datetime64(text) == np.datetime64(other))
    except ValueError:  # the text is neither a number nor a time
        return False


def _python_id(name: Any) -> Any:
    """Convert an id to a Python object, without white space around text; times of NumPy stay, as they may be of ns."""
    if isinstance(name, np.generic) and not isinstance(name, np.datetime64):
        name = name.item()
    name = name.decode(errors="replace") if isinstance(name, bytes) else name
    return name.strip() if isinstance(name, str) else name


def last_rows(ids: NDArray[Any]) -> Flags:
    """Flag the last row of each run of equal ids, shape (T,)."""
    last = np.ones(len(ids), dtype=np.bool_)
    last[:-1] = ids[1:] != ids[:-1]
    return last


def first_repeat(ids: NDArray[Any]) -> int | None:
    """Find the first row at which an id begins a second run; None if the rows of each id follow one another."""
    seen: set[Any] = set()
    starts = np.flatnonzero(np.roll(last_rows(ids), 1))
    names = ids[starts]
    if names.dtype.kind in "biuf" and (names[1:] > names[:-1]).all():
        return None
    for row, name in zip(starts.tolist(), names.tolist(), strict=True):
        if name in seen:
            return int(row)
        seen.add(name)
    return None


def plain_texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Normalise ids that are text, (T,), as `ids_of_text` does: strip white space, read "7.0" as "7"."""
    starts = np.flatnonzero(np.roll(last_rows(ids), 1))
    given = ids[starts].tolist()
    names = [_plain_text(name) for name in given]
    return ids if names == given else np.repeat(np.array(names), np.diff(starts, append=len(ids)))


def _plain_text(name: str) -> str:
    name = name.strip()
    return name if whole_number(name) is None else name.removesuffix(".0")


def ids_of_text(
    changes: NDArray[np.intp], names: Sequence[str], column: str, fault: Fault | None = None
) -> tuple[Ids, Fault | None]:
    """Normalise ids of text up to the first missing id: strip white space, read "7.0" as "7".

    `names` are the texts of the rows `changes`, (k,): row 0, and those that differ from the row before. `fault` is the
    first row without an id, if it comes after these rows.
    """
    rows: list[int] = []
    kept: list[str] = []
    for row, name in zip(changes.tolist(), names, strict=False):
        if not name.isdigit():  # most ids are digits, and need no other check
            name = _plain_text(name)
            if name.lower() in MISSING:
                fault = Fault(row, column, f"{NO_VALUE}; {NEEDS_ID}")
                break
        if not kept or kept[-1] != name:
            rows.append(row)
            kept.append(name)
    return up_to(Ids(np.array(rows, dtype=np.intp), kept), fault)


def up_to(ids: Ids, fault: Fault | None) -> tuple[Ids, Fault | None]:
    """Let a row that is at fault have an id of its own, so that it does not continue the episode before."""
    if fault is None:
        return ids, None
    known = ids.changes < fault.row
    return Ids(np.append(ids.changes[known], fault.row), [*ids.names[: int(known.sum())], ""]), fault
