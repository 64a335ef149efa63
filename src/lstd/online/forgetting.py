"""Choice of the rate of forgetting from a stream, among recursions that run side by side.

Each recursion's predictions are compared with the returns that follow, completed where less than 1 % of a return is
left. Squared errors are averaged over blocks of 1/(1 − γ) transitions, as the errors
of neighbouring rows share most of their returns. With d_j the mean of block j for no forgetting minus that of a rate f,
and weights ρ^j with which about the last hundred blocks count, f is eligible if

    mean(d) > 3 √(Var(d) / n_eff),   n_eff = (Σ ρ^j)² / Σ ρ^2j − 1,

and predictions come from the eligible rate with the smallest mean error. Without the test, chance would choose a
shorter memory too often in a stream that does not change. With a short memory, the system of Boyan's estimator is
nearly singular at single rows, and predictions there are far off. Wherever reading the weights out would multiply
errors by more than MOST_GROWTH, the prediction of the next longer memory takes their place.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd._kernels import return_window as kernels
from lstd.data.arguments import check_integer, check_real
from lstd.errors import InvalidInputError
from lstd.online.one_transition import Row, Transition, compiled
from lstd.online.recursion import Recursion
from lstd.types import Array

LENGTHS = (1.0, 5.0, 25.0, 125.0)  # of the memories, in units of n or 1/(1 − γ), whichever is larger
SHORTEST = 2.0  # transitions in such a unit: one would leave nothing but the last transition
BLOCKS = 100.0  # that count in the choice
ERRORS = 3.0  # standard errors by which a rate must be better than no forgetting
MOST_GROWTH = 10.0  # of errors, with which weights are read out; above it, single predictions are far off
FEWEST = 3.0  # effective number of blocks before the first choice
LONGEST = 10_000.0  # transitions taken for 1/(1 − γ) where γ is 1

LARGEST = 100_000  # transitions; where γ is 1, and so no part of a return is negligible


def horizon_of(gamma: float, share: float = 0.01) -> int:
    """Return after how many transitions less than a share of the return is left; at most `LARGEST`."""
    if gamma <= 0.0:
        return 1
    if gamma >= 1.0:
        return LARGEST
    n_transitions = math.ceil(math.log(share) / math.log(gamma))
    return max(1, min(LARGEST, n_transitions))


class CompletedReturns:
    """Window of the last transitions, whose returns are completed one by one, at O(1) per transition.

    A return is completed by the prediction `horizon` transitions later. A row has several predictions, m: of several
    models of one stream, or of several rewards.

    Examples
    --------
    >>> from lstd.online.forgetting import CompletedReturns
    >>> window = CompletedReturns(horizon=2)
    >>> [window.add([v], [1.0], 0.5)[:, 0].tolist() for v in (1.0, 2.0, 4.0)]  # 1 − (1 + 0.5 + 0.25 · 4)
    [[], [], [-1.5]]
    >>> window.close()[:, 0].tolist()  # the episode terminates
    [0.5, 3.0]
    """

    def __init__(self, horizon: int, n_columns: int = 1) -> None:
        self.horizon = check_integer("horizon", horizon, 1)
        self.n_columns = check_integer("n_columns", n_columns, 1)
        self._columns = np.zeros((3, self.horizon, self.n_columns))
        self._factors = np.zeros((2, self.horizon))
        self._tail = np.append(np.zeros(self.n_columns), 1.0)
        self._counts = np.zeros(3, np.int64)
        self._errors = np.zeros((self.horizon, self.n_columns))

    def __len__(self) -> int:
        """Return the number of transitions whose returns are not complete."""
        return int(self._counts[kernels.SIZE])

    def add(
        self, predictions: ArrayLike, rewards: ArrayLike, discount: float, ratio: float = 1.0, coefficient: float = 1.0
    ) -> Array:
        """Add a transition; returns prediction − return of the row that it completes, (0 or 1, m).

        `predictions` (m,) were made before the transition was learned; `rewards` (m,) are received on it. The discount
        has no meaning if the episode ends with it, see :meth:`close`. The coefficient is that on arrival in its row.
        """
        compiled(kernels, "push")
        values = np.ascontiguousarray(predictions, np.float64)
        received = np.ascontiguousarray(rewards, np.float64)
        count = kernels.push(values, received, float(discount), float(ratio), float(coefficient), *self._state)
        return self._errors[:count].copy()

    def close(self, values: ArrayLike | None = None) -> Array:
        """End the episode after the last transition; returns prediction − return (k, m) of the open rows, oldest first.

        `values` (m,) are the predictions for the row at which it was cut off; without them it terminated.
        """
        compiled(kernels, "close")
        ahead = np.zeros(self.n_columns)
        if values is not None:
            ahead = np.ascontiguousarray(values, np.float64)
        count = kernels.close(ahead, *self._state)
        return self._errors[:count].copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the arrays of the state."""
        return {"columns": self._columns, "factors": self._factors, "tail": self._tail, "window": self._counts}

    def fits(self) -> bool:
        """Return whether the arrays, read from a file, are a state that can continue."""
        first, size, older = self._counts
        return bool(0 <= first < self.horizon and 0 <= older <= size <= self.horizon)

    @property
    def _state(self) -> tuple[Array, Array, Array, NDArray[np.int64], Array]:
        return self._columns, self._factors, self._tail, self._counts, self._errors


def check_rates(forgetting: float | str, n_features: int, gamma: float) -> tuple[float, ...]:
    """Check `forgetting` and return its rate, or those that "auto" tries, the last of which forgets nothing."""
    if not isinstance(forgetting, str):
        return (check_real("forgetting", forgetting, 0.0, 1.0, open_low=True),)
    if forgetting != "auto":
        raise InvalidInputError(f'`forgetting` must be a number in (0, 1] or "auto"; got {forgetting!r}.')
    unit = max(SHORTEST, float(n_features), _unit(gamma))
    return (*(1.0 - 1.0 / (length * unit) for length in LENGTHS), 1.0)


def _unit(gamma: float) -> float:
    """Return 1/(1 − γ) transitions, at most `LONGEST`."""
    if gamma >= 1.0:
        return LONGEST
    return min(LONGEST, 1.0 / (1.0 - gamma))


class Choice(NamedTuple):
    """State of a choice of the rate, e rates and m rewards."""

    about: Annotated[NDArray[np.int64], "2"]  # rows of the block so far, and which recursion is chosen
    squares: Annotated[Array, "e m"]  # sum of squared errors over the block so far
    sums: Annotated[Array, "3 e m"]  # over blocks: loss, d, d²
    blocks: Annotated[Array, "2"]  # Σ ρ^j, Σ ρ^2j
    columns: Annotated[Array, "3 h o"]  # of the window, as the others
    factors: Annotated[Array, "2 h"]
    tail: Annotated[Array, "t"]
    window: Annotated[NDArray[np.int64], "3"]


class RateBank:
    """Recursions that learn one stream at several rates of forgetting, and which of them is read.

    They are in order of their rates; the last one forgets nothing, and errors of each reward count relative to its
    errors. From `gamma` follow the horizon and the length of blocks.
    """

    def __init__(self, models: list[Recursion], gamma: float) -> None:
        n_models = len(models)
        m = models[0].m
        self.models = models
        self._window = CompletedReturns(horizon_of(gamma), n_models * m)
        self._length = max(1, round(_unit(gamma)))  # of a block
        self.state = Choice(
            np.array([0, n_models - 1]),
            np.zeros((n_models, m)),
            np.zeros((3, n_models, m)),
            np.zeros(2),
            *self._window.arrays().values(),
        )

    @property
    def chosen(self) -> Recursion:
        """The recursion that is read."""
        return self._read_from(int(self.state.about[1]))

    def _read_from(self, k: int) -> Recursion:
        """Return what is read for the k-th recursion: itself, or near a singular system the next that forgets less."""
        while k < len(self.models) - 1 and self.models[k].growth() > MOST_GROWTH:
            k += 1
        return self.models[k]

    def predictions(self, x: Row) -> Array:
        """Return the predictions for a row with each rate, (models · rewards,)."""
        values = np.empty((len(self.models), self.models[0].m))
        for k, (model, own) in enumerate(zip(self.models, values, strict=True)):
            if not model.predict(x, own, MOST_GROWTH):
                self._read_from(k).predict(x, own)
        return values.reshape(-1)

    def note(self, before: Array, given: Transition) -> None:
        """Compare predictions, made before a transition, with returns."""
        rewards = np.concatenate([given.rewards] * len(self.models))
        self._add(self._window.add(before, rewards, given.discount, given.ratio, given.coefficient))
        if given.terminated:
            self._add(self._window.close())

    def cut_off(self, x: Array) -> None:
        """Cut the episode off at the features `x` (n,) of the last successor."""
        if len(self._window):
            self._add(self._window.close(self.predictions(x)))

    def _add(self, errors: Array) -> None:
        """Add errors of rows in time order, (k, models · rewards); chooses again after each block."""
        for error in errors.reshape(-1, *self.state.squares.shape):
            self.state.squares[:] += error * error
            self.state.about[0] += 1
            if self.state.about[0] == self._length:
                self._choose()

    def _choose(self) -> None:
        """Finish the block, and choose."""
        about, squares, sums, counts = self.state[:4]
        fade = 1.0 - 1.0 / BLOCKS
        loss = squares / self._length
        d = loss[-1] - loss
        squares[:] = 0.0
        about[0] = 0
        sums[:] = fade * sums + np.stack([loss, d, d * d])
        counts[:] = counts * [fade, fade * fade] + 1.0
        effective = counts[0] ** 2 / counts[1]
        if effective < FEWEST:
            return
        loss, d, second = sums / counts[0]
        scale = np.where(loss[-1] > 0.0, loss[-1], 1.0)
        error = np.sqrt(np.maximum(second - d * d, 0.0) / (effective - 1.0))
        better = ((d - ERRORS * error) / scale).sum(axis=1) > 0.0
        better[-1] = True
        about[1] = np.argmin(np.where(better, (loss / scale).sum(axis=1), np.inf))

    def restore(self, state: Choice) -> None:
        """Go on from a state; raises ValueError unless it fits."""
        for view, array in zip(self.state, state, strict=True):
            if view.shape != array.shape:
                raise ValueError("the state of its choice of a rate does not fit")
            view[...] = array
        about = self.state.about
        if not (0 <= about[0] < self._length and 0 <= about[1] < len(self.models) and self._window.fits()):
            raise ValueError("its choice of a rate has values out of range")
