"""The fitted state of HorizonLSTD, without scikit-learn: weights of all horizons, influence of blocks, and the choice.

λ and α are chosen by the sums of folds alone. For weights θ_h from the data without fold k, the squared error on its
rows of targets G_h is θ_hᵀ C_0 θ_h − 2 θ_hᵀ Φᵀ G_h + const, and Φᵀ G_h follows from the sums of the fold for any λ* and
reference weights; see :mod:`lstd.statistics.horizon_sums`. As in :mod:`lstd.estimators.pair_search`, two stages use
λ* < 1: the rewards of a third of the horizon count before the reference does, λ* = 1 − 3/H. Such returns are less
noisy, but lean towards the reference, so a pair that they prefer to the defaults counts only if λ* = 1 agrees: else the
choice goes on from the defaults. In the last stage, λ* = 1, another pair must be better by one standard error over
folds. Errors of horizon h count in units of h times the mean squared reward. These constants were chosen on random
processes and on half of some real logs, and judged on others: ``benchmarks/selection.py --held-out``,
``benchmarks/next_steps.py`` and ``benchmarks/horizon_choice.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.age_columns import AgeColumns
from lstd.data.arguments import check_integer
from lstd.data.doubts import (
    COMPLETED_STEPS,
    growing,
    little_observed,
    text_of_growing,
    unused_rows,
    warn_of_unused,
    with_backtest,
)
from lstd.data.feature_arrays import Features, values_of
from lstd.data.read_only import read_only
from lstd.data.returns import ObservedReturns, horizon_returns
from lstd.data.rows import Record, Rows
from lstd.data.settings import ALPHA, AUTO, LMBDA, RAW, SPREAD, Settings
from lstd.data.takes import check_not_lacking, check_one_stream
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    RidgeWarning,
    UnobservedWarning,
    warn,
)
from lstd.estimators.limits import Limits, beyond_bounds, is_material, negative_values
from lstd.estimators.linear import Linear
from lstd.estimators.model_parts import Checks, HeldOut, Origin
from lstd.estimators.naive_forecast import NaiveForecast
from lstd.estimators.shared_shocks import SharedShock
from lstd.estimators.step_spread import StepSpread
from lstd.statistics.blocks import check_n_blocks
from lstd.statistics.horizon_grid import weights_of_grid
from lstd.statistics.horizon_parts import weights_of_parts
from lstd.statistics.horizon_sums import HorizonSolution, LagBlocks, LagSums, Units, lag_sums
from lstd.statistics.intervals import FEWEST_BLOCKS, RETURN, Influence, Noise, check_count
from lstd.statistics.ridge import Scales
from lstd.statistics.solve import check_range
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

LMBDAS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0])
ALPHAS = np.exp2(np.arange(-12.0, 11.0, 2.0))  # in the unit of LSTDCV
_FOLDS = 10
_SOME = 8  # horizons whose errors are compared
_PARTS = 3.0  # of the horizon; rewards of one part count before the reference does, in the first two stages
_ROUNDING = 1e-12  # of errors, in their units
_CAUTION = 1.0  # standard errors by which another pair must be better in the last stage
_MOST_BLOCKS = 64
BYTES = 2**28  # of all blocks
_BYTES_OF_PAIR = 16  # of two matrices, for each pair of features and each step
_UNCHECKED = (
    "Only `fit` checks a model, with check=True; this one was fitted without, or further by `partial_fit`. Call `{}`."
)
_NO_SPREAD = (
    f'`of` must be "mean" for this model; got "{RETURN}". How returns scatter is known from the rows that `fit` '
    "checks, with check=True, of at least two groups or episodes, and not after `partial_fit`. Fit to all rows at once."
)


@dataclass(frozen=True, eq=False)
class HorizonWeights:
    """Weights of all horizons, k with the column of ones, and what intervals need."""

    weights: Annotated[Array, "H k m"]
    lmbda: float
    alpha: float
    influence: Influence | None  # as of H m rewards
    no_intervals: str  # why there is no influence; empty if there is


@dataclass(frozen=True, eq=False)
class HorizonModel(Record):
    """A model of the next h steps for all h up to a horizon; n features, m rewards. Files hold it as `saved`.

    Rows have their features as they are given. With an age, sums and weights are of the columns that replace it; n is
    then the number of these.
    """

    file_kind: ClassVar[str] = "model of horizons"

    stream: LagBlocks  # sums, whose last feature is the column of ones if there is an intercept
    settings: Settings  # with "auto" in `choose`
    spreads: bool  # whether the penalty of each feature is its squared spread
    single: bool  # whether rewards were given as a vector
    names: tuple[str, ...] | None
    limits: Limits  # of rewards, and of features or the columns that replace the age
    age: AgeColumns | None = None  # the columns that replace the age, if one of the features is
    bounds: tuple[float | None, float | None] = (None, None)  # of predictions
    rewards: tuple[str, ...] | None = None  # names of the rewards, if given
    unusual: frozenset[str] = frozenset()  # columns of which some row has another value than the usual one
    kept: tuple[float, float] | None = None  # λ and α that were chosen before the model was loaded from a file
    known: HorizonWeights | None = None  # what a file holds of the weights
    is_reported: bool = False  # whether the warning about the system was given
    warned: frozenset[str] = frozenset()  # faults of the system that the stream has had a warning of
    origin: Origin | None = None
    check: bool = True  # whether `fit` checks it
    checks: Checks | None = None  # of some rows of the fit; None if they were not made
    held_out: HeldOut | None = None  # the same for predictions of folds of these rows
    naive: NaiveForecast | None = None  # the same beside a naive forecast
    spread: StepSpread | None = None  # the variance about the predictions, by the same rows
    shock: SharedShock | None = None  # what all rows share of it; None if no cut could be looked at
    share_at_fit: float | None = None  # of the steps of all returns that was observed, without a column of ones
    negative: str = ""  # that predictions are negative where no reward is, and what to do
    said: tuple[str, ...] = ()  # what rows of the fit say against its predictions, as warnings did
    episodes: Any = None  # ids of the episodes so far, as of :func:`episodes_seen`; files do not keep them
    clock: Any = None  # what the steps so far say of the next rows, as files do not

    @classmethod
    def of_rows(
        cls,
        rows: Rows,
        horizon: int,
        settings: Settings,
        n_blocks: int | str,
        *,
        age: AgeColumns | None = None,
        **about: Any,
    ) -> HorizonModel:
        """Return the model of the first rows of a stream, checked and without the column of ones."""
        settings.factors(rows.n_features)  # checks the number of coefficients
        given = rows
        if age is not None:
            age = age.then(rows)
            rows = _with_columns(rows, age)
        n = rows.n_features
        if settings.fit_intercept and isinstance(rows.X, np.ndarray):
            centre = _centre_of(rows)
            if centre.any():
                settings = replace(settings, centre=tuple(centre.tolist()))
        k = n + settings.fit_intercept
        nothing = LagBlocks.empty(horizon, k, rows.y.shape[1], _limit(k, horizon, n_blocks))
        empty = cls.of(
            stream=nothing,
            settings=settings,
            single=rows.single,
            names=rows.names,
            limits=_limits_of(Limits.of_rows(rows), age),
            age=age,
            unusual=rows.unusual,
            **about,
        )
        if not len(rows):
            return empty
        return empty.changed(stream=nothing.extended(empty.prepared(given)))

    def check_read(self) -> None:
        """Refuse parts of a file that do not fit together, and what files do not keep."""
        intercept = self.settings.fit_intercept
        influence = None if self.known is None else self.known.influence
        fitting = (
            self.stream.size >= 1,
            self.settings.centre is None or len(self.settings.centre) == self.n_features,
            influence is None or influence.intercept == intercept,
            self.episodes is None and self.clock is None,
        )
        if not all(fitting):
            raise ValueError(fitting)

    def with_columns(self, rows: Rows) -> Rows:
        """Return rows with the columns that replace the age, if there is one."""
        if self.age is None:
            return rows
        return _with_columns(rows, self.age)

    def prepared(self, rows: Rows) -> Rows:
        """Return rows from which sums subtract the centre, and to which they append the column of ones."""
        rows = self.with_columns(rows)
        if not self.settings.fit_intercept:
            return rows
        centre = None
        if self.settings.centre is not None:
            centre = np.array(self.settings.centre)
        return rows.changed(intercept=True, appended=1, centre=centre)

    def then(self, rows: Rows, **about: Any) -> HorizonModel:
        """Return the model of the stream with its next rows, at least one."""
        age = self.age
        if age is not None:
            age = age.then(rows)
        total = self.stream.total
        last = None  # row that the first of these rows follows
        if total.continued_by(rows):
            last = total.last
        limits = self.limits.then(self.with_columns(rows), last)
        stream = self.stream.extended(self.prepared(rows))
        return self.changed(
            stream=stream,
            limits=_limits_of(limits, age),
            age=age,
            unusual=self.unusual | rows.unusual,
            known=None,
            is_reported=False,
            checks=None,
            held_out=None,
            naive=None,
            spread=None,
            shock=None,
            share_at_fit=None,
            **about,
        )

    def described(self, **about: Any) -> HorizonModel:
        """Return the model with more of what a file says of it, without solving again."""
        return self.of(**vars(self) | about)

    @property
    def saved(self) -> HorizonModel:
        """The model as files hold it: solved, without the blocks of its data."""
        solved = self.solved
        return self.changed(
            known=solved,
            kept=(solved.lmbda, solved.alpha),
            stream=self.stream.in_one_block,
            episodes=None,
            clock=None,
            warned=self._lasting_warnings,
        )

    @property
    def _lasting_warnings(self) -> frozenset[str]:
        """Faults of the system as it is that the stream has had a warning of, whenever it was read."""
        if self.known is not None or not self.warned:
            return self.warned
        recursion = self._recursion_of_all
        return self.warned & {recursion.system.fault_of(recursion.accuracy)}

    @property
    def n_features(self) -> int:
        """Number of features, or of the columns that replace the age, without the column of ones."""
        return len(self.stream.total.sums.full[0]) - self.settings.fit_intercept

    @property
    def n_given(self) -> int:
        """Number of features as they are given."""
        if self.age is None:
            return self.n_features
        return self.age.n_given

    @property
    def n_transitions(self) -> int:
        """Number of full transitions."""
        return self.stream.total.closed.n_full

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return self.stream.total.n_episodes

    @property
    def weighted_blocks(self) -> list[int]:
        """Numbers of the blocks that have a weight."""
        (kept,) = np.nonzero(self.stream.weights > 0.0)
        return [int(e) for e in kept]

    @property
    def total(self) -> LagSums:
        """Sums over all data."""
        return self.stream.total.closed

    def check_given(self, given: Collection[str], needed: Sequence[str]) -> None:
        """Refuse rows that lack a column which the model was fitted with, of those `needed` to compare them with it."""
        fitted = self.unusual
        if self.stream.total.n_groups is not None:
            fitted |= {"groups"}
        check_one_stream(self.n_episodes, False, given)
        check_not_lacking(fitted, given, needed)

    def check_weighted(self) -> None:
        """Refuse data to fit to without a full transition, or with none that has a weight."""
        total = self.total
        if total.weight > 0.0:
            return
        what = "a full transition"
        if total.n_full:
            what = "a full transition with a `weight` above zero"
        raise InvalidInputError(
            f"`X` must hold {what}: a row that is followed by a row of its episode, or terminated. Pass more rows."
        )

    @cached_property
    def units(self) -> Units:
        """Units of the features, of all data."""
        centre = None
        if self.settings.centre is not None:
            centre = np.array(self.settings.centre)
        return self.total.units(centre, intercept=self.settings.fit_intercept)

    @cached_property
    def factors(self) -> Array:
        """Factor of the ridge coefficient for each weight, zero for the column of ones; read-only."""
        factors = self.settings.factors(self.n_given)
        if self.age is not None:
            factors = factors[self.age.sources]
        if self.spreads:
            factors = factors * self.units.spread
        return read_only(np.append(factors, [0.0] * self.settings.fit_intercept))

    @property
    def unit_of_penalty(self) -> str:
        """What `alpha` is multiplied by for each feature: "spread", "raw" or "factors"."""
        if self.spreads:
            return SPREAD
        if self.settings.penalty is None:
            return RAW
        return "factors"

    @cached_property
    def unit(self) -> float:
        """Unit of the ridge coefficients to choose from: Σⱼ mean((xⱼ − mⱼ)²)/penaltyⱼ, times the mean weight."""
        n = self.n_features
        factors = self.factors[:n]
        with np.errstate(over="ignore", invalid="ignore"):
            terms = np.divide(self.units.square, factors, out=np.zeros(n), where=factors > 0.0)
            mean_weight = self.total.weight / self.total.n_full
            unit = float(terms.sum()) * mean_weight
        check_range(np.array(unit))
        return unit or 1.0

    @cached_property
    def penalty(self) -> Array:
        """Penalty of each weight in a vanishing ridge term, zero for the column of ones."""
        penalty = np.ones(self.n_features)
        if self.spreads:
            penalty = self.units.spread
        return read_only(np.append(penalty, [0.0] * self.settings.fit_intercept))

    @property
    def ridge(self) -> Array:
        """Ridge coefficient of each weight, zero for the column of ones."""
        return self.solved.alpha * self.factors

    @property
    def degrees_of_freedom(self) -> Array:
        """Effective degrees of freedom of the columns, (n,), for every horizon: the diagonal of (C_0 + αI)⁻¹ C_0."""
        system = self.recursion(self.total, self.solved.lmbda, self.solved.alpha).system
        diagonal = system.solve(system.A).weights.diagonal()
        return np.array(diagonal[: self.n_features])

    def recursion(self, sums: LagSums, lmbda: float, alpha: float) -> HorizonSolution:
        """Return the recursion of the weights for some of the data, with the ridge term in proportion.

        It is over as many steps as the sums have lags.
        """
        ridge = self._ridge_of(alpha, sums)
        system = sums.system(lmbda, ridge, self.penalty, intercept=self.settings.fit_intercept)
        return HorizonSolution.of_system(system, len(sums.full))

    def weights_of_parts(self, parts: Iterable[LagSums], lmbda: float, alpha: float) -> Array:
        """Return the weights θ_1, …, θ_H of each part of the data, (E, H, n, m), with the ridge term in proportion."""
        ridge_of = partial(self._ridge_of, alpha)
        return weights_of_parts(parts, lmbda, ridge_of, self.penalty, intercept=self.settings.fit_intercept)

    def _ridge_of(self, alpha: float, sums: LagSums) -> Array:
        """Return the ridge coefficient of each weight for some of the data, in proportion to their weight, (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            ridge: Array = self.factors * self._in_proportion(alpha, sums)
        check_range(ridge)
        return ridge

    def _in_proportion(self, alpha: float, sums: LagSums) -> float:
        """Return a ridge coefficient of all data as that of some of them, in proportion to their weight."""
        total = self.total
        if not total.weight > 0.0:
            return alpha
        return alpha * sums.weight / total.weight

    @cached_property
    def choice(self) -> Choice:
        """The trace decay and the ridge coefficient: those given, or the best on held-out folds."""
        if self.kept is not None:
            return Choice(*self.kept, {})
        if self.settings.choose:
            return choose(self)
        return Choice(self.settings.lmbda, self.settings.shared_alpha, {})

    @cached_property
    def solved(self) -> HorizonWeights:
        """Weights and influence of blocks; raises InvalidInputError if there is nothing to choose λ or α by."""
        if self.known is not None:
            return self.known
        return self._solved_by(self._recursion_of_all)

    @property
    def _recursion_of_all(self) -> HorizonSolution:
        """The recursion of the weights for all data."""
        return self.recursion(self.total, self.choice.lmbda, self.choice.alpha)

    def _solved_by(self, recursion: HorizonSolution) -> HorizonWeights:
        """Return the weights of a recursion, and the influence of blocks on them."""
        theta = recursion.run()
        influence = None
        reason = ""
        try:
            influence = self._influence(recursion, theta)
        except InvalidInputError as error:
            reason = str(error)
        weights = read_only(self.uncentred(theta))
        return HorizonWeights(weights, self.choice.lmbda, self.choice.alpha, read_only(influence), reason)

    def reported(self) -> HorizonModel:
        """Give the warning about the system, unless the stream has had it; return the solved model with it."""
        if self.is_reported:
            return self
        if self.known is not None:
            return self.described(is_reported=True)
        recursion = self._recursion_of_all
        warned = recursion.warn_of_condition(self.warned)
        solved = self._solved_by(recursion)  # which need not be solved again
        return self.described(solved=solved, is_reported=True, warned=warned)

    def uncentred(self, weights: Array) -> Array:
        """Return weights (H, n, m) of the features from those of the features less their centre."""
        return self.settings.uncentred(weights.swapaxes(1, 2)).swapaxes(1, 2)

    @property
    def observed_share(self) -> float | None:
        """Share of the steps of all returns, discounted, that was observed.

        Without a column of ones it is that of the rows that `fit` looked at; None after `partial_fit`.
        """
        if not self.settings.fit_intercept:
            return self.share_at_fit
        return _observed_share(self.total, self.n_features, self.settings.gamma)

    @property
    def unobserved(self) -> str:
        """Why predictions are doubtful if most of the steps of all returns is hidden; empty if that is not so."""
        return little_observed(self.observed_share, COMPLETED_STEPS)

    def doubted(self, rows: Rows, tested: str = "") -> HorizonModel:
        """Return the solved model with what rows of the fit say against its predictions, and warn of it.

        `tested` is what a backtest of the estimator said.
        """
        steps = self.stream.horizon
        T = len(rows)
        unused_before_last = len(unused_rows(rows, T - 1))
        unused = len(unused_rows(rows, T))
        bounds = self.limits.bounds(self.settings, steps)
        warn_of_unused(unused_before_last, unused)
        predictions = self.at().predict(rows.part)
        negative = negative_values(predictions, self.limits.rewards[0], "low=0, a parameter of HorizonLSTD,")
        share = self.observed_share
        if share is None:
            share = _observed_share_of_rows(rows, steps, self.settings.gamma)
        texts = {
            UnobservedWarning: with_backtest(little_observed(share, COMPLETED_STEPS), tested),
            ExtrapolationWarning: self._extrapolation_doubt(rows),
            BoundsWarning: beyond_bounds(predictions, bounds, "a smaller `horizon`, or `low` and `high`"),
            RidgeWarning: self._scales_doubt(rows),
        }
        for category, text in texts.items():
            warn(text, category)
        said = tuple(text for text in texts.values() if text)
        return self.described(said=said, negative=negative, share_at_fit=share)

    def _extrapolation_doubt(self, rows: Rows) -> str:
        """Say that the data cannot tell how features go on, if that is so; the age is known to go on."""
        discount = 1.0 - 1.0 / self.stream.horizon  # returns with it reach over about as many steps
        discounted = rows.changed(
            gamma=discount,
            discount=np.where(rows.terminated, 0.0, discount * rows.discount),
        )
        given = np.arange(rows.n_features)
        if self.age is not None:
            discounted = self.age.without(discounted)
            given = np.delete(given, self.age.place)
        if not discounted.n_features:
            return ""
        found = growing(discounted)
        if not found.features or not self._depends_on(given[found.features], rows):
            return ""
        return text_of_growing(discounted, found)

    def _depends_on(self, features: NDArray[np.intp], rows: Rows) -> bool:
        """Whether predictions for horizon rows would move, were some of the features, by number, left out."""
        n = self.n_features
        sources = np.arange(n)
        if self.age is not None:
            sources = self.age.sources
        is_left_out = np.append(np.isin(sources, features), [False] * self.settings.fit_intercept)
        kept = ~is_left_out
        system = self.total.only(kept).system(
            self.solved.lmbda, self.ridge[kept], self.penalty[kept], intercept=self.settings.fit_intercept
        )
        theta = np.zeros_like(self.solved.weights[-1])
        theta[kept] = HorizonSolution.of_system(system, self.stream.horizon).run()[-1]
        change = self.settings.uncentred(theta.T) - self.solved.weights[-1].T
        columns = self.with_columns(rows.taken(np.flatnonzero(rows.cut)))
        moved = values_of(columns.X, change.T)
        predictions = values_of(columns.X, self.solved.weights[-1])
        return is_material(moved, predictions, self._mean_squared_error(rows))

    @property
    def known_checks(self) -> Checks:
        """The results of the checks, or why there are none."""
        if self.checks is not None:
            return self.checks
        return Checks(_UNCHECKED.format("bias_check"), _UNCHECKED.format("misfit_check"))

    def _scales_doubt(self, rows: Rows) -> str:
        """Say that predictions of the longest horizon depend on the units of the features, if they do.

        Nothing is said where `alpha` was chosen or has a number for each feature, or the penalty is in units.
        """
        settings = self.settings
        if self.unit_of_penalty != RAW or "alpha" in settings.choose or isinstance(settings.alpha, tuple):
            return ""
        n = self.n_features
        columns = self.with_columns(rows)
        scales = Scales.of(columns, self.ridge[:n], intercept=settings.fit_intercept)
        if scales is None or not np.isfinite(scales.in_units).all():
            return ""
        ridge = self.ridge.copy()
        ridge[:n] = scales.in_units
        system = self.total.system(self.solved.lmbda, ridge, self.penalty, intercept=settings.fit_intercept)
        theta = HorizonSolution.of_system(system, self.stream.horizon).run()
        change = settings.uncentred(theta[-1].T) - self.solved.weights[-1].T
        moved = values_of(columns.part, change.T)
        predictions = self.at().predict(rows.part).reshape(moved.shape)

        return scales.doubt(moved, predictions, lambda: self._mean_squared_error(rows))

    def _mean_squared_error(self, rows: Rows) -> Array:
        """Return the mean squared error of each reward, (m,), where predictions complete returns at cuts."""
        observed = self.returns(rows, self.stream.horizon, "predict")
        returns = observed.returns.reshape(len(rows), -1)
        predicted = self.at().predict(rows.X).reshape(len(rows), -1)
        square: Array = np.average((returns - predicted) ** 2, axis=0, weights=observed.weight)
        return square

    def _influence(self, recursion: HorizonSolution, theta: Array) -> Influence:
        """Compute the influence of each block on centred weights θ; raises InvalidInputError with too few blocks."""
        stream = self.stream
        blocks = self.weighted_blocks
        if self.kept:
            raise InvalidInputError("Intervals need blocks of the data, which files do not keep. Fit the model again.")
        limit = stream.limit
        n = len(self.factors)
        horizon = stream.horizon
        if limit < 2 * FEWEST_BLOCKS and limit == _limit(n, horizon, AUTO):  # memory holds no more
            if len(blocks) < FEWEST_BLOCKS:
                raise InvalidInputError(_too_few_fit(n, horizon, limit))
            limit = 2 * FEWEST_BLOCKS
        check_count(limit, stream.count(stream.total), stream.unit)
        check_count(limit, len(blocks), f"blocks of {stream.unit} with full transitions")
        lmbda, alpha, _ = self.choice
        shares = stream.weights[blocks] / self.total.weight
        rests = (self.total.less(stream.own(e)) for e in blocks)
        without_block = self.weights_of_parts(rests, lmbda, alpha)
        factors = np.sqrt(1.0 - shares)[:, np.newaxis, np.newaxis, np.newaxis]
        moves = factors * (theta - without_block)
        vectors = self.settings.uncentred(moves.swapaxes(2, 3))
        shift = self._shift(recursion, theta)
        return Influence(
            vectors=vectors.reshape(len(shares), -1, n),
            shift=shift.reshape(-1, n),
            shares=shares,
            intercept=self.settings.fit_intercept,
            marks=np.zeros((len(shares), 4), np.uint64),
        )

    def _shift(self, recursion: HorizonSolution, theta: Array) -> Array:
        """Return by how much the ridge term moves the weights of each horizon, (H, m, n), to first order."""
        system = recursion.system
        n = len(system.A)
        pull = system.ridge[:, np.newaxis] * theta  # (H, n, m)
        side_by_side = np.hstack([*pull])  # all horizons are right-hand sides of one system
        solved = system.solve(side_by_side).weights
        added = solved.reshape(n, len(theta), -1).transpose(1, 0, 2)
        return self.settings.uncentred(recursion.run(added).swapaxes(1, 2))

    def at(self, horizons: Sequence[int | tuple[int, int]] = (), *, single: bool = False) -> Linear:
        """Return the predictions for some horizons, by default the longest, as values of one linear function.

        A horizon is a number of steps, h, or a window (a, b) of the steps a + 1, …, b, whose weights and influence are
        the differences of those of b and of a steps. The rewards of a horizon follow one another. If `single`, values
        of the only horizon and reward are (T,).
        """
        windows = Windows.of(horizons, self.stream.horizon, self.reward_names)
        of_features, of_ones = self.parts
        coef = windows.differences(of_features.reshape(-1, self.n_features))
        intercepts = windows.differences(of_ones.reshape(-1, 1))[:, 0]
        intercept: float | Array = intercepts
        low, high = self._bounds_of(windows)
        if single:
            coef = coef[0]
            intercept = float(intercepts[0])
            low = _of_first(low)
            high = _of_first(high)

        def find_influence() -> Influence:
            """Return the influence on these horizons, only when intervals are asked for."""
            influence = self.solved.influence
            if influence is None:
                raise InvalidInputError(self.solved.no_intervals)
            vectors = windows.differences(influence.vectors)
            shift = windows.differences(influence.shift)
            return replace(influence, vectors=vectors, shift=shift)

        return Linear(
            coef,
            intercept,
            self.names,
            windows.names,
            find_influence,
            limits=self.limits,
            settings=self.settings,
            age=self.age,
            steps=tuple(b - a for a, b in windows.pairs),
            has_ones=self.settings.fit_intercept,
            low=low,
            high=high,
            find_noise=partial(self._noise, windows),
        )

    def _noise(self, windows: Windows, columns: Features, values: Array) -> Noise:
        """Return how the returns of windows scatter about predictions (T, k), from columns that have weights."""
        if not windows.begin_at_once:
            raise InvalidInputError(
                f'`horizon` must be a number of steps with `of` "{RETURN}": how the rewards of a window scatter is not '
                "known. Give the number of all steps up to its end."
            )
        if self.spread is None:
            raise InvalidInputError(_NO_SPREAD)
        intercept = self.settings.fit_intercept
        variances = [self.spread.variance(columns, b, intercept=intercept) for _, b in windows.pairs]
        noise = Noise.of_independent_rows(np.hstack(variances), np.tile(self.spread.freedom, len(windows.pairs)))
        if self.shock is None:
            return noise
        return noise._replace(shared=self.shock.deviation(values), shared_freedom=self.shock.freedom)

    def _bounds_of(self, windows: Windows) -> tuple[float | Array | None, float | Array | None]:
        """Return the bounds of predictions for windows: one for all of them, or one for each window and reward."""
        if windows.begin_at_once:
            return self.bounds
        lowest, highest = self._bounds_of_differences
        n_windows = len(windows.pairs)
        return np.tile(lowest, n_windows), np.tile(highest, n_windows)

    @property
    def _bounds_of_differences(self) -> tuple[Array, Array]:
        """Bounds of the difference of two sums of each reward, (m,): they follow if it has one sign; else infinite."""
        low, high = self.bounds
        if low is None:
            low = -np.inf
        if high is None:
            high = np.inf
        least, most = self.limits.rewards
        is_gain = least >= 0.0
        is_loss = (most <= 0.0) & ~is_gain
        lowest = np.full(len(least), -np.inf)
        lowest[is_gain] = min(low, 0.0)
        lowest[is_loss] = low
        highest = np.full(len(least), np.inf)
        highest[is_gain] = high
        highest[is_loss] = max(high, 0.0)
        return lowest, highest

    def returns(self, rows: Rows, horizon: int, unobserved: str) -> ObservedReturns:
        """Compute the returns of the next 1, 2, …, `horizon` steps; see `horizon_returns`."""
        values = self.at(range(1, horizon + 1)).predict(rows.X)
        by_horizon = values.reshape(len(rows), horizon, -1).swapaxes(0, 1)
        return horizon_returns(rows, by_horizon, horizon, unobserved)

    def bounded(self, values: Array) -> Array:
        """Return predictions within the bounds of the model."""
        return self.at().limited(values)

    @property
    def facts(self) -> dict[str, Any]:
        """What describes the model, by name."""
        origin = self.origin
        solved = self.solved
        facts: dict[str, Any] = {}
        if origin is not None:
            facts["fitted on"] = origin.files
            facts["fitted at"] = f"{origin.date}, by lstd {origin.lstd}"
        facts |= {
            "horizon": self.stream.horizon,
            "gamma": self.settings.gamma,
            "lmbda": solved.lmbda,
            "alpha": solved.alpha,
            "penalty": self.unit_of_penalty,
            "n_transitions": self.n_transitions,
            "n_episodes": self.n_episodes,
            "features": self.column_names,
            "rewards": self.reward_names,
            "intervals": solved.no_intervals or "yes",
        }
        facts |= self.known_checks.texts(solved.lmbda)
        if self.held_out is not None:
            facts["held-out R²"] = round(self.held_out.score, 6)
        if self.naive is not None:
            facts["naive forecast"] = self.naive.text
        facts |= self.shock_fact
        if self.negative:
            facts["negative"] = self.negative
        if self.said:
            facts["doubt"] = " ".join(self.said)
        return facts

    @property
    def shock_fact(self) -> dict[str, str]:
        """What is known of a shock that all subjects share; nothing of a model without intervals for what comes."""
        if self.spread is None:
            return {}
        text = "not looked for: that needs cuts of a log without ends, with six groups, and intervals"
        if self.shock is not None:
            text = self.shock.text
        return {"shared shock": text}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features as they are given; x0, x1, … if they have none."""
        return self.names or tuple(f"x{j}" for j in range(self.n_given))

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that have weights: of the features, or of those that replace the age."""
        if self.age is None:
            return self.feature_names
        return self.age.names(self.feature_names)

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Names of the rewards."""
        if self.rewards:
            return self.rewards
        m = len(self.stream.total.sums.square)
        if m == 1:
            return ("reward",)
        return tuple(f"reward_{j}" for j in range(m))

    @cached_property
    def parts(self) -> tuple[Array, Array]:
        """Weights of the features, (H, m, n), and of the column of ones, (H, m), zero without it."""
        weights = self.solved.weights.swapaxes(1, 2)
        of_features = np.ascontiguousarray(weights[..., : self.n_features])
        of_ones = weights[..., self.n_features :].sum(axis=2)  # a sum of one weight, or of none
        return read_only((of_features, of_ones))

    def shaped(self, values: Array) -> Array:
        """Return values (·, m, …) without the axis of rewards if those were a vector."""
        if self.single:
            return values[:, 0]
        return values


def _of_first(bound: float | Array | None) -> float | Array | None:
    """Return the bound of the first value, where there is one for each."""
    if isinstance(bound, np.ndarray):
        return float(bound[0])
    return bound


class Windows(NamedTuple):
    """Windows (a, b) of the steps a + 1, …, b, and where the values of all horizons and rewards have their ends."""

    pairs: list[tuple[int, int]]
    rewards: tuple[str, ...]  # names
    ends: list[int]  # place of b steps, for each window and reward
    starts: list[int]  # place of a steps; negative if a is 0, of which the values are 0
    begin_at_once: bool  # with the first step, all of them: values are sums of horizons, and not differences

    @classmethod
    def of(cls, horizons: Sequence[int | tuple[int, int]], longest: int, rewards: tuple[str, ...]) -> Windows:
        """Return the windows of checked horizons, by default of the longest one."""
        pairs = [check_window(horizon, longest) for horizon in horizons]
        if not pairs:
            pairs = [(0, longest)]
        m = len(rewards)
        ends: list[int] = []
        starts: list[int] = []
        for a, b in pairs:
            ends += range((b - 1) * m, b * m)
            starts += range((a - 1) * m, a * m)
        begin_at_once = max(starts) < 0
        return cls(pairs, rewards, ends, starts, begin_at_once)

    def differences(self, values: Array) -> Array:
        """Return values of b steps less those of a, along the last axis but one: of all horizons and rewards."""
        of_windows = values[..., self.ends, :]
        if self.begin_at_once:
            return of_windows
        for place, start in enumerate(self.starts):
            if start >= 0:
                of_windows[..., place, :] -= values[..., start, :]
        return of_windows

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values: "5", "2-5", or with the reward, "cost_5"."""
        names = []
        for a, b in self.pairs:
            steps = str(b)
            if a:
                steps = f"{a}-{b}"
            if len(self.rewards) == 1:
                names.append(steps)
            else:
                names += [f"{reward}_{steps}" for reward in self.rewards]
        return tuple(names)


def check_window(horizon: object, longest: int) -> tuple[int, int]:
    """Return the window (a, b) of a number of steps, (0, h), or of two, 0 ≤ a < b; raises InvalidInputError."""
    if not isinstance(horizon, tuple | list):
        return 0, check_integer("horizon", horizon, 1, longest)
    if len(horizon) != 2:
        raise InvalidInputError(
            f"`horizon` must be a number of steps, or two for the steps a + 1, …, b; got {horizon!r:.80}. Give (a, b)."
        )
    a = check_integer("horizon[0]", horizon[0], 0, longest - 1)
    return a, check_integer("horizon[1]", horizon[1], a + 1, longest)


def _with_columns(rows: Rows, age: AgeColumns) -> Rows:
    """Return rows with the columns that replace the age."""
    return rows.changed(X=age.columns(rows.X, rows.names))


def _limits_of(limits: Limits, age: AgeColumns | None) -> Limits:
    """Return limits that leave out the ranges of decays, and of their products, which are no reason to warn."""
    if age is None or limits.ranges is None:
        return limits
    ranges = limits.ranges.copy()
    ranges[:, age.n_given - 1 :] = [[-np.inf], [np.inf]]
    return limits.changed(ranges=ranges)


def _observed_share(sums: LagSums, one: int, gamma: float) -> float | None:
    """Return the share of the steps of all returns, discounted, that was observed; None without any.

    `one` is the column of ones.
    """
    steps_ahead = np.cumsum(gamma ** np.arange(len(sums.full)))
    seen = sums.full[:, one, one].sum()
    hidden = sums.cut[1:, one, one] @ steps_ahead[-2::-1]
    if not seen + hidden > 0.0:
        return None
    return float(seen / (seen + hidden))


def _observed_share_of_rows(rows: Rows, horizon: int, gamma: float) -> float | None:
    """Return the share of the steps of the returns of rows that was observed."""
    ones = rows.changed(X=np.ones((len(rows), 1)), y=np.zeros((len(rows), 1)), names=None)
    (sums,) = lag_sums(ones, horizon, [0, len(rows)])
    return _observed_share(sums, 0, gamma)


def _centre_of(rows: Rows) -> Array:
    """Return the mean of each feature over the rows, by weight if some full row has any."""
    weight = rows.weight * rows.full
    if not weight.any():
        weight = np.ones(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # sums report overflow
        centre = weight @ rows.X / weight.sum()
    return np.where(np.isfinite(centre), centre, 0.0)


def _limit(n: int, horizon: int, n_blocks: int | str) -> int:
    """Return the largest number of blocks of n weights; raises InvalidInputError when `n_blocks` breaks its rule."""
    if not isinstance(check_n_blocks(n_blocks), str):
        return int(n_blocks)
    affordable = _affordable(n, horizon)
    if affordable > 1:
        return affordable
    return 0


def _affordable(n: int, horizon: int) -> int:
    """Return how many blocks of n weights fit in memory, at most 64."""
    return min(_MOST_BLOCKS, BYTES // (_BYTES_OF_PAIR * n**2 * horizon))


def _too_few_fit(n: int, horizon: int, limit: int) -> str:
    """Say that memory holds too few blocks of n weights for intervals."""
    size = _BYTES_OF_PAIR * n**2 * horizon / 2**20
    kept = f"kept {limit}"
    if not limit:
        kept = "keeps none where fewer than two fit"
    return (
        f"Intervals need at least {FEWEST_BLOCKS} blocks of the data; with {n} weights and a `horizon` of {horizon} "
        f'each takes {size:.3g} MiB, and n_blocks="auto" {kept} in {BYTES >> 20} MiB. Use n_blocks=10 if there '
        "is memory, longer steps and a smaller `horizon`, or fewer features."
    )


# ------------------------------------------------------------ choice of λ and α


Pair = tuple[int, int]  # places of a trace decay and a ridge coefficient in the grid


class Choice(NamedTuple):
    """A trace decay, a ridge coefficient, and the errors of all pairs."""

    lmbda: float
    alpha: float
    results: dict[str, Array]


def _folds(model: HorizonModel) -> list[LagSums]:
    """Join blocks to at most ten folds with weight."""
    blocks = model.weighted_blocks
    n_folds = min(len(blocks), _FOLDS)
    edges = np.arange(n_folds + 1) * len(blocks) // max(1, n_folds)
    folds = []
    for first, end in pairwise(edges):
        sums = [model.stream.own(e) for e in blocks[first:end]]
        folds.append(reduce(LagSums.plus, sums))
    return folds


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is out of range is refused, or never chosen
def choose(model: HorizonModel) -> Choice:
    """Choose λ and α by the errors on held-out folds; raises InvalidInputError if there is nothing to hold out."""
    search = Search.of(model)
    pair = search.bootstrapped()
    if search.is_better(search.defaults, pair):
        pair = search.defaults
    cost = search.cost(1.0, pair, _CAUTION)
    i, j = _least(cost)
    lmbda, alpha = np.meshgrid(search.lmbdas, search.alphas, indexing="ij")
    results = {"lmbda": lmbda.ravel(), "alpha": alpha.ravel(), "cost": cost.ravel()}
    return Choice(float(search.lmbdas[i]), float(search.alphas[j]), results)


def _least(cost: Array) -> Pair:
    """Return the pair of least cost."""
    i, j = divmod(int(cost.argmin()), cost.shape[1])
    return i, j


def _nearest(alphas: Array, alpha: float) -> int:
    """Return the place of the ridge coefficient whose ratio to `alpha` is nearest to one."""
    if len(alphas) == 1:
        return 0
    return int(np.abs(np.log(alphas / alpha)).argmin())


class Search(NamedTuple):
    """Errors of all pairs of λ and α on held-out folds: K folds, h of the H horizons, n weights, m rewards."""

    lmbdas: Array
    alphas: Array
    defaults: Pair  # nearest to the defaults
    first: Pair  # of an ordinary ridge coefficient, with which the search begins
    folds: list[LagSums]
    outside: Array  # weights without each fold, (K, λ, α, H, n, m)
    compared: NDArray[np.intp]  # horizons, from 0, (h,)
    quadratic: Array  # θᵀ C_0 θ of each fold, which holds for every target, (K, λ, α, h, m)
    unit: Array  # of the errors, (h, m)

    @classmethod
    def of(cls, model: HorizonModel) -> Search:
        """Solve for all pairs without each fold; raises InvalidInputError if there is nothing to hold out."""
        folds = _folds(model)
        if len(folds) < 2:
            raise InvalidInputError(
                '`lmbda` and `alpha` can be "auto" with at least two blocks of data: pass more episodes or rows, an '
                "`n_blocks` above 1, or numbers."
            )
        given = model.settings
        lmbdas = np.array([given.lmbda])
        if "lmbda" in given.choose:
            lmbdas = LMBDAS
        alphas = np.array([given.shared_alpha])
        if "alpha" in given.choose:
            alphas = ALPHAS * model.unit
        i = int(np.abs(lmbdas - LMBDA).argmin())

        total = model.total
        rests = [total.plus(fold, -1.0) for fold in folds]
        outside = np.array([_weights_of_grid(model, rest, lmbdas, alphas) for rest in rests])
        horizon, n = outside.shape[3:5]
        compared = np.unique(np.ceil(np.arange(1, _SOME + 1) * horizon / _SOME).astype(int)) - 1
        mean_square = np.where(total.square > 0.0, total.square / total.weight, 1.0)  # of each reward
        grams = np.array([fold.full[0, :, :n] for fold in folds])
        held = outside[:, :, :, compared]
        return cls(
            lmbdas=lmbdas,
            alphas=alphas,
            defaults=(i, _nearest(alphas, ALPHA)),
            first=(i, _nearest(alphas, ALPHA * model.unit)),
            folds=folds,
            outside=outside,
            compared=compared,
            quadratic=np.einsum("klahim,kij,klahjm->klahm", held, grams, held, optimize=True),
            unit=(compared + 1)[:, np.newaxis] * mean_square,
        )

    def bootstrapped(self) -> Pair:
        """Return the pair of least error on returns that are mostly bootstrapped, by the pair that won before."""
        horizon = self.outside.shape[3]
        near = max(0.0, 1.0 - _PARTS / horizon)
        pair = self.first
        for _ in range(2):
            pair = _least(self.cost(near, pair, 0.0))
        return pair

    def errors(self, decay: float, reference: Pair) -> Array:
        """Compute the errors of λ*-returns that the weights of a pair complete, but for a constant, (K, λ, α).

        They are infinite where they are out of range.
        """
        i, j = reference
        along = [_along(fold, decay, self.outside[k, i, j], self.compared) for k, fold in enumerate(self.folds)]
        held = self.outside[:, :, :, self.compared]
        product = np.einsum("klahim,khim->klahm", held, np.array(along), optimize=True)  # θᵀ Φᵀ G
        in_units = (self.quadratic - 2.0 * product) / self.unit
        errors = in_units.mean(axis=(3, 4))
        return np.where(np.isfinite(errors), errors, np.inf)

    def cost(self, decay: float, pair: Pair, caution: float) -> Array:
        """Compute by how much each pair is worse than this one, plus so many standard errors over folds, (λ, α)."""
        errors = self.errors(decay, pair)
        i, j = pair
        check_range(errors[:, i, j])
        difference = errors - errors[:, i, j][:, np.newaxis, np.newaxis]
        spread = np.sqrt(len(self.folds)) * difference.std(axis=0, ddof=1)
        cost = difference.sum(axis=0) + caution * spread
        return np.where(np.isfinite(cost), cost, np.inf)

    def is_better(self, pair: Pair, other: Pair) -> bool:
        """Return whether a pair has less error than another on observed returns, which its weights complete."""
        errors = self.errors(1.0, pair)
        i, j = pair
        k, m = other
        difference = errors[:, i, j] - errors[:, k, m]
        return bool(difference.sum() < -_ROUNDING)


def _weights_of_grid(model: HorizonModel, sums: LagSums, lmbdas: Array, alphas: Array) -> Array:
    """Compute the weights of some of the data for all pairs, (λ, α, H, n, m), with the ridge term in proportion."""
    ridges = np.outer(alphas * (sums.weight / model.total.weight), model.factors)
    intercept = model.settings.fit_intercept
    with one_blas_thread():  # several threads would be slower: the systems are small
        return weights_of_grid(sums, lmbdas, ridges, model.penalty, intercept=intercept)


def _along(sums: LagSums, lmbda: float, reference: Array, some: NDArray[np.intp]) -> Array:
    """Return Φᵀ G_{h+1} for some horizons h, (·, n, m), with returns that reference weights (H, n, m) complete."""
    moves, rewards = np.split(sums.decayed(lmbda), [reference.shape[1]], axis=2)
    along = np.cumsum(rewards, axis=0)[some]
    for place, h in enumerate(some.tolist()):
        along[place] += np.einsum("kij,kjm->im", moves[:h], reference[:h][::-1])
    return along
