"""Load a file as the estimator, or the statistics, that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.estimators.lstd import LSTD
from lstd.estimators.lstd_cv import LSTDCV
from lstd.estimators.model import Model
from lstd.estimators.saving import unpack_model
from lstd.io.archive import read
from lstd.statistics.merging import LSTDStatistics, unpack_statistics

Build = Callable[[dict[str, Any], dict[str, NDArray[np.float64]]], Model | LSTDStatistics]


def estimator_of(model: Model) -> LSTD | LSTDCV:
    """Return an estimator with this fitted state: an LSTDCV if its settings were chosen, else an LSTD."""
    return LSTD.of_model(model) if model.selection is None else LSTDCV.of_model(model)


def load(path: str | os.PathLike[str]) -> LSTD | LSTDCV | LSTDStatistics:
    """Load a file that `save` of an LSTD, an LSTDCV or LSTDStatistics wrote.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    LSTD, LSTDCV or LSTDStatistics
        Equal to the saved one in every bit. Files keep intervals but not the blocks of the data, so there are no
        intervals after a `partial_fit`.

    Raises
    ------
    InvalidInputError
        When there is no such file, or it is damaged, of another kind, or of another version of the format.

    Examples
    --------
    >>> import tempfile, lstd, numpy as np
    >>> model = lstd.LSTD(gamma=0.5, lmbda=0.0, alpha=0.0).fit(np.ones((3, 1)), np.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     lstd.load(f"{folder}/model").predict([[1.0]])
    array([2.])
    """
    builds: dict[str, Build] = {"model": unpack_model, "statistics": unpack_statistics}
    content = read(path, builds)
    return content if isinstance(content, LSTDStatistics) else estimator_of(content)
