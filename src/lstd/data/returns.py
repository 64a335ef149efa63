"""Discounted returns: how each is completed where its episode was cut off, and with which weight its row is scored.

Backwards over an episode, with values v, discounts g, importance ratios ρ and u the share of v(last row) in G,

    G_t = v_t + ρ_t (r_{t+1} + g_{t+1} ((1 − λ_{t+1}) v_{t+1} + λ_{t+1} G_{t+1}) − v_t),   u_t = g_{t+1} u_{t+1},

with λ_t = c_t λ for a trace coefficient c_t. What c_{t+1} < 1 takes from G_{t+1} counts as not observed.
A horizon row, the last one of an episode that did not terminate, has G = v and u = 1; a row that terminates has G = r
and u = 0. With λ = 1 and ρ = 1, G_t is the observed return and u_t v(horizon row): γ^h of it, with h transitions left.

An episode that terminated early is always observed whole, one that was cut off never is. So rows whose return was
observed are a sample that depends on the outcome. `UNOBSERVED` lists which rows can be scored:

predict     every row but horizon rows
ipcw        rows whose return was observed, weighted by the inverse probability that it was
drop        the same rows with weight one, which is right only if all episodes terminated, or none did

The prediction at the cut completes the returns: in the last two only what is below a tolerance.

Weights of "ipcw" come from the Kaplan-Meier curve of the ages at which episodes are cut (Robins and Rotnitzky 1992):
S(a) is the probability that an episode is cut after age a, in steps since its first row. An episode that terminates at
age a is at risk of cuts before a. Each episode counts once, whatever the weights of its rows, as cuts are taken to
depend on nothing else. A return from age a is complete at k, the age where the episode terminates or that is H steps
later, γ^H below the tolerance. Its row has the weight S(a)/S(k−). If no episode has more rows than one that was cut at
age L, S is zero from L on: rows with a + H > L might never be complete, and none of them is scored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_banded

from lstd.data.arguments import check_choice, check_real
from lstd.data.rows import Rows, cut_off
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags

UNOBSERVED = ("predict", "ipcw", "drop")
TOLERANCE = 0.01  # a return is complete if the unobserved share is below


def discounted_returns(
    y: ArrayLike,
    discount: ArrayLike,
    last: ArrayLike,
    terminated: ArrayLike,
    values: ArrayLike = 0.0,
) -> tuple[Array, Array]:
    """Compute discounted returns of rows in time order, (T,) or (T, m), and the share of each not observed, (T,).

    `last` and `terminated` say whether a row is the last one of its episode, as the last of all is, and whether its
    successor is terminal. A last row that is not terminated is a horizon row: its reward is ignored, its return is that
    of `values`, broadcast to the shape of `y`, and its unobserved share 1.

    Examples
    --------
    >>> from lstd.data.returns import discounted_returns
    >>> returns, unobserved = discounted_returns([1.0, 1.0, 0.0], 0.5, [False, False, True], [False, False, False])
    >>> returns.tolist(), unobserved.tolist()
    ([1.5, 1.0, 0.0], [0.25, 0.5, 1.0])
    """
    rewards = np.asarray(y, dtype=np.float64)
    ends = np.array(last, dtype=np.bool_)
    ends[-1:] = True
    is_terminated = np.asarray(terminated, dtype=np.bool_)
    horizon = cut_off(ends, is_terminated)
    n_rows = len(rewards)
    of_one_reward = rewards.reshape(n_rows, math.prod(rewards.shape[1:]))
    completion = np.broadcast_to(values, rewards.shape).reshape(of_one_reward.shape)
    known = np.where(horizon[:, np.newaxis], completion, of_one_reward)
    discounts = np.broadcast_to(discount, n_rows)
    both = np.column_stack([known, horizon])
    sums = run_backwards(both, discounts, ends)
    returns = sums[:, :-1].reshape(rewards.shape)
    return np.asarray(returns), np.asarray(sums[:, -1])


def completed_returns(rows: Rows, values: Array, ahead: Array | None = None, lmbda: float = 1.0) -> Array:
    """Compute λ-returns (T, m) of checked rows from the values of rows and, with `X_next`, of successors (T, m)."""
    if ahead is None:
        last = values[-1:]  # of which nothing depends
        ahead = np.vstack([values[1:], last])
    ends = rows.ends
    decay = lmbda * following_coefficients(rows)
    share = np.where(ends, 1.0, 1.0 - decay)  # of the value ahead
    bootstrap = share * rows.discount
    ratios = rows.importance_ratio[:, np.newaxis]
    one_step = rows.y + bootstrap[:, np.newaxis] * ahead
    known = ratios * one_step + (1.0 - ratios) * values
    known[~rows.full] = values[~rows.full]
    factor = decay * rows.importance_ratio * rows.discount
    return run_backwards(known, factor, ends)


def following_coefficients(rows: Rows) -> Array:
    """Return the trace coefficient of the row after each row, (T,); the last one is never used."""
    return np.append(rows.trace_coefficient[1:], 1.0)


def unobserved_shares(rows: Rows) -> Array:
    """Compute the share (T,) of each row's return that lies behind a cut."""
    ends = rows.ends
    kept = np.minimum(following_coefficients(rows), 1.0)
    at_end = np.where(rows.full, rows.discount, 1.0)
    within = (1.0 - kept) * rows.discount
    known = np.where(ends, at_end, within)
    shares = run_backwards(known[:, np.newaxis], kept * rows.discount, ends)
    return shares[:, 0]


def run_backwards(known: Array, factor: Array, ends: Flags) -> Array:
    """Solve s_t = known_t + factor_t s_{t+1}, without the second term in rows at `ends`."""
    if len(known) < 2:
        return known
    continued = np.where(ends, 0.0, factor)
    bands = np.ones((2, len(known)))  # the diagonal above the main one, and the main one
    bands[0, 1:] = -continued[:-1]
    sums: Array = solve_banded(
        (0, 1),
        bands,
        known,
        overwrite_ab=True,
        overwrite_b=True,
        check_finite=False,
    )
    return sums


# ------------------------------------------------------------ inverse probability of censoring


class Cuts:
    """Kaplan-Meier curve S of the ages at which episodes are cut off, from their transitions `lengths`, (n_episodes,).

    Attributes
    ----------
    reach : float
        Age from which S is zero; infinite if an episode has more rows than all that were cut.
    """

    def __init__(self, lengths: NDArray[np.int64], terminated: Flags) -> None:
        lengths_of_cut = lengths[~terminated]
        self._ages, n_cut = np.unique(lengths_of_cut, return_counts=True)
        n_not_longer = np.searchsorted(np.sort(lengths), self._ages, side="right")
        n_longer = len(lengths) - n_not_longer
        if len(self._ages) and lengths.max() <= self._ages[-1] + 1:
            n_longer[-1] = 0  # of as many rows as one that was cut: in a log that ends there, none is seen to go on
        goes_on = n_longer / (n_longer + n_cut)  # share of those at risk
        self._survival = np.append(1.0, np.cumprod(goes_on))
        self.reach = np.inf
        if self._survival[-1] == 0.0:
            self.reach = float(self._ages[-1])

    def after(self, age: NDArray[np.int64]) -> Array:
        """Return S(age), the probability of a cut after an age."""
        n_before = np.searchsorted(self._ages, age, side="right")
        return self._survival[n_before]

    def not_before(self, age: NDArray[np.int64]) -> Array:
        """Return S(age−), the probability of no cut before an age."""
        n_before = np.searchsorted(self._ages, age, side="left")
        return self._survival[n_before]

    def check_reach(self, needed: float) -> None:
        """Raise InvalidInputError if no return of `needed` steps can be complete with a probability above zero."""
        if needed <= self.reach:
            return
        steps = f"over {needed:g} steps"
        remedy = 'Use "predict", or raise `tolerance`.'
        if needed == np.inf:
            steps = "to the end of the episode"
            remedy = 'Use "predict".'
        raise InvalidInputError(
            '`unobserved` "ipcw" needs complete returns of long episodes too. Those must be observed '
            f"{steps}, but episodes are cut off after {self.reach:g} steps at the latest. {remedy}"
        )


def steps_to_complete(discount: float, tolerance: float) -> float:
    """Return the least number of steps H ≥ 1 with discount^H below the tolerance; infinite if there is none."""
    if discount >= 1.0:
        return np.inf
    if discount <= 0.0:
        return 1.0
    steps = np.log(tolerance) / np.log(discount)  # at which the discount is equal to the tolerance
    n_not_below = np.floor(steps * (1 + 1e-12))
    return float(max(1, n_not_below + 1))


# ------------------------------------------------------------ which rows are scored


def check_treatment(unobserved: str, tolerance: float) -> float:
    """Check the treatment of unobserved returns and its tolerance; returns the tolerance."""
    check_choice("unobserved", unobserved, UNOBSERVED)
    return check_real("tolerance", tolerance, 0.0, 1.0, open_low=True)


def check_unbiased(n_complete: int, n_incomplete: int, n_terminated: int) -> None:
    """Raise InvalidInputError if rows with complete returns are a biased sample, for "drop"."""
    if n_incomplete and n_terminated:
        raise InvalidInputError(
            f'`unobserved` "drop" must have episodes that all terminated or were all cut off; {n_terminated} '
            f"terminated, and {n_incomplete} of {n_complete + n_incomplete} rows have returns that were cut off. The "
            'complete returns are a biased sample: all that ended early are kept. Use "predict".'
        )


def _ages(rows: Rows) -> tuple[NDArray[np.int64], ...]:
    """Return the age of each row, (T,), the transitions of each episode, and the number of each row's episode, (T,)."""
    last = np.flatnonzero(rows.ends)
    episode: NDArray[np.int64] = np.cumsum(rows.ends) - rows.ends
    first = np.append(0, last[:-1] + 1)
    age = np.arange(len(rows)) - first[episode]
    length = (age + rows.full)[last]
    return age, length, episode


def row_weights(
    rows: Rows,
    unobserved: str,
    shares: Array,
    tolerance: float,
    needed: float | None = None,
) -> Array:
    """Compute the weight (T,) of each row in a score, zero for rows that are not scored; see the module.

    `shares`, (T,), are those of the returns that were not observed. With "ipcw" a return is complete after `needed`
    steps; by default what follows them is below the tolerance.

    Raises
    ------
    InvalidInputError
        With "drop" if some episodes terminated and others were cut off; with "ipcw" if no return can be complete.
    """
    full = rows.full
    if unobserved == "predict" or not full.any():
        return np.asarray(full, np.float64)
    if unobserved == "drop":
        complete = full & (shares < tolerance)
        incomplete = full & ~complete
        check_unbiased(
            n_complete=int(complete.sum()),
            n_incomplete=int(incomplete.sum()),
            n_terminated=int(rows.terminated.sum()),
        )
        return np.asarray(complete, np.float64)
    if needed is None:
        largest = float(rows.discount[full].max())
        needed = steps_to_complete(largest, tolerance)
    return full * _inverse_probabilities(rows, needed)


def _inverse_probabilities(rows: Rows, needed: float) -> Array:
    """Return S(a)/S(k−), (T,), of returns that are complete after `needed` steps, and 0 for the others."""
    age, length, episode = _ages(rows)
    terminated = rows.terminated[rows.ends]
    cuts = Cuts(length, terminated)
    cuts.check_reach(needed)
    complete_at = age + needed
    is_observed = terminated[episode] | (complete_at <= length[episode])
    complete = is_observed & (complete_at <= cuts.reach)
    until = np.minimum(complete_at, length[episode])
    survival_now = np.where(complete, cuts.after(age), 0.0)  # S(a)
    survival_then = np.where(complete, cuts.not_before(until), 1.0)  # S(k−)
    return survival_now / survival_then


@dataclass(frozen=True, eq=False)
class ObservedReturns:
    """Discounted returns of rows, as they are compared with predictions.

    Attributes
    ----------
    returns : ndarray of shape (T,) or (T, m)
        Discounted sum of the rewards from each row to the end of its episode, or to the cut, where it is completed.
    unobserved : ndarray of shape (T,)
        Share of the return behind the cut: γ^h with h transitions left, 0 if the episode terminated.
    weight : ndarray of shape (T,)
        Weight of the row in a score; 0 if it is not scored.
    completion : ndarray of shape (T,) or (T, m)
        Value at the cut that completes the return; without meaning if `unobserved` is 0.

    Examples
    --------
    >>> from lstd.metrics import observed_returns
    >>> found = observed_returns([1.0, 1.0, 0.0], gamma=0.5, prediction=[2.0, 2.0, 4.0])  # cut off before the last row
    >>> found.returns.tolist(), found.unobserved.tolist(), found.completion.tolist()
    ([2.5, 3.0, 4.0], [0.25, 0.5, 1.0], [4.0, 4.0, 4.0])
    """

    returns: Array
    unobserved: Array
    weight: Array
    completion: Array

    @classmethod
    def whole(cls, returns: Array) -> ObservedReturns:
        """Return complete returns of weight 1."""
        nothing = np.zeros(len(returns))
        return cls(returns, nothing, nothing + 1.0, nothing)

    def of_reward(self, j: int) -> ObservedReturns:
        """Select one of m rewards."""
        n_rows = len(self.weight)
        returns = self.returns.reshape(n_rows, -1)[:, j]
        completion = self.completion.reshape(n_rows, -1)[:, j]
        return replace(self, returns=returns, completion=completion)

    def scores(self, prediction: Array, weight: Array | None = None) -> tuple[Array, Array]:
        """Compute R² and the mean squared error of predictions (T,) or (T, m) over the scored rows, (m,) each.

        R² is NaN where all returns are equal. `weight` (T,) are other weights of these rows. Raises InvalidInputError
        on overflow.
        """
        scored = self.weight > 0.0
        m = prediction.size // len(prediction)
        if weight is None:
            weight = self.weight
        weight = weight[scored]
        returns = self.returns.reshape(-1, m)[scored]
        values = prediction.reshape(-1, m)[scored]
        unknown = np.full(m, np.nan)
        if not len(returns):
            return unknown, unknown.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(returns, axis=0, weights=weight)
            error = returns - values
            mse = np.average(error**2, axis=0, weights=weight)
            deviation = returns - mean
            spread = np.average(deviation**2, axis=0, weights=weight)
            least = returns.min(axis=0)
            differ = least < returns.max(axis=0)
            r2 = 1.0 - np.divide(mse, spread, out=unknown, where=differ)
        if not np.isfinite(mse).all() or np.isinf(r2).any():
            raise InvalidInputError(
                "The squares of returns or of errors must not be beyond 1e308. Scale the rewards down, or look for "
                "huge values."
            )
        return r2, mse

    @property
    def share(self) -> float:
        """Share of the discounted weight of the scored rows that was observed; 0 if there are none."""
        total = self.weight.sum() or 1.0
        is_observed = 1.0 - self.unobserved
        return float(self.weight @ is_observed / total)


def observed(
    rows: Rows,
    values: Array,
    ahead: Array | None = None,
    *,
    unobserved: str = "predict",
    tolerance: float = TOLERANCE,
) -> ObservedReturns:
    """Compute returns of checked rows, completed by `values` of rows and, with `X_next`, `ahead` of successors, (T, m).

    Raises InvalidInputError where `unobserved` has no answer.
    """
    shares = unobserved_shares(rows)
    weight = row_weights(rows, unobserved, shares, tolerance) * rows.weight
    returns = completed_returns(rows, values, ahead)
    if ahead is None:
        ahead = values
    completion = ahead[_end_of_each(rows.ends)]
    if rows.single:
        returns = returns[:, 0]
        completion = completion[:, 0]
    return ObservedReturns(returns, shares, weight, completion)


def _end_of_each(ends: Flags) -> NDArray[np.intp]:
    """Return the row, (T,), with which the future of each row ends."""
    places = np.flatnonzero(ends)
    n_before: NDArray[np.intp] = np.cumsum(ends) - ends  # of ends
    return places[n_before]


@np.errstate(over="ignore", invalid="ignore")
def mean_squared_residual(rows: Rows, values: Array, ahead: Array | None = None) -> Array:
    """Compute the mean square over full rows of returns, completed as by :func:`observed`, less values, (m,)."""
    residual = completed_returns(rows, values, ahead) - values
    weight = rows.full * rows.weight
    square: Array = np.average(residual**2, axis=0, weights=weight)
    return square


def horizon_returns(rows: Rows, curve: Array, horizon: int, unobserved: str = "predict") -> ObservedReturns:
    """Compute the returns of the next `horizon` steps of checked rows, completed where an episode was cut off.

    A horizon row that is reached after k steps completes them by its prediction for the steps that are left, of
    `curve` (horizon, T, m). The share not observed is that of these steps, discounted. Raises as `observed` does.
    """
    full = rows.full[:, np.newaxis]
    within = np.where(rows.last, 0.0, rows.discount)
    discount = within[:, np.newaxis]
    n_rows = len(rows)
    one = np.ones((n_rows, 1))
    nothing = np.zeros((n_rows, 1))
    known = np.hstack([rows.y, one, nothing])  # the reward, and a step that is observed
    sums = np.zeros_like(known)  # of rewards, and of steps that are observed and not
    to_go = 0.0
    for values in curve[:horizon]:
        to_go = 1.0 + rows.gamma * to_go
        at_cut = np.hstack([values, nothing, to_go * one])
        later = np.vstack([sums[1:], sums[:1]])
        sums = np.where(full, known + discount * later, at_cut)

    seen = sums[:, -2]
    hidden = sums[:, -1]
    shares = hidden / np.maximum(seen + hidden, 1e-300)
    of_treatment = row_weights(rows, unobserved, shares, TOLERANCE, float(horizon))
    weight = of_treatment * rows.weight
    returns = sums[:, :-2]
    completion = curve[horizon - 1][_end_of_each(rows.last)]
    if rows.single:
        returns = returns[:, 0]
        completion = completion[:, 0]
    return ObservedReturns(returns, shares, weight, completion)
