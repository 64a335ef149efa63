"""Least-squares temporal-difference prediction.

From sequences of features and rewards, a linear prediction of the discounted sum of future rewards at every step.

LSTD, LSTDStatistics
    The estimator for whole data and chunks of a stream, and the statistics behind it, which merge exactly.
fit_files
    A model of tables in files that need not fit in memory.
LSTDCV
    The same with its settings chosen from the data.
RecursiveLSTD, TD, TrueOnlineTD
    Prediction that is up to date after every step.
Trajectories
    Rows of the data contract from tables, Gymnasium environments and Minari datasets.
inference, metrics, persistence, report
    Intervals; errors against exact values; files of fitted models; figures and pages.
distributed
    The same model from chunks that are summed by many processes or machines.
mrp, experiments
    Markov reward processes with exact values; the experiments of Osogami (AAAI-20).

Everything is imported when it is first used, since scikit-learn and Numba take their time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.estimators import LSTD
    from lstd.model_selection import LSTDCV
    from lstd.online import TD, RecursiveLSTD, TrueOnlineTD
    from lstd.statistics import LSTDStatistics
    from lstd.tables.out_of_core import fit_files
    from lstd.trajectories import Trajectories

__version__ = "0.1.0"

__all__ = ["LSTD", "LSTDCV", "TD", "LSTDStatistics", "RecursiveLSTD", "Trajectories", "TrueOnlineTD", "fit_files"]

_SUBMODULES = (
    "distributed", "errors", "experiments", "inference", "metrics", "model_selection", "mrp", "persistence", "report",
)  # fmt: skip
_HOMES = {
    "LSTD": "estimators",
    "LSTDCV": "model_selection",
    "LSTDStatistics": "statistics",
    "RecursiveLSTD": "online",
    "TD": "online",
    "Trajectories": "trajectories",
    "TrueOnlineTD": "online",
    "fit_files": "tables.out_of_core",
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"lstd.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"lstd.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'lstd' has no attribute {name!r}")


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *_SUBMODULES, *__all__})
