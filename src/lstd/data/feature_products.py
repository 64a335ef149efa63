"""What is done with checked features, dense or sparse: their rows, and products with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.check_features import Features, check_finite
from lstd.errors import InvalidInputError
from lstd.types import Array

ENTRIES_CONVERTED = 2**17  # of float32 features at a time, about one MiB, which stays in the cache


def dense(product: Features) -> Array:
    """Return a product of features as an array."""
    return np.asarray(product.toarray() if sparse.issparse(product) else product)


def rows_of(features: Features, part: slice) -> Features:
    """Return consecutive rows; those of a sparse array share its memory, as SciPy's do not."""
    if isinstance(features, np.ndarray):
        return features[part]
    if not sparse.issparse(features):
        return features.rows(part)
    if (part.start, part.stop) == (0, features.shape[0]):
        return features
    edges = features.indptr[part.start : part.stop + 1]
    rows, entries = sparse.csr_array((len(edges) - 1, features.shape[1])), slice(edges[0], edges[-1])
    rows.data, rows.indices, rows.indptr = features.data[entries], features.indices[entries], edges - edges[0]
    return rows


def product(name: str, phi: Features, weights: Array, intercept: Any = 0.0) -> Array:
    """Return predictions from features; raise InvalidInputError if a feature is not finite, or they overflow.

    A feature that is not finite shows in its prediction, so that one pass over the features is enough. Those of float32
    are converted in batches.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(phi @ weights if phi.dtype == np.float64 else _converted_product(phi, weights))
        values += intercept
    if not (np.isfinite(values).all() and weights.all()):  # a BLAS may leave out weights of zero
        check_finite(name, phi)
        check_not_overflowed(name, values)
    return values


def _converted_product(phi: NDArray[Any], weights: Array) -> Array:
    size = max(1, ENTRIES_CONVERTED // phi.shape[1])
    batch, values = np.empty((min(size, len(phi)), phi.shape[1])), np.empty((len(phi), *weights.shape[1:]))
    for first in range(0, len(phi), size):
        part = phi[first : first + size]
        batch[: len(part)] = part
        np.dot(batch[: len(part)], weights, out=values[first : first + size])
    return values


def check_not_overflowed(name: str, values: Array) -> None:
    """Refuse features from which predictions are not finite."""
    if not np.isfinite(values).all():
        raise InvalidInputError(f"`{name}` must not be so large that predictions overflow. Scale features to order 1.")
