"""Files of records, and the methods `save` and `load` of what is kept in them."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar, Self

from lstd.io.packing import pack, unpack
from lstd.io.sealed_archive import read, write


def write_record(path: str | os.PathLike[str], record: Any) -> None:
    """Write a record to a file of its `file_kind`; raises as :meth:`Saved.save` does."""
    write(path, record.file_kind, *pack(record))


def read_record(path: str | os.PathLike[str], *kinds: Any) -> Any:
    """Read a record, of one of these classes, that `write_record` wrote; raises as :meth:`Saved.load` does."""
    return read(path, {kind.file_kind: partial(unpack, kind) for kind in kinds})


class Saved:
    """Base of classes whose objects are kept in files: as records of `record_kind`, or as they are."""

    record_kind: ClassVar[Any] = None

    def to_record(self) -> Any:
        """Return the record that a file holds; raises InvalidInputError if a file cannot hold this object."""
        return self

    @classmethod
    def of_record(cls, record: Any, path: str | os.PathLike[str]) -> Self:
        """Return the object of a record that was read from a path."""
        found: Self = record
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, whole or not at all; an existing file is replaced. The file holds nothing executable.

        A folder that does not exist is made, but not the folder around it.

        Parameters
        ----------
        path : path-like

        Raises
        ------
        InvalidInputError
            When a file cannot hold the id of the first or last episode, or the labels of actions, which must be numbers
            or text; or features of actions that are a function.
        OutputError
            When the file could not be written.
        """
        write_record(path, self.to_record())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that :meth:`save` of this class wrote; see :func:`lstd.load`.

        Raises
        ------
        InvalidInputError
            When there is no such file, or it is damaged, of another kind, or of another version of the format.
        """
        return cls.of_record(read_record(path, cls.record_kind or cls), path)
