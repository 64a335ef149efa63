"""The machine and the source that numbers were measured on, without anything that identifies a person."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import lstd
from lstd.experiments.reproduce.run import describe_machine as describe

SOURCE = Path(lstd.__file__).parent


def describe_machine() -> dict[str, Any]:
    """Describe the machine as `lstd` does, but with the operating system and the architecture without versions."""
    return describe() | {"platform": f"{platform.system()} {platform.machine()}"}


def printed_by(command: str) -> str:
    """Say what printed a table, when and on what."""
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return f"Printed by `{command}` on {datetime.date.today()}: {os.cpu_count()} cores, {versions}."


def source_digest(folder: Path = SOURCE) -> str:
    """Return the first 12 digits of the SHA-256 of all modules, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def revision(folder: Path = SOURCE) -> str:
    """Return the commit of a checkout, with "-dirty" if files differ from it; otherwise the version of `lstd`."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return found.stdout.strip() or lstd.__version__
