"""The fitted state of LSTD and LSTDCV, without scikit-learn: sums, settings, what follows from them, and files.

A :class:`Model` is never changed. What follows from its sums and settings (the solution, and the influence of blocks)
is computed when first used, and gives no warnings. :meth:`Model.reported` gives those about the system, and returns the
model that remembers them, so that a stream has each of them once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.doubts import (
    COMPLETED,
    FEWEST,
    HARD_TO_CHOOSE,
    growing_doubt,
    little_observed,
    small,
    support_doubt,
    warn_of_breaks,
    warn_of_ratios,
    warn_of_unused,
    with_backtest,
)
from lstd.data.feature_arrays import Features, values_of
from lstd.data.read_only import read_only
from lstd.data.returns import mean_squared_residual
from lstd.data.rows import Record, Rows
from lstd.data.seen_ids import episodes_seen
from lstd.data.settings import Settings
from lstd.data.takes import OF_RETURNS, check_not_lacking
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    RidgeWarning,
    SupportWarning,
    UnobservedWarning,
    warn,
)
from lstd.estimators.limits import SMALLER, Limits, beyond_bounds, negative_values
from lstd.estimators.linear import Linear
from lstd.estimators.model_parts import Checks, MatrixFree, MisfitCheck, Origin, Selection, Solved, needs_matrix
from lstd.files import read_record, write_record
from lstd.statistics.adding import features_at_end
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.statistics.counts import check_weighted
from lstd.statistics.intervals import Influence, Interval, influence_of
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.ridge import Scales, warn_of_ridge
from lstd.statistics.solve import Solution
from lstd.statistics.system import System
from lstd.types import Array, Flags

_SOLVER = ("solver", "tol", "max_iter")
OPTIONS = ("n_blocks", *_SOLVER)  # parameters of LSTD that are not settings
CV_OPTIONS = ("lmbdas", "alphas", "cv", "n_jobs", "n_blocks", "verbose", "penalty", *_SOLVER)
_RESULTS = {"lmbda", "observed_share", "rank_test_score"}
_OF_ROWS = frozenset({"ends", "breaks"})  # warnings that rows call for as they come, before weights are read
_SEVERAL = 10  # episodes that were cut off: a stream that is short says nothing about its end
_GONE = (
    "Intervals need the blocks of the data, which files do not keep: this model was loaded and fitted further. Fit it "
    "to all data at once."
)


@dataclass(frozen=True, eq=False)
class Model(Record):
    """A fitted model; n features, m rewards."""

    blocks: Blocks  # sums over the data; with an intercept, the last feature is the column of ones
    settings: Settings
    rewards: tuple[str, ...] | None = None  # names of the rewards, if given
    origin: Origin | None = None  # the files of the data, if any
    selection: Selection | None = None  # how `lmbda` and `alpha` were chosen; None if they were given
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters of the estimator that are not settings
    checks: Checks | None = None  # of the first rows, after a choice of settings or for a report
    warned: frozenset[str] = frozenset()  # warnings that the stream has had: "ends", "breaks", "ratios", "unused", …
    is_reported: bool = False  # whether the warnings about the system were given
    ridge_at: int = 0  # transitions at the last look at the ridge term, which comes again when they have doubled
    episodes: Any = None  # ids of the episodes so far, as of :func:`episodes_seen`; files do not keep them
    threads: int | None = None  # that compute the influence of blocks; by default the limit of the BLAS
    tested: str = ""  # what a backtest of the estimator said
    said: tuple[str, ...] = ()  # what rows of the fit say against its predictions, as warnings did
    limits: Limits | None = None  # ranges of rewards and features, if the rows are known
    negative: str = ""  # that predictions are negative where no reward is, and what to do
    compared: bool = False  # whether predictions for the rows of the fit were compared with what rewards allow
    matrix_free: MatrixFree | None = None  # of a model without the matrix; its sums are over the column of ones alone
    known: Solved | None = None  # the solution, if it does not come from the sums: without the matrix, or from a file

    # ------------------------------------------------------------ rows

    @classmethod
    def of_rows(
        cls,
        rows: Rows,
        settings: Settings,
        options: Mapping[str, Any],
        *,
        warned: frozenset[str] = frozenset(),
        **fields: Any,
    ) -> Model:
        """Return the model of the first rows of a stream, checked rows without the column of ones.

        Warns of broken episodes, unless that is among the warnings in `warned`.
        """
        limits = Limits.of_rows(rows)
        if settings.fit_intercept:
            rows = rows.with_intercept(settings.centre)
        blocks = no_blocks(rows, settings.lmbda, options["n_blocks"]).extended(rows)
        episodes = None
        if rows.episode is not None:
            episodes = episodes_seen(rows)
        return cls.of(
            blocks=blocks,
            settings=settings,
            options=options,
            limits=limits,
            warned=warned_of(rows, settings, warned),
            episodes=episodes,
            **fields,
        )

    def then(self, rows: Rows, settings: Settings, options: Mapping[str, Any], forgetting: float) -> Model:
        """Return the model of the stream with its next rows, as :meth:`of_rows` takes them, and with these settings."""
        total = self.blocks.total
        if not total.n_rows:
            return self.of_rows(rows, settings, options, warned=self.warned, rewards=self.rewards)

        goes_on = False
        if len(rows):
            goes_on = total.continued_by(rows)
        last = total.last if goes_on else None
        successor = None  # of the last row, if it was given: the first row should be equal to it
        if last is not None and last.X_next is not None:
            successor = features_at_end(last)

        warned = self.warned
        if self.is_reported:
            warned |= self.due_warnings
        limits = self.limits
        if limits is not None:
            limits = limits.then(rows, last)
        episodes = self.episodes
        if rows.episode is not None:
            episodes = episodes_seen(rows, self.episodes, continues=goes_on)
        if settings.fit_intercept:
            rows = rows.with_intercept()
        blocks = self.blocks
        if forgetting < 1.0:
            blocks = blocks.scaled(forgetting)
        if len(rows):
            blocks = blocks.extended(rows, goes_on=goes_on)
        return Model.of(
            blocks=blocks,
            settings=settings,
            rewards=self.rewards,
            options=options,
            limits=limits,
            warned=warned_of(rows, settings, warned, successor),
            ridge_at=self.ridge_at,
            episodes=episodes,
            said=self.said,
        )

    def described(self, **about: Any) -> Self:
        """Return the model with more of what is said about it, without solving again; sums and settings stay."""
        values = vars(self) | about
        values.pop("linear", None)  # it holds some of what is said
        return self.of(**values)

    # ------------------------------------------------------------ what it is a model of

    @property
    def statistics(self) -> LSTDStatistics:
        """Sums over the data."""
        return self.blocks.total

    @cached_property
    def n_features(self) -> int:
        """Number of features, without the column of ones."""
        if self.matrix_free is not None:
            return len(self.matrix_free.unseen)
        return self.statistics.n_features - self.settings.fit_intercept

    @property
    def n_given(self) -> int:
        """Number of features as they are given."""
        return self.n_features

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if given."""
        if self.matrix_free is not None:
            return self.matrix_free.names
        names: tuple[str, ...] | None = self.statistics.feature_names
        return names

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, … if none were given."""
        if self.names is not None:
            return self.names
        return tuple(f"x{i}" for i in range(self.n_features))

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Names of the rewards; ``reward``, or reward_0, reward_1, …, if none were given."""
        if self.rewards is not None:
            return self.rewards
        m = self.statistics.n_rewards
        if m == 1:
            return ("reward",)
        return tuple(f"reward_{j}" for j in range(m))

    @property
    def ridge(self) -> Array:
        """Ridge coefficient of each weight; zero for the column of ones."""
        ridge = np.zeros(self.n_features + self.settings.fit_intercept)
        ridge[: self.n_features] = self.settings.ridge(self.n_features)
        return ridge

    @property
    def misfit(self) -> MisfitCheck | None:
        """Result of the check for misfit, if it ran."""
        if self.checks is None or isinstance(self.checks.misfit, str):
            return None
        return self.checks.misfit

    # ------------------------------------------------------------ what follows from sums and settings

    @property
    def system(self) -> System:
        """The system that the weights solve; of centred features, if the settings have a centre."""
        return _system_of(self.statistics, self.settings)

    @cached_property
    def solution(self) -> Solution:
        """Weights of shape (n, m), in the last row the weights of the column of ones, if any."""
        if self.known is not None:
            return self.known.solution
        return self._solution_of(self.system)

    def _solution_of(self, system: System) -> Solution:
        solution = system.solve()
        if self.settings.centre is None:
            return solution
        return replace(solution, weights=self.settings.uncentred(solution.weights.T).T)

    @property
    def influence(self) -> Influence:
        """Influence of each block of the data on the weights.

        Raises
        ------
        InvalidInputError
            When there are no blocks, or too few.
        """
        return read_only(self._influence_of_blocks.found)

    @cached_property
    def _influence_of_blocks(self) -> _InfluenceOfBlocks:
        return _InfluenceOfBlocks(self.blocks, self.settings, self.solution, self.known, self.threads)

    @property
    def no_intervals(self) -> str:
        """Why the model has no intervals; empty if it has."""
        return self.linear.no_intervals

    @property
    def _centred_weights(self) -> Array:
        """Weights of the features less their centre, (n, m), which solve the system."""
        return _centred(self.solution, self.settings)

    @cached_property
    def unseen(self) -> Flags:
        """Features that are zero wherever a full transition starts, (n,): no data bears on their weights."""
        if self.matrix_free is not None:
            return read_only(self.matrix_free.unseen)
        statistics = self.statistics
        if statistics.A.diagonal()[: self.n_features].all():  # the usual case, in less time
            return read_only(np.zeros(self.n_features, np.bool_))
        has_entries = [np.any(sums, axis=1) for sums in (statistics.A, statistics.B, statistics.b)]
        unseen: Flags = ~np.logical_or.reduce(has_entries)[: self.n_features]
        if self.settings.centre is not None:  # zeros are not zeros less the centre
            unseen &= np.array(self.settings.centre) == 0.0
        return read_only(unseen)

    @property
    def degrees_of_freedom(self) -> Array:
        """Effective degrees of freedom of the features, (n,): the diagonal of (A + αI)⁻¹ A."""
        if self.matrix_free is not None:
            raise InvalidInputError(needs_matrix("effective_degrees_of_freedom"))
        system = self.system
        diagonal = system.solve(system.A).weights.diagonal()
        return np.array(diagonal[: self.n_features])

    @property
    def bounds(self) -> Array | None:
        """Least and greatest value that the rewards of the fit allow, (2, m); None if they are not known."""
        return self.linear.bounds

    # ------------------------------------------------------------ the fitted function

    @cached_property
    def linear(self) -> Linear:
        """The fitted function, which predicts."""
        return Linear(
            self.coef,
            self.intercept,
            self.names,
            self.reward_names,
            self._influence_of_blocks,
            unseen=self.unseen,
            limits=self.limits,
            settings=self.settings,
            compared=self.compared,
            has_ones=self.settings.fit_intercept,
        )

    @cached_property
    def coef(self) -> Array:
        """Weights of the features, shape (n,) for one reward given as a vector, else (m, n)."""
        weights = read_only(self.solution.weights)[: self.n_features]
        if self.statistics.single:
            return read_only(np.ascontiguousarray(weights[:, 0]))
        return read_only(np.ascontiguousarray(weights.T))

    @cached_property
    def intercept(self) -> float | Array:
        """Weight of the column of ones, a number or of shape (m,); zero without it."""
        weights = np.zeros(self.statistics.n_rewards)
        if self.settings.fit_intercept:
            weights = self.solution.weights[-1].copy()
        if self.statistics.single:
            return float(weights[0])
        return read_only(weights)

    def predict(self, phi: Features) -> Array:
        """Predict values, shape (T,) or (T, m), from features (T, n); refuse those that are not finite."""
        return self.linear.predict(phi)

    def interval(
        self, phi: Features, level: float, weights: ArrayLike | None = None, scale: str = "identity"
    ) -> Interval:
        """Compute intervals for values; see :meth:`lstd.estimators.linear.Linear.interval`."""
        return self.linear.interval(phi, level, weights, scale)

    # ------------------------------------------------------------ errors and warnings

    def checked(self) -> Model:
        """Return the model of a fit that is complete, so that errors and warnings about its weights are given here."""
        check_weighted(self.statistics.total_weight, self.statistics.n_transitions)
        return self.reported()

    def reported(self) -> Model:
        """Give the warnings about the system and its data, unless the stream has had them; return the model with them.

        The ridge term is looked at again when the transitions have doubled.
        """
        if self.is_reported:
            return self
        if self.known is not None:
            self._warn_of_data()
            return self.described(is_reported=True)
        system = self.system
        solution = self._solution_of(system)
        warned = system.warn_of_condition(solution, self.warned)
        self._warn_of_data()
        solved = self.described(solution=solution, is_reported=True, warned=warned)  # which need not be solved again
        n = self.statistics.n_transitions
        if n < 2 * self.ridge_at:
            return solved
        if not solution.singular:
            chosen = self.selection is not None
            warn_of_ridge(
                system,
                solved._centred_weights,
                self.statistics.gamma,
                chosen=chosen,
                condition=solution.condition_number,
            )
        return solved.described(ridge_at=n)

    def _warn_of_data(self) -> None:
        """Warn of small effective samples, unused rewards and hidden returns, unless the stream has had the warning."""
        statistics = self.statistics
        sample = statistics.counts.sample
        new = self.due_warnings - self.warned
        if "ratios" in new and sample is not None:
            warn_of_ratios(sample.size, sample.off_policy, statistics.lmbda)
        if "unused" in new:
            warn_of_unused(statistics.counts.unused, statistics.n_unused_rewards)
        if "unobserved" in new:
            warn(self.unobserved, UnobservedWarning)

    @property
    def lasting_warnings(self) -> frozenset[str]:
        """Names of the warnings that a file keeps, which do not depend on when a stream was read.

        Others that the stream has had come again only if the data call for them again.
        """
        of_weights = self.warned - _OF_ROWS
        if self.known is not None or not of_weights:
            return self.warned
        fault = self.system.fault_of(self.solution)
        return self.warned - (of_weights - {fault})

    @property
    def due_warnings(self) -> frozenset[str]:
        """Names of the warnings that the data call for: "ratios", "unused" and "unobserved"."""
        counts = self.statistics.counts
        names = set()
        if counts.sample is not None and any(small(counts.sample.size, self.statistics.lmbda)):
            names.add("ratios")
        if counts.unused:
            names.add("unused")
        if self.unobserved:
            names.add("unobserved")
        return frozenset(names)

    @property
    def unobserved(self) -> str:
        """Why predictions are doubtful if several episodes were cut off so early that most of the returns is hidden.

        Empty if that is not so. Where settings were chosen, held-out returns decide, also of two episodes.
        """
        statistics = self.statistics
        chosen = self.selection
        if chosen is not None:
            if statistics.gamma < 1.0 and statistics.n_episodes <= 1:
                return ""
            effect = HARD_TO_CHOOSE.effect.format(chosen.score, chosen.observed_score)
            text = little_observed(chosen.observed_share, HARD_TO_CHOOSE._replace(effect=effect))
            return with_backtest(text, self.tested)
        n_cuts = statistics.n_rows - statistics.n_transitions
        if n_cuts < _SEVERAL:
            return ""
        return with_backtest(little_observed(statistics.observed_share, COMPLETED), self.tested)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the data say against the predictions, as warnings did."""
        if self.unobserved:
            return (*self.said, self.unobserved)
        return self.said

    def with_doubts(self, rows: Rows) -> Model:
        """Return the fitted model with what the rows of the fit say against its predictions, and warn of it.

        Predictions are compared with bounds unless no weights solve the system, which was said before.
        """
        support = ""
        outside = ""
        negative = ""
        if not self.solution.unbounded:
            prediction = self.predict(rows.part).reshape(-1, rows.y.shape[1])
            outside = beyond_bounds(prediction, self.bounds, f"{SMALLER}, or clip=True in `predict`")
            if self.limits is not None:
                negative = negative_values(prediction, self.limits.rewards[0], "clip=True, an argument of predict,")
        if "importance_ratio" in rows.given:
            values = None
            if rows.single and not self.solution.unbounded:
                values = self.predict(rows.X)
            support = support_doubt(rows, rows.importance_ratio, values)
        texts: dict[type[Warning], str] = {
            SupportWarning: support,
            ExtrapolationWarning: growing_doubt(rows),
            BoundsWarning: outside,
            RidgeWarning: self._scales_doubt(rows),
        }
        return self._with_said(texts).described(compared=True, negative=negative)

    def with_doubts_of_chunk(self, rows: Rows) -> Model:
        """Return the model of a stream with what its next rows say against its predictions, and warn of it, once.

        Scales of features are those of the first rows.
        """
        if len(rows) < FEWEST:
            return self
        texts: dict[type[Warning], str] = {ExtrapolationWarning: growing_doubt(rows)}
        if self.statistics.n_rows == len(rows):
            texts[RidgeWarning] = self._scales_doubt(rows)
        return self._with_said(texts)

    def _scales_doubt(self, rows: Rows) -> str:
        """Say that predictions depend on the units of the features, if they do; nothing where `alpha` is for them."""
        settings = self.settings
        is_for_them = self.selection is not None or isinstance(settings.alpha, tuple)
        if is_for_them or self.matrix_free is not None or self.solution.unbounded:
            return ""
        scales = Scales.of(rows, self.ridge[: self.n_features], intercept=settings.fit_intercept)
        if scales is None:
            return ""
        system = self.system
        n = self.n_features
        if not scales.may_move(system.A.diagonal()[:n], self.solution.condition_number):
            return ""
        change = settings.uncentred(scales.moved_weights(system, self._centred_weights).T)
        part = rows.part
        moved = values_of(part, change.T)
        predictions = self.predict(part).reshape(moved.shape)
        return scales.doubt(moved, predictions, lambda: self._mean_squared_residual(rows))

    def _mean_squared_residual(self, rows: Rows) -> Array:
        """Compute the mean square of returns less predictions, (m,), where predictions complete returns at cuts."""
        prediction = self.predict(rows.X).reshape(rows.y.shape)
        ahead = None
        if rows.X_next is not None:
            ahead = self.predict(rows.X_next).reshape(rows.y.shape)
        return mean_squared_residual(rows, prediction, ahead)

    def _with_said(self, texts: Mapping[type[Warning], str]) -> Model:
        """Warn of texts that are not empty, unless the stream has had them, and add them to what was said."""
        said = self.said
        for category, text in texts.items():
            if text and text not in said:
                warn(text, category)
                said = (*said, text)
        if said == self.said:
            return self
        return self.described(said=said)

    def check_given(self, given: Collection[str], needed: Sequence[str] = OF_RETURNS, remedy: str = "") -> None:
        """Refuse rows that lack a column which the model was fitted with, of those `needed` to compare them with it."""
        fitted = self.statistics.about.unusual
        if self.statistics.n_groups is not None:
            fitted |= {"groups"}
        check_not_lacking(fitted, given, needed, remedy)


def _system_of(statistics: LSTDStatistics, settings: Settings) -> System:
    """Return the system that the weights of a model solve; of centred features, if the settings have a centre."""
    ridge = settings.ridge(statistics.n_features - settings.fit_intercept)
    return read_only(System.of(statistics, settings.variant, ridge, intercept=settings.fit_intercept))


def _centred(solution: Solution, settings: Settings) -> Array:
    """Return the weights of the features less their centre, (n, m), which solve the system."""
    return settings.uncentred(solution.weights.T, -1.0).T


@dataclass(frozen=True, eq=False)
class _InfluenceOfBlocks:
    """The influence of each block of the data on the weights of a model, computed when first asked for.

    A fitted function holds it in place of the model: each would keep the other in memory.
    """

    blocks: Blocks
    settings: Settings
    solution: Solution
    known: Solved | None
    threads: int | None

    def __call__(self) -> Influence:
        """Return the influence; raises InvalidInputError when there are no blocks, or too few."""
        return self.found

    @cached_property
    def found(self) -> Influence:
        """The influence; raises InvalidInputError when there are no blocks, or too few."""
        if self.known is not None:
            if self.known.influence is None:
                raise InvalidInputError(self.known.no_intervals)
            return self.known.influence
        settings = self.settings
        system = _system_of(self.blocks.total, settings)
        weights = _centred(self.solution, settings)
        influence = influence_of(self.blocks, system, weights, threads=self.threads)
        if settings.centre is None:
            return influence
        vectors = settings.uncentred(influence.vectors)
        shift = settings.uncentred(influence.shift)
        return replace(influence, vectors=vectors, shift=shift)


def warned_of(
    rows: Rows, settings: Settings, before: frozenset[str] = frozenset(), successor: Array | None = None
) -> frozenset[str]:
    """Warn of broken episodes, once, and return the warnings that the stream has had with these rows."""
    given = set()
    if rows.assumed:
        given.add("ends")
    if rows.X_next is not None and "breaks" not in before and warn_of_breaks(rows, settings.lmbda, successor):
        given.add("breaks")
    return before | given


def model_of(
    blocks: Blocks, settings: Settings, selection: Selection | None, n_blocks: int | str, **about: Any
) -> Model:
    """Return the solved model of sums; `about` has further fields of the model, such as names.

    Raises InvalidInputError when no row is a full transition.
    """
    if not blocks.total.n_transitions:
        origin = about.get("origin")
        where = "`source`" if origin is None else ", ".join(origin.files) or "`source`"
        raise InvalidInputError(
            f"{where}: no row is followed by another row of its episode, and none terminates, so there is nothing to "
            f"fit; the number of rows is {blocks.total.n_rows}."
        )
    options: dict[str, Any] = {"n_blocks": n_blocks}
    if selection is not None:
        given = {name: None if name in settings.choose else [getattr(settings, name)] for name in ("lmbda", "alpha")}
        spreads = "alpha" in settings.choose and all(settings.penalty or ())
        options |= {"lmbdas": given["lmbda"], "alphas": given["alpha"]}
        options |= {"penalty": None if spreads else settings.penalty}
    elif settings.penalty is not None:  # LSTD has it in `alpha`
        ridge = settings.ridge(blocks.total.n_features - settings.fit_intercept)
        settings = replace(settings, alpha=tuple(ridge.tolist()), penalty=None)
    return Model(blocks, replace(settings, choose=()), selection=selection, options=options, **about).checked()


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
    said: tuple[str, ...]
    negative: str
    limits: Limits | None
    compared: bool
    free: MatrixFree | None
    warned: frozenset[str]  # warnings that the stream has had

    def __post_init__(self) -> None:
        s, settings, choice, influence = self.statistics, self.settings, self.selection, self.influence
        n = s.n_features - settings.fit_intercept if self.free is None else len(self.free.unseen)
        settings.ridge(n)  # checks the number of coefficients
        checks = [] if self.checks is None else [self.checks.bias, self.checks.misfit]
        numbers = [number for check in checks if not isinstance(check, str) for number in vars(check).values()]
        ranges = None if self.limits is None else self.limits.ranges
        fitting = (
            (settings.gamma, settings.lmbda) == (s.gamma, s.lmbda),
            s.has_intercept == settings.fit_intercept or self.free is not None,
            not (settings.choose or settings.unpenalised),
            bool(self.no_intervals) == (influence is None),
            influence is None or influence.intercept == settings.fit_intercept,
            settings.centre is None or len(settings.centre) == n,
            ranges is None or ranges.shape[1] == n,
            self.rewards is None or len(self.rewards) == s.n_rewards,
            {*self.options} <= {*(OPTIONS if choice is None else CV_OPTIONS)},
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
            statistics=model.statistics,
            settings=replace(model.settings, choose=(), unpenalised=()),
            solution=model.solution,
            no_intervals=model.no_intervals,
            influence=None if model.no_intervals else model.influence,
            rewards=model.rewards,
            options=options,
            origin=model.origin,
            selection=model.selection,
            checks=model.checks,
            said=model.said,
            negative=model.negative,
            limits=model.limits,
            compared=model.compared,
            free=model.matrix_free,
            warned=model.lasting_warnings,
        )

    def model(self) -> Model:
        """Return the model, without the blocks of its data."""
        return Model(
            blocks=Blocks(self.statistics, limit=0, reason=self.no_intervals or _GONE),
            settings=self.settings,
            rewards=self.rewards,
            origin=self.origin,
            selection=self.selection,
            options=self.options,
            checks=self.checks,
            warned=self.warned,
            is_reported=True,
            ridge_at=self.statistics.n_transitions,
            said=self.said,
            negative=self.negative,
            limits=self.limits,
            compared=self.compared,
            matrix_free=self.free,
            known=Solved(self.solution, self.influence, self.no_intervals),
        )


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file; see :meth:`lstd.LSTD.save`."""
    write_record(path, SavedModel.of(model))


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a file that :func:`write_model` wrote; see :func:`lstd.load`."""
    saved: SavedModel = read_record(path, SavedModel)
    return saved.model()
