"""Whole files or none: atomic replacement, a lock on a folder, JSON documents."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lstd.errors import InvalidInputError, OutputError

_OWNED = re.compile(rb"(?:lstd (\d+))?")
# Out of space, quota or file size is a failed output; anything else says that the folder is a bad one.
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO)
_SECONDS_LEFT_BEHIND = 3600.0
_locks: set[Path] = set()
_unfinished: set[Path] = set()


def checked_path(path: Any, name: str = "path") -> Path:
    """A path, or an InvalidInputError where it is none: not text, empty, or with a NUL character."""
    try:
        text = os.fspath(path)
    except Exception as error:  # `__fspath__` may raise anything
        raise InvalidInputError(f"`{name}` must be text or a pathlib.Path; got {path!r:.80}.") from error
    if not isinstance(text, str) or not text or "\0" in text:
        rule = "text or a pathlib.Path, not empty and without NUL characters"
        raise InvalidInputError(f"`{name}` must be {rule}; got {path!r:.80}.")
    return Path(text)


@contextlib.contextmanager
def replacing(path: Path, *, locked: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name whole, when the block ends, or not at all.

    A file that is replaced leaves its permissions to the new one.

    Parameters
    ----------
    path : Path
    locked : bool, default True
        Nobody else writes to the folder. Otherwise the temporary name is one of this call alone, and those of processes
        that were killed an hour ago or more are removed.

    Raises
    ------
    OutputError
        If it could not be written; the temporary file is removed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     with replacing(Path(out) / "a") as file:
    ...         _ = file.write(b"whole")
    ...     [name.name for name in Path(out).iterdir()]
    ['a']
    """
    partial = partial_of(path, locked=locked)
    _unfinished.add(partial)
    try:
        path.parent.mkdir(exist_ok=True)
        # What a killed process left is removed rather than written to, as is a link under the temporary name.
        remove_quietly(partial)
        if not locked:
            _remove_left_behind(path)
        with open(partial, "xb") as file:
            _keep_permissions(file, path)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        remove_quietly(partial)
        failure = OutputError(f"{path} could not be written: {reason(error)}; make room or mend the folder.")
        failure.errno = error.errno
        raise failure from error
    except BaseException:
        remove_quietly(partial)
        raise
    finally:
        _unfinished.discard(partial)


def partial_of(path: Path, *, locked: bool = True) -> Path:
    """The temporary name of a file: always the same in a locked folder, a new one of this process elsewhere.

    The number of a process is not enough: threads share it, and so do processes of other machines and containers.
    """
    if locked:
        return path.with_name(f".lstd-{path.name}.part")
    return path.with_name(f".lstd-{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def _remove_left_behind(path: Path) -> None:
    """Remove temporary files of this file whose process is over, and which nothing was written to for an hour."""
    if os.name != "posix":  # elsewhere there is no asking whether a process is there
        return
    of_a_process = re.compile(rf"\.lstd-{re.escape(path.name)}\.(\d+)-[0-9a-f]{{8}}\.part")
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            found = of_a_process.fullmatch(other.name)
            # The hour is for processes of other machines that write to the same folder.
            if found and time.time() - other.lstat().st_mtime > _SECONDS_LEFT_BEHIND and not _runs(int(found[1])):
                remove_quietly(other)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _keep_permissions(file: IO[bytes], path: Path) -> None:
    """Give a file the permissions of the one that it is about to replace, if any."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))


def remove_unfinished() -> None:
    """Remove the temporary files and the locks of this process, which is about to end at once."""
    for path in (*_unfinished, *_locks):
        remove_quietly(path)


def _sync_folder(path: Path) -> None:
    """Make a rename last through a power cut, where folders can be flushed (not on Windows)."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_quietly(path: Path) -> None:
    """Remove a file if that is possible."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def reason(error: OSError) -> str:
    """The operating system's words, without number and file name."""
    return error.strerror or str(error)


def check_not_a_file(path: Path) -> None:
    """Check that a path is free or a folder, as far as can be seen; raises InvalidInputError."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from error


def check_replaceable(path: Path, *, force: bool, option: str = "--out") -> None:
    """Check, by trying, that a file can be written under a name before hours are spent on what goes into it.

    Raises
    ------
    InvalidInputError
        If something is there already and `force` is not set, or it is no file, or the folder cannot be written.
    OutputError
        If the disk is full.
    """
    given = str(path)
    try:
        if path.exists() or path.is_symlink():
            if not path.is_file():
                raise InvalidInputError(f"`{option}` must name a file; got {given!r}. Give the path of a file.")
            if not force:
                raise InvalidInputError(f"`{option}` must name a new file; {given!r} is there; --force replaces it.")
        partial = partial_of(path, locked=False)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        if error.errno in _FULL:
            raise OutputError(f"{path} could not be written: {reason(error)}; make room or give another.") from error
        raise InvalidInputError(
            f"`{option}` must name a file in a folder that can be written; got {given!r} ({reason(error)}); give "
            "another."
        ) from error
    remove_quietly(partial)


def unusable(path: Path, error: OSError) -> InvalidInputError | OutputError:
    """The error to raise when a folder could not be prepared: bad input, or a full disk."""
    if error.errno in _FULL:
        return OutputError(f"{path} could not be written: {reason(error)}; make room or give another folder.")
    return InvalidInputError(
        f"`out` must be a folder that can be written; got {str(path)!r} ({reason(error)}); give another."
    )


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """A JSON document as text, the same for the same content; infinite and undefined numbers become null."""
    text = json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is no text is kept as the escapes of JSON.
    return (text + "\n").encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None when the file is missing or damaged."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


class FolderLock:
    """An exclusive lock on a file in a folder, which the operating system releases when the process ends.

    Raises
    ------
    InvalidInputError
        If another process holds it, the file is of other origin, or the folder cannot be written.
    OutputError
        If the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        while True:
            self._file = self._open()
            # The process that releases the lock removes the file: it counts only on the file still under this name.
            if _is_at(self._file, path):
                break
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.write(self._file, f"lstd {os.getpid()}".encode())
        _locks.add(path)

    def _open(self) -> int:
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise self._foreign()
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise unusable(self._path.parent, error) from error
        found = _OWNED.fullmatch(os.read(file, 32))
        if found is None:
            os.close(file)
            raise self._foreign()
        if not _lock(file):
            os.close(file)
            owner = f"process {int(found[1])}" if found[1] else "another process"
            raise InvalidInputError(
                f"`out` must not be in use; {owner} is writing to {str(self._path.parent)!r}; "
                "wait until it is done or give another folder."
            )
        return file

    def _foreign(self) -> InvalidInputError:
        return InvalidInputError(
            f"`out` must not have a {self._path.name} of other origin; got {str(self._path.parent)!r}; "
            "give another folder."
        )

    def release(self) -> None:
        """Give the lock back."""
        _locks.discard(self._path)
        remove_quietly(self._path)
        os.close(self._file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _lock(file: int) -> bool:
    """Try to lock an open file; False when another process holds it."""
    try:
        import fcntl
    except ImportError:
        return _lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems know no locks: there the folder goes unguarded rather than unused.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _lock_on_windows(file: int) -> bool:
    import msvcrt

    try:
        # One byte far behind the process number, which others must be able to read.
        os.lseek(file, 1024, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    finally:
        os.lseek(file, 0, os.SEEK_SET)
    return True
