"""Files of arrays and a JSON document, which hold nothing executable and are checked as a whole.

A file is an .npz archive, which `numpy.load` reads too. Its comment is the SHA-256 digest of all bytes before it, so
that a file is refused if any bit has changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.io.packing import BROKEN
from lstd.io.whole_files import checked_path, json_bytes, reason, replacing

Array = NDArray[np.float64]
T = TypeVar("T")

VERSION = 9
_DOCUMENT = "document.json"
_PREFIX = b"sha256:"
SEAL = len(_PREFIX) + 2 * hashlib.sha256().digest_size
_EXACT = "biuU"  # kinds of arrays that are not written as float64
_BATCH = 2**20  # bytes read at a time


def write(
    path: str | os.PathLike[str],
    kind: str,
    document: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    locked: bool = False,
) -> None:
    """Write a file, whole or not at all; if `path` is a link, the file that it points to is replaced.

    Arrays of integers, flags and texts keep their types; others are written as float64.

    `locked` is that of :func:`lstd.io.whole_files.replacing`.

    Raises
    ------
    InvalidInputError
        When `path` is not a path.
    OutputError
        When the file could not be written.
    """
    head = {"format": f"lstd {kind}", "version": VERSION, "arrays": list(arrays)}
    path = checked_path(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    with replacing(target, locked=locked) as file:
        sealed = Sealed(file)
        with zipfile.ZipFile(sealed, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_DOCUMENT), json_bytes({**head, **document}))
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    kept = np.asarray(array, None if array.dtype.kind in _EXACT else np.float64, order="C")
                    np.lib.format.write_array(entry, kept, allow_pickle=False)
            archive.comment = bytes(SEAL)
        sealed.close()


def read(path: str | os.PathLike[str], builds: Mapping[str, Callable[[dict[str, Any], dict[str, Array]], T]]) -> T:
    """Read a file and return what it holds.

    Parameters
    ----------
    path : path-like
    builds : mapping
        For each accepted kind of file, the function that makes the result from the document and the arrays.

    Raises
    ------
    InvalidInputError
        When there is no such file, it is damaged or of another kind or version, or its function raises LookupError,
        ValueError, TypeError or AttributeError.
    """
    path = checked_path(path)
    try:
        with open(path, "rb") as file:
            _check_seal(path, file)
            kind, document, arrays = _read_archive(path, [*builds], file)
    except OSError as error:
        raise InvalidInputError(f"{path} could not be read: {reason(error)}.") from error
    try:
        return builds[kind](document, arrays)
    except BROKEN as error:
        raise _foreign(path, kind) from error


class Sealed:
    """File whose last bytes, of the length of a seal, are replaced by the digest of all bytes before."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._tail = file, hashlib.sha256(), b""

    def write(self, data: Any) -> int:
        added = bytes(data)
        joined = self._tail + added
        body, self._tail = joined[:-SEAL], joined[-SEAL:]
        self._digest.update(body)
        self._file.write(body)
        return len(added)

    def flush(self) -> None:
        """Do nothing: the caller that opened the file flushes it."""

    def close(self) -> None:
        self._file.write(_PREFIX + self._digest.hexdigest().encode())


def _check_seal(path: Path, file: IO[bytes]) -> None:
    left = file.seek(0, io.SEEK_END) - SEAL
    file.seek(max(0, left))
    seal = file.read()
    file.seek(0)
    start = file.read(4)
    if left < 0 or not seal.startswith(_PREFIX):
        if start.startswith(b"PK"):
            raise InvalidInputError(
                f"{path} was not written by lstd, or is cut off or damaged: it does not end in a checksum. Write "
                "it again, or restore it from a copy."
            )
        raise InvalidInputError(f"{path} was not written by lstd.")
    digest = hashlib.sha256()
    file.seek(0)
    while left > 0:
        batch = file.read(min(left, _BATCH))
        left -= len(batch) or left
        digest.update(batch)
    if seal != _PREFIX + digest.hexdigest().encode():
        raise InvalidInputError(
            f"{path} is damaged: its checksum does not match; write it again, or restore it from a copy."
        )


def _read_archive(path: Path, kinds: list[str], file: IO[bytes]) -> tuple[str, dict[str, Any], dict[str, Array]]:
    kind = " or ".join(kinds)
    try:
        with zipfile.ZipFile(file) as archive:
            _check_members(archive)
            document = json.loads(archive.read(_DOCUMENT), parse_constant=_refuse)
            kind = _check_head(path, kinds, document)
            names = document.pop("arrays")
            if archive.namelist() != [_DOCUMENT, *(f"{name}.npy" for name in names)]:
                raise ValueError(archive.namelist())
            return kind, document, {name: _array(archive.read(f"{name}.npy")) for name in names}
    except InvalidInputError:
        raise
    except (*BROKEN, MemoryError, RuntimeError, zipfile.BadZipFile, EOFError) as error:
        raise _foreign(path, kind) from error


def _check_members(archive: zipfile.ZipFile) -> None:
    """Raise ValueError if a member takes more memory than the file has bytes."""
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(member)


def _foreign(path: Path, kind: str) -> InvalidInputError:
    """Return the error for an undamaged file whose content does not match its kind."""
    return InvalidInputError(f"{path} does not hold a {kind} written by lstd.")


def _check_head(path: Path, kinds: list[str], document: dict[str, Any]) -> str:
    """Return the kind of a file, one of `kinds`."""
    found, version = str(document["format"]), document["version"]
    kind = found.removeprefix("lstd ")
    if not found.startswith("lstd ") or kind not in kinds:
        wanted = " or ".join(repr(f"lstd {kind}") for kind in kinds)
        raise InvalidInputError(f"{path} must be a file of format {wanted}; it is of format {found!r}.")
    if not isinstance(version, int) or version < 1:
        raise ValueError(version)
    if version != VERSION:
        remedy = "update lstd" if version > VERSION else "make it again"
        raise InvalidInputError(
            f"{path} is of format version {version}, and this lstd reads version {VERSION} only; {remedy}."
        )
    return kind


def _array(content: bytes) -> NDArray[Any]:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(content[:8])
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if (dtype != np.float64 and dtype.kind not in _EXACT) or (fortran_order and len(shape) > 1):
        raise ValueError(dtype)
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape).copy()


def _refuse(constant: str) -> None:
    raise ValueError(constant)
