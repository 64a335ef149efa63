"""The saved state of `lstd watch`: a file that is replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import ConfigurationMismatchError
from lstd.io import archive

Array = NDArray[np.float64]

_KIND = "watch"


@dataclass(frozen=True, eq=False)
class WatchState:
    """What `write_state` wrote."""

    document: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def bytes(self) -> int:
        """Bytes of the data that count."""
        return int(self.document["bytes"])

    @property
    def fingerprint(self) -> str:
        return str(self.document["fingerprint"])

    @property
    def written(self) -> int | None:
        """Bytes of the output; None if that was no file."""
        written = self.document["written"]
        return None if written is None else int(written)


def write_state(path: Path, document: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Write a state, whole or not at all; raises OutputError when it could not be written."""
    archive.write(path, _KIND, document, arrays, locked=True)


def read_state(path: Path) -> WatchState:
    """Read what `write_state` wrote; raises InvalidInputError when it is damaged or of another kind or version."""
    return archive.read(path, {_KIND: WatchState})


def check_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigurationMismatchError if the options differ from those that the state was made with."""
    now = {name: list(value) if isinstance(value, tuple) else value for name, value in now.items()}
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if different:
        name = different[0]
        raise ConfigurationMismatchError(
            f"the state was made with {name} {before.get(name)!r}, and now it is {now.get(name)!r}; give the same "
            "options, or another --state, or --force to start over."
        )
