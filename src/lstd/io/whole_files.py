"""Files that are written whole or not at all, and JSON documents."""

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

# No space, quota or file size left: a failed output. Any other error is the fault of the folder.
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO)
_SECONDS_LEFT_BEHIND = 3600.0  # processes of other machines may write to the same folder until then
held_locks: set[Path] = set()  # of `lstd.io.folder_lock`
_unfinished: set[Path] = set()


def checked_path(path: Any, name: str = "path") -> Path:
    """Return a path; raise InvalidInputError unless it is text or path-like, not empty and without NUL characters."""
    text = None
    with contextlib.suppress(Exception):  # `__fspath__` may raise anything
        text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        rule = "text or a pathlib.Path, not empty and without NUL characters"
        raise InvalidInputError(f"`{name}` must be {rule}; got {path!r:.80}.")
    return Path(text)


@contextlib.contextmanager
def replacing(path: Path, *, locked: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that gets its name when the block ends, and is removed if the block fails.

    Parameters
    ----------
    path : Path
        An existing file is replaced, and its permissions are kept.
    locked : bool, default True
        Whether no other process writes to the folder. Otherwise the temporary name is unique, and temporary files that
        killed processes left an hour ago or earlier are removed.

    Raises
    ------
    OutputError
        When the file could not be written.

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
        remove_quietly(partial)  # a link, or what a killed process left
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
        failure = OutputError(f"{path} could not be written: {reason(error)}; free some space or fix the folder.")
        failure.errno = error.errno
        raise failure from error
    except BaseException:
        remove_quietly(partial)
        raise
    finally:
        _unfinished.discard(partial)


def partial_of(path: Path, *, locked: bool = True) -> Path:
    """Return the temporary name of a file: always the same in a locked folder, a new one elsewhere.

    The process number alone is not unique: threads share it, and processes of two machines or containers may.
    """
    unique = "" if locked else f".{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".lstd-{path.name}{unique}.part")


def _remove_left_behind(path: Path) -> None:
    """Remove old temporary files of this file whose process has ended."""
    if os.name != "posix":  # other systems do not tell whether a process is running
        return
    of_a_process = re.compile(rf"\.lstd-{re.escape(path.name)}\.(\d+)-[0-9a-f]{{8}}\.part")
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            match = of_a_process.fullmatch(other.name)
            if match and time.time() - other.lstat().st_mtime > _SECONDS_LEFT_BEHIND and not _runs(int(match[1])):
                remove_quietly(other)


def _runs(process: int) -> bool:
    """Return whether a process with this number is running; True where the system does not tell."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _keep_permissions(file: IO[bytes], path: Path) -> None:
    """Give a file the permissions of the file that it will replace, if there is one."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))


def remove_unfinished() -> None:
    """Remove the temporary files and the locks of this process, before it exits at once."""
    for path in (*_unfinished, *held_locks):
        remove_quietly(path)


def _sync_folder(path: Path) -> None:
    """Make a rename survive a power cut, on systems where a folder can be flushed."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_quietly(path: Path) -> None:
    """Remove a file if possible."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def reason(error: OSError) -> str:
    """Return the operating system's words for an error, without number and file name."""
    return error.strerror or str(error)


def check_not_a_file(path: Path) -> None:
    """Raise InvalidInputError if a path exists and is no folder."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from error


def check_replaceable(path: Path, *, force: bool, option: str = "--out") -> None:
    """Create and remove a temporary file, so that a path that cannot be written is reported before hours of work.

    Raises
    ------
    InvalidInputError
        When the path exists and `force` is false, or is not a file, or its folder cannot be written.
    OutputError
        When the disk is full.
    """
    given = str(path)
    try:
        if path.exists() or path.is_symlink():
            if not path.is_file():
                raise InvalidInputError(f"`{option}` must name a file; got {given!r}. Give the path of a file.")
            if not force:
                raise InvalidInputError(f"`{option}` must name a new file; {given!r} exists; --force replaces it.")
        partial = partial_of(path, locked=False)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        if error.errno in _FULL:
            raise OutputError(
                f"{path} could not be written: {reason(error)}; free some space or give another."
            ) from error
        raise InvalidInputError(
            f"`{option}` must name a file in a folder that can be written; got {given!r} ({reason(error)}); give "
            "another."
        ) from error
    remove_quietly(partial)


def unusable(path: Path, error: OSError) -> InvalidInputError | OutputError:
    """Return the error to raise when a folder could not be prepared: bad input, or a full disk."""
    if error.errno in _FULL:
        return OutputError(f"{path} could not be written: {reason(error)}; free some space or give another folder.")
    return InvalidInputError(
        f"`out` must be a folder that can be written; got {str(path)!r} ({reason(error)}); give another."
    )


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a JSON document as UTF-8; infinite and undefined numbers become null."""
    text = json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is not valid Unicode is kept as escapes.
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
    """Read a JSON object; return None if the file is missing or damaged."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
