"""What functions of :mod:`lstd.distributed` are called with, checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.errors import InvalidInputError, MissingExtraError
from lstd.io.files import checked_path

if TYPE_CHECKING:
    from lstd.tables.row_reader import Roles


def roles_of(features: Any, reward: Any, episode: Any, terminated: Any, truncated: Any) -> Roles | None:
    """What columns of tables mean; None where nothing names any.

    Raises
    ------
    InvalidInputError
        When a name is no text; when others are given without `reward`, or `truncated` without `terminated`.
    MissingExtraError
        When pyarrow is not installed.
    """
    others = {"features": features, "episode": episode, "terminated": terminated, "truncated": truncated}
    if reward is None:
        if given := [name for name, value in others.items() if value is not None]:
            raise InvalidInputError(
                f"`reward` must name the column of rewards where `{given[0]}` is given; got None. Arrays have no "
                "columns to name."
            )
        return None
    for name in ("episode", "terminated", "truncated"):
        if others[name] is not None and not isinstance(others[name], str):
            raise InvalidInputError(f"`{name}` must be the name of a column; got {others[name]!r:.80}.")
    if truncated is not None and terminated is None:
        raise InvalidInputError(
            "`truncated` goes with `terminated` only: what is not said to be truncated may have terminated or not."
        )
    columns, rewards = None if features is None else _names("features", features), _names("reward", reward)
    try:
        from lstd.tables.row_reader import Roles
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            'Reading tables needs the package pyarrow. Install it with: pip install "lstd[dask]"'
        ) from error
    return Roles(columns, rewards, episode, terminated, truncated)


def _names(name: str, value: Any) -> tuple[str, ...]:
    values: list[Any] = [*value] if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else [value]
    for one in values:
        if not isinstance(one, str):
            raise InvalidInputError(
                f"`{name}` must be the name of a column or several; got {one!r:.80} of type {type(one).__name__}."
            )
    if not values:
        raise InvalidInputError(f"`{name}` must name at least one column; got none.")
    return tuple(values)


def chunks_of(chunks: Any) -> Any:
    """Chunks, a path alone as a list of one."""
    if isinstance(chunks, (str, os.PathLike)):
        return [chunks]
    one = isinstance(chunks, (bytes, np.ndarray)) or hasattr(chunks, "__arrow_c_stream__")
    if one or (isinstance(chunks, tuple) and len(chunks) == 2 and all(isinstance(a, np.ndarray) for a in chunks)):
        raise InvalidInputError(
            f"`chunks` must be a list or another iterable of chunks; got a {type(chunks).__name__}, which may be one "
            "chunk: give a list of it."
        )
    if not isinstance(chunks, Iterable) and not hasattr(chunks, "__dask_graph__") and not hasattr(chunks, "client"):
        raise InvalidInputError(f"`chunks` must be a list or another iterable of chunks; got {chunks!r:.80}.")
    return chunks


def folder(store: str | os.PathLike[str]) -> str:
    """The full name of the folder `store`, which is made if need be.

    Raises
    ------
    InvalidInputError
        When it cannot be.
    """
    path = Path(os.path.abspath(checked_path(store, "store")))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(
            f"`store` must be a folder that can be written; got {str(store)!r} ({reason})."
        ) from error
    return str(path)
