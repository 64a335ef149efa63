"""What numbers were measured on: the machine and the source, and nothing about whose they are."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Any

import lstd
from lstd.experiments.provenance import describe_machine as describe

SOURCE = Path(lstd.__file__).parent


def describe_machine() -> dict[str, Any]:
    """As `lstd` describes it, with the operating system and the architecture only, not their versions."""
    return describe() | {"platform": f"{platform.system()} {platform.machine()}"}


def source_digest(folder: Path = SOURCE) -> str:
    """First 12 digits of the SHA-256 of all modules' bytes, in the order of their paths within the folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
