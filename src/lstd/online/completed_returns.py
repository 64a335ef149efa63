"""Errors of the predictions of a stream, beside the returns that followed.

A prediction is compared with the rewards of the next `horizon` transitions, and with the prediction made there for what
comes later. If the episode terminates first, it is compared with the rewards alone; if the episode is cut off, with the
prediction at the cut in addition. So which rows have an error never depends on what came after them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import return_window as kernels
from lstd.data.arguments import check_integer
from lstd.online.transition import compiled
from lstd.types import Array

LARGEST = 100_000  # transitions; where γ is 1, and so no part of a return is negligible


def horizon_of(gamma: float, share: float = 0.01) -> int:
    """Return after how many transitions less than a share of the return is left; at most `LARGEST`."""
    if gamma <= 0.0:
        return 1
    return LARGEST if gamma >= 1.0 else max(1, min(LARGEST, math.ceil(math.log(share) / math.log(gamma))))


class CompletedReturns:
    """Window of the last transitions, whose returns are completed one by one, at O(1) per transition.

    Parameters
    ----------
    horizon : int
        Number of transitions after which a return is completed by the prediction there.
    n_columns : int, default 1
        Number of predictions per row, m: of several models of one stream, or of several rewards.

    Examples
    --------
    >>> from lstd.online.completed_returns import CompletedReturns
    >>> window = CompletedReturns(horizon=2)
    >>> [window.add([v], [1.0], 0.5)[:, 0].tolist() for v in (1.0, 2.0, 4.0)]  # 1 − (1 + 0.5 + 0.25 · 4)
    [[], [], [-1.5]]
    >>> window.close()[:, 0].tolist()  # the episode terminates
    [0.5, 3.0]
    """

    def __init__(self, horizon: int, n_columns: int = 1) -> None:
        self.horizon, self.n_columns = check_integer("horizon", horizon, 1), check_integer("n_columns", n_columns, 1)
        self._columns = np.zeros((3, self.horizon, self.n_columns))
        self._factors = np.zeros((2, self.horizon))
        self._tail = np.append(np.zeros(self.n_columns), 1.0)
        self._counts = np.zeros(3, np.int64)
        self._errors = np.zeros((self.horizon, self.n_columns))
        self._waiting: tuple[Any, tuple[Any, ...]] | None = None  # episode and transition of the last of `add_rows`
        self._compile()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()  # a new process compiles its own

    def _compile(self) -> None:
        compiled(kernels, "push")
        compiled(kernels, "close")

    def __len__(self) -> int:
        """Return the number of transitions whose returns are not complete."""
        return int(self._counts[kernels.SIZE])

    def add(
        self, predictions: Any, rewards: Any, discount: float, ratio: float = 1.0, coefficient: float = 1.0
    ) -> Array:
        """Add a transition; returns prediction − return of the row that it completes, (0 or 1, m).

        Parameters
        ----------
        predictions, rewards : array-like of shape (m,)
            Prediction for the row, made before its transition was learned, and reward received on leaving it.
        discount : float
            Discount of the transition; without meaning if the episode ends with it, see :meth:`close`.
        ratio, coefficient : float, default 1.0
            Importance ratio of the transition, and trace coefficient on arrival in its row.
        """
        given = np.ascontiguousarray(predictions, np.float64), np.ascontiguousarray(rewards, np.float64)
        count = kernels.push(*given, float(discount), float(ratio), float(coefficient), *self._state)
        return self._errors[:count].copy()

    def close(self, values: Any = None) -> Array:
        """End the episode after the last transition; returns prediction − return (k, m) of the open rows, oldest first.

        Parameters
        ----------
        values : array-like of shape (m,), optional
            Predictions for the row at which the episode was cut off; 0 if it terminated.
        """
        ahead = np.zeros(self.n_columns) if values is None else np.ascontiguousarray(values, np.float64)
        count = kernels.close(ahead, *self._state)
        return self._errors[:count].copy()

    def add_rows(
        self, predictions: Array, rewards: Array, episode: NDArray[Any], terminated: NDArray[np.bool_], numbers: Array
    ) -> Array:
        """Add rows in time order, whose last one waits for its successor; returns prediction − return, (k, m).

        Parameters
        ----------
        predictions, rewards : array of shape (T, m)
        episode, terminated : array of shape (T,)
            Of an episode that did not terminate, the last row counts as the row at which it was cut off.
        numbers : array of shape (T, 3)
            Discount, ratio and coefficient, as for :meth:`add`.
        """
        errors = [np.empty((0, self.n_columns))]
        for row in zip(predictions, rewards, numbers.tolist(), episode.tolist(), terminated.tolist(), strict=True):
            *transition, about, name, over = row
            if self._waiting is not None:
                before, known = self._waiting
                errors.append(self.add(*known) if before == name else self.close(known[0]))
            self._waiting = None if over else (name, (*transition, *about))
            if over:
                errors += [self.add(*transition, *about), self.close()]
        return np.concatenate(errors)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the arrays of the state."""
        return {"columns": self._columns, "factors": self._factors, "tail": self._tail, "window": self._counts}

    def fits(self) -> bool:
        """Return whether the arrays, read from a file, are a state that can continue."""
        first, size, older = self._counts
        return bool(0 <= first < self.horizon and 0 <= older <= size <= self.horizon)

    @property
    def _state(self) -> tuple[Any, ...]:
        return self._columns, self._factors, self._tail, self._counts, self._errors
