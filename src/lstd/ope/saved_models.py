"""Load a file as the estimator, or the statistics, that was saved."""

from __future__ import annotations

import os
from typing import Any

from lstd.estimators.lstd import LSTD
from lstd.estimators.lstd_cv import LSTDCV, estimator_of
from lstd.estimators.saving import SavedModel
from lstd.io.saved import read_record
from lstd.ope.action_value_files import SavedActionValues
from lstd.ope.lstdq import LSTDQ
from lstd.statistics.merging import LSTDStatistics


def load(path: str | os.PathLike[str]) -> LSTD | LSTDCV | LSTDStatistics | LSTDQ:
    """Load a file that `save` of an LSTD, an LSTDCV, an LSTDQ or LSTDStatistics wrote.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    LSTD, LSTDCV, LSTDQ or LSTDStatistics
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
    saved: Any = read_record(path, SavedModel, LSTDStatistics, SavedActionValues)
    if isinstance(saved, SavedModel):
        return estimator_of(saved.model())
    return LSTDQ.of_record(saved) if isinstance(saved, SavedActionValues) else saved
