"""Compilation of the kernels, by one of two ways that give the same numbers but for their last digits.

`Kernel` of `lstd._kernels.dispatcher` compiles in half of the time, and its loops are up to a third faster. It stands
on inner classes of Numba. If these are missing or fail, as they may with any release of Numba, `numba.njit` compiles.
The private environment variable LSTD_KERNELS=njit lets it compile all kernels, for tests.
"""

# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numba

from lstd._kernels.public_numba import announce_njit, njit_kernel


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call, or load it from the cache; it runs without the GIL.

    Its array arguments must not overlap where it writes.
    """
    return _compiled(function, returns_arrays=True)


def lean_kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` as a `kernel` that makes and returns no array, which makes calls of it faster."""
    return _compiled(function, returns_arrays=False)


def _compiled(function: Callable[..., Any], *, returns_arrays: bool) -> Any:
    if numba.config.DISABLE_JIT:
        return function
    own = _own_dispatcher()
    if own is None:
        return njit_kernel(function)
    try:
        return own(function, returns_arrays)
    except Exception as error:  # of whatever in Numba has changed
        announce_njit(error)
        return njit_kernel(function)


@cache
def _own_dispatcher() -> Any:
    """Return the class of dispatchers on Numba's inner classes; None if these are missing, or not asked for."""
    if os.environ.get("LSTD_KERNELS") == "njit":
        return None
    try:
        from lstd._kernels.dispatcher import Kernel
    except (ImportError, AttributeError, TypeError) as error:
        announce_njit(error)
        return None
    return Kernel
