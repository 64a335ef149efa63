"""What a result was computed with: versions, processor, threads. Nothing about the user or their folders."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from lstd.statistics.threads import available_cores
from lstd.version import __version__

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "scikit-learn", "matplotlib", "pyarrow", "typer", "rich")


def describe_machine(n_jobs: int | None = None) -> dict[str, Any]:
    """Describe versions, processor and threads (`n_jobs`; all cores by default) as JSON values.

    >>> sorted(describe_machine(n_jobs=2))
    ['cores', 'cpu', 'lstd', 'numba_threading', 'packages', 'platform', 'python', 'threads']
    """
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "lstd": __version__,
        "python": platform.python_version(),
        "packages": versions,
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "threads": n_jobs or available_cores(),
        "numba_threading": "none: runs are divided among Python threads",
        "platform": platform.platform(),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()
