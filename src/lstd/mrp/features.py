"""Features of states: tabular, binary, normal (van Seijen et al. 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_choice
from lstd.errors import InvalidInputError
from lstd.mrp.process import MRP
from lstd.mrp.random import RandomMRP

FEATURE_NAMES = ("tabular", "binary", "normal")


def make_features(model: MRP, name: str) -> NDArray[np.float64]:
    """Compute features of every state of `model`.

    Parameters
    ----------
    model : MRP
    name : {"tabular", "binary", "normal"}
        Unit vectors; the ⌈log2(k + 1)⌉ bits of s + 1, most significant first; or the five normals that a
        :class:`RandomMRP` draws per state. Binary and normal rows are scaled to length one.

    Returns
    -------
    ndarray of shape (k, n)

    Raises
    ------
    InvalidInputError
        When `name` is unknown, or is "normal" and the model is not a :class:`RandomMRP`.

    Examples
    --------
    >>> from lstd.mrp import RandomMRP, make_features
    >>> make_features(RandomMRP(3, 2, 0.0, seed=1), "binary").round(3)
    array([[0.   , 1.   ],
           [1.   , 0.   ],
           [0.707, 0.707]])
    """
    check_choice("features", name, FEATURE_NAMES)
    if name == "tabular":
        return np.eye(model.n_states)
    if name == "binary":
        numbers = np.arange(1, model.n_states + 1)[:, None]
        shifts = np.arange(model.n_states.bit_length())[::-1]  # k.bit_length() = ⌈log2(k + 1)⌉
        rows = ((numbers >> shifts) & 1).astype(np.float64)
    elif isinstance(model, RandomMRP):
        rows = model.normal_features
    else:
        raise InvalidInputError(
            f"`features` 'normal' exist only for a RandomMRP; got a {type(model).__name__}. "
            "Pass a matrix of features of shape (n_states, n_features) instead."
        )
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
