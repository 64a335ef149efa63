"""Packages that only some sources need, imported when they are first used."""

from __future__ import annotations

from typing import Any

from lstd.errors import MissingExtraError


def import_narwhals() -> Any:
    """Import narwhals; raises MissingExtraError."""
    try:
        import narwhals
    except ImportError as error:
        raise _missing("Reading a data frame", "narwhals", "data") from error
    return narwhals


def import_gymnasium() -> Any:
    """Import gymnasium with its vector environments; raises MissingExtraError."""
    try:
        import gymnasium
        import gymnasium.vector.utils
    except ImportError as error:
        raise _missing("Running an environment or flattening its observations", "gymnasium", "gymnasium") from error
    return gymnasium


def _missing(task: str, package: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f'{task} needs the package {package}. Install it with: pip install "lstd[{extra}]"')
