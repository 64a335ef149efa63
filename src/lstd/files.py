"""Files that are written whole or not at all, and read only if no bit has changed; records in them; locks of folders.

A sealed file is an .npz archive, which `numpy.load` reads too: arrays, and a JSON document that says what they are. Its
comment is the SHA-256 digest of all bytes before it. Nothing in it is executable or compressed, so it takes no more
memory than it has bytes. A record is a dataclass or named tuple, whose types of fields say what a file may hold;
anything else is refused, in writing as in reading:

    bool, str                       themselves
    int                             at least 0
    float                           finite, or Annotated[float, (low, high)]: in this range, whose end may be infinite
    Annotated[NDArray, "n m"]       finite, of this shape and dtype; "n m nan" may hold NaN and inf
    Annotated[Any, "episode"]       None or an id of `episode`: an integer, a float or text, which keeps its type
    Any                             numbers, flags and texts, or lists of them
    tuple[T, ...], tuple[X, Y], frozenset[T], Mapping[str, T], X | Y, None, and records
    a class with `packed`           the document that `packed` returns, and `unpacked` takes

A letter in a shape is the same length in all arrays of a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError, OutputError
from lstd.types import Array

T = TypeVar("T")

VERSION = 11
BROKEN = (LookupError, ValueError, TypeError, AttributeError)  # what content of another form raises
# No space, quota or file size left: a failed output. Any other error is the fault of the folder.
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO)
_DOCUMENT, _PREFIX = "document.json", b"sha256:"
_SEAL = len(_PREFIX) + 2 * hashlib.sha256().digest_size
_EXACT = "biuU"  # kinds of arrays that are not written as float64
_FINITE = (-sys.float_info.max, sys.float_info.max)
_OWNED = re.compile(rb"(?:lstd (\d+))?")  # content of a lock
_unfinished: set[Path] = set()  # temporary files and locks of this process


# ------------------------------------------------------------ whole or absent


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
    """Open a file for reading and writing that gets its name when the block ends, and is removed if the block fails.

    Parameters
    ----------
    path : Path
        An existing file is replaced, and its permissions are kept.
    locked : bool, default True
        Whether no other process writes to the folder. Otherwise the temporary name is unique.

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
    temporary = partial_of(path, locked=locked)
    _unfinished.add(temporary)
    try:
        path.parent.mkdir(exist_ok=True)
        remove_quietly(temporary)  # a link, or what a killed process left
        with open(temporary, "x+b") as file:
            with contextlib.suppress(OSError, AttributeError):  # the latter where files have no permissions
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        with contextlib.suppress(OSError):  # makes the name survive a power cut, where a folder can be flushed
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        remove_quietly(temporary)
        failure = OutputError(f"{path} could not be written: {reason(error)}; free some space or fix the folder.")
        failure.errno = error.errno
        raise failure from error
    except BaseException:
        remove_quietly(temporary)
        raise
    finally:
        _unfinished.discard(temporary)


def partial_of(path: Path, *, locked: bool = True) -> Path:
    """Return the temporary name of a file: always the same in a locked folder, a new one elsewhere.

    The process number alone is not unique: threads share it, and processes of two machines or containers may.
    """
    unique = "" if locked else f".{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".lstd-{path.name}{unique}.part")


def remove_unfinished() -> None:
    """Remove the temporary files and the locks of this process, before it exits at once."""
    for path in [*_unfinished]:
        remove_quietly(path)


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
        temporary = partial_of(path, locked=False)
        open(temporary, "xb").close()
    except OSError as error:
        raise unusable(path, error, option, "name a file in a folder that can be written", "another") from error
    remove_quietly(temporary)


def unusable(
    path: Path, error: OSError, option: str = "out", rule: str = "be a folder that can be written",
    other: str = "another folder",
) -> InvalidInputError | OutputError:  # fmt: skip
    """Return the error to raise when an output could not be prepared: bad input, or a full disk."""
    if error.errno in _FULL:
        return OutputError(f"{path} could not be written: {reason(error)}; free some space or give {other}.")
    return InvalidInputError(f"`{option}` must {rule}; got {str(path)!r} ({reason(error)}); give another.")


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
        self._path, self._file = path, self._open(path, option, what or path.parent)
        # Releasing the lock removes the file, so a lock counts only on the file that still has this name.
        while not path.exists() or not os.path.samestat(os.fstat(self._file), path.stat()):
            os.close(self._file)
            self._file = self._open(path, option, what or path.parent)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.write(self._file, f"lstd {os.getpid()}".encode())
        _unfinished.add(path)

    @staticmethod
    def _open(path: Path, option: str, what: Path) -> int:
        file, owned = -1, None
        if not path.is_symlink() and (path.is_file() or not path.exists()):
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            except OSError as error:
                raise unusable(path.parent, error) from error
            owned = _OWNED.fullmatch(os.read(file, 32))
            if owned is not None and _lock(file):
                return file
            os.close(file)
        if owned is None:
            raise InvalidInputError(
                f"`{option}` must not have a {path.name} that lstd did not write; got {str(path.parent)!r}; give "
                "another folder."
            )
        owner = f"process {int(owned[1])}" if owned[1] else "another process"
        raise InvalidInputError(
            f"`{option}` must not be in use; {owner} is writing to {str(what)!r}; wait until it is done or give "
            "another."
        )

    def release(self) -> None:
        """Release the lock."""
        _unfinished.discard(self._path)
        remove_quietly(self._path)
        os.close(self._file)


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


# ------------------------------------------------------------ JSON


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a JSON document as UTF-8; infinite and undefined numbers become null."""
    text = json.dumps(_json(document), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is not valid Unicode is kept as escapes.
    return (text + "\n").encode("utf-8", "backslashreplace")


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; return None if the file is missing or damaged."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


# ------------------------------------------------------------ sealed files


def write(
    path: str | os.PathLike[str],
    kind: str,
    document: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    locked: bool = False,
) -> None:
    """Write a sealed file; if `path` is a link, the file that it points to is replaced.

    Arrays of integers, flags and texts keep their types; others are written as float64. `locked` is that of
    :func:`replacing`. Raises InvalidInputError when `path` is not a path, OutputError when it could not be written.
    """
    head = {"format": f"lstd {kind}", "version": VERSION, "arrays": list(arrays)}
    path = checked_path(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    with replacing(target, locked=locked) as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_DOCUMENT), json_bytes({**head, **document}))
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    kept = np.asarray(array, None if array.dtype.kind in _EXACT else np.float64, order="C")
                    np.lib.format.write_array(entry, kept, allow_pickle=False)
            archive.comment = bytes(_SEAL)
        seal(file)


def seal(file: IO[bytes]) -> None:
    """Write the digest of all bytes before in place of the last ones."""
    found = _digest(file)
    file.seek(-_SEAL, io.SEEK_END)
    file.write(found)


def _digest(file: IO[bytes]) -> bytes:
    left, digest = file.seek(0, io.SEEK_END) - _SEAL, hashlib.sha256()
    file.seek(0)
    while left > 0 and (batch := file.read(min(left, 2**20))):
        left -= len(batch)
        digest.update(batch)
    return _PREFIX + digest.hexdigest().encode()


def read(path: str | os.PathLike[str], builds: Mapping[str, Callable[[dict[str, Any], dict[str, Array]], T]]) -> T:
    """Read a sealed file and return what it holds.

    Parameters
    ----------
    path : path-like
    builds : mapping
        For each accepted kind of file, the function that makes the result from the document and the arrays.

    Raises
    ------
    InvalidInputError
        When there is no such file, it is damaged or of another kind or version, or its function raises one of `BROKEN`.
    """
    path, kind = checked_path(path), " or ".join(builds)
    try:
        with open(path, "rb") as file:
            _check_seal(path, file)
            with zipfile.ZipFile(file) as archive:
                document = _document(path, archive, [*builds])
                kind = document["format"].removeprefix("lstd ")
                names = document.pop("arrays")
                if archive.namelist() != [_DOCUMENT, *(f"{name}.npy" for name in names)]:
                    raise ValueError(archive.namelist())
                arrays = {name: _array(archive.read(f"{name}.npy")) for name in names}
    except OSError as error:
        raise InvalidInputError(f"{path} could not be read: {reason(error)}.") from error
    except InvalidInputError:
        raise
    except (*BROKEN, MemoryError, RuntimeError, zipfile.BadZipFile, EOFError) as error:
        raise _foreign(path, kind) from error
    try:
        return builds[kind](document, arrays)
    except BROKEN as error:
        raise _foreign(path, kind) from error


def _foreign(path: Path, kind: str) -> InvalidInputError:
    """Return the error for an undamaged file whose content does not match its kind."""
    return InvalidInputError(f"{path} does not hold a {kind} written by lstd.")


def _check_seal(path: Path, file: IO[bytes]) -> None:
    start = file.read(4)
    file.seek(max(0, file.seek(0, io.SEEK_END) - _SEAL))
    found = file.read()
    if len(found) < _SEAL or not found.startswith(_PREFIX):
        if start.startswith(b"PK"):
            raise InvalidInputError(
                f"{path} was not written by lstd, or is cut off or damaged: it does not end in a checksum. Write "
                "it again, or restore it from a copy."
            )
        raise InvalidInputError(f"{path} was not written by lstd.")
    if found != _digest(file):
        raise InvalidInputError(
            f"{path} is damaged: its checksum does not match; write it again, or restore it from a copy."
        )


def _document(path: Path, archive: zipfile.ZipFile, kinds: list[str]) -> dict[str, Any]:
    """Return the document, of one of some kinds; raise ValueError if a member takes more memory than bytes of it."""
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(member)
    document: dict[str, Any] = json.loads(archive.read(_DOCUMENT), parse_constant=_refuse)
    found, version = str(document["format"]), document["version"]
    if not found.startswith("lstd ") or found.removeprefix("lstd ") not in kinds:
        wanted = " or ".join(repr(f"lstd {kind}") for kind in kinds)
        raise InvalidInputError(f"{path} must be a file of format {wanted}; it is of format {found!r}.")
    if not isinstance(version, int) or version < 1:
        raise ValueError(version)
    if version != VERSION:
        remedy = "update lstd" if version > VERSION else "make it again"
        raise InvalidInputError(
            f"{path} is of format version {version}, and this lstd reads version {VERSION} only; {remedy}."
        )
    return document


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


# ------------------------------------------------------------ records


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


def write_record(path: str | os.PathLike[str], record: Any) -> None:
    """Write a record to a file of its `file_kind`; raises as :meth:`Saved.save` does."""
    write(path, record.file_kind, *pack(record))


def read_record(path: str | os.PathLike[str], *kinds: Any) -> Any:
    """Read a record, of one of these classes, that `write_record` wrote; raises as :meth:`Saved.load` does."""
    return read(path, {kind.file_kind: partial(unpack, kind) for kind in kinds})


def pack(record: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the arrays of a record.

    Raises
    ------
    InvalidInputError
        When an id is neither a number nor text, or a number is not finite.
    """
    walk = _Walk({}, reading=False)
    return walk.value(record, type(record), ""), walk.arrays


def unpack(kind: type[T], document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> T:
    """Return the record that `pack` was given; raises one of `BROKEN` if the content breaks a rule."""
    record: T = _Walk({**arrays}, reading=True).value(document, kind, "")
    return record


class _Walk:
    """A walk along the fields of a record, from values to their documents, or back if `reading`."""

    def __init__(self, arrays: dict[str, NDArray[Any]], *, reading: bool) -> None:
        self.arrays, self._reading = arrays, reading
        self._lengths: dict[str, int] = {}  # by letter

    def value(self, value: Any, kind: Any, name: str) -> Any:
        """Return the other form of a value; `name` is that of its array, or the start of the names of its arrays."""
        kind, rule = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
        if hasattr(get_origin(kind), "__value__"):  # an alias of a type, as NDArray is from NumPy 2.5 on
            kind = get_origin(kind).__value__[get_args(kind)]
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._of_first_kind(value, inner, name)
        if origin is np.ndarray:
            return self._array(value, np.dtype(get_args(inner[1])[0]), rule, name)
        if origin in (tuple, frozenset):
            return self._items(value, origin, inner, name)
        if origin in (dict, Mapping):
            return {_plain(key, str): self.value(item, inner[1], f"{name}.{key}") for key, item in value.items()}
        if hasattr(kind, "packed"):
            return kind.unpacked(value) if self._reading else value.packed()
        return self._record(value, kind, f"{name}." if name else "") if _types_of(kind) else _plain(value, kind, rule)

    def _record(self, value: Any, kind: Any, prefix: str) -> Any:
        given = value.__getitem__ if self._reading else partial(getattr, value)
        content = {name: self.value(given(name), of, prefix + name) for name, of in _types_of(kind).items()}
        return kind(**content) if self._reading else content

    def _of_first_kind(self, value: Any, kinds: tuple[Any, ...], name: str) -> Any:
        """Return the other form of a value of the first of some kinds that fits."""
        if value is None and NoneType in kinds:
            return None
        for kind in kinds:
            try:
                return self.value(value, kind, name)
            except InvalidInputError:  # of this kind, but broken
                raise
            except BROKEN:
                continue
        raise TypeError(value)

    def _items(self, value: Any, kind: Any, of: tuple[Any, ...], name: str) -> Any:
        if not isinstance(value, list if self._reading else kind):
            raise TypeError(value)
        kinds = of if len(of) == 2 and of[1] is not ... else of[:1] * len(value)
        ordered = value if self._reading or kind is tuple else sorted(value)
        items = [self.value(item, of, f"{name}.{i}") for i, (item, of) in enumerate(zip(ordered, kinds, strict=True))]
        return kind(items) if self._reading else items

    def _array(self, value: Any, dtype: np.dtype[Any], rule: str, name: str) -> Any:
        """Return an array, or its shape for the document, after a check of both and of its numbers."""
        if not self._reading:
            self.arrays[name], value = value, list(value.shape)
        array, letters = self.arrays[name], rule.removesuffix(" nan").split()
        for letter, length in zip(letters, array.shape, strict=True):
            if (int(letter) if letter.isdecimal() else self._lengths.setdefault(letter, length)) != length:
                raise ValueError(array.shape)
        if array.dtype != dtype or value != list(array.shape):
            raise ValueError(value)
        if not rule.endswith("nan") and not np.isfinite(array).all():
            raise _overflow()
        return array if self._reading else value


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record by name; none for other types."""
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    types = get_type_hints(kind, include_extras=True) if names else {}
    return {name: types[name] for name in names}


def _plain(value: Any, kind: Any, rule: Any = None) -> Any:
    """Return a number, flag, text or id; raise TypeError if it is of another type."""
    if kind is Any and rule is None:
        return np.asarray(value).tolist()
    if isinstance(value, (np.number, np.bool_, np.str_)):
        value = value.item()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is Any:
        if value is None or isinstance(value, str) or (is_number and abs(value) < np.inf):
            return value
        raise InvalidInputError(
            f"`{rule}` ids must be integers, floats or text to be saved; got {value!r}. Convert them to text first."
        )
    if kind is float:
        low, high = rule or _FINITE
        if value is None and high == np.inf:  # which is null in JSON
            return high
        if is_number and not (low <= value <= high and (isinstance(value, float) or abs(value) <= _FINITE[1])):
            raise _overflow()
        value = float(value) if is_number else None
    if not isinstance(value, kind) or (kind is int and not (is_number and value >= 0)):
        raise TypeError(value)
    return value


def _overflow() -> InvalidInputError:
    return InvalidInputError("The sums must be finite to be saved; they overflowed. Scale features to order 1.")
