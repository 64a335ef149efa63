"""Do the logged actions agree with the probabilities that are said to have chosen them?

If action a was taken with probability p_ta in row t, the mean of 1{a_t = a} − p_ta is zero over any rows chosen by
their probabilities. If only p_t of the logged action is known, the mean of 1{a_t = a} / p_t is the share of the rows in
which a is possible at all: at most 1. In both cases the rows count as independent, because the differences from what is
expected are uncorrelated, whatever the states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lstd.data.checks import check_integer
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError, ProbabilityWarning, warn
from lstd.metrics import Calibration, calibration
from lstd.ope.policies import by_action, check_probabilities, check_sums, logged_probabilities
from lstd.ope.state_action_features import StateActionFeatures
from lstd.trajectories.trajectories import Trajectories

_CHANCE = 1e-3  # of a warning about correct probabilities
_SMALL = 0.05  # relative differences below which there is no warning, however certain they are


def action_calibration(
    actions: Any, behavior_probability: ArrayLike | None = None, n_bins: int = 10, *, labels: Any = None
) -> Calibration:
    """Compare how often actions were logged with the probabilities of the policy that logged them.

    Parameters
    ----------
    actions : Trajectories, or array-like of shape (T,)
        Rows with actions, or the logged actions without those of horizon rows.
    behavior_probability : array-like of shape (T, n_actions) or (T,)
        Probabilities of all actions in each row, or of the logged ones. Those of all actions make a stronger test. By
        default, those of the `Trajectories`.
    n_bins : int, default 10
        Largest number of bins; unused with probabilities of logged actions, where each action is a bin.
    labels : sequence, optional
        Labels of the actions, in the order of the columns; by default 0, 1, ….

    Returns
    -------
    Calibration
        Pairs of a row and an action are in bins by their probability. `predicted` has the mean probability of each bin,
        `observed` how often its actions were taken. With probabilities of logged actions, there is one entry per
        action: 1 in `predicted`, and in `observed` the mean of 1{a_t = a} / p_t over all rows. That should be 1 if the
        action is possible in every row, and is less on average if it is not.

    Raises
    ------
    InvalidInputError
        When a probability is not in [0, 1], the probabilities of a row do not sum to 1, a logged action has probability
        0, or a shape is wrong.

    Warns
    -----
    ProbabilityWarning
        When frequencies differ from probabilities by more than 5 % and more than chance explains. Importance ratios and
        trace coefficients are then wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import action_calibration
    >>> actions = np.array([0, 1, 1, 1] * 50)
    >>> table = action_calibration(actions, np.full((200, 2), [0.25, 0.75]))
    >>> table.predicted.round(2).tolist(), table.observed.round(2).tolist()
    ([0.25, 0.75], [0.25, 0.75])
    """
    names = None if labels is None else np.asarray(labels)
    if isinstance(actions, Trajectories):
        actions, behavior_probability = _transitions(actions, behavior_probability, names)
    given, P = np.asarray(actions), by_action("behavior_probability", behavior_probability, names)
    if P.ndim not in (1, 2) or given.shape != P.shape[:1] or not P.size:
        raise InvalidInputError(
            "`behavior_probability` must have one row for each of the `actions`, shape (T,) or (T, n_actions); got "
            f"{P.shape} for actions of shape {given.shape}."
        )
    if (row := first_true(np.asarray(np.isnan(P).reshape(len(P), -1).any(axis=1)))) is not None:
        raise InvalidInputError(
            f"`behavior_probability` must be known in each row; row {row} has nan. Leave out horizon rows, or pass the "
            "Trajectories instead of `actions`."
        )
    check_probabilities("behavior_probability", P)
    if P.ndim == 2:
        check_sums("behavior_probability", P)
    known = P.shape[1] if labels is None and P.ndim == 2 else np.unique(given) if labels is None else labels
    features = StateActionFeatures(known)
    codes = features.codes(given)
    taken = codes[:, np.newaxis] == np.arange(features.n_actions)
    logged = logged_probabilities(P, np.zeros_like(P), codes)
    if P.ndim == 1:
        table = _of_logged(taken / logged[:, np.newaxis])
    else:
        table = calibration(P.ravel(), taken.ravel() * 1.0, check_integer("n_bins", n_bins, 1))
    _warn_of(table, at_most=P.ndim == 1, labels=features.labels)
    return table


def _transitions(data: Trajectories, behavior_probability: Any, labels: Any) -> tuple[Any, Any]:
    """Return actions and probabilities without those of horizon rows."""
    P = (
        data.behavior_probability
        if behavior_probability is None
        else by_action("behavior_probability", behavior_probability, labels)
    )
    if data.actions is None or P is None or P.shape[:1] != (len(data),):
        raise InvalidInputError(
            f"`actions` must be Trajectories with actions and their probabilities, or give `behavior_probability` with "
            f"{len(data)} rows; got {'no actions' if data.actions is None else 'none' if P is None else P.shape}."
        )
    return data.actions[~data.horizon], P[~data.horizon]


def _of_logged(inverse: Any) -> Calibration:
    """Return one entry for each action from 1{a_t = a} / p_t, (T, n_actions)."""
    ones = np.ones(len(inverse))
    tables = [calibration(ones, column, 1) for column in inverse.T]
    joined = {name: np.concatenate([getattr(one, name) for one in tables]) for name in vars(tables[0])}
    return Calibration(**joined | {"predicted": np.ones(len(tables))})


def _warn_of(table: Calibration, at_most: bool, labels: Any) -> None:
    """Warn of the bin whose frequency differs most from its probability, in standard errors."""
    difference, count = table.observed - table.predicted, len(table.predicted)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A bin in which no action was ever taken has the standard error of its probabilities.
        least = np.sqrt(table.predicted * np.maximum(1.0 - table.predicted, 0.0) / table.count)
        z = difference / np.maximum(table.standard_error, least)
    z = np.where(np.isfinite(z) & (np.abs(difference) > _SMALL * table.predicted), z if at_most else np.abs(z), 0.0)
    worst = int(z.argmax())
    if z[worst] > stats.norm.isf(_CHANCE / (count if at_most else 2 * count)):
        of, p, f = labels[worst] if at_most else "", table.predicted[worst], table.observed[worst]
        found = (
            f"The mean of 1 / `behavior_probability`, counted where action {of} was taken, is {f:.3g} but cannot be "
            "above 1: the probabilities of this action are too low"
            if at_most
            else f"Actions with a `behavior_probability` of {p:.2g} on average were taken in {f:.2g} of the rows"
        )
        warn(
            f"{found}, by {z[worst]:.1f} standard errors. Importance ratios and trace coefficients from them are "
            "wrong: correct the probabilities, or estimate them from the data.",
            ProbabilityWarning,
        )
