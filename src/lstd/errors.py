"""Exceptions and warnings of `lstd`, and how warnings are given.

Every error of the package derives from :class:`LSTDError`, so that ``except lstd.errors.LSTDError`` catches them all;
each also derives from the built-in exception that NumPy and scikit-learn users expect.
"""

from __future__ import annotations

import sys
import warnings

# Packages whose frames are skipped: this one, and those that call an estimator or its methods for the user.
_PASSED = {"lstd", "sklearn", "joblib", "functools", "contextlib"}


class LSTDError(Exception):
    """Base class of every error raised by `lstd`."""


class InvalidInputError(LSTDError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule, the value and the remedy."""


class InvalidTypeError(InvalidInputError, TypeError):
    """An array holds objects that are not numbers."""


class OutputError(LSTDError, OSError):
    """A result could not be written or read; the message names the file."""


class ConfigurationMismatchError(LSTDError):
    """A results folder was made with another configuration; the message says what differs."""


class MissingExtraError(LSTDError, ImportError):
    """A package that a part of `lstd` needs is not installed; the message says how to install it."""


class LSTDWarning(UserWarning):
    """Base class of every warning given by `lstd`."""


class CompilationCacheWarning(LSTDWarning):
    """Compiled kernels could not be read from or written to the cache; they were compiled instead."""


class IllConditionedWarning(LSTDWarning):
    """The linear system is singular or ill-conditioned; the message gives its condition number and the remedy."""


class MissingTerminationWarning(LSTDWarning):
    """Episodes were given without saying which of them terminated; the message says what was assumed."""


class LostDigitsWarning(LSTDWarning):
    """A recursion had lost digits; its inverse was computed anew from the sums over the data."""


class BrokenEpisodeWarning(LSTDWarning):
    """A transition does not leave the row that the one before it, of the same episode, led to."""


class BiasWarning(LSTDWarning):
    """Bootstrapping biases a model's predictions; the message says by how much, and what to do."""


class NothingToChooseWarning(LSTDWarning):
    """The data cannot tell settings apart; the message says why, and which were taken."""


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning at the innermost line outside of `lstd` and of the tools that run its estimators."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
