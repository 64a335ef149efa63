"""The data contract: rows in time order, checked once at the boundary and brought into one form.

A row holds the features of a state and the reward received on leaving it. It is a full transition when a row of the
same episode follows it, when it terminates, or when its successor's features are given; else it is a horizon row, whose
features only count. The last row of a stream is a horizon row until the stream goes on.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._validation import check_real
from lstd.errors import InvalidInputError, MissingTerminationWarning

Array = NDArray[np.float64]
Features = Any  # Array | scipy.sparse.csr_array, which has no types


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    X: Features  # (T, n)
    y: Array  # (T, m), zero where a horizon row's reward is missing
    y_missing: NDArray[np.bool_]  # (T,) the row's reward is NaN
    leaving: Array  # (T,) discount of the transition that leaves the row; zero where it terminates
    ratios: Array  # (T,) importance ratio of that transition
    last: NDArray[np.bool_]  # (T,) last row of its episode in this chunk, the chunk's end included
    terminated: NDArray[np.bool_]  # (T,)
    X_next: Features | None  # (T, n)
    first_episode: Any  # id of the first row's episode; None without ids
    last_episode: Any
    single: bool  # rewards were given as a vector

    def __len__(self) -> int:
        return len(self.leaving)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])


def check_rows(
    X: Any,
    y: Any,
    *,
    gamma: float,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    X_next: Any = None,
    discount: ArrayLike | None = None,
    importance_ratio: ArrayLike | None = None,
    warn: bool = True,
) -> Rows:
    """Check the arrays of the data contract and bring them into one form.

    Raises
    ------
    InvalidInputError
        With the argument, the rule, the value found in the first bad row, and the remedy.
    """
    phi = check_features("X", X)
    n_rows = phi.shape[0]
    rewards, single = _check_rewards(y, n_rows)
    ids = None if episode is None else _check_episode(episode, n_rows)
    ended = _check_flags("terminated", terminated, n_rows)
    phi_next = None if X_next is None else check_features("X_next", X_next)
    if phi_next is not None and phi_next.shape != phi.shape:
        raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {phi_next.shape}.")
    if warn and ids is not None and terminated is None and phi_next is None and n_rows:
        warnings.warn(
            "`episode` was given without `terminated`: every episode is taken as truncated, its last row as features "
            "only. Pass `terminated`: True on the last row of episodes that ended for good, all False if none did.",
            MissingTerminationWarning,
            stacklevel=3,
        )
    changes = _episode_changes(ids, ended, n_rows)
    last = np.ones(n_rows, dtype=np.bool_)
    last[:-1] = changes
    missing = _check_missing_rewards(rewards, last & ~ended if phi_next is None else np.zeros_like(last))
    leaving = _check_per_row("discount", discount, n_rows, 1.0, gamma)
    leaving[ended] = 0.0
    return Rows(
        X=phi,
        y=np.where(np.isnan(rewards), 0.0, rewards),
        y_missing=missing,
        leaving=leaving,
        ratios=_check_per_row("importance_ratio", importance_ratio, n_rows, np.inf, 1.0),
        last=last,
        terminated=ended,
        X_next=phi_next,
        first_episode=None if ids is None or not n_rows else ids[0],
        last_episode=None if ids is None or not n_rows else ids[-1],
        single=single,
    )


def check_features(name: str, X: Any) -> Features:
    """Float64 features in C order, dense or compressed sparse rows, all finite."""
    if sparse.issparse(X):
        phi = sparse.csr_array(X, dtype=np.float64)
        phi.sum_duplicates()
        values = phi.data
    else:
        try:
            phi = np.asarray(X, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error
        values = phi
    if phi.ndim != 2:
        raise InvalidInputError(
            f"`{name}` must have shape (n_rows, n_features); got {phi.shape}. "
            "Reshape one feature with X.reshape(-1, 1), one row with X.reshape(1, -1)."
        )
    if not np.isfinite(values).all():
        row = _first_bad_row(phi)
        raise InvalidInputError(f"`{name}` must be finite; row {row} is not. Drop or impute such values first.")
    return phi


def _first_bad_row(phi: Features) -> int:
    if sparse.issparse(phi):
        position = int(np.argmin(np.isfinite(phi.data)))
        return int(np.searchsorted(phi.indptr, position, side="right")) - 1
    return int(np.argmin(np.isfinite(phi).all(axis=1)))


def _check_rewards(y: Any, n_rows: int) -> tuple[Array, bool]:
    try:
        rewards = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`y` must be an array of real numbers: {error}.") from error
    if rewards.ndim not in (1, 2) or len(rewards) != n_rows:
        raise InvalidInputError(
            f"`y` must have one reward per row of `X`, shape ({n_rows},) or ({n_rows}, n_rewards); got {rewards.shape}."
        )
    single = rewards.ndim == 1
    return (rewards[:, np.newaxis] if single else rewards), single


def _check_missing_rewards(rewards: Array, may_be_missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows whose reward is NaN, which only horizon rows may have."""
    missing = np.asarray(np.isnan(rewards).any(axis=1))
    bad = (missing & ~may_be_missing) | np.isinf(rewards).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(
            f"`y` must be finite on every row but the last one of an episode that did not terminate; row {row} has "
            f"{rewards[row].tolist() if rewards.shape[1] > 1 else rewards[row, 0]}. Drop or impute such rewards first."
        )
    return missing


def _check_episode(episode: ArrayLike, n_rows: int) -> NDArray[Any]:
    ids = np.asarray(episode)
    if ids.shape != (n_rows,):
        raise InvalidInputError(f"`episode` must have one id per row of `X`, shape ({n_rows},); got {ids.shape}.")
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        row = int(np.argmin(np.isfinite(ids)))
        raise InvalidInputError(f"`episode` must have an id on every row; row {row} has {ids[row]}.")
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]]) if n_rows else np.empty(0, dtype=np.intp)
    seen: set[Any] = set()
    for row in starts.tolist():
        name = ids[row].item() if hasattr(ids[row], "item") else ids[row]
        if name in seen:
            raise InvalidInputError(
                f"`episode` must be contiguous: the rows of an id must follow one another; id {name!r} comes again at "
                f"row {row}. Sort the rows by episode and time (a stable sort by episode keeps the order of time)."
            )
        seen.add(name)
    return ids


def _check_flags(name: str, flags: ArrayLike | None, n_rows: int) -> NDArray[np.bool_]:
    if flags is None:
        return np.zeros(n_rows, dtype=np.bool_)
    array = np.asarray(flags)
    if array.shape != (n_rows,):
        raise InvalidInputError(f"`{name}` must have one flag per row of `X`, shape ({n_rows},); got {array.shape}.")
    if array.dtype.kind not in "biu" and not (array.dtype.kind == "f" and np.isfinite(array).all()):
        raise InvalidInputError(f"`{name}` must hold True and False; got dtype {array.dtype}.")
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidInputError(f"`{name}` must hold True and False; row {row} has {array[row]}.")
    return array.astype(np.bool_)


def _check_per_row(name: str, values: ArrayLike | None, n_rows: int, high: float, default: float) -> Array:
    if values is None:
        return np.full(n_rows, default)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error
    if array.ndim == 0:
        array = np.full(n_rows, check_real(name, float(array), 0.0, high))
    if array.shape != (n_rows,):
        raise InvalidInputError(f"`{name}` must have one value per row of `X`, shape ({n_rows},); got {array.shape}.")
    bad = ~((array >= 0.0) & (array <= high)) | np.isinf(array)
    if bad.any():
        row = int(np.argmax(bad))
        rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
        raise InvalidInputError(f"`{name}` must be {rule}; row {row} has {array[row]:g}.")
    return array


def _episode_changes(ids: NDArray[Any] | None, ended: NDArray[np.bool_], n_rows: int) -> NDArray[np.bool_]:
    """Where each row but the last is the last of its episode, shape (T − 1,)."""
    if ids is None:
        return ended[:-1].copy()
    changes: NDArray[np.bool_] = ids[1:] != ids[:-1]
    early = ended[:-1] & ~changes
    if early.any():
        row = int(np.argmax(early))
        raise InvalidInputError(
            f"`terminated` may be True on the last row of an episode only; row {row} is followed by a row of the same "
            f"`episode`, {ids[row]!r}. Give what follows an id of its own."
        )
    return changes
