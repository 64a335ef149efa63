"""What belongs to a results folder: the names in it, and whether a folder found on the disk is one of ours."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lstd.errors import ConfigurationMismatchError, InvalidInputError, OutputError
from lstd.experiments.protocol import FEATURES, LSTD_VARIANTS, PROBLEMS
from lstd.io.files import check_not_a_file, json_bytes, partial_of, read_json, reason, remove_quietly, unusable

GROUPS = {"lstd": LSTD_VARIANTS, "true_online_td": ("true_online_td",)}
CONFIGURATION = "configuration.json"
FORMAT = "lstd reproduce 1"  # what a configuration of ours is known by
LOCK = ".lstd.lock"
TABLE = "results.parquet"
PROVENANCE = "provenance.json"
STAGE_FILES = {
    "timings": "timings.json",
    "theory": "theory.json",
    "table": TABLE,
    "report": "report.html",
}
SUBFOLDERS = ("cells", "figures", "tables")
# What `lstd reproduce` writes beside its configuration and its cells: nothing else in the folder is ever removed.
OUR_FILES = (
    *STAGE_FILES.values(),
    PROVENANCE,
    *(
        f"figures/{name}.{kind}"
        for name in ("figure2", "figure3", "figure4", "figure5", "proposition1", "theorem2")
        for kind in ("pdf", "png", "svg")
    ),
    *(f"tables/{name}.{kind}" for name in ("table1", "table2", "table3") for kind in ("csv", "md", "tex")),
    "tables/best.csv",
    "tables/best.md",
)
_CELL = re.compile(
    rf"(\.lstd-)?(?:{'|'.join(PROBLEMS)})-(?:{'|'.join(FEATURES)})-(?:{'|'.join(GROUPS)})-[0-9]{{6}}-[0-9]{{6}}\.npz"
    r"(?(1)\.part)",
    re.ASCII,
)
_VIRTUAL = ("/proc", "/sys")  # where nobody can make a folder, whatever the permissions say
_MOST_DIFFERENCES, _LONGEST_VALUE = 3, 24


def check_folder(path: Path, configuration: Mapping[str, Any], *, force: bool = False) -> bool:
    """Check that a folder has no results or those of this configuration; it is only read.

    Parameters
    ----------
    path : Path
    configuration : dict
    force : bool
        The results may be of another configuration.

    Returns
    -------
    bool
        Whether it has results of ours.

    Raises
    ------
    InvalidInputError
        If files of other origin have our names.
    ConfigurationMismatchError
        If the configuration found differs and `force` is false; the message says in what.
    """
    for name in SUBFOLDERS:
        check_not_a_file(path / name)
    stored = read_json(path / CONFIGURATION) or {}
    if stored.get("format") == FORMAT:
        if not force:
            _check_same(path, stored, {"format": FORMAT, **configuration})
        return True
    foreign = [path / CONFIGURATION] if os.path.lexists(path / CONFIGURATION) else list(our_files(path))
    if foreign:
        raise InvalidInputError(
            f"`out` must be a new folder or one written by `lstd reproduce`; {str(path)!r} has a "
            f"{min(foreign).relative_to(path).as_posix()} of other origin; give another folder."
        )
    return False


def _check_same(path: Path, stored: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    old, new = _flat(stored), _flat(json.loads(json_bytes(configuration)))
    differences = [
        f"{key} was {_brief(old.get(key))}, now {_brief(new.get(key))}"
        for key in dict.fromkeys([*new, *old])
        if old.get(key) != new.get(key)
    ]
    more = len(differences) - _MOST_DIFFERENCES
    if differences:
        raise ConfigurationMismatchError(
            f"{str(path)!r} holds results of another configuration: {'; '.join(differences[:_MOST_DIFFERENCES])}"
            f"{f'; and {more} more' if more > 0 else ''}; give another folder, or start over in this one with --force."
        )


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _brief(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 2]} …"


def check_usable(path: Path) -> None:
    """Check that a results folder could be made or written, as far as that can be seen without writing.

    Raises
    ------
    InvalidInputError
        If not.
    """
    check_not_a_file(path)
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    device = there.stat().st_dev
    virtual = any(os.path.ismount(name) and os.stat(name).st_dev == device for name in _VIRTUAL)
    if virtual or not os.access(there, os.W_OK | os.X_OK):
        raise unusable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def our_files(path: Path) -> Iterator[Path]:
    """What there is in a folder under the names that `lstd reproduce` writes, but for its configuration."""
    yield from (path / name for name in OUR_FILES if os.path.lexists(path / name))
    yield from (file for file in _cell_files(path) if file.suffix == ".npz")


def _cell_files(path: Path) -> list[Path]:
    """Stored cells, whole and partial."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(file for file in (path / "cells").iterdir() if _CELL.fullmatch(file.name))
    return []


def remove_partial(path: Path) -> None:
    """Remove what a killed process left under the temporary names of our files."""
    for name in (*OUR_FILES, CONFIGURATION):
        remove_quietly(partial_of(path / name))
    for file in _cell_files(path):
        if file.suffix == ".part":
            remove_quietly(file)


def remove_results(path: Path) -> None:
    """Remove what `lstd reproduce` wrote in a folder, its configuration last, and nothing else.

    Raises
    ------
    OutputError
        If a file could not be removed.
    """
    try:
        for file in [*our_files(path), path / CONFIGURATION]:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{error.filename} could not be removed: {reason(error)}.") from error
    for name in SUBFOLDERS:
        with contextlib.suppress(OSError):
            (path / name).rmdir()
