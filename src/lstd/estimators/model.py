"""The fitted state of LSTD and LSTDCV, without scikit-learn: sums, settings, what follows from them, and files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
)
from lstd.data.feature_arrays import Features, product
from lstd.data.follow import StreamEnd
from lstd.data.rows import Record, Rows
from lstd.data.seen_ids import episodes_seen
from lstd.data.settings import Settings
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    RidgeWarning,
    SupportWarning,
    UnobservedWarning,
    warn,
)
from lstd.estimators.limits import Limits, beyond_bounds
from lstd.estimators.model_parts import Checks, MatrixFree, MisfitCheck, Origin, Selection, needs_matrix
from lstd.files import read_record, write_record
from lstd.statistics.blocks import Blocks, joined, may_wait, no_blocks, with_waiting
from lstd.statistics.counts import check_weighted
from lstd.statistics.intervals import Influence, Interval, influence_of, summed
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.ridge import scales_doubt, warn_of_ridge
from lstd.statistics.solve import Solution
from lstd.statistics.system import System
from lstd.types import Array

_SOLVER = ("solver", "tol", "max_iter")
OPTIONS = ("n_blocks", *_SOLVER)  # parameters of LSTD that are not settings
QUIET = frozenset({"ratios", "unused", "unobserved", "ridge"})  # for models beside the one that a user fits
_SEVERAL = 10  # episodes that were cut off: a stream that is short says nothing about its end
_RATIOS = "Pass the ratios of these rows, or 1 if the policy of the model chose the actions."
_RESULTS = {"lmbda", "observed_share", "rank_test_score"}
_GONE = (
    "Intervals need the blocks of the data, which files do not keep: this model was loaded and fitted further. Fit it "
    "to all data at once."
)
_DISCOUNTS = "Pass the discounts of these rows, or a single number."
CV_OPTIONS = ("lmbdas", "alphas", "cv", "n_jobs", "n_blocks", "verbose", "penalty", *_SOLVER)


@dataclass(frozen=True, eq=False)
class Model(Record):
    """A fitted model; n features, m rewards. Weights and influence are computed when first used."""

    summed: Blocks  # sums over the data; with an intercept, the last feature is the column of ones
    settings: Settings
    rewards: tuple[str, ...] | None = None  # names of the rewards, if given
    origin: Origin | None = None  # the files of the data, if any
    selection: Selection | None = None  # how `lmbda` and `alpha` were chosen; None if they were given
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters of the estimator that are not settings
    checks: Checks | None = None  # of the first rows, after a choice of settings or for a report
    warned: frozenset[str] = frozenset()  # warnings that the stream has had: "ends", "breaks", and those of `QUIET`
    episodes: Any = None  # ids of the episodes so far, as of :func:`episodes_seen`; files do not keep them
    threads: int | None = None  # that compute the influence of blocks; by default the limit of the BLAS
    waiting: tuple[Rows, ...] = ()  # chunks that are not in `summed` yet
    said: tuple[str, ...] = ()  # what rows of the fit say against its predictions, as warnings did
    limits: Limits | None = None  # ranges of rewards and features, if the rows are known
    ridge_at: int = 0  # transitions at the last look at the ridge term, which comes again when they have doubled
    free: MatrixFree | None = None  # of a model without the matrix, whose sums are over the column of ones alone
    compared: bool = False  # whether predictions for the rows of the fit were compared with what rewards allow

    def changed(self, **changes: Any) -> Self:
        """Return the model with other fields than its sums and settings, without solving or warning again."""
        return self.of(**{**vars(self), **changes})

    def solved(self, solution: Solution, influence: Influence | None = None) -> Model:
        """Return the model with a known solution and, if it is known, the influence of blocks."""
        model = self.changed(solution=solution, **({} if influence is None else {"influence": influence}))
        for name in ("coef", "intercept"):  # which may have been computed
            vars(model).pop(name, None)
        return model

    @cached_property
    def blocks(self) -> Blocks:
        """Sums over the data, in blocks."""
        return self.summed.extended(joined(self.waiting)) if self.waiting else self.summed

    @classmethod
    def of_rows(
        cls, rows: Rows, settings: Settings, options: Mapping[str, Any], *, warned: frozenset[str] = frozenset(),
        **fields: Any,
    ) -> Model:  # fmt: skip
        """Return the model of the first rows of a stream, checked rows without the column of ones.

        Warns of broken episodes, unless that is among the warnings in `warned`.
        """
        limits, rows = Limits.of_rows(rows), rows.with_intercept(settings.centre) if settings.fit_intercept else rows
        blocks = no_blocks(rows, settings.lmbda, options["n_blocks"]).extended(rows)
        return cls.of(
            summed=blocks, settings=settings, options=options, limits=limits, warned=warned_of(rows, settings, warned),
            episodes=None if rows.episode is None else episodes_seen(rows), **fields,
        )  # fmt: skip

    def then(self, rows: Rows, settings: Settings, options: Mapping[str, Any], forgetting: float) -> Model:
        """Return the model of the stream with its next rows, as :meth:`of_rows` takes them, and with these settings."""
        blocks, waiting = (self.blocks, ()) if "blocks" in vars(self) else (self.summed, self.waiting)
        total, goes_on, successor = blocks.total, False, None
        if not total.n_rows:
            return self.of_rows(rows, settings, options, warned=self.warned, rewards=self.rewards)
        if len(rows):
            group, end = None if rows.groups is None else rows.groups[0], StreamEnd.of(waiting[-1]) if waiting else None
            goes_on = total.goes_on_with(rows.first_episode, rows.X_next is not None, group, end=end)
            if goes_on and total.pending is not None and total.pending.complete:
                successor = total.pending.phi
        limits = self.limits and self.limits.then(rows, goes_on)
        rows = rows.with_intercept() if settings.fit_intercept else rows
        episodes = self.episodes if rows.episode is None else episodes_seen(rows, self.episodes, continues=goes_on)
        if forgetting == 1.0 and may_wait(rows, total):
            if goes_on:
                (end or total.end).check_continued()
            waiting, is_full = with_waiting(waiting, rows)
            blocks, waiting = (blocks.extended(joined(waiting)), ()) if is_full else (blocks, waiting)
        else:
            blocks, waiting = (self.blocks if forgetting == 1.0 else self.blocks.scaled(forgetting)), ()
            blocks = blocks.extended(rows) if len(rows) else blocks
        return Model.of(
            summed=blocks, settings=settings, rewards=self.rewards, options=options, episodes=episodes, waiting=waiting,
            limits=limits, ridge_at=self._ridge_at, said=self.said,
            warned=warned_of(rows, settings, self.warnings_given, successor),
        )  # fmt: skip

    @property
    def statistics(self) -> LSTDStatistics:
        """Sums over the data."""
        return self.blocks.total

    @property
    def misfit(self) -> MisfitCheck | None:
        """Result of the check for misfit, if it ran."""
        return None if self.checks is None or isinstance(self.checks.misfit, str) else self.checks.misfit

    @property
    def n_features(self) -> int:
        """Number of features, without the column of ones."""
        if self.free is not None:
            return len(self.free.unseen)
        return self.summed.total.n_features - self.settings.fit_intercept

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if given."""
        if self.free is not None:
            return self.free.names
        return self.summed.total.about.feature_names

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, … if none were given."""
        return tuple(f"x{i}" for i in range(self.n_features)) if self.names is None else self.names

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Names of the rewards; ``reward``, or reward_0, reward_1, …, if none were given."""
        if self.rewards is not None:
            return self.rewards
        m = self.statistics.b.shape[1]
        return ("reward",) if m == 1 else tuple(f"reward_{j}" for j in range(m))

    @property
    def ridge(self) -> Array:
        """Ridge coefficient of each weight; zero for the column of ones."""
        ridge = np.zeros(self.n_features + self.settings.fit_intercept)
        ridge[: self.n_features] = self.settings.ridge(self.n_features)
        return ridge

    @property
    def system(self) -> System:
        """The system that the weights solve; of centred features, if the settings have a centre."""
        ridge = self.settings.ridge(self.n_features)
        return System.of(self.statistics, self.settings.variant, ridge, intercept=self.settings.fit_intercept)

    @cached_property
    def solution(self) -> Solution:
        """Weights of shape (n, m), in the last row the weights of the column of ones, if any."""
        system = self.system
        solution = system.solve(warn=True)
        self.warn_of_data()
        statistics = self.statistics
        if not solution.singular and "ridge" not in self.warned and statistics.n_transitions >= 2 * self.ridge_at:
            warn_of_ridge(system, solution.weights, statistics.gamma, chosen=self.selection is not None)
        if self.settings.centre is None:
            return solution
        return replace(solution, weights=self.settings.uncentred(solution.weights.T).T)

    def warn_of_data(self) -> None:
        """Warn of small effective samples, unused rewards and hidden returns, unless the stream has had the warning."""
        s = self.statistics
        if s.counts.sample is not None and "ratios" not in self.warned:
            warn_of_ratios(s.counts.sample.size, s.counts.sample.off_policy, s.lmbda)
        if s.counts.unused and not {"ends", "unused"} & self.warned:
            warn_of_unused(s.counts.unused, s.n_unused_rewards)
        if "unobserved" not in self.warned and (text := self.unobserved):
            warn(text, UnobservedWarning)

    @property
    def unobserved(self) -> str:
        """Why predictions are doubtful if several episodes were cut off so early that most of the returns is hidden.

        Empty if that is not so. Where settings were chosen, held-out returns decide, also of two episodes.
        """
        s, chosen = self.statistics, self.selection
        if chosen is not None:
            effect = HARD_TO_CHOOSE.format(chosen.score, chosen.observed_score)
            several = s.gamma == 1.0 or s.n_episodes is None or s.n_episodes > 1
            return little_observed(chosen.observed_share, effect) if several else ""
        cuts = s.n_rows - s.n_transitions
        if cuts < _SEVERAL or "ends" in self.warned:
            return ""
        return little_observed(s.observed_share, COMPLETED)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the data say against the predictions, as warnings did."""
        return (*self.said, self.unobserved) if self.unobserved else self.said

    def doubted(self, rows: Rows, *, goes_on: bool = False) -> Model:
        """Return the model with what its rows say against its predictions, or a stream's next rows if it `goes_on`.

        Warns of it, once each. Predictions are compared with bounds unless no weights solve the system, which was said
        before, or the stream goes on. Scales of features are those of the first rows.
        """
        if goes_on and len(rows) < FEWEST:
            return self
        known, support, beyond = not (goes_on or self.solution.unbounded), "", ""
        ridge = self.ridge[: 0 if goes_on and self.statistics.n_rows > len(rows) else self.n_features]
        if "importance_ratio" in rows.given and not goes_on:
            values = self.predict(rows.X) if known and rows.single else None
            support = support_doubt(rows, rows.importance_ratio, values)
        if known:
            beyond = beyond_bounds(self.predict(rows.part).reshape(-1, rows.y.shape[1]), self.bounds)
        found = {
            SupportWarning: support, ExtrapolationWarning: growing_doubt(rows), BoundsWarning: beyond,
            RidgeWarning: scales_doubt(rows, ridge, self.settings.fit_intercept),
        }  # fmt: skip
        said = self.said
        for category, text in found.items():
            if text and text not in said:
                warn(text, category)
                said = (*said, text)
        return self if goes_on and said == self.said else self.changed(said=said, compared=not goes_on or self.compared)

    @property
    def bounds(self) -> Array | None:
        """Least and greatest value that the rewards of the fit allow, (2, m); None if they are not known."""
        return None if self.limits is None else self.limits.bounds(self.settings)

    def checked(self) -> Model:
        """Return the model, solved, so that errors and warnings about its weights and its system are given here."""
        check_weighted(self.statistics.total_weight, self.statistics.n_transitions)
        _ = self.solution
        return self

    @property
    def _ridge_at(self) -> int:
        n = self.statistics.n_transitions if "solution" in vars(self) else 0
        return n if n >= 2 * self.ridge_at else self.ridge_at

    @property
    def warnings_given(self) -> frozenset[str]:
        """Warnings given for the stream so far; those of its system are given when weights are first used."""
        if "solution" not in vars(self):
            return self.warned
        s = self.statistics
        given = {
            "ratios": s.counts.sample is not None and any(small(s.counts.sample.size, s.lmbda)),
            "unused": s.counts.unused, "unobserved": self.unobserved,
        }  # fmt: skip
        return self.warned.union(name for name, yes in given.items() if yes)

    @cached_property
    def coef(self) -> Array:
        """Weights of the features, shape (n,) for one reward given as a vector, else (m, n)."""
        weights = self.solution.weights[: self.n_features]
        return np.ascontiguousarray(weights[:, 0] if self.statistics.single else weights.T)

    @cached_property
    def intercept(self) -> float | Array:
        """Weight of the column of ones, a number or of shape (m,); zero without it."""
        fitted = self.settings.fit_intercept
        weights = self.solution.weights[-1] if fitted else np.zeros(self.statistics.b.shape[1])
        return float(weights[0]) if self.statistics.single else weights.copy()

    @cached_property
    def influence(self) -> Influence:
        """Influence of each block of the data on the weights.

        Raises
        ------
        InvalidInputError
            When there are no blocks, or too few.
        """
        s = self.settings
        centred = s.uncentred(self.solution.weights.T, -1.0).T
        influence = influence_of(self.blocks, self.system, centred, threads=self.threads)
        return replace(influence, vectors=s.uncentred(influence.vectors), shift=s.uncentred(influence.shift))

    @cached_property
    def unseen(self) -> NDArray[np.bool_]:
        """Features that are zero wherever a full transition starts, (n,): no data bears on their weights."""
        if self.free is not None:
            return self.free.unseen
        s = self.statistics
        seen: Any = s.A.any(axis=1) | s.B.any(axis=1) | s.b.any(axis=1)
        return np.asarray(~seen[: self.n_features] & (np.array(self.settings.centre or 0.0) == 0.0))

    @property
    def degrees_of_freedom(self) -> Array:
        """Effective degrees of freedom of the features, (n,): the diagonal of (A + αI)⁻¹ A."""
        if self.free is not None:
            raise InvalidInputError(needs_matrix("effective_degrees_of_freedom"))
        system = self.system
        diagonal = system.solve(system.A).weights.diagonal()
        return np.array(diagonal[: self.n_features])

    @property
    def no_intervals(self) -> str:
        """Why the model has no intervals; empty if it has."""
        try:
            _ = self.influence
        except InvalidInputError as error:
            return str(error)
        return ""

    def check_given(self, given: Collection[str], remedy: str = "") -> None:
        """Refuse to compare predictions with returns of another kind: neither argument of the fit may be left out."""
        sample = self.statistics.counts.sample
        for name, fitted, of, usual in (
            ("importance_ratio", sample and sample.off_policy, "another policy", _RATIOS),
            ("discount", self.statistics.about.own_discounts, "other discounts", _DISCOUNTS),
        ):
            if fitted and name not in given:
                raise InvalidInputError(
                    f"`{name}` must be given for a model that was fitted with it: without it, predictions would be "
                    f"compared with returns of {of}. {remedy or usual}"
                )

    def predict(self, phi: Features) -> Array:
        """Predict values, shape (T,) or (T, m), from features (T, n); refuse those that are not finite."""
        return product("X", phi, self.coef.T, self.intercept, self)

    def along(self, phi: Features, weights: ArrayLike | None) -> tuple[Features, Array, float]:
        """Return features, predictions (T, m) and the column of ones, of rows or of their weighted sum."""
        columns = self.predict(phi).reshape(phi.shape[0], self.statistics.n_rewards)
        return summed(phi, columns, weights)

    def interval(
        self, phi: Features, level: float, weights: ArrayLike | None = None, scale: str = "identity"
    ) -> Interval:
        """Compute intervals for values, arrays of shape (T,) or (T, m), from finite features (T, n).

        With `weights` (T,), compute one interval for the weighted sum of the values: numbers, or arrays of shape (m,).
        """
        phi, columns, ones = self.along(phi, weights)
        interval = self.influence.interval(phi, columns, level, ones=ones, scale=scale)
        if self.unseen.any():
            without_data = np.asarray((phi[:, self.unseen] != 0.0).sum(axis=1)).reshape(-1, 1) > 0
            interval = replace(interval, little_data=interval.little_data | without_data)
        return interval.at(self.place(weights))

    def place(self, weights: ArrayLike | None) -> tuple[Any, Any]:
        """Return where arrays (T, m) have the predictions of rows, or of their weighted sum."""
        return (slice(None) if weights is None else 0), (0 if self.statistics.single else slice(None))


def warned_of(
    rows: Rows, settings: Settings, before: frozenset[str] = frozenset(), successor: Array | None = None
) -> frozenset[str]:  # fmt: skip
    """Warn of broken episodes, once, and return the warnings that the stream has had with these rows."""
    broken = rows.X_next is not None and "breaks" not in before and warn_of_breaks(rows, settings.lmbda, successor)
    given = {"ends"} if rows.assumed else set()
    return before | given | ({"breaks"} if broken else set())


def model_of(blocks: Blocks, settings: Settings, selection: Selection | None, n_blocks: Any, **about: Any) -> Model:
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
    options = {"n_blocks": n_blocks}
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
    limits: Limits | None
    compared: bool
    free: MatrixFree | None
    assumed: bool  # whether all episodes are assumed to be truncated

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
            model.statistics, replace(model.settings, choose=(), unpenalised=()), model.solution, model.no_intervals,
            None if model.no_intervals else model.influence, model.rewards, options, model.origin,
            model.selection, model.checks, model.said, model.limits, model.compared, model.free, "ends" in model.warned,
        )  # fmt: skip

    def model(self) -> Model:
        """Return the model, without the blocks of its data."""
        blocks = Blocks(self.statistics, limit=0, reason=self.no_intervals or _GONE)
        model = Model(
            blocks, self.settings, self.rewards, self.origin, self.selection, self.options, self.checks,
            frozenset({"ends"} if self.assumed else ()), said=self.said, limits=self.limits, compared=self.compared,
            free=self.free,
        )  # fmt: skip
        return model.solved(self.solution, self.influence)


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file; see :meth:`lstd.LSTD.save`."""
    write_record(path, SavedModel.of(model))


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a file that :func:`write_model` wrote; see :func:`lstd.load`."""
    saved: SavedModel = read_record(path, SavedModel)
    return saved.model()
