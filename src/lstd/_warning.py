"""Warnings that point at the line of whoever called `lstd`, however many of its own calls lie between."""

from __future__ import annotations

import sys
import warnings

# Packages whose frames are passed over: ours, those that call an estimator for its user, and wrappers of ours.
_PASSED = {"lstd", "sklearn", "joblib", "functools", "contextlib"}


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning at the innermost line outside of `lstd` and of the tools that run its estimators."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
