"""A lock on a folder, so that one process at a time writes to it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from pathlib import Path

from lstd.errors import InvalidInputError
from lstd.io.whole_files import held_locks, remove_quietly, unusable

_OWNED = re.compile(rb"(?:lstd (\d+))?")


class FolderLock:
    """An exclusive lock on a file in a folder, which the operating system releases when the process ends.

    Parameters
    ----------
    path : Path
    option : str
        Name of the option in messages.
    what : Path, optional
        What the lock protects, if not the folder.

    Raises
    ------
    InvalidInputError
        When another process holds it, `lstd` did not write the file, or the folder cannot be written.
    OutputError
        When the disk is full.
    """

    def __init__(self, path: Path, option: str = "out", what: Path | None = None) -> None:
        self._path, self._option, self._what, self._file = path, option, what or path.parent, -1
        # Releasing the lock removes the file, so a lock counts only on the file that still has this name.
        while self._file < 0 or not _is_at(self._file, path):
            if self._file >= 0:
                os.close(self._file)
            self._file = self._open()
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.write(self._file, f"lstd {os.getpid()}".encode())
        held_locks.add(path)

    def _open(self) -> int:
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise self._foreign()
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise unusable(self._path.parent, error) from error
        owned = _OWNED.fullmatch(os.read(file, 32))
        if owned is None:
            os.close(file)
            raise self._foreign()
        if not _lock(file):
            os.close(file)
            owner = f"process {int(owned[1])}" if owned[1] else "another process"
            raise InvalidInputError(
                f"`{self._option}` must not be in use; {owner} is writing to {str(self._what)!r}; "
                "wait until it is done or give another."
            )
        return file

    def _foreign(self) -> InvalidInputError:
        return InvalidInputError(
            f"`{self._option}` must not have a {self._path.name} that lstd did not write; got "
            f"{str(self._path.parent)!r}; give another folder."
        )

    def release(self) -> None:
        """Release the lock."""
        held_locks.discard(self._path)
        remove_quietly(self._path)
        os.close(self._file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _lock(file: int) -> bool:
    """Try to lock an open file; return False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file, 1024, os.SEEK_SET)  # not the process number at the start: locked bytes cannot be read
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems have no locks; a folder there is used without one.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
