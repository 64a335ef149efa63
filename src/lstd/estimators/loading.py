"""The estimator of a fitted model."""

from __future__ import annotations

from lstd.estimators.lstd import LSTD
from lstd.estimators.lstd_cv import LSTDCV
from lstd.estimators.model import Model


def estimator_of(model: Model) -> LSTD | LSTDCV:
    """Return an estimator with this fitted state: an LSTDCV if its settings were chosen, else an LSTD."""
    return LSTD.of_model(model) if model.selection is None else LSTDCV.of_model(model)
