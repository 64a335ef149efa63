"""Kernels compiled by `numba.njit`, the public interface of Numba.

They come in place of those of `lstd._kernels.dispatcher`, which compile in half of the time, and some of which run a
third faster. Numba's cache knows a kernel by its name and the content of its file, whatever kernels of other files it
calls. So here its name ends in a digest of all these files.
"""

# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # a division by zero gives inf, and a diverged run is counted as such
    # Products and sums may be fused, but not reordered: results must depend neither on how the work is divided nor on
    # whether a kernel was compiled or loaded from the cache.
    "fastmath": {"contract"},
}


def njit_kernel(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Any:
    """Compile `function` at its first call, or load it from Numba's cache.

    Its cache is off where no folder can be written, or `LSTD_CACHE_DIR` is empty.

    Parameters
    ----------
    function : callable
    names : mapping, optional
        The global names that it uses, if not its own.
    """
    names = function.__globals__ if names is None else dict(names)
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    source = Path(function.__code__.co_filename)
    folder = os.environ.get("LSTD_CACHE_DIR", numba.config.CACHE_DIR) or ""
    is_off = folder.startswith("~") or (not folder and "LSTD_CACHE_DIR" in os.environ)
    if is_off or not source.is_file():
        return numba.njit(**OPTIONS)(twin)

    twin.__qualname__ = f"{function.__qualname__}_{digest_of(source)[:12]}"
    usual = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        return numba.njit(cache=True, **OPTIONS)(twin)
    except RuntimeError:  # no folder can be written
        return numba.njit(**OPTIONS)(twin)
    finally:
        numba.config.CACHE_DIR = usual


@cache
def digest_of(source: Path) -> str:
    """Return a digest of a file of kernels and of those that it imports."""
    content = source.read_bytes()
    names = re.findall(r"^from lstd\._kernels\.(\w+) import", content.decode(), re.MULTILINE)
    inner = [digest_of(Path(__file__).with_name(f"{name}.py")) for name in names]
    return hashlib.sha256(content + repr(inner).encode()).hexdigest()


_announced: list[Exception] = []


def announce_njit(error: Exception) -> None:
    """Log once that kernels are compiled here, because of an error of the other way."""
    _announced.append(error)
    if len(_announced) == 1:
        logging.getLogger("lstd").warning(
            "lstd: does not know Numba %s (%s: %s), so numba.njit compiles its kernels: some twenty seconds at first "
            "use. A newer lstd may know it.",
            numba.__version__,
            type(error).__name__,
            error,
        )
