"""The data contract: rows in time order, checked once and brought into one form.

A row holds the features of a state and the reward received on leaving it. It is a full transition if a row of the same
episode follows it, if it terminates, or if the features of its successor are given. Otherwise it is a horizon row: only
its features are used. The last row of a stream is a horizon row until the stream continues.
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
from lstd.data.checks import check_indices, check_not_masked, check_real, check_real_dtype, to_real_array
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, MissingTerminationWarning
from lstd.errors import warn as give_warning

Array = NDArray[np.float64]
Features = Any  # Array | scipy.sparse.csr_array, which has no types
PerRow = ArrayLike | None  # an optional array with one entry per row

ENTRIES_COMPARED = 2**17  # features compared at a time, about one MiB
_SAME = 1e-9  # relative difference between equal features that were computed in another order of summation


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    X: Features  # (T, n)
    y: Array  # (T, m), zero where the reward of a horizon row is missing
    y_missing: NDArray[np.bool_]  # (T,) whether the reward is NaN
    discount: Array  # (T,) of the transition that leaves the row; zero where it terminates
    ratios: Array  # (T,) importance ratio of that transition
    last: NDArray[np.bool_]  # (T,) whether the row is the last one of its episode in this chunk
    terminated: NDArray[np.bool_]  # (T,)
    X_next: Features | None  # (T, n)
    first_episode: Any  # id of the first row's episode; None without ids
    last_episode: Any
    single: bool  # whether rewards were given as a vector
    gamma: float  # discount of rows without one of their own
    assumed: bool  # whether all episodes are assumed to be truncated

    def __len__(self) -> int:
        return len(self.discount)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    def with_ones(self) -> Rows:
        """Add a column of ones as the last feature."""
        return replace(self, X=_with_ones(self.X), X_next=None if self.X_next is None else _with_ones(self.X_next))

    def split(self, size: int, at: Iterable[int] = ()) -> list[Rows]:
        """Split into consecutive chunks of at most `size` rows; the rows `at` begin chunks too.

        Episode ids between the first and the last one are replaced by numbers.
        """
        edges = sorted({*range(0, len(self), size), *at, len(self)})
        number = np.concatenate([[0], np.cumsum(self.last[:-1])])
        return [self._chunk(first, end, number) for first, end in pairwise(edges)]

    def _chunk(self, first: int, end: int, number: NDArray[np.intp]) -> Rows:
        part = slice(first, end)
        last = self.last[part].copy()
        last[-1] = True
        return replace(
            self, X=self.X[part], y=self.y[part], y_missing=self.y_missing[part], discount=self.discount[part],
            ratios=self.ratios[part], last=last, terminated=self.terminated[part],
            X_next=None if self.X_next is None else self.X_next[part],
            first_episode=int(number[first]) if first else self.first_episode,
            last_episode=int(number[end - 1]) if end < len(self) else self.last_episode,
        )  # fmt: skip


def _with_ones(phi: Features) -> Features:
    ones = np.ones((phi.shape[0], 1))
    return sparse.hstack([phi, ones], format="csr") if sparse.issparse(phi) else np.hstack([phi, ones])


def check_rows(
    X: Any, y: Any, episode: PerRow = None, terminated: PerRow = None, X_next: Any = None, discount: PerRow = None,
    importance_ratio: PerRow = None, *, gamma: float, warn: bool = True, finite: bool = True,
) -> Rows:  # fmt: skip
    """Check the arrays of the data contract and bring them into one form.

    With `finite=False`, features may be NaN or infinite; use it only if the caller checks the sums.

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
    last = np.ones(n_rows, dtype=np.bool_)
    last[:-1] = _episode_changes(ids, ended)
    missing = _check_missing_rewards(rewards, last & ~ended if phi_next is None else np.zeros_like(last))
    discounts = check_per_row("discount", discount, n_rows, 1.0, gamma)
    discounts[ended] = 0.0
    ratios = check_per_row("importance_ratio", importance_ratio, n_rows, np.inf, 1.0)
    first, final = (None, None) if ids is None or not n_rows else (ids[0], ids[-1])
    return Rows(
        X=phi, y=np.where(np.isnan(rewards), 0.0, rewards), y_missing=missing, discount=discounts, ratios=ratios,
        last=last, terminated=ended, X_next=phi_next, first_episode=first, last_episode=final, single=single,
        gamma=gamma, assumed=assumed,
    )  # fmt: skip


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn if a trace connects two rows of which the second is not the successor of the first; return whether it does.

    `before` is the successor, by `X_next`, of the row before these, if its episode continues. With `lmbda=0` there are
    no traces.
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
        f"{what}: every episode is taken as truncated, and only the features of its last row are used. Give "
        "`terminated`: true on the last row of episodes that ended for good, false elsewhere.",
        MissingTerminationWarning,
    )


def warn_of_break(row: str) -> None:
    """Warn that `row` is not the successor of the row before it."""
    give_warning(
        f"{row} is not the successor that `X_next` gives for the row before it, in the same episode. The trace goes on "
        "all the same: rows are taken in time order. Give transitions that do not follow one another different ids in "
        "`episode`, or use lmbda=0.",
        BrokenEpisodeWarning,
    )


def first_break(rows: Rows) -> int | None:
    """First row that is not the successor of the row before it, within an episode."""
    X_next: Features = rows.X_next
    size = max(1, ENTRIES_COMPARED // rows.n_features)
    for first in range(0, len(rows) - 1, size):
        end = min(first + size, len(rows) - 1)
        breaks = _differ(X_next[first:end], rows.X[first + 1 : end + 1]) & ~rows.last[first:end]
        if (row := parsing.first_true(breaks)) is not None:
            return first + 1 + row
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
    """Largest absolute value in each sparse row, (T,)."""
    return np.asarray(np.abs(rows).max(axis=1).todense()).reshape(-1)


def check_features(name: str, X: Any, *, finite: bool = True) -> Features:
    """Return float64 features in C order, dense or as compressed sparse rows; unless `finite=False`, all are finite."""
    X = _plain(name, X)
    phi = _as_sparse(name, X) if sparse.issparse(X) else _as_real(name, X)
    if phi.ndim != 2:
        raise InvalidInputError(
            f"`{name}` must have shape (n_rows, n_features); got {phi.shape}. Reshape your data with X.reshape(-1, 1) "
            "if it is one feature, with X.reshape(1, -1) if it is one row."
        )
    if not phi.shape[1]:
        raise InvalidInputError(
            f"`{name}` must have at least one feature; got 0 feature(s) (shape={phi.shape}) while a minimum of 1 is "
            "required. For a mean without features, pass a column of ones."
        )
    if finite:
        check_finite(name, phi)
    return phi


def _plain(name: str, X: Any) -> Any:
    """Convert nullable and sparse columns of a pandas frame, which NumPy reads as objects."""
    dtypes = X.dtypes if getattr(X, "ndim", 0) == 2 and hasattr(X, "dtypes") else ()
    extended = [dtype for dtype in dtypes if not isinstance(dtype, np.dtype)]
    if not extended or any(dtype.kind not in "biuf" for dtype in extended):
        return X
    if len(extended) == X.shape[1] and all(type(dtype).__name__ == "SparseDtype" for dtype in extended):
        return X.sparse.to_coo()
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError) as error:  # other columns hold text
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error


def _as_sparse(name: str, X: Any) -> Features:
    """Float64 compressed sparse rows in canonical format."""
    check_indices(name, X)
    if X.dtype.kind == "c":
        check_real_dtype(name, X.dtype)
    try:
        phi = sparse.csr_array(X, dtype=np.float64)
    except (TypeError, ValueError, LookupError, OverflowError) as error:  # values of any type, more dimensions
        raise InvalidInputError(f"`{name}` must be a sparse matrix of real numbers: {error}.") from error
    parts = (phi.data, phi.indices, phi.indptr)
    if not all(part.flags.aligned for part in parts):
        phi = sparse.csr_array(tuple(map(_aligned, parts)), shape=phi.shape)
    if not phi.has_canonical_format:
        phi = phi.copy()  # it may share its arrays with `X`
        phi.sum_duplicates()
    return phi


def product(name: str, phi: Features, weights: Array, intercept: Any = 0.0) -> Array:
    """Return predictions from finite features; raise InvalidInputError if they overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(phi @ weights + intercept)
    if not np.isfinite(values).all():
        raise InvalidInputError(f"`{name}` must not be so large that predictions overflow. Scale features to order 1.")
    return values


def check_finite(name: str, phi: Features) -> None:
    """Refuse features that are NaN or infinite."""
    if not _all_finite(phi.data if sparse.issparse(phi) else phi):
        row, column, value = _first_not_finite(phi)
        raise InvalidInputError(
            f"`{name}` must be finite, without NaN or inf; row {row} has {value} in column {column}. Drop or impute "
            "such values first."
        )


def _all_finite(values: Array) -> bool:
    """Whether no value is NaN or infinite: usually the sum alone shows it, without a second array."""
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
    """Convert to float64 in C order; copy only where needed."""
    return _aligned(np.asarray(to_real_array(name, values), dtype=np.float64, order="C"))


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Copy unaligned memory, such as arrays that came over a network: NumPy sums it in another order."""
    return array if array.flags.aligned else array.copy()


def _check_rewards(y: Any, n_rows: int) -> tuple[Array, bool]:
    if y is None:
        raise InvalidInputError(
            "`y` must have a reward for every row: fit requires y to be passed, but the target y is None."
        )
    rewards = _as_real("y", y)
    if rewards.ndim not in (1, 2) or len(rewards) != n_rows or rewards.shape[1:] == (0,):
        raise InvalidInputError(
            f"`y` must have one reward per row of `X`, shape ({n_rows},) or ({n_rows}, n_rewards); got {rewards.shape}."
        )
    single = rewards.ndim == 1
    return (rewards[:, np.newaxis] if single else rewards), single


def _check_missing_rewards(rewards: Array, may_be_missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows whose reward is NaN, which is allowed only in horizon rows."""
    missing = np.asarray(np.isnan(rewards).any(axis=1))
    bad = (missing & ~may_be_missing) | np.isinf(rewards).any(axis=1)
    if (row := parsing.first_true(bad)) is not None:
        raise InvalidInputError(
            f"`y` must be finite on every row but the last one of an episode that did not terminate; row {row} has "
            f"{rewards[row].tolist() if rewards.shape[1] > 1 else rewards[row, 0]}. Drop or impute such rewards first."
        )
    return missing


def _check_vector(name: str, values: ArrayLike, what: str, n_rows: int) -> NDArray[Any]:
    """Return a vector of ids or flags, of any dtype."""
    check_not_masked(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be a vector of {what}s: {error}.") from error
    _check_length(name, array, what, n_rows)
    return array


def _check_length(name: str, array: NDArray[Any], what: str, n_rows: int) -> None:
    if array.shape != (n_rows,):
        raise InvalidInputError(f"`{name}` must have one {what} per row of `X`, shape ({n_rows},); got {array.shape}.")


def _check_episode(episode: ArrayLike, n_rows: int) -> NDArray[Any]:
    ids = _check_vector("episode", episode, "id", n_rows)
    if ids.dtype.names is not None:
        raise InvalidInputError(f"`episode` must be a vector of ids, not of records; got dtype {ids.dtype}.")
    if (row := parsing.first_true(_missing_ids(ids))) is not None:
        raise InvalidInputError(
            f"`episode` must have an id on every row; row {row} has {ids[row]}. Fill it in, or drop the episode."
        )
    try:
        row = parsing.first_repeat(ids)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`episode` must hold ids that can be hashed and compared, such as integers or text; got {ids[0]!r:.80}."
        ) from error
    if row is not None:
        name = ids[row].item() if hasattr(ids[row], "item") else ids[row]
        raise InvalidInputError(
            f"`episode` must be contiguous: the rows of an id must follow one another; id {name!r} comes again at row "
            f"{row}. Sort the rows by episode and time (a stable sort by episode keeps the order of time)."
        )
    return ids


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
    except (TypeError, ValueError):  # an array, which `_check_episode` refuses as an id
        return False


def _check_flags(name: str, flags: PerRow, n_rows: int) -> NDArray[np.bool_]:
    if flags is None:
        return np.zeros(n_rows, dtype=np.bool_)
    array = _check_vector(name, flags, "flag", n_rows)
    if array.dtype.kind not in "biu" and not (array.dtype.kind == "f" and np.isfinite(array).all()):
        raise InvalidInputError(f"`{name}` must hold True and False; got dtype {array.dtype}. Convert it to bool.")
    parsed, fault = parsing.flags(array, name)
    if fault is not None:
        row = fault.row
        raise InvalidInputError(f"`{name}` must hold True and False; row {row} has {array[row]}. Convert it to bool.")
    return parsed


def check_per_row(
    name: str, values: PerRow, n_rows: int, high: float = np.inf, default: float = 1.0, what: str = "value"
) -> Array:
    """Return one number in [0, high] per row; `values` may be a single number, or None for the default."""
    if values is None:
        return np.full(n_rows, default)
    array = _as_real(name, values).copy()
    if array.ndim == 0:
        array = np.full(n_rows, check_real(name, np.asarray(values).item(), 0.0, high))
    _check_length(name, array, what, n_rows)
    bad = ~((array >= 0.0) & (array <= high)) | np.isinf(array)
    if (row := parsing.first_true(bad)) is not None:
        rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
        raise InvalidInputError(
            f"`{name}` must be {rule}; row {row} has {array[row]:g}. Correct it, or drop the row's episode."
        )
    return array


def _episode_changes(ids: NDArray[Any] | None, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each row but the last is the last one of its episode, (T − 1,)."""
    if ids is None:
        return ended[:-1].copy()
    changes: NDArray[np.bool_] = ids[1:] != ids[:-1]
    if (row := parsing.first_true(ended[:-1] & ~changes)) is not None:
        raise InvalidInputError(
            f"`terminated` may be True on the last row of an episode only; row {row} is followed by a row of the same "
            f"`episode`, {ids[row]!r}. Give the rows after it another id."
        )
    return changes
