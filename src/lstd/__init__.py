"""Least-squares temporal-difference prediction.

From sequences of features and rewards, a linear prediction of the discounted sum of future rewards at every step.
Submodules are imported when they are first used:

mrp
    Markov reward processes with exact values, features, simulation.
experiments
    The experiments of Osogami (AAAI-20): sweeps over (λ, α), and all of them in one command.
errors
    Exceptions and warnings.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

_SUBMODULES = ("errors", "experiments", "mrp")


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"lstd.{name}")
    raise AttributeError(f"module 'lstd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES])
