"""Action values in files: the model of the pairs, the actions, and what the value of the policy needs of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.feature_matrix import Features
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.estimators.saving import pack_model, unpack_model
from lstd.ope.state_action_features import StateActionFeatures
from lstd.ope.trace_coefficients import TRACES
from lstd.statistics.packing import count, finite, number, shaped, texts

Array = NDArray[np.float64]

KIND = "model of action values"
_PARTS = ("data", "indices", "indptr")  # of sparse states


def pack_action_values(
    model: Model, features: StateActionFeatures, initial: tuple[Features, Array], **about: Any
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the document and the arrays of a file; `about` has the trace, the names of features and counts of pairs.

    Raises InvalidInputError if the features of pairs are a function, or labels are neither numbers nor text.
    """
    if features.phi is not None:
        raise InvalidInputError(
            "`features` must have no function to be saved, as files hold nothing executable; got "
            f"{features.phi!r:.80}. Save `lstd_`, the model of the pairs, and predict from "
            "`features_.transform(X, actions)`."
        )
    if features.labels.dtype.kind not in "biufU":
        raise InvalidInputError(
            "`features` must have labels of one type to be saved, numbers or text; got "
            f"{features.labels.tolist()!r:.80}. Number the actions 0, 1, …."
        )
    document, arrays = pack_model(model)
    X, P = initial
    states = {"initial_states": X}
    if sparse.issparse(X):
        states = {f"initial_{part}": getattr(X, part).astype(np.float64) for part in _PARTS}
    document[KIND] = {"labels": features.labels.tolist(), "n_features": X.shape[1], **about}
    return document, arrays | states | {"initial_policy": P}


def unpack_action_values(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return what a fitted LSTDQ consists of; raises the errors that :func:`lstd.io.archive.read` catches."""
    about, model = document[KIND], unpack_model(document, arrays)
    features, n, names = StateActionFeatures(about["labels"]), count(about["n_features"]), about["names"]
    P = finite(arrays["initial_policy"])
    if "initial_states" in arrays:
        X: Features = finite(shaped(arrays["initial_states"], len(P), n))
    else:
        data, indices, indptr = (arrays[f"initial_{part}"] for part in _PARTS)
        X = sparse.csr_array((finite(data), indices.astype(np.int64), indptr.astype(np.int64)), shape=(len(P), n))
        X.check_format()
    if P.shape[1] != features.n_actions or n * features.n_actions != model.n_features or about["trace"] not in TRACES:
        raise ValueError(about)
    if names is not None and len(texts(names)) != n:
        raise ValueError(names)
    unlogged, pairs = map(number, about["unlogged"])
    return {
        "model": model, "features": features, "n_features": n, "names": names, "trace": about["trace"],
        "initial": (X, P), "unlogged": (unlogged, pairs),
    }  # fmt: skip
