"""Do the logged actions agree with the probabilities that are said to have chosen them?

If action a was taken with probability p_ta in row t, the mean of 1{a_t = a} − p_ta is zero over any rows chosen by
their probabilities, for each action a. (Over all actions of a row, the sum is always zero.) The rows count as
independent, because the differences from what is expected are uncorrelated, whatever the states. If only the
probabilities of logged actions are known, their mean importance ratio tests them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lstd.data.arguments import check_integer
from lstd.data.ids import first_true
from lstd.errors import InvalidInputError, ProbabilityWarning, warn
from lstd.estimators.model_parts import two_digits
from lstd.metrics import Calibration, calibration
from lstd.ope.pairs import StateActionFeatures, by_action, logged_probabilities, one_per_row
from lstd.trajectories.trajectories import Trajectories
from lstd.types import Array

_CHANCE = 1e-3  # of a warning about correct probabilities
_SMALL = 0.05  # relative differences below which there is no warning, however certain they are


@dataclass(frozen=True, eq=False, repr=False)
class ActionCalibration(Calibration):
    """Frequencies of actions against their probabilities: what :func:`action_calibration` returns.

    Attributes
    ----------
    predicted, observed, share, standard_error, count, n_groups : ndarray of shape (n_entries,)
        As in :class:`lstd.metrics.Calibration`, of the rows in a bin by the probability of one action.
    action : ndarray of shape (n_entries,)
        Label of the action.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import action_calibration
    >>> table = action_calibration(np.array(["wait", "treat"] * 50), np.full((100, 2), 0.5), labels=["wait", "treat"])
    >>> table.action.tolist()
    ['wait', 'treat']
    """

    action: NDArray[Any]

    def __repr__(self) -> str:
        off = np.max(np.abs(self.observed - self.predicted))
        n = len(np.unique(self.action))
        return f"ActionCalibration({n} actions, {len(self.action)} bins, largest_difference={two_digits(off)})"


def action_calibration(
    actions: Any, behavior_probability: ArrayLike, n_bins: int = 10, *, labels: Any = None
) -> ActionCalibration:
    """Compare how often actions were logged with the probabilities of the policy that logged them.

    Parameters
    ----------
    actions : Trajectories, or array-like of shape (T,)
        Rows with actions, or the logged actions without those of horizon rows.
    behavior_probability : array-like of shape (T, n_actions)
        Probabilities of all actions in each row.
    n_bins : int, default 10
        Largest number of bins of each action.
    labels : sequence, optional
        Labels of the actions, in the order of the columns; by default 0, 1, ….

    Returns
    -------
    ActionCalibration
        For each action, in the order of the labels, the rows are in bins by its probability. `predicted` has the mean
        probability of each bin, `observed` how often the action was taken, and `action` its label.

    Raises
    ------
    InvalidInputError
        When a probability is not in [0, 1], the probabilities of a row do not sum to 1, a logged action has probability
        0, or a shape is wrong.

    Warns
    -----
    ProbabilityWarning
        When frequencies differ from probabilities by more than 5 % and more than chance explains, of one action or of
        all together. Importance ratios and trace coefficients are then wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import action_calibration
    >>> actions = np.array([0, 1, 1, 1] * 50)
    >>> table = action_calibration(actions, np.full((200, 2), [0.25, 0.75]))
    >>> table.predicted.round(2).tolist(), table.observed.round(2).tolist(), table.action.tolist()
    ([0.25, 0.75], [0.25, 0.75], [0, 1])
    """
    names = None
    if labels is not None:
        names = StateActionFeatures(labels).labels
    P = by_action("behavior_probability", behavior_probability, names)
    if isinstance(actions, Trajectories):
        actions, P = _without_horizon_rows(actions, P)
    logged = one_per_row(actions)
    _check_rows(logged, P)
    features = StateActionFeatures(P.shape[1] if labels is None else labels)
    codes = features.codes(logged)
    logged_probabilities(P, np.zeros_like(P), codes)  # raises for what is no probability
    taken = 1.0 * (codes[:, np.newaxis] == np.arange(features.n_actions))
    bins = check_integer("n_bins", n_bins, 1)
    tables = [calibration(*columns, bins) for columns in zip(P.T, taken.T, strict=True)]
    table = _joined(tables, features.labels)
    pooled = calibration(P.ravel(), taken.ravel(), bins)
    _warn_of_difference(table, pooled)
    return table


def _without_horizon_rows(trajectories: Trajectories, P: Array) -> tuple[NDArray[Any] | None, Array]:
    """Return the actions of full transitions, and the probabilities there."""
    full = ~trajectories.horizon
    if len(P) == len(full):
        P = P[full]
    if trajectories.actions is None:
        return None, P
    return trajectories.actions[full], P


def _check_rows(logged: NDArray[Any], P: Array) -> None:
    """Refuse probabilities that are not those of all actions in each row."""
    if P.ndim != 2 or logged.shape != P.shape[:1] or not P.size:
        raise InvalidInputError(
            "`behavior_probability` must have the probabilities of all actions, (T, n_actions), a row for each of the "
            f"`actions`; got {P.shape} for actions of shape {logged.shape}. For those of logged actions alone, look at "
            "the mean importance ratio, which a printed value of `evaluate_policy` has."
        )
    row = first_true(np.asarray(np.isnan(P).any(axis=1)))
    if row is not None:
        raise InvalidInputError(
            f"`behavior_probability` must be known in each row; row {row} has nan. Leave out horizon rows, or pass the "
            "Trajectories instead of `actions`."
        )


def _joined(tables: list[Calibration], labels: NDArray[Any]) -> ActionCalibration:
    """Return the tables of all actions as one."""
    columns = {}
    for name in vars(tables[0]):
        columns[name] = np.concatenate([getattr(one, name) for one in tables])
    n_bins = [len(one.count) for one in tables]
    return ActionCalibration(**columns, action=np.repeat(labels, n_bins))


def _warn_of_difference(table: ActionCalibration, pooled: Calibration) -> None:
    """Warn of the bin of an action, or of all actions, whose frequency differs most from its probability.

    The number of times that an action is taken, of different probabilities, scatters less than a binomial number of
    their mean. Its tails hold for rare actions too.
    """
    p = np.concatenate([table.predicted, pooled.predicted])
    p = np.clip(p, 0.0, 1.0)
    observed = np.concatenate([table.observed, pooled.observed])
    n = np.concatenate([table.count, pooled.count])
    times = np.rint(observed * n)
    chance = 2.0 * np.minimum(stats.binom.cdf(times, n, p), stats.binom.sf(times - 1.0, n, p))
    difference = np.abs(observed - p)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = difference / np.sqrt(p * (1.0 - p) / n)
    matters = difference > _SMALL * p
    certain = chance < _CHANCE / len(p)
    z = np.where(np.isfinite(z) & matters & certain, z, 0.0)
    worst = int(z.argmax())
    if z[worst]:
        one = "Actions were"
        if worst < len(table.action):
            one = f"Action {table.action[worst]} was"
        warn(
            f"{one} taken in {observed[worst]:.2g} of the rows with a `behavior_probability` of {p[worst]:.2g} on "
            f"average, by {z[worst]:.1f} standard errors. Importance ratios from them are wrong: correct the "
            "probabilities, or estimate them from the data.",
            ProbabilityWarning,
        )
