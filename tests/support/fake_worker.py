"""A worker whose sweep is a stand-in that leaves a file for each call; `dask worker --preload` calls `dask_setup`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lstd
from fake_experiments import Fakes, _set_for_good


def install(folder: str, seconds: float = 0.0, deadly: str = "", always: bool = False) -> None:
    """Put the stand-in in place for good.

    A call whose name begins with `deadly` kills its process, the first time or always.
    """

    def on_cell(problem: str, features: str, algorithm: list[str], seeds: list[int]) -> None:
        name = f"{problem}-{features}-{algorithm[0]}-{seeds[0]:03d}-{seeds[-1]:03d}"
        earlier = list(Path(folder).glob(f"{name},*"))
        Path(folder, f"{name},{os.getpid()},{time.monotonic_ns()}").touch()
        if deadly and name.startswith(deadly) and (always or not earlier):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)

    Fakes(on_cell=on_cell).install(_set_for_good)


def dask_setup(worker: Any) -> None:
    """Called by a Dask worker before it takes tasks; `FAKE_VERSION` is that of its lstd, or "none"."""
    install(os.environ["FAKE_CALLS"], float(os.environ.get("FAKE_SECONDS", "0")))
    lstd.__version__ = os.environ.get("FAKE_VERSION", lstd.__version__)
    if lstd.__version__ == "none":
        for name in [name for name in sys.modules if name.partition(".")[0] == "lstd"]:
            sys.modules[name] = None  # type: ignore[assignment]
