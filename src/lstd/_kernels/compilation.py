"""Compilation of the kernels, and a cache of compiled kernels that cannot break a run.

The user's cache folder has one file per compiled kernel. Its name holds a digest of all kernel sources, the versions of
Python, Numba and llvmlite, the environment variables of Numba that may change the code, the CPU and the argument types.
If any of them changes, so does the name, and a stale file is never read. Files are renamed when they are complete, and
hold a checksum. If the cache fails, kernels are compiled again, with one warning. Kernels whose sources cannot be read,
as in a zip archive, are not cached. Processes that start at once compile each for itself.

The folder is ``$LSTD_CACHE_DIR``, else ``lstd`` below the user's cache folder; an empty ``LSTD_CACHE_DIR``
turns the cache off. Deleting the folder is always safe.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from lstd.errors import CompilationCacheWarning

_LOG = logging.getLogger("lstd")
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # a division by zero gives inf, and a diverged run is counted as such
    # Products and sums may be fused, but not reordered: results must depend neither on how the work is divided nor on
    # whether a kernel was compiled or loaded from the cache.
    "fastmath": {"contract"},
}


class _NoAlias(CompilerBase):  # type: ignore[misc,unused-ignore]
    """Numba's usual pipeline for kernels whose array arguments do not overlap where they write.

    Otherwise each vector loop first compares the addresses of all its arrays, which takes 15 % of the time of the
    one-hot kernel of the sweep and a third of that of the dense one.
    """

    def define_pipelines(self) -> list[Any]:
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]  # type: ignore[no-untyped-call,unused-ignore]


# Variables that change no generated code and differ between a process and its workers. The key has all others of Numba.
_HARMLESS = ("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_CACHE_")
_warned: list[str] = []
_DIGEST_SIZE = hashlib.sha256().digest_size


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call, or load it from the cache; it runs without the GIL.

    Its array arguments must not overlap where it writes.
    """
    dispatcher = numba.njit(pipeline_class=_NoAlias, **_OPTIONS)(function)
    sources = (Path(code.co_filename) for code in (function.__code__, kernel.__code__))
    if hasattr(dispatcher, "_cache") and all(source.is_file() for source in sources):  # no cache if the JIT is disabled
        dispatcher._cache = KernelCache(function)
    return dispatcher


@cache
def folder() -> Path | None:
    """Return the folder of the compiled kernels, or None if the cache is turned off."""
    chosen = os.environ.get("LSTD_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "lstd"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "lstd" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "lstd"


@cache
def _stamp(sources: Path) -> bytes:
    """Return a digest of what a kernel in `sources` depends on, except its argument types and the CPU."""
    digest = hashlib.sha256()
    for part in (
        platform.python_version(),
        numba.__version__,
        llvmlite.__version__,
        repr(sorted(item for item in os.environ.items() if _changes_code(item[0]))),
    ):
        digest.update(part.encode())
    for source in sorted({*Path(__file__).parent.glob("*.py"), *sources.glob("*.py")}):
        digest.update(source.read_bytes())
    return digest.digest()


def _changes_code(variable: str) -> bool:
    """Return whether an environment variable may change the code that Numba generates."""
    return variable.startswith("NUMBA_") and not variable.startswith(_HARMLESS)


def _warn_once(cause: str) -> None:
    """Warn of the first failure only, as all kernels share the folder."""
    if _warned:
        return
    _warned.append(cause)
    warnings.warn(
        f"The cache of compiled kernels in {folder()} cannot be used ({cause}); compiling instead, about ten "
        "seconds per start. Set LSTD_CACHE_DIR to a writable folder, or to nothing to turn the cache off.",
        CompilationCacheWarning,
        stacklevel=2,
    )


@cache
def _announce() -> None:
    _LOG.warning("lstd: compiling its kernels, some seconds at first use")


class KernelCache:
    """Cache of a Numba dispatcher: one file per kernel and signature, checked when read."""

    def __init__(self, function: Callable[..., Any]) -> None:
        source = Path(function.__code__.co_filename)
        self._name, self._sources = f"{source.stem}.{function.__qualname__}", source.parent

    @property
    def cache_path(self) -> str:
        return str(folder() or "")

    def flush(self) -> None:
        """Do nothing: the name of a file holds the digest of what it was compiled from."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Read the compiled kernel from its file; on None, Numba compiles it and calls `save_overload`."""
        rtsys.initialize(target)  # not `refresh`, which takes 0.3 s: types and functions are needed only to compile
        found = None
        if folder() is not None:
            try:
                found = self._read(self._path(signature, target.codegen()), target)
            except Exception as error:  # any fault of the cache must end in compiling
                _warn_once(f"reading failed: {type(error).__name__}: {error}")
        if found is None:
            _announce()
        return found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the compiled kernel to its file; a failure is a warning."""
        if folder() is None:
            return
        try:
            path = self._path(signature, result.codegen)
            self._write(path, dumps(result._reduce()))  # type: ignore[no-untyped-call]
        except Exception as error:  # any fault of the cache must not reach the run
            _warn_once(f"writing failed: {type(error).__name__}: {error}")

    def _path(self, signature: Any, codegen: Any) -> Path:
        key = hashlib.sha256(
            _stamp(self._sources) + repr((str(signature), codegen.magic_tuple())).encode()
        ).hexdigest()[:24]
        return Path(self.cache_path) / f"{self._name}-{key}.kernel"

    @staticmethod
    def _read(path: Path, target: Any) -> Any:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if hashlib.sha256(payload).digest() != digest:
            path.unlink()
            raise ValueError(f"{path.name} is damaged and was removed")
        return CompileResult._rebuild(target, *pickle.loads(payload))  # type: ignore[no-untyped-call]

    @staticmethod
    def _write(path: Path, payload: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
