"""Exceptions and warnings of `lstd`, and the function that gives warnings.

Every error of the package derives from :class:`LSTDError`, so that ``except lstd.errors.LSTDError`` catches them all;
each also derives from the built-in exception that NumPy and scikit-learn users expect.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection
from weakref import WeakKeyDictionary

# Packages whose frames `warn` skips: this one, and those that call methods of an estimator for the user.
_PASSED = {"lstd", "sklearn", "joblib", "functools", "contextlib", "numpy"}

# What :func:`warn_once` has said of each fitted state. It is not kept in the states, so that copies, pickles and other
# processes begin anew, and that estimators look the same before and after a prediction.
_SAID: WeakKeyDictionary[object, set[tuple[type[Warning], str]]] = WeakKeyDictionary()


class LSTDError(Exception):
    """Base class of every error raised by `lstd`."""


class InvalidInputError(LSTDError, ValueError):
    """Raised when an argument breaks a rule; the message names the argument, the rule, the value and the remedy."""


class InvalidTypeError(InvalidInputError, TypeError):
    """Raised when an array holds objects that are not numbers, or a method has no argument of the name."""


class MissingAttributeError(InvalidInputError, AttributeError):
    """Raised when the data of a fit do not give an attribute, so that `hasattr` is false; the message says why."""


class OutputError(LSTDError, OSError):
    """Raised when a result cannot be written or read; the message names the file."""


class ConfigurationMismatchError(LSTDError):
    """Raised when a results folder was made with another configuration; the message says what differs."""


class MissingExtraError(LSTDError, ImportError):
    """Raised when an optional package is not installed; the message says how to install it."""


def missing_extra(task: str, package: str, extra: str) -> MissingExtraError:
    """Return the error of a task that needs a package of an extra."""
    return MissingExtraError(f'{task} needs the package {package}. Install it with: pip install "lstd[{extra}]"')


class LSTDWarning(UserWarning):
    """Base class of every warning given by `lstd`."""


# ------------------------------------------------------------ kinds of warnings, by what a user does about them


class EndsWarning(LSTDWarning):
    """Given when it is not clear where episodes end and how: correct the flags, the ids or the last rows."""


class ModelWarning(LSTDWarning):
    """Given when the data contradict the model: add features, or change its settings."""


class OffPolicyWarning(LSTDWarning):
    """Given when importance ratios, probabilities or weights leave little to learn from, or are wrong: check them."""


class UndeterminedWarning(LSTDWarning):
    """Given when the data do not determine the weights or the settings: give more data, fewer features or a ridge."""


class RidgeWarning(LSTDWarning):
    """Given when the ridge term decides predictions, or hardly touches some features; the message says how much."""


class UnobservedWarning(LSTDWarning):
    """Given when less than half of the returns was observed, so that a model extrapolates and scores itself."""


class ExtrapolationWarning(LSTDWarning):
    """Given when features go where no row of the fit shows what follows; the message names them, and what to do."""


class ChangeWarning(LSTDWarning):
    """Given when recent errors of a stream are larger than its history allows; the message says what to do."""


class CompilationCacheWarning(LSTDWarning):
    """Given when compiled kernels cannot be read from or written to the cache; they are compiled instead."""


# ------------------------------------------------------------ single reasons, for code that tells them apart


class MissingTerminationWarning(EndsWarning):
    """Given when episodes come without `terminated`; the message says what is assumed."""


class TerminationWarning(EndsWarning):
    """Given when cuts look like ends: nearly all subjects seen last are marked as ended, or many at one length."""


class BrokenEpisodeWarning(EndsWarning):
    """Given when a row differs from the successor given for the row before it, in the same episode."""


class UnusedRewardWarning(EndsWarning):
    """Given when rewards of last rows are not used, because their successor is unknown; the message says how many."""


class BiasWarning(ModelWarning):
    """Given when bootstrapping biases predictions; the message says by how much, and what to do."""


class MisfitWarning(ModelWarning):
    """Given when returns depend on the features, or on rewards before, in ways that the model does not follow."""


class BoundsWarning(ModelWarning):
    """Given when predictions are outside of what the rewards allow; the message says how far, and what to do."""


class PanelWarning(ModelWarning):
    """Given when a log of events has one in nearly each step, so that the first ones are like the others."""


class EffectiveSampleWarning(OffPolicyWarning):
    """Given when a few products of importance ratios decide the weights, or a few groups a range; with their number."""


class ProbabilityWarning(OffPolicyWarning):
    """Given when logged actions are more or less frequent than their probabilities say; the message says how much."""


class SupportWarning(OffPolicyWarning):
    """Given when the mean importance ratio is not one; the message says where, by how much, and what to do."""


class IllConditionedWarning(UndeterminedWarning):
    """Given when the linear system of a model is singular or ill-conditioned.

    The message has its condition number. The iterative solver knows none, and only says that no end is reached at a
    `gamma` of 1. Systems that checks solve beside that of the model give no warning: a check that cannot be computed
    raises, and what it found has its own warning.
    """


class NothingToChooseWarning(UndeterminedWarning):
    """Given when the data do not determine a choice of settings; the message says why, and which are used."""


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning at the user's line: the innermost one outside of `lstd` and of the tools that run its estimators.

    Parameters
    ----------
    message : str
        No warning is given if it is empty.
    category : type
        A subclass of LSTDWarning, or one of scikit-learn.
    """
    if not message:
        return
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def carry_said(before: object, after: object) -> None:
    """Take what :func:`warn_once` has said of a fitted state as said of the next one of its stream."""
    said = _SAID.get(before)
    if said is not None:
        _SAID[after] = set(said)  # a copy: copies of an estimator share a state, and may go on apart


def unsaid(state: object, category: type[Warning], features: Collection[str]) -> list[str]:
    """Return the features, in order, of which no warning of this category was given for a fitted state."""
    said = _SAID.get(state, set())
    return [name for name in features if (category, name) not in said]


def warn_once(state: object, message: str, category: type[Warning], features: Collection[str] = ("",)) -> None:
    """Give a warning as :func:`warn` does, unless one of its category was given for the fitted state.

    Parameters
    ----------
    state : object
        What was fitted, of which weak references can be made. The warning comes again for another state, unless
        :func:`carry_said` says that it continues the same stream.
    message : str
        No warning is given if it is empty.
    category : type
    features : collection of str, optional
        Names of what the warning is about: it comes again if it is about another one.
    """
    if not message or not unsaid(state, category, features):
        return
    warn(message, category)  # raises if warnings are errors, each time
    said = _SAID.setdefault(state, set())
    said.update((category, name) for name in features)
