"""Fitted models in files: arrays and a JSON document, nothing executable, checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from lstd.data.settings import Settings
from lstd.estimators.check_results import Checks
from lstd.estimators.model import LSTD_OPTIONS, LSTDCV_OPTIONS, Model, Origin, Selection
from lstd.files import read_record, write_record
from lstd.statistics.blocks import Blocks
from lstd.statistics.covariance import Influence
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import Solution
from lstd.types import Array

_RESULTS = {"lmbda", "observed_share", "rank_test_score"}
_GONE = (
    "Intervals need the blocks of the data, which files do not keep: this model was loaded and fitted further. Fit it "
    "to all data at once."
)


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a file holds of a model; raises ValueError if the parts do not fit together."""

    file_kind = "model"

    statistics: LSTDStatistics
    settings: Settings
    solution: Solution
    no_intervals: str  # why there is no influence; empty if there is
    influence: Influence | None
    rewards: tuple[str, ...] | None
    options: Mapping[str, Any]
    origin: Origin | None
    selection: Selection | None
    checks: Checks | None
    doubts: tuple[str, ...]
    bounds: Annotated[Array, "2 m nan"] | None
    ranges: Annotated[Array, "2 features nan"] | None

    def __post_init__(self) -> None:
        s, settings, choice, influence = self.statistics, self.settings, self.selection, self.influence
        settings.ridge(s.n_features - settings.fit_intercept)  # checks the number of coefficients
        checks = [] if self.checks is None else [self.checks.bias, self.checks.misfit]
        numbers = [number for check in checks if not isinstance(check, str) for number in vars(check).values()]
        fitting = (
            (settings.gamma, settings.lmbda) == (s.gamma, s.lmbda),
            s.has_intercept == settings.fit_intercept,
            not (settings.choose or settings.unpenalised),
            bool(self.no_intervals) == (influence is None),
            influence is None or influence.intercept == settings.fit_intercept,
            settings.centre is None or len(settings.centre) == s.n_features - settings.fit_intercept,
            self.ranges is None or self.ranges.shape[1] == s.n_features - settings.fit_intercept,
            self.rewards is None or len(self.rewards) == s.n_rewards,
            {*self.options} <= {*(LSTD_OPTIONS if choice is None else LSTDCV_OPTIONS)},
            choice is None or (choice.results.keys() >= _RESULTS and len(choice.results["lmbda"]) > 0),
            all(number is None or np.ndim(number) == (not s.single) for number in numbers),
        )
        if not all(fitting):
            raise ValueError(fitting)

    @classmethod
    def of(cls, model: Model) -> SavedModel:
        """Return what a file holds of a model."""
        options = {name: np.asarray(value).tolist() for name, value in model.options.items()}
        return cls(
            model.statistics, replace(model.settings, choose=(), unpenalised=()), model.solution, model.no_intervals,
            None if model.no_intervals else model.influence, model.rewards, options, model.origin,
            model.selection, model.checks, model.doubts, model.bounds, model.ranges,
        )  # fmt: skip

    def model(self) -> Model:
        """Return the model, without the blocks of its data."""
        return Model(
            Blocks(self.statistics, limit=0, reason=self.no_intervals or _GONE), self.settings, self.rewards,
            self.origin, self.selection, self.options, self.checks, saved_solution=self.solution,
            saved_influence=self.influence, doubts=self.doubts, bounds=self.bounds,
            ranges=self.ranges,
        )  # fmt: skip


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file; see :meth:`lstd.LSTD.save`."""
    write_record(path, SavedModel.of(model))


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a file that :func:`write_model` wrote; see :func:`lstd.load`."""
    saved: SavedModel = read_record(path, SavedModel)
    return saved.model()
