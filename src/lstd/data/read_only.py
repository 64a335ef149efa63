"""Arrays that cannot be written to, as those of fitted attributes: a write would change the model, or be lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def lock(values: Iterable[Any]) -> None:
    """Make those of the values that are arrays read-only."""
    for value in values:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


def read_only(value: T) -> T:
    """Return what an object gives of its state, with arrays that cannot be written to.

    Arrays are locked where they are, also those in tuples and dataclasses. A dictionary is copied.

    Copies and pickles of an array can be written to, so this comes after them: whenever an attribute is read.

    Examples
    --------
    >>> import numpy as np
    >>> read_only({"alpha": np.ones(2)})["alpha"].flags.writeable
    False
    """
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        return value
    if isinstance(value, dict):
        copied: T = {key: read_only(item) for key, item in value.items()}  # type: ignore[assignment]
        return copied
    if isinstance(value, tuple):
        for item in value:
            read_only(item)
    elif is_dataclass(value):
        lock(vars(value).values())
    return value
