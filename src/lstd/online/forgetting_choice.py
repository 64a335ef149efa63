"""Choice of the rate of forgetting from a stream, among recursions that run side by side.

Each recursion's predictions are compared with the returns that follow, completed where less than 1 % of a return is
left (`lstd.online.completed_returns`). Squared errors are averaged over blocks of 1/(1 − γ) transitions, as the errors
of neighbouring rows share most of their returns. With d_j the mean of block j for no forgetting minus that of a rate f,
and weights ρ^j with which about the last hundred blocks count, f is eligible if

    mean(d) > 3 √(Var(d) / n_eff),   n_eff = (Σ ρ^j)² / Σ ρ^2j − 1,

and predictions come from the eligible rate with the smallest mean error. Without the test, chance would choose a
shorter memory too often in a stream that does not change. With a short memory, the system of Boyan's estimator is
nearly singular at single rows, and predictions there are far off. Wherever reading the weights out would multiply
errors by more than MOST_GROWTH, the prediction of the next longer memory takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_flag
from lstd.online.completed_returns import CompletedReturns, horizon_of
from lstd.online.snapshot import not_a_snapshot
from lstd.types import Array

LENGTHS = (1.0, 5.0, 25.0, 125.0)  # of the memories, in units of n or 1/(1 − γ), whichever is larger
SHORTEST = 2.0  # transitions in such a unit: one would leave nothing but the last transition
BLOCKS = 100.0  # that count in the choice
ERRORS = 3.0  # standard errors by which a rate must be better than no forgetting
MOST_GROWTH = 10.0  # of errors, with which weights are read out; above it, single predictions are far off
FEWEST = 3.0  # effective number of blocks before the first choice
LONGEST = 10_000.0  # transitions taken for 1/(1 − γ) where γ is 1


def rates(n_features: int, gamma: float) -> tuple[float, ...]:
    """Return the rates that are tried, the last of which forgets nothing."""
    unit = max(SHORTEST, float(n_features), _unit(gamma))
    return (*(1.0 - 1.0 / (length * unit) for length in LENGTHS), 1.0)


def _unit(gamma: float) -> float:
    return LONGEST if gamma >= 1.0 else min(LONGEST, 1.0 / (1.0 - gamma))


def _read_from(models: list[Any], k: int) -> int:
    """Return which recursion is read for the k-th: itself, or near a singular system the next that forgets less."""
    while k < len(models) - 1 and models[k]._growth() > MOST_GROWTH:
        k += 1
    return k


def _predictions(models: list[Any], x: Any) -> Array:
    """Return the predictions for a row with each rate, (models · rewards,)."""
    values = [model.predict(x) for model in models]
    return np.ravel([values[_read_from(models, k)] for k in range(len(models))])


class RateBank:
    """Recursions that learn one stream at several rates of forgetting, and which of them is read.

    Parameters
    ----------
    others : list of RecursiveLSTD
        All but the recursion that forgets nothing, which owns the bank and is given to each method.
    gamma : float
        Discount, from which the horizon and the length of blocks follow.
    n_rewards : int
        Errors of each reward count relative to those of the recursion that forgets nothing.
    """

    def __init__(self, others: list[Any], gamma: float, n_rewards: int) -> None:
        n_models = len(others) + 1
        self.others, self._window = others, CompletedReturns(horizon_of(gamma), n_models * n_rewards)
        self._length = max(1, round(_unit(gamma)))  # of a block
        self._squares = np.zeros((n_models, n_rewards))  # sum over the block so far
        self._sums = np.zeros((3, n_models, n_rewards))  # over blocks: loss, d, d²
        self._counts = np.zeros(2)  # Σ ρ^j, Σ ρ^2j
        self._about = np.array([0, n_models - 1])  # rows of the block so far, and which recursion is chosen

    def chosen(self, own: Any) -> Any:
        """Return the recursion that is read."""
        models = [*self.others, own]
        return models[_read_from(models, int(self._about[1]))]

    def update(self, own: Any, x: Any, reward: Any, x_next: Any, **numbers: Any) -> None:
        """Learn a transition with each rate, and compare predictions with the returns that are complete."""
        models, cut = [*self.others, own], check_flag("truncated", numbers["truncated"])
        with own._alone():
            before = _predictions(models, x)
            for model in reversed(models):
                model.update(x, reward, x_next, **numbers | {"truncated": False})
        rewards = np.tile(np.asarray(reward, np.float64), len(models))
        about = (numbers[name] for name in ("discount", "importance_ratio", "trace_coefficient"))
        self._note(self._window.add(before, rewards, *about))
        if numbers["terminated"]:
            self._note(self._window.close())
        elif cut:
            own._cut_off()

    def cut_off(self, own: Any, x: Array) -> None:
        """Cut the episode off at the features `x` (n,) of the last successor."""
        if len(self._window):
            with own._alone():
                ahead = _predictions([*self.others, own], x)
            self._note(self._window.close(ahead))
        for model in self.others:
            model._cut_off()

    def _note(self, errors: Array) -> None:
        """Add errors of rows in time order, (k, models · rewards); chooses again after each block."""
        for error in errors.reshape(-1, *self._squares.shape):
            self._squares += error * error
            self._about[0] += 1
            if self._about[0] == self._length:
                self._choose()

    def _choose(self) -> None:
        """Finish the block, and choose."""
        loss, fade = self._squares / self._length, 1.0 - 1.0 / BLOCKS
        d = loss[-1] - loss
        self._squares[:], self._about[0] = 0.0, 0
        self._sums[:] = fade * self._sums + np.stack([loss, d, d * d])
        self._counts[:] = self._counts * [fade, fade * fade] + 1.0
        effective = self._counts[0] ** 2 / self._counts[1]
        if effective < FEWEST:
            return
        loss, d, squares = self._sums / self._counts[0]
        scale = np.where(loss[-1] > 0.0, loss[-1], 1.0)
        error = np.sqrt(np.maximum(squares - d * d, 0.0) / (effective - 1.0))
        better = ((d - ERRORS * error) / scale).sum(axis=1) > 0.0
        better[-1] = True
        self._about[1] = np.argmin(np.where(better, (loss / scale).sum(axis=1), np.inf))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the arrays of the choice."""
        own = {"about": self._about, "squares": self._squares, "sums": self._sums, "blocks": self._counts}
        return {f"choice_{name}": view for name, view in (own | self._window.arrays()).items()}

    def packed(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a snapshot."""
        packed = {f"rate{k}_{key}": array for k, one in enumerate(self.others) for key, array in one.snapshot().items()}
        return packed | {name: view.copy() for name, view in self._arrays().items()}

    def unpack(self, snapshot: Mapping[str, Any], restore: Callable[[dict[str, Any]], Any]) -> None:
        """Go on from the arrays of `packed`."""
        for name, view in self._arrays().items():
            array = np.asarray(snapshot.get(name))
            if array.shape != view.shape or array.dtype != view.dtype or not np.isfinite(array).all():
                raise not_a_snapshot(f"{name!r} has shape {array.shape} and dtype {array.dtype}, or is not finite")
            view[...] = array
        chosen = 0 <= self._about[0] < self._length and 0 <= self._about[1] < len(self._squares)
        if not (chosen and self._window.fits()):
            raise not_a_snapshot("its choice of a rate has values out of range")
        for k in range(len(self.others)):
            names = [name for name in snapshot if name.startswith(f"rate{k}_")]
            self.others[k] = restore({name.partition("_")[2]: snapshot[name] for name in names})
