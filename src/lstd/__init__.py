"""Least-squares temporal-difference prediction.

From sequences of features and rewards, `lstd` learns a linear prediction of the discounted sum of future rewards.

LSTD, LSTDStatistics
    The estimator, for data at once or in chunks, and its sums over the data, which merge exactly.
fit_tables, fit_chunks
    Models of data too large for memory, one core or one machine: with named columns, or as arrays.
LSTDCV
    The estimator that chooses its settings from the data.
HorizonLSTD
    The value of the next steps, such as twelve months, for all numbers of steps up to a horizon.
RecursiveLSTD, TD, TrueOnlineTD
    Estimators that learn from every step as it comes.
Trajectories
    Rows of the data contract from tables, logs of events, Gymnasium environments and Minari datasets.
load
    Whatever `save` wrote: an LSTD, an LSTDCV, an LSTDQ or LSTDStatistics.
inference, metrics, report
    Intervals and checks; errors against exact values; figures and pages.
ope
    Policy evaluation from logged actions: action values, values of policies with intervals.
datasets
    Small simulated tables with known truth.
mrp, experiments
    Markov reward processes with exact values; the experiments of Osogami (AAAI-20).

Names are imported when they are first used, because scikit-learn and Numba take seconds to import.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from lstd.version import __version__ as __version__

if TYPE_CHECKING:
    from lstd.distributed.fit_chunks import fit_chunks
    from lstd.estimators.horizon_lstd import HorizonLSTD
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV
    from lstd.estimators.return_spread import ReturnSpread
    from lstd.online import TD, RecursiveLSTD, TrueOnlineTD
    from lstd.ope import LSTDQ
    from lstd.statistics.merging import LSTDStatistics
    from lstd.tables.fit_tables import fit_tables
    from lstd.trajectories import Trajectories

__all__ = [
    "LSTD",
    "LSTDCV",
    "TD",
    "HorizonLSTD",
    "LSTDStatistics",
    "RecursiveLSTD",
    "Trajectories",
    "TrueOnlineTD",
    "fit_chunks",
    "fit_tables",
    "load",
]

_MODULES = ("datasets", "errors", "experiments", "inference", "metrics", "mrp", "ope", "report")
_HOMES = {
    "HorizonLSTD": "lstd.estimators.horizon_lstd",
    "LSTD": "lstd.estimators.lstd",
    "LSTDCV": "lstd.estimators.lstd_cv",
    "LSTDStatistics": "lstd.statistics.merging",
    "RecursiveLSTD": "lstd.online",
    "TD": "lstd.online",
    "Trajectories": "lstd.trajectories",
    "TrueOnlineTD": "lstd.online",
    "fit_chunks": "lstd.distributed.fit_chunks",
    "fit_tables": "lstd.tables.fit_tables",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"lstd.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'lstd' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *_MODULES, *__all__})


def load(path: str | os.PathLike[str]) -> LSTD | LSTDCV | HorizonLSTD | LSTDStatistics | LSTDQ | ReturnSpread:
    """Load a file that `save` of an LSTD, LSTDCV, HorizonLSTD, LSTDQ, ReturnSpread or LSTDStatistics wrote.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    LSTD, LSTDCV, HorizonLSTD, LSTDQ, ReturnSpread or LSTDStatistics
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
    from lstd.estimators.horizon_model import HorizonModel
    from lstd.estimators.model import SavedModel
    from lstd.estimators.return_spread import ReturnSpread, SavedSpread
    from lstd.estimators.saved_kinds import estimator_of_record
    from lstd.files import read_record
    from lstd.ope.lstdq import LSTDQ, SavedActionValues
    from lstd.statistics.merging import LSTDStatistics

    saved: SavedModel | HorizonModel | LSTDStatistics | SavedActionValues | SavedSpread
    saved = read_record(path, SavedModel, HorizonModel, LSTDStatistics, SavedActionValues, SavedSpread)
    if isinstance(saved, LSTDStatistics):
        return saved
    if isinstance(saved, SavedSpread):
        return ReturnSpread.of_record(saved, path)
    if isinstance(saved, SavedActionValues):
        return LSTDQ.of_record(saved)
    return estimator_of_record(saved, path)
