"""Bases of frozen dataclasses of which streams make many: new objects and changed copies in little time."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np


class Record:
    """Base of frozen dataclasses that are made, and copied with changes, often."""

    _cached: ClassVar[tuple[str, ...]] = ()  # properties that follow from the fields

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._cached += tuple(name for name, value in vars(cls).items() if isinstance(value, cached_property))

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return an object with these values, and defaults for the others, in less time than the initialiser takes."""
        record = object.__new__(cls)
        record.__dict__.update(fields)
        return record

    def changed(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields, as `dataclasses.replace` does in five times the time."""
        other = object.__new__(type(self))
        values = other.__dict__
        values.update(self.__dict__)
        for name in self._cached:
            values.pop(name, None)
        values.update(changes)
        return other


class ReadOnly(Record):
    """Base of records whose arrays cannot be written to, nor those of their copies and pickles."""

    def __post_init__(self) -> None:
        _lock(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _lock(state)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return an object as `Record.of` does."""
        _lock(fields)
        return super().of(**fields)

    def changed(self, **changes: Any) -> Self:
        """Return a changed copy as `Record.changed` does."""
        _lock(changes)
        return super().changed(**changes)


def _lock(values: dict[str, Any]) -> None:
    for value in values.values():
        if type(value) is np.ndarray:
            value.flags.writeable = False
