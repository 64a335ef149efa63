"""The data contract: rows in time order, checked once at the boundary and brought into one form.

A row holds the features of a state and the reward received on leaving it. It is a full transition when a row of the
same episode follows it, when it terminates, or when its successor's features are given; else it is a horizon row, whose
features only count. The last row of a stream is a horizon row until the stream goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data import parsing
from lstd.data.checks import check_indices, check_not_masked, check_real, to_real_array
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, MissingTerminationWarning
from lstd.errors import warn as give_warning

Array = NDArray[np.float64]
Features = Any  # Array | scipy.sparse.csr_array, which has no types

ENTRIES_COMPARED = 2**17  # features at a time, about one MiB
_SAME = 1e-9  # relative difference up to which two rows are one, which products may compute in another order


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    X: Features  # (T, n)
    y: Array  # (T, m), zero where a horizon row's reward is missing
    y_missing: NDArray[np.bool_]  # (T,) the row's reward is NaN
    discount: Array  # (T,) of the transition that leaves the row; zero where it terminates
    ratios: Array  # (T,) importance ratio of that transition
    last: NDArray[np.bool_]  # (T,) last row of its episode in this chunk, the chunk's end included
    terminated: NDArray[np.bool_]  # (T,)
    X_next: Features | None  # (T, n)
    first_episode: Any  # id of the first row's episode; None without ids
    last_episode: Any
    single: bool  # rewards were given as a vector
    gamma: float  # discount, where none was given per row
    assumed: bool  # nothing said which episodes terminated: they are taken as truncated

    def __len__(self) -> int:
        return len(self.discount)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    def with_ones(self) -> Rows:
        """Add a column of ones as the last feature."""
        return replace(self, X=_with_ones(self.X), X_next=None if self.X_next is None else _with_ones(self.X_next))

    def split(self, size: int, at: Iterable[int] = ()) -> list[Rows]:
        """Consecutive pieces of at most `size` rows, cut at the rows `at` too, as chunks of a stream.

        Inside, their episode ids count episodes; the first and the last id are the caller's.
        """
        edges = sorted({*range(0, len(self), size), *at, len(self)})
        number = np.concatenate([[0], np.cumsum(self.last[:-1])])
        return [self._piece(first, end, number) for first, end in pairwise(edges)]

    def _piece(self, first: int, end: int, number: NDArray[np.intp]) -> Rows:
        part = slice(first, end)
        last = self.last[part].copy()
        last[-1] = True
        return Rows(
            X=self.X[part], y=self.y[part], y_missing=self.y_missing[part], discount=self.discount[part],
            ratios=self.ratios[part], last=last, terminated=self.terminated[part],
            X_next=None if self.X_next is None else self.X_next[part],
            first_episode=int(number[first]) if first else self.first_episode,
            last_episode=int(number[end - 1]) if end < len(self) else self.last_episode,
            single=self.single, gamma=self.gamma, assumed=self.assumed,
        )  # fmt: skip


def _with_ones(phi: Features) -> Features:
    ones = np.ones((phi.shape[0], 1))
    return sparse.hstack([phi, ones], format="csr") if sparse.issparse(phi) else np.hstack([phi, ones])


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
    finite: bool = True,
) -> Rows:
    """Check the arrays of the data contract and bring them into one form.

    Without `finite`, NaN and inf among the features are let through, for a caller whose sums show them.

    Raises
    ------
    InvalidInputError
        With the argument, the rule, the value found in the first bad row, and the remedy.
    """
    phi = check_features("X", X, finite=finite)
    n_rows = phi.shape[0]
    rewards, single = _check_rewards(y, n_rows)
    ids = None if episode is None else _check_episode(episode, n_rows)
    ended = _check_flags("terminated", terminated, n_rows)
    phi_next = None if X_next is None else check_features("X_next", X_next, finite=finite)
    if phi_next is not None and phi_next.shape != phi.shape:
        raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {phi_next.shape}.")
    assumed = ids is not None and terminated is None and phi_next is None and n_rows > 0
    if warn and assumed:
        warn_of_assumed("`episode` was given without `terminated`")
    changes = _episode_changes(ids, ended, n_rows)
    last = np.ones(n_rows, dtype=np.bool_)
    last[:-1] = changes
    missing = _check_missing_rewards(rewards, last & ~ended if phi_next is None else np.zeros_like(last))
    discounts = _check_per_row("discount", discount, n_rows, 1.0, gamma)
    discounts[ended] = 0.0
    return Rows(
        X=phi,
        y=np.where(np.isnan(rewards), 0.0, rewards),
        y_missing=missing,
        discount=discounts,
        ratios=_check_per_row("importance_ratio", importance_ratio, n_rows, np.inf, 1.0),
        last=last,
        terminated=ended,
        X_next=phi_next,
        first_episode=None if ids is None or not n_rows else ids[0],
        last_episode=None if ids is None or not n_rows else ids[-1],
        single=single,
        gamma=gamma,
        assumed=assumed,
    )


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn, and tell, when a trace runs from a row to another than its successor in `X_next`.

    `before`, if any, is the successor of the last row before these, whose episode goes on. Without traces there is
    nothing to tell.
    """
    if lmbda == 0.0 or rows.X_next is None or not len(rows):
        return False
    row = 0 if before is not None and _differ(rows.X[:1], before[np.newaxis])[0] else first_break(rows)
    if row is None:
        return False
    warn_of_break(f"Row {row} of `X`")
    return True


def warn_of_assumed(what: str) -> None:
    """Warn that episodes are taken as truncated; `what` says which argument is missing."""
    give_warning(
        f"{what}: every episode is taken as truncated, and of its last row only the features are used. Give "
        "`terminated`: true on the last row of episodes that ended for good, false elsewhere.",
        MissingTerminationWarning,
    )


def warn_of_break(row: str) -> None:
    """Warn that a row is not the successor of the row before it."""
    give_warning(
        f"{row} is not the successor that `X_next` gives the row before it, of the same episode: the trace goes on all "
        "the same, since rows are taken in time order. Give transitions that do not follow one another different ids "
        "in `episode`, or use lmbda=0.",
        BrokenEpisodeWarning,
    )


def first_break(rows: Rows) -> int | None:
    """First row that is not the successor of the row before it, within an episode."""
    X_next: Features = rows.X_next
    size = max(1, ENTRIES_COMPARED // rows.n_features)
    for first in range(0, len(rows) - 1, size):
        end = min(first + size, len(rows) - 1)
        found = _differ(X_next[first:end], rows.X[first + 1 : end + 1]) & ~rows.last[first:end]
        if found.any():
            return first + 1 + int(np.argmax(found))
    return None


def _differ(one: Features, two: Features) -> NDArray[np.bool_]:
    """Rows that differ by more than rounding, (T,)."""
    if sparse.issparse(one):
        two = sparse.csr_array(two)
        return np.asarray(_largest(one - two) > _SAME * _largest(one))
    if np.array_equal(one, two):
        return np.zeros(len(one), dtype=np.bool_)
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(one - two).max(axis=1) > _SAME * np.abs(one).max(axis=1))


def _largest(rows: Features) -> Array:
    """Largest size in each sparse row, (T,)."""
    return np.asarray(np.abs(rows).max(axis=1).todense()).reshape(-1)


def check_features(name: str, X: Any, *, finite: bool = True) -> Features:
    """Float64 features in C order, dense or compressed sparse rows, all finite unless told not to look."""
    if sparse.issparse(X):
        check_indices(name, X)
        if X.dtype.kind == "c":
            raise InvalidInputError(f"`{name}` must be an array of real numbers; got dtype {X.dtype}.")
        try:
            phi = sparse.csr_array(X, dtype=np.float64)
        except (TypeError, ValueError, LookupError, OverflowError) as error:  # values of any type, more dimensions
            raise InvalidInputError(f"`{name}` must be a sparse matrix of real numbers: {error}.") from error
        parts = (phi.data, phi.indices, phi.indptr)
        if not all(part.flags.aligned for part in parts):
            phi = sparse.csr_array(tuple(map(_aligned, parts)), shape=phi.shape)
        if not phi.has_canonical_format:
            phi = phi.copy()  # it may share its arrays with the caller's
            phi.sum_duplicates()
    else:
        phi = _as_real(name, X)
    if phi.ndim != 2:
        raise InvalidInputError(
            f"`{name}` must have shape (n_rows, n_features); got {phi.shape}. "
            "Reshape one feature with X.reshape(-1, 1), one row with X.reshape(1, -1)."
        )
    if not phi.shape[1]:
        raise InvalidInputError(f"`{name}` must have at least one feature; got shape {phi.shape}.")
    if finite:
        check_finite(name, phi)
    return phi


def product(name: str, phi: Features, weights: Array, intercept: Any = 0.0) -> Array:
    """Predictions of finite features, or an InvalidInputError where they overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(phi @ weights + intercept)
    if not np.isfinite(found).all():
        raise InvalidInputError(f"`{name}` must not be so large that predictions overflow. Scale features to order 1.")
    return found


def check_finite(name: str, phi: Features) -> None:
    """Refuse features that are NaN or infinite."""
    if not _all_finite(phi.data if sparse.issparse(phi) else phi):
        row, column, value = _first_not_finite(phi)
        raise InvalidInputError(
            f"`{name}` must be finite, without NaN or inf; row {row} has {value} in column {column}. Drop or impute "
            "such values first."
        )


def _all_finite(values: Array) -> bool:
    """Whether no value is NaN or infinite; the sum tells at once where it is finite, and needs no second array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


def _first_not_finite(phi: Features) -> tuple[int, int, float]:
    """Row, column and value."""
    if sparse.issparse(phi):
        i = int(np.argmin(np.isfinite(phi.data)))
        return int(np.searchsorted(phi.indptr, i, side="right")) - 1, int(phi.indices[i]), float(phi.data[i])
    row = int(np.argmin(np.isfinite(phi).all(axis=1)))
    column = int(np.argmin(np.isfinite(phi[row])))
    return row, column, float(phi[row, column])


def _as_real(name: str, values: Any) -> Array:
    """Float64 in C order and aligned, without a copy where it is that already."""
    return _aligned(np.asarray(to_real_array(name, values), dtype=np.float64, order="C"))


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy where memory is not aligned, as of what has come over a network: NumPy sums it in another order."""
    return array if array.flags.aligned else array.copy()


def _check_rewards(y: Any, n_rows: int) -> tuple[Array, bool]:
    rewards = _as_real("y", y)
    if rewards.ndim not in (1, 2) or len(rewards) != n_rows or rewards.shape[1:] == (0,):
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
    check_not_masked("episode", episode)
    try:
        ids = np.asarray(episode)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`episode` must be a vector of ids: {error}.") from error
    if ids.shape != (n_rows,):
        raise InvalidInputError(f"`episode` must have one id per row of `X`, shape ({n_rows},); got {ids.shape}.")
    if ids.dtype.names is not None:
        raise InvalidInputError(f"`episode` must be a vector of ids, not of records; got dtype {ids.dtype}.")
    missing = _missing_ids(ids)
    if missing.any():
        row = int(np.argmax(missing))
        raise InvalidInputError(
            f"`episode` must have an id on every row; row {row} has {ids[row]}. Fill it in, or drop the episode."
        )
    try:
        _check_contiguous(ids)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"`episode` must hold ids that can be hashed and compared, such as integers or text; got {ids[0]!r:.80}."
        ) from error
    return ids


def _check_contiguous(ids: NDArray[Any]) -> None:
    row = parsing.first_repeat(ids)
    if row is not None:
        name = ids[row].item() if hasattr(ids[row], "item") else ids[row]
        raise InvalidInputError(
            f"`episode` must be contiguous: the rows of an id must follow one another; id {name!r} comes again at row "
            f"{row}. Sort the rows by episode and time (a stable sort by episode keeps the order of time)."
        )


def _missing_ids(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an id is NaN, infinite, NaT or None."""
    if ids.dtype.kind in "fc":
        return np.asarray(~np.isfinite(ids))
    if ids.dtype.kind in "mM":
        return np.asarray(np.isnat(ids))
    if ids.dtype.kind == "O":
        return np.array([_is_missing(name) for name in ids], dtype=np.bool_)
    return np.zeros(len(ids), dtype=np.bool_)


def _is_missing(name: Any) -> bool:
    if name is None or type(name).__name__ == "NAType":
        return True
    try:
        return bool(name != name)
    except (TypeError, ValueError):  # an array, which is no id: `_check_contiguous` says so
        return False


def _check_flags(name: str, flags: ArrayLike | None, n_rows: int) -> NDArray[np.bool_]:
    if flags is None:
        return np.zeros(n_rows, dtype=np.bool_)
    check_not_masked(name, flags)
    try:
        array = np.asarray(flags)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be a vector of flags: {error}.") from error
    if array.shape != (n_rows,):
        raise InvalidInputError(f"`{name}` must have one flag per row of `X`, shape ({n_rows},); got {array.shape}.")
    if array.dtype.kind not in "biu" and not (array.dtype.kind == "f" and np.isfinite(array).all()):
        raise InvalidInputError(f"`{name}` must hold True and False; got dtype {array.dtype}. Convert it to bool.")
    parsed, fault = parsing.flags(array, name)
    if fault is not None:
        row = fault.row
        raise InvalidInputError(f"`{name}` must hold True and False; row {row} has {array[row]}. Convert it to bool.")
    return parsed


def _check_per_row(name: str, values: ArrayLike | None, n_rows: int, high: float, default: float) -> Array:
    if values is None:
        return np.full(n_rows, default)
    array = _as_real(name, values).copy()
    if array.ndim == 0:
        array = np.full(n_rows, check_real(name, np.asarray(values).item(), 0.0, high))
    if array.shape != (n_rows,):
        raise InvalidInputError(f"`{name}` must have one value per row of `X`, shape ({n_rows},); got {array.shape}.")
    bad = ~((array >= 0.0) & (array <= high)) | np.isinf(array)
    if bad.any():
        row = int(np.argmax(bad))
        rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
        raise InvalidInputError(
            f"`{name}` must be {rule}; row {row} has {array[row]:g}. Mend it, or drop the row's episode."
        )
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
            f"`episode`, {ids[row]!r}. Give the rows after it another id."
        )
    return changes
