"""Files that are written whole or not at all, and read only if no bit has changed; records in them; locks of folders.

A sealed file is an .npz archive, which `numpy.load` reads too: arrays, and a JSON document. The SHA-256 digest of all
bytes before follows it. Nothing in it is executable or compressed, so it takes no more memory than it has bytes.

A record is a dataclass or named tuple, whose types of fields say what a file may hold; anything else is refused, in
writing as in reading:

    bool, str                       themselves
    int                             at least 0
    float                           finite, or Annotated[float, (low, high)]: in this range, whose end may be infinite
    Annotated[NDArray, "n m"]       finite, of this shape and dtype; "n m nan" may hold NaN and inf
    Annotated[Any, "episode"]       None or the key of an id, :data:`lstd.data.identity.Identity`
    Any                             numbers, flags and texts, or lists of them
    tuple[T, ...], tuple[X, Y], frozenset[T], Mapping[str, T], X | Y, None, and records
    a class with `packed`           the document that `packed` returns, and `unpacked` takes
    a class with `record_kind`      the record of this kind that `to_record` returns, and `of_record` takes

A letter in a shape is the same length in all arrays of a file; "_" is any length.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import logging
import math
import os
import secrets
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, partial
from operator import getitem
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError, OutputError

T = TypeVar("T")

VERSION = 18
BROKEN = (LookupError, ValueError, TypeError, AttributeError)  # what content of another form raises
# No space, quota or file size left: a failed output. Any other error is the fault of the folder.
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO)
_DOCUMENT, _FORMAT, _PREFIX = "document.json", "lstd ", b"sha256:"
_SEAL = len(_PREFIX) + 2 * hashlib.sha256().digest_size
_EXACT = "biuU"  # kinds of arrays that are not written as float64
_LARGEST = sys.float_info.max
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
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and writing that gets its name when the block ends, and is removed if the block fails.

    Parameters
    ----------
    path : Path
        An existing file is replaced, and its permissions are kept. If it is a link, the file that it points to is.
        Nothing else is replaced: neither folders nor devices, such as /dev/null.

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
    target = _replaceable(path)
    temporary = _temporary(target)
    _unfinished.add(temporary)
    try:
        target.parent.mkdir(exist_ok=True)
        with open(temporary, "x+b") as file:
            with contextlib.suppress(OSError, AttributeError):  # the latter where files have no permissions
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        with contextlib.suppress(OSError):  # makes the name survive a power cut, where a folder can be flushed
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException as error:
        remove_quietly(temporary)
        if not isinstance(error, OSError):
            raise
        raise _not_written(path, error) from error
    finally:
        _unfinished.discard(temporary)


def _replaceable(path: Path) -> Path:
    """Return the file that a path leads to; raise OutputError if it is something else, or cannot be a file."""
    try:
        target = path
        if path.is_symlink():
            target = Path(os.path.realpath(path))
        is_other = target.exists() and not target.is_file()
    except OSError as error:  # a name that is too long
        raise _not_written(path, error) from error
    if is_other:
        raise OutputError(f"{path} could not be written: it is a folder or a device. Give the path of a file.")
    return target


def _not_written(path: Path, error: OSError) -> OutputError:
    """Return the error to raise when a file could not be written."""
    failure = OutputError(f"{path} could not be written: {reason(error)}; free some space or fix the folder.")
    failure.errno = error.errno
    return failure


def _temporary(path: Path) -> Path:
    """Return a new name; the process number is not unique: threads share it, and processes of two machines may."""
    return path.with_name(f".lstd-{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


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
    if os.path.exists(path) and not os.path.isdir(path):
        raise unusable(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))


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
        temporary = _temporary(path)
        open(temporary, "xb").close()
    except OSError as error:
        raise unusable(path, error, option, "name a file in a folder that can be written", "another") from error
    remove_quietly(temporary)


def unusable(
    path: Path,
    error: OSError,
    option: str = "out",
    rule: str = "be a folder that can be written",
    other: str = "another folder",
) -> InvalidInputError | OutputError:
    """Return the error to raise when an output could not be prepared: bad input, or a full disk."""
    if error.errno in _FULL:
        return OutputError(f"{path} could not be written: {reason(error)}; free some space or give {other}.")
    return InvalidInputError(f"`{option}` must {rule}; got {str(path)!r} ({reason(error)}); give another.")


class FolderLock:
    """An exclusive lock on a file, which the operating system releases when the process ends.

    Parameters
    ----------
    path : Path
        It is made, and removed when the lock is released.

    Raises
    ------
    InvalidInputError
        When another process holds it, or the folder cannot be written.
    OutputError
        When the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise unusable(path.parent, error) from error
        # Releasing removes the file, so a lock counts only on the file that still has this name.
        if not _lock(self._file) or not path.exists() or not os.path.samestat(os.fstat(self._file), path.stat()):
            owner = os.read(self._file, 32).partition(b"lstd ")[2].decode("ascii", "ignore")
            os.close(self._file)
            raise InvalidInputError(
                f"`out` must not be in use; {f'process {owner}' if owner else 'another process'} is writing to "
                f"{str(path.parent)!r}; wait until it is done or give another."
            )
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.write(self._file, f"lstd {os.getpid()}".encode())
        _unfinished.add(path)

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
            os.lseek(file, 0, os.SEEK_SET)
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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; return None if the file is missing or damaged."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    return document


# ------------------------------------------------------------ sealed files


def write(
    path: str | os.PathLike[str], kind: str, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a sealed file.

    Arrays of integers, flags and texts keep their types; others are written as float64. Raises InvalidInputError when
    `path` is not a path, OutputError when the file could not be written.
    """
    text = json_bytes({"format": _FORMAT + kind, "version": VERSION, **document})
    kept: dict[str, Any] = {}
    for name, array in arrays.items():
        kept[name] = array
        if array.dtype.kind not in _EXACT:
            kept[name] = np.asarray(array, "=f8")
    with replacing(checked_path(path)) as file:
        np.savez(file, **kept)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(zipfile.ZipInfo(_DOCUMENT), text)
        seal(file)


def seal(file: IO[bytes]) -> None:
    """Write the digest of all bytes of a file at its end."""
    file.write(_digest(file, file.seek(0, io.SEEK_END)))


def _digest(file: IO[bytes], size: int) -> bytes:
    """Return the seal of the first `size` bytes, and leave the file behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    while batch := file.read(min(size - file.tell(), 2**20)):
        digest.update(batch)
    return _PREFIX + digest.hexdigest().encode()


def read(
    path: str | os.PathLike[str], builds: Mapping[str, Callable[[dict[str, Any], dict[str, NDArray[Any]]], T]]
) -> T:
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
    path = checked_path(path)
    kind = " or ".join(builds)  # until it is known
    formats = [_FORMAT + kind for kind in builds]
    try:
        with open(path, "rb") as file:
            _check_seal(path, file)
            content = _members(file)
        document = json.loads(content.pop(_DOCUMENT))
        found = document["format"]
        version = document["version"]
        remedy = "update lstd" if version > VERSION else "make it again"
        if found in formats and version == VERSION:
            kind = found.removeprefix(_FORMAT)
            arrays = {name.removesuffix(".npy"): _array(content.pop(name)) for name in [*content]}
            return builds[kind](document, arrays)
    except OSError as error:
        raise InvalidInputError(f"{path} could not be read: {reason(error)}.") from error
    except _DamagedError:
        raise
    except (*BROKEN, MemoryError, RuntimeError, zipfile.BadZipFile, EOFError) as error:
        raise InvalidInputError(
            f"{path} does not hold a {kind} written by lstd in the form that this version reads. If lstd wrote it, "
            "load it with the version that wrote it, or make it again with this one."
        ) from error
    if found not in formats:
        wanted = " or ".join(map(repr, formats))
        raise InvalidInputError(f"{path} must be a file of format {wanted}; it is of format {found!r}.")
    raise InvalidInputError(
        f"{path} is of format version {version}, and this lstd reads version {VERSION} only; {remedy}."
    )


def read_kept(path: Path, builds: Mapping[str, Callable[[dict[str, Any], dict[str, NDArray[Any]]], T]]) -> T | None:
    """Read a sealed file that can be made again; return None if it is missing, or of no use, which is logged."""
    if not os.path.lexists(path):
        return None
    try:
        return read(path, builds)
    except InvalidInputError:
        logging.getLogger("lstd").warning("lstd: %s is damaged. It is computed again.", path)
        return None


class _DamagedError(InvalidInputError):
    """The seal of a file is missing or broken."""


def _check_seal(path: Path, file: IO[bytes]) -> None:
    size = max(0, file.seek(0, io.SEEK_END) - _SEAL)
    file.seek(size)
    found = file.read()
    if not found.startswith(_PREFIX):
        raise _DamagedError(
            f"{path} was not written by lstd, or is cut off or damaged: it does not end in a checksum. Write it again, "
            "or restore it from a copy."
        )
    if found != _digest(file, size):
        raise _DamagedError(
            f"{path} is damaged: its checksum does not match; write it again, or restore it from a copy."
        )


def _members(file: IO[bytes]) -> dict[str, bytes]:
    """Return the members of an archive; raise ValueError if one takes more memory than bytes of the file."""
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError(archive.namelist())
        for member in members.values():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise ValueError(member)
        return {name: archive.read(member) for name, member in members.items()}


def _array(content: bytes) -> NDArray[Any]:
    """Return the array of a member; `numpy.load` would make room for any shape before it reads."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(content[:8])
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype != np.float64 and dtype.kind not in _EXACT:
        raise ValueError(dtype)
    flat = np.frombuffer(content, dtype, offset=stream.tell()).copy()
    return flat.reshape(shape, order="F" if fortran_order else "C")


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
            When a file cannot hold the labels of actions, which must be numbers or text, or features of actions that
            are a function.
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
    """Return the document and the arrays of a record, which :func:`unpack` takes.

    Raises
    ------
    InvalidInputError
        When a number is not finite.
    """
    walk = _Walk({}, writing=True)
    return walk.value(record, type(record), ""), walk.arrays


def unpack(kind: type[T], document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> T:
    """Return the record that `pack` was given; raises one of `BROKEN` if the content breaks a rule."""
    walk = _Walk({**arrays}, writing=False)
    record: T = walk.value(document, kind, "")
    if walk.arrays:
        raise ValueError([*walk.arrays])
    return record


@dataclass
class _Walk:
    """A walk along the types of a record, which checks its values, and makes a document of them or the reverse."""

    arrays: dict[str, NDArray[Any]]  # written so far, or left to read
    writing: bool
    lengths: dict[str, int] = field(default_factory=dict)  # by letter

    def value(self, value: Any, kind: Any, name: str) -> Any:
        """Return the document of a value, or the value; `name` is that of its array, or begins those of its arrays."""
        rule: Any = None
        if get_origin(kind) is Annotated:
            kind, rule = get_args(kind)
        if hasattr(get_origin(kind), "__value__"):  # an alias of a type, as NDArray is from NumPy 2.5 on
            kind = get_origin(kind).__value__[get_args(kind)]
        origin = get_origin(kind)
        of = get_args(kind)
        if origin in (Union, UnionType):
            return self._of_first_kind(value, of, name)
        if origin is np.ndarray:
            return self._array(value, np.dtype(get_args(of[1])[0]), rule, name)
        if origin in (tuple, frozenset):
            return self._items(value, origin, of, name)
        if origin in (dict, Mapping):
            return {_plain(key, str, None): self.value(item, of[1], _within(name, key)) for key, item in value.items()}
        if hasattr(kind, "packed"):
            return value.packed() if self.writing else kind.unpacked(value)
        record_kind = getattr(kind, "record_kind", None)
        if record_kind is not None:
            if self.writing:
                return self.value(value.to_record(), record_kind, name)
            return kind.of_record(self.value(value, record_kind, name))
        if _types_of(kind):
            return self._record(value, kind, name)
        if isinstance(value, np.generic):
            value = value.item()
        return _plain(value, kind, rule)

    def _items(self, value: Any, origin: type, of: tuple[Any, ...], name: str) -> Any:
        """Return the list of a tuple or a set of these types, or the reverse."""
        if not isinstance(value, (tuple, frozenset) if self.writing else list):
            raise TypeError(value)
        items = value
        if isinstance(value, frozenset):
            items = sorted(value)
        kinds = of
        if len(of) == 1 or of[1] is ...:  # any number of one type
            kinds = of[:1] * len(items)
        pairs = enumerate(zip(items, kinds, strict=True))
        found = [self.value(item, kind, _within(name, str(place))) for place, (item, kind) in pairs]
        if self.writing:
            return found
        return origin(found)

    def _record(self, value: Any, kind: Any, name: str) -> Any:
        """Return the entries of a record of this type, by the names of its fields, or the reverse."""
        if self.writing and not isinstance(value, kind):
            raise TypeError(value)
        get = getattr if self.writing else getitem
        entries = {key: self.value(get(value, key), of, _within(name, key)) for key, of in _types_of(kind).items()}
        if self.writing:
            return entries
        record = kind(**entries)
        check = getattr(record, "check_read", None)
        if check is not None:  # raises ValueError for content that `pack` never gave
            check()
        return record

    def _of_first_kind(self, value: Any, kinds: tuple[Any, ...], name: str) -> Any:
        """Return a value as the first of some kinds that fits."""
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

    def _fits(self, letter: str, length: int) -> bool:
        """Return whether a length is that of a letter so far, or of a number; "_" is any length."""
        if letter == "_":
            return True
        if letter.isdecimal():
            return length == int(letter)
        return length == self.lengths.setdefault(letter, length)

    def _array(self, value: Any, dtype: np.dtype[Any], rule: str, name: str) -> Any:
        """Return the shape of an array, or the array of a shape, after a check of its type, shape and numbers."""
        array = value if self.writing else self.arrays[name]
        letters = rule.removesuffix(" nan").split()
        shape = list(array.shape)
        for letter, length in zip(letters, shape, strict=True):
            if not self._fits(letter, length):
                raise ValueError(shape)
        if array.dtype != dtype or not (self.writing or value == shape):
            raise ValueError(value)
        if not rule.endswith("nan") and not np.isfinite(array).all():
            raise _overflow()
        if self.writing:
            self.arrays[name] = array
            return shape
        return self.arrays.pop(name)


def _within(name: str, key: str) -> str:
    """Return the name of a part of what has a name; of a part of the whole file, its own."""
    if not name:
        return key
    return f"{name}.{key}"


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record by name; none for other types."""
    names = getattr(kind, "_fields", ())  # of a named tuple
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
    if not names:
        return {}
    types = get_type_hints(kind, include_extras=True)
    return {name: types[name] for name in names}


def _plain(value: Any, kind: Any, rule: Any) -> Any:
    """Return a number, flag, text or id; raise TypeError if it is of another type."""
    if kind is Any:
        if rule is None or value is None or isinstance(value, str) or _is_whole(value):
            return value
        raise TypeError(value)
    if kind is float:
        return _float(value, rule or (-_LARGEST, _LARGEST))
    if kind is int and not (_is_whole(value) and value >= 0):
        raise TypeError(value)
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _is_whole(value: object) -> bool:
    """Return whether a value is an integer, and not a flag."""
    return isinstance(value, int) and not isinstance(value, bool)


def _float(value: Any, bounds: tuple[float, float]) -> float:
    """Return a number within bounds; one that an integer of JSON writes must be finite as a float."""
    low, high = bounds
    if value is None and high == np.inf:  # which is null in JSON
        return high
    if _is_whole(value):
        is_in_range = low <= value <= high and abs(value) <= _LARGEST
    elif isinstance(value, float):
        is_in_range = low <= value <= high
    else:
        raise TypeError(value)
    if not is_in_range:
        raise _overflow()
    return float(value)


def _overflow() -> InvalidInputError:
    return InvalidInputError("The sums must be finite to be saved; they overflowed. Scale features to order 1.")
