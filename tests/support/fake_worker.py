"""Dask workers with another version of lstd; ``dask worker --preload`` calls `dask_setup`."""

from __future__ import annotations

import os
import sys
from typing import Any

import lstd


def dask_setup(worker: Any) -> None:
    """Called by a Dask worker before it takes tasks; `FAKE_VERSION` is that of its lstd, or "none"."""
    lstd.__version__ = os.environ["FAKE_VERSION"]
    if lstd.__version__ == "none":
        for name in [name for name in sys.modules if name.partition(".")[0] == "lstd"]:
            sys.modules[name] = None  # type: ignore[assignment]
