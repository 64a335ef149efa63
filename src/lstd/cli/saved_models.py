"""The two kinds of model that `lstd fit` writes, and what the commands do with each.

No other part of the shell asks of which kind a model is. What only some commands need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lstd.data.roles import Roles
from lstd.data.takes import OF_RETURNS, check_not_lacking
from lstd.errors import InvalidInputError
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.linear import Linear
from lstd.estimators.model import Model, SavedModel
from lstd.estimators.model_parts import MisfitCheck, Origin
from lstd.estimators.summary import Summary
from lstd.files import read_record, write_record

if TYPE_CHECKING:
    from lstd.cli.given import ScoreOptions
    from lstd.estimators.base import Predictor
    from lstd.estimators.horizon_lstd import HorizonLSTD
    from lstd.estimators.pair_search import OnProgress
    from lstd.tables.first_rows import FirstRows
    from lstd.tables.scoring import Score

_NAME_COLUMN = "Name its column."


@dataclass(frozen=True)
class OfReturns:
    """A model of all rewards that follow."""

    model: Model

    def linear(self, horizons: Sequence[int | tuple[int, int]] | None, path: str) -> Linear:
        """Return what predicts; raises InvalidInputError if numbers of steps are given."""
        if horizons is not None:
            raise InvalidInputError(f"`--horizon` needs a model that `lstd fit --horizon` wrote, not {path}.")
        return self.model.linear

    def horizons(self, given: Sequence[int] | None) -> Sequence[int]:
        """Return the numbers of steps to compare; none unless some are given."""
        return given or []

    @property
    def misfit(self) -> MisfitCheck | None:
        """What a check for misfit found, if it ran, which is said beside intervals."""
        return self.model.misfit

    def check_scored(self, roles: Roles, given: ScoreOptions) -> None:
        """Refuse to compare predictions with returns of another kind."""
        if given.horizon is not None:
            raise InvalidInputError(
                f"`--horizon` needs `--backtest`, or a model of the next steps; {given.model} predicts the sum of all."
            )
        self.model.check_given(roles.transitions, remedy=_NAME_COLUMN)

    def scores(
        self, tables: Sequence[Any], roles: Roles, given: ScoreOptions, on_progress: OnProgress
    ) -> dict[int | None, Score]:
        """Return the score of the returns, under None."""
        from lstd.tables.scoring import score_tables

        score = score_tables(
            self.model.linear,
            tables,
            roles,
            unobserved=given.unobserved,
            tolerance=given.tolerance,
            on_progress=on_progress,
        )
        return {None: score}

    def treatment(self, given: ScoreOptions) -> dict[str, str | float]:
        """Return how returns that were not observed are treated, by option."""
        return {"unobserved": given.unobserved, "tolerance": given.tolerance}

    def estimator(self, path: str) -> Predictor:
        """Return the estimator of the model, which scikit-learn knows."""
        from lstd.estimators.lstd_cv import estimator_of

        return estimator_of(self.model)

    def unfitted(self, path: str) -> Predictor:
        """Return an estimator with the same settings, for features without names."""
        return self.estimator(path)

    def write(self, path: Path) -> None:
        """Write the model to a file."""
        write_record(path, SavedModel.of(self.model))

    def text(self, path: str, report: Mapping[str, str] | None) -> str:
        """Describe the model; with a `report`, facts about one that may be empty, without tables of coefficients."""
        summary = Summary(self.model, path)
        if report is None:
            return str(summary)
        return summary.text(**report)

    def document(self, path: str) -> Mapping[str, Any]:
        """Describe the model for programs."""
        return Summary(self.model, path).document

    def page(self, sample: FirstRows, columns: Mapping[str, Any], which: str) -> str:
        """Return the report of the model on the rows of a sample; `which` says which rows these are."""
        from lstd.report.figure_data import evaluate
        from lstd.report.model_page import model_page

        named: dict[str, Any] = sample.named()
        evaluation = evaluate(
            self.estimator(""),
            **columns,
            **named,
            rewards=self.model.reward_names,
            warn=False,
            checked=self.model.checks,  # on the same rows
        )
        return model_page(evaluation, f"LSTD(λ) for {_files(self.model.origin)}{which}")


@dataclass(frozen=True)
class OfSteps:
    """A model of the rewards in the next 1, 2, … steps."""

    model: HorizonModel
    fitted: HorizonLSTD | None = None  # the estimator, if the model was fitted here

    def linear(self, horizons: Sequence[int | tuple[int, int]] | None, path: str) -> Linear:
        """Return what predicts the numbers of steps that are given, by default the longest."""
        return self.model.at(horizons or ())

    def horizons(self, given: Sequence[int] | None) -> Sequence[int]:
        """Return the numbers of steps to compare, by default the longest; raises InvalidInputError for longer ones."""
        longest = self.model.stream.horizon
        steps = given or [longest]
        if max(steps) > longest:
            raise InvalidInputError(f"`--horizon` must be at most {longest}, as in `lstd fit`; got {max(steps)}.")
        return steps

    def check_scored(self, roles: Roles, given: ScoreOptions) -> None:
        """Refuse to compare more steps than the model has, or predictions with returns of another kind."""
        self.horizons(given.horizon)
        check_not_lacking(self.model.unusual, roles.transitions, OF_RETURNS, _NAME_COLUMN)

    def scores(
        self, tables: Sequence[Any], roles: Roles, given: ScoreOptions, on_progress: OnProgress
    ) -> dict[int | None, Score]:
        """Return the score of each number of steps."""
        from lstd.tables.scoring import all_rows, score_horizons

        steps = self.horizons(given.horizon)
        rows, _ = all_rows(tables, roles, self.model.settings.gamma, on_progress)
        scores = score_horizons(self.model, rows, steps, given.unobserved)
        return dict(zip(steps, scores, strict=True))

    def treatment(self, given: ScoreOptions) -> dict[str, str | float]:
        """Return how returns that were not observed are treated, by option."""
        return {"unobserved": given.unobserved}

    @property
    def misfit(self) -> MisfitCheck | None:
        """What is said beside intervals: nothing, since the check was of the longest horizon alone."""
        return None

    def estimator(self, path: str) -> HorizonLSTD:
        """Return the estimator of the model, which scikit-learn knows."""
        from lstd.estimators.horizon_lstd import HorizonLSTD

        if self.fitted is not None:
            return self.fitted
        return HorizonLSTD.of_record(self.model, path)

    def unfitted(self, path: str) -> HorizonLSTD:
        """Return an estimator with the same settings, for features without names."""
        from sklearn.base import clone

        estimator: HorizonLSTD = clone(self.estimator(path))
        if self.model.age is not None:
            estimator.set_params(age=self.model.age.place)
        return estimator

    def write(self, path: Path) -> None:
        """Write the model to a file."""
        write_record(path, self.model.saved)

    def text(self, path: str, report: Mapping[str, str] | None) -> str:
        """Describe the model, and a `report` of it."""
        facts = {**self.model.facts, **(report or {})}
        lines = [path]
        for name, value in facts.items():
            text = value
            if isinstance(value, tuple):
                text = ", ".join(value)
            lines.append(f"{name:<16}{text}")
        return "\n".join(lines)

    def document(self, path: str) -> Mapping[str, Any]:
        """Describe the model for programs."""
        return self.model.facts

    def page(self, sample: FirstRows, columns: Mapping[str, Any], which: str) -> str:
        """Return the report of the model on the rows of a sample; `which` says which rows these are."""
        from lstd.report.model_page import steps_page

        title = f"The next {self.model.stream.horizon} steps for {_files(self.model.origin)}{which}"
        return steps_page(self.estimator(""), title=title, **columns)


SavedKind: TypeAlias = OfReturns | OfSteps


def _files(origin: Origin | None) -> str:
    """Return the names of the files of a fit."""
    assert origin is not None  # tables have files
    return ", ".join(origin.files)


def read_saved(path: str) -> SavedKind:
    """Read a model of either kind."""
    saved: SavedModel | HorizonModel = read_record(path, SavedModel, HorizonModel)
    if isinstance(saved, SavedModel):
        return OfReturns(saved.model())
    return OfSteps(saved)
