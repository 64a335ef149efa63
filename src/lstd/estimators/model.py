"""The fitted state of LSTD and LSTDCV, without scikit-learn: sums, settings, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import check_array
from lstd.data.doubts import small, warn_of_ratios
from lstd.data.feature_arrays import Features, product
from lstd.data.horizon_rows import warn_of_unused
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.estimators.check_results import Checks, MisfitCheck
from lstd.statistics.blocks import Blocks
from lstd.statistics.covariance import Influence, influence_of
from lstd.statistics.intervals import Interval
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.ridge_warning import warn_of_ridge
from lstd.statistics.solve import Solution, check_range, solve, without_rounding
from lstd.statistics.summing import check_weighted
from lstd.statistics.waiting import NONE_WAIT, Waiting, may_wait
from lstd.types import Array

Results = Annotated[NDArray[np.intp], "k"] | Annotated[Array, "k nan"]

LSTD_OPTIONS = ("n_blocks",)  # parameters of the estimators that are not settings
QUIET = frozenset({"ratios", "unused", "ridge"})  # for models beside the one that a user fits
_RATIOS = "Pass the ratios of these rows, or 1 if the policy of the model chose the actions."
_DISCOUNTS = "Pass the discounts of these rows, or a single number."
LSTDCV_OPTIONS = ("lmbdas", "alphas", "cv", "n_jobs", "n_blocks", "verbose", "penalty")


@dataclass(frozen=True)
class Origin:
    """The files that a model was fitted to."""

    files: tuple[str, ...]  # names, in the order of reading
    rows: int
    transitions: int
    episodes: int
    date: str  # date and time of the fit, in ISO 8601
    lstd: str  # version of the package
    columns: Mapping[str, str] = field(default_factory=dict)  # that were used, by role: episode, terminated, …
    next_features: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Selection:
    """The settings that cross-validation chose, and the scores of all pairs."""

    lmbda: float
    alpha: float
    score: float  # R² of the chosen pair on held-out rows; the mean over several rewards
    n_folds: int
    n_rows: int  # in all folds
    results: dict[str, Results]  # as `LSTDCV.cv_results_`

    @property
    def observed_share(self) -> float:
        """Share of the discounted weight of held-out returns that was observed."""
        return float(self.results["observed_share"][0])

    @property
    def observed_score(self) -> float:
        """Score of the chosen pair in units of the variance of the returns before they are completed."""
        chosen = (self.results["lmbda"] == self.lmbda) & (self.results["alpha"] == self.alpha)
        return float(self.results["observed_test_score"][chosen][0])

    @property
    def arbitrary_scores(self) -> tuple[float, float] | None:
        """Least and largest of the best scores of each trace decay, if chance explains their differences; else None.

        It does if, over the folds, no mean difference to the chosen pair exceeds its standard error times the 0.975
        quantile of Student's t.
        """
        from scipy import special  # takes 0.1 s to import

        lmbdas = self.results["lmbda"]
        mean = np.nan_to_num(self.results["mean_test_score"], nan=-np.inf)
        best = [i[np.argmax(mean[i])] for i in (np.flatnonzero(lmbdas == lmbda) for lmbda in np.unique(lmbdas))]
        best = [i for i in best if np.isfinite(mean[i])]
        if len(best) < 2 or self.n_folds < 2:
            return None
        folds = np.array([self.results[f"split{k}_test_score"] for k in range(self.n_folds)])
        chosen = np.flatnonzero((lmbdas == self.lmbda) & (self.results["alpha"] == self.alpha))[0]
        difference = folds[:, [chosen]] - folds[:, best]
        error = difference.std(axis=0, ddof=1) / np.sqrt(self.n_folds)
        if np.any(np.abs(difference.mean(axis=0)) > special.stdtrit(self.n_folds - 1, 0.975) * error):
            return None
        return float(mean[best].min()), float(mean[best].max())


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model; n features, m rewards. Weights and influence are computed when first used."""

    summed: Blocks  # sums over the data; with an intercept, the last feature is the column of ones
    settings: Settings
    rewards: tuple[str, ...] | None = None  # names of the rewards, if given
    origin: Origin | None = None  # the files of the data, if any
    selection: Selection | None = None  # how `lmbda` and `alpha` were chosen; None if they were given
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters of the estimator that are not settings
    checks: Checks | None = None  # of the first rows, after a choice of settings or for a report
    warned: frozenset[str] = frozenset()  # warnings that the stream has had: "ends", "breaks", "ratios", "unused"
    episodes: Any = None  # ids of the episodes so far, as of :func:`episodes_seen`; files do not keep them
    threads: int | None = None  # that compute the influence of blocks; by default the limit of the BLAS
    saved_solution: Solution | None = None  # from a file; None if it is to be computed
    saved_influence: Influence | None = None
    waiting: Waiting = NONE_WAIT  # rows that are not in `summed` yet
    doubts: tuple[str, ...] = ()  # what the rows of the fit say against its predictions, as warnings did
    bounds: Array | None = None  # (2, m) least and greatest value that the rewards allow, if the rows were in memory
    ranges: Array | None = None  # (2, n) least and greatest value of each feature, if the rows were in memory and dense

    @cached_property
    def blocks(self) -> Blocks:
        """Sums over the data, in blocks."""
        return self.summed.extended(self.waiting.joined()) if self.waiting.chunks else self.summed

    @property
    def stream(self) -> tuple[Blocks, Waiting]:
        """Sums over the data, and the rows that wait to be added to them."""
        return (self.blocks, NONE_WAIT) if "blocks" in vars(self) else (self.summed, self.waiting)

    def goes_on_with(self, rows: Rows) -> bool:
        """Return whether the next rows of the stream continue its last episode; raise if they break a rule."""
        blocks, waiting = self.stream
        blocks.total.check_successors(rows.X_next is not None)
        return waiting.end(blocks.total).goes_on_with(rows.first_episode)

    def followed_by(self, rows: Rows, goes_on: bool, forgetting: float = 1.0) -> tuple[Blocks, Waiting]:
        """Return the `stream` with the next rows, which continue the last episode if it `goes_on`."""
        blocks, waiting = self.stream
        if forgetting == 1.0 and may_wait(rows, blocks.total):
            if goes_on:
                waiting.end(blocks.total).check_continued()
            waiting = waiting.then(rows, goes_on)
            return (blocks.extended(waiting.joined()), NONE_WAIT) if waiting.full else (blocks, waiting)
        blocks = self.blocks if forgetting == 1.0 else self.blocks.scaled(forgetting)
        return (blocks.extended(rows) if len(rows) else blocks), NONE_WAIT

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
        return self.summed.total.n_features - self.settings.fit_intercept

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if given."""
        return self.summed.total.about.feature_names  # rows with names do not wait

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
        return np.append(self.settings.ridge(self.n_features), [0.0] * self.settings.fit_intercept)

    @property
    def penalty(self) -> Array:
        """Penalty of each weight in a vanishing ridge term: one, and zero for the column of ones."""
        return np.asarray(np.arange(self.statistics.n_features) < self.n_features, dtype=np.float64)

    @cached_property
    def solution(self) -> Solution:
        """Weights of shape (n, m), in the last row the weights of the column of ones, if any."""
        if self.saved_solution is not None:
            return self.saved_solution
        statistics, ridge = self.statistics, self.ridge
        A, b = statistics.matrix(self.settings.variant), statistics.b
        if self.settings.fit_intercept:
            A = without_rounding(A, statistics.total_weight)
        solution = solve(A, b, ridge, penalty=self.penalty)
        if "ratios" not in self.warned and (sample := statistics.tally.sample) is not None:
            warn_of_ratios(sample.size, sample.off_policy, statistics.lmbda)
        if not {"ends", "unused"} & self.warned:
            warn_of_unused(statistics.tally.unused, statistics.n_unused_rewards)
        if not solution.singular and "ridge" not in self.warned:
            warn_of_ridge(
                A, b, ridge, solution.weights, statistics.gamma,
                intercept=self.settings.fit_intercept, chosen=self.selection is not None,
            )  # fmt: skip
        return replace(solution, weights=self.settings.uncentred(solution.weights.T).T)

    def checked(self) -> Model:
        """Return the model, solved, so that errors and warnings about its weights and its system are given here."""
        check_weighted(self.statistics.total_weight, self.statistics.n_transitions)
        _ = self.solution
        return self

    @property
    def warnings_given(self) -> frozenset[str]:
        """Warnings given for the stream so far; those of its system are given when weights are first used."""
        if "solution" not in vars(self):
            return self.warned
        s = self.statistics
        little = s.tally.sample is not None and any(small(s.tally.sample.size, s.lmbda))
        return self.warned | ({"ratios"} if little else set()) | ({"unused"} if s.tally.unused else set())

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
        if self.saved_influence is not None:
            return self.saved_influence
        s = self.settings
        influence = influence_of(
            self.blocks, s.uncentred(self.solution.weights.T, -1.0).T, self.ridge, s.variant,
            intercept=s.fit_intercept, threads=self.threads,
        )  # fmt: skip
        return replace(influence, vectors=s.uncentred(influence.vectors), shift=s.uncentred(influence.shift))

    def with_checks(self, checks: Checks) -> Model:
        """Return the model with the results of checks, without solving or warning again."""
        influence = vars(self).get("influence", self.saved_influence)
        return replace(self, checks=checks, saved_solution=self.solution, saved_influence=influence)

    def with_limits(self, doubts: tuple[str, ...], bounds: Array, ranges: Array | None) -> Model:
        """Return the model with what limits its predictions, without solving or warning again."""
        influence = vars(self).get("influence", self.saved_influence)
        return replace(
            self, doubts=doubts, bounds=bounds, ranges=ranges, saved_solution=self.solution, saved_influence=influence
        )

    @cached_property
    def wide_ranges(self) -> Array:
        """Ranges of the features, longer by a half at both ends or by what float32 rounds, (2, n)."""
        assert self.ranges is not None
        more = np.maximum(0.5 * np.diff(self.ranges, axis=0), 1e-6 * np.abs(self.ranges).max(axis=0))
        return np.asarray(self.ranges + more * [[-1.0], [1.0]])

    @cached_property
    def unseen(self) -> NDArray[np.bool_]:
        """Features that are zero wherever a full transition starts, (n,): no data bears on their weights."""
        s = self.statistics
        seen: Any = s.A.any(axis=1) | s.B.any(axis=1) | s.b.any(axis=1)
        return np.asarray(~seen[: self.n_features] & (np.array(self.settings.centre or 0.0) == 0.0))

    @property
    def degrees_of_freedom(self) -> Array:
        """Effective degrees of freedom of the features, (n,): the diagonal of (A + αI)⁻¹ A."""
        A = self.statistics.matrix(self.settings.variant)
        diagonal = solve(A, A, self.ridge, penalty=self.penalty, warn=False).weights.diagonal()
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
        sample = self.statistics.tally.sample
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
        return product("X", phi, self.coef.T, self.intercept)

    def along(self, phi: Features, weights: ArrayLike | None) -> tuple[Features, Array, float]:
        """Return features, predictions (T, m) and the column of ones, of rows or of their weighted sum."""
        columns = self.predict(phi).reshape(phi.shape[0], self.statistics.n_rewards)
        if weights is None:
            return phi, columns, 1.0
        along = check_array("weights", weights, (phi.shape[0],))
        with np.errstate(over="ignore", invalid="ignore"):
            phi, columns, ones = np.asarray(phi.T @ along)[np.newaxis], (along @ columns)[np.newaxis], along.sum()
        check_range(phi, columns, np.array(ones))
        return phi, columns, float(ones)

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
        return Interval(**self.shaped(interval, weights), level=level)

    def shaped(self, interval: Interval, weights: ArrayLike | None) -> dict[str, Any]:
        """Return the arrays of an interval, (T, m), in the shape of predictions of rows or of their weighted sum."""
        rows, rewards = (slice(None) if weights is None else 0), (0 if self.statistics.single else slice(None))
        return {name: array[rows, rewards] for name, array in vars(interval).items() if name != "level"}


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
