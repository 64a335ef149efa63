"""What a model is given, checked: features by scikit-learn's rules, rows by the data contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from lstd.data.checks import check_indices, check_not_masked, to_real_array
from lstd.data.rows import Features, Rows, check_features, check_rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError


def rows_of(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    columns: Mapping[str, Any],
    settings: Settings,
    *,
    reset: bool = False,
    min_rows: int = 0,
    warn: bool = False,
) -> Rows:
    """Check rows for `estimator`, and add the column of ones if `settings` ask for it.

    Features that are NaN or infinite are let through: the sums show them. `columns` has the other arguments of
    `check_rows`; with `reset`, the number and the names of the features are set on `estimator`; with `warn`, a warning
    says what is assumed of the ends of episodes.
    """
    columns = dict(columns)
    X_next = columns.pop("X_next")
    phi = checked_features(estimator, X, reset=reset, min_rows=min_rows, finite=False)
    if X_next is not None:
        X_next = _plain("X_next", X_next)
        shape = tuple(X_next.shape if hasattr(X_next, "shape") else to_real_array("X_next", X_next).shape)
        if shape != phi.shape:
            raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {shape}.")
        X_next = checked_features(estimator, X_next, finite=False, name="X_next")
    rows = check_rows(
        phi, present(y), gamma=settings.gamma, X_next=X_next, warn=warn, finite=False, **columns
    )  # fmt: skip
    return rows.with_ones() if settings.fit_intercept else rows


def names_of(estimator: BaseEstimator) -> tuple[str, ...] | None:
    """Return the names of the features that scikit-learn found, if any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def checked_features(
    estimator: BaseEstimator, X: Any, *, reset: bool = False, min_rows: int = 0, finite: bool = True, name: str = "X"
) -> Features:
    """Features as `check_features` gives them, after scikit-learn's checks of their number and names."""
    label = "LSTD" if type(estimator) is BaseEstimator else type(estimator).__name__
    try:
        phi = validate_data(
            estimator, _plain(name, X), reset=reset, accept_sparse="csr", dtype=np.float64, order="C",
            ensure_all_finite=False, ensure_min_samples=min_rows, estimator=label,
        )  # fmt: skip
    except OverflowError as error:  # integers of any length
        raise InvalidInputError(f"`{name}` must be finite in float64, below 1e308 in size; it has more.") from error
    except (TypeError, ValueError, MemoryError):
        raise
    except Exception as error:  # `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error
    return check_features(name, phi, finite=finite)


def _plain(name: str, X: Any) -> Any:
    """Features as scikit-learn may read them: lists as arrays, no numbers in text, no indices outside of a matrix."""
    check_not_masked(name, X)
    if sparse.issparse(X):
        check_indices(name, X)
    elif isinstance(X, (list, tuple)) or getattr(getattr(X, "dtype", None), "kind", "") in ("S", "U"):
        return to_real_array(name, X)
    elif len(names := list(getattr(X, "columns", ()))) != len({*map(repr, names)}):
        raise InvalidInputError(
            f"`{name}` must have columns of different names; got {names!r:.200}. Rename all but one."
        )
    return X


def present(y: Any) -> Any:
    if y is None:
        raise InvalidInputError("LSTD requires y to be passed, but the target y is None: pass a reward for every row.")
    return y
