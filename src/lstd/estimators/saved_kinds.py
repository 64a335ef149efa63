"""Estimators of records in files: the only place that knows which class a record is of."""

from __future__ import annotations

import os

from lstd.estimators.horizon_lstd import HorizonLSTD
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.lstd import LSTD
from lstd.estimators.lstd_cv import LSTDCV, estimator_of
from lstd.estimators.model import SavedModel


def estimator_of_record(record: SavedModel | HorizonModel, path: str | os.PathLike[str]) -> LSTD | LSTDCV | HorizonLSTD:
    """Return the estimator of what the file at a path holds."""
    if isinstance(record, HorizonModel):
        return HorizonLSTD.of_record(record, path)
    return estimator_of(record.model())
