"""Backtest: fit to what was known at a cut, and compare predictions with what followed.

Let x be the features of a subject at the cut, x' those k steps later, R the discounted rewards between, and v(x') = 0
after an end. The prediction of R is i = v(x) − γᵏ v(x'). R − i is the TD error of k steps, whose square the true v does
not minimise: v(x') knows what happened in between. So R² compares R with

    f = v(x) − γᵏ m̂(x),   m̂ a cross-fitted regression of v(x') on v(x) and x,

which is of what was known at the cut. Sums and deciles of i are right without m̂. A :class:`lstd.HorizonLSTD` predicts
the steps themselves: i = f = v_k(x).

Cross-fitted: each row is predicted from rows of other folds, see `lstd.metrics.cross_fitting`. Folds have whole
subjects, or consecutive rows of a stream; then rows within k steps of a fold are left out with it, since their rewards
are partly the same.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from lstd.data.arguments import check_integer, check_real
from lstd.data.doubts import remember_backtest, with_backtest
from lstd.data.estimator_kinds import EstimatorOfReturns, EstimatorOfSteps, KnowsUnobserved
from lstd.data.feature_arrays import dense
from lstd.data.ids import last_rows, numbered
from lstd.data.repeated_steps import naive_forecasts
from lstd.data.takes import GIVE_HORIZON_ROWS, USE_WEIGHT, Takes
from lstd.data.time_steps import ends_of_steps, exact_numbers
from lstd.errors import ExtrapolationWarning, InvalidInputError, InvalidTypeError, UnobservedWarning, warn
from lstd.metrics.calibration import Calibration, bins_of, calibration
from lstd.metrics.cross_fitting import FOLDS, cross_fitted, folds_of_stream, folds_of_subjects
from lstd.statistics.intervals import Interval, degrees_of_freedom, interval_of
from lstd.trajectories import Trajectories
from lstd.trajectories.frame import to_frame
from lstd.trajectories.joining import parse_times
from lstd.types import Array, FeaturesLike, Flags


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """Predictions at a cut compared with the k steps that followed; arrays of shape (N,), for N subjects or rows.

    Attributes
    ----------
    cut : number or datetime64
        The latest cut; the others are in `earlier`.
    steps : int
        Steps k that are compared.
    gamma : float
    value : ndarray
        Prediction v at the cut.
    observed : ndarray
        Discounted rewards R of the steps after the cut.
    predicted : ndarray
        Prediction i of `observed`: v less the discounted prediction k steps later.
    forecast : ndarray
        Prediction f of `observed` from what was known at the cut alone, which R² compares.
    expected_error : ndarray
        Cross-fitted regression ê of R − f, for standard errors.
    subject : ndarray of int
        Number of the subject of each entry, or of its block of a stream; they count as independent.
    n_left_out : int
        Number of subjects, or rows of a stream, that were active at the cut but not observed for k steps or to an end.
    level : float
        Level of intervals.
    naive : ndarray
        A naive forecast of `observed`: the mean reward of up to k steps before the cut, in
        each of the steps after it; of a subject without any, `forecast`.
    own_mean : ndarray
        The same of the mean reward of all steps of the subject's episode before the cut.
    of_steps : bool
        Whether the model predicts the sum over k steps itself, as :class:`lstd.HorizonLSTD` does.
    earlier : tuple of Backtest
        Results at earlier cuts, in order of time. Choose models by the latest cut.

    Examples
    --------
    An AR(1) process, whose value is linear in its state, beside features that say nothing:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.metrics import backtest
    >>> random, x = np.random.default_rng(0), np.zeros(1000)
    >>> for t in range(1, 1000):
    ...     x[t] = 0.9 * x[t - 1] + random.normal()
    >>> features, model = (x[:, np.newaxis], random.normal(size=(1000, 1))), LSTD(gamma=0.8, lmbda=0.8)
    >>> one, other = (backtest(model, X, np.append(x[1:], 0.0), cut=500, steps=10) for X in features)
    >>> bool(one.difference(other).prediction < 0.0)
    True
    """

    cut: Any
    steps: int
    gamma: float
    value: Array
    observed: Array
    predicted: Array
    forecast: Array
    expected_error: Array
    subject: NDArray[np.intp]
    n_left_out: int
    level: float
    naive: Array
    own_mean: Array
    of_steps: bool = False
    earlier: tuple[Backtest, ...] = ()

    @property
    def r2(self) -> float:
        """1 − Σ(R − f)² / Σ(R − R̄)²."""
        return self._r2_of(self.forecast)

    @property
    def naive_r2(self) -> float:
        """The same of the naive forecast, which a model should exceed."""
        return self._r2_of(self.naive)

    @property
    def own_mean_r2(self) -> float:
        """The same of the mean of all steps before, which a model should exceed too."""
        return self._r2_of(self.own_mean)

    @property
    def total(self) -> Interval:
        """Σi ÷ ΣR, the total that was predicted in units of what was observed, with its interval.

        Raises InvalidInputError when ΣR is within two standard errors of 0: such a ratio says nothing.
        """
        mean = float(self.observed.mean())
        if self._near_zero:
            raise InvalidInputError(
                "`total` needs rewards whose sum is more than two standard errors from 0; they add up to "
                f"{self.observed.sum():.3g}. Compare the sums of `predicted` and `observed` instead."
            )
        ratio = float(self.predicted.mean()) / mean
        return self._interval(ratio, (self.predicted - self.observed) / mean)

    def calibration(self, n_bins: int = 10) -> Calibration:
        """Compare mean `predicted` with mean `observed`, in bins of `value`.

        Standard errors are of the difference. They are larger by half of the quantile of Student's t that is 2 for
        many subjects or blocks, as few blocks of a stream make up a bin; 1 / Σ s² − 1 degrees of freedom, s the shares.
        """
        from scipy import special  # takes 0.1 s to import

        difference = calibration(self.value, self.observed - self.predicted, n_bins, groups=self.subject)
        predicted = calibration(self.value, self.predicted, n_bins, groups=self.subject)
        observed = calibration(self.value, self.observed, n_bins, groups=self.subject)
        bins = bins_of(self.value, n_bins)(self.value)
        counts = np.zeros((len(difference.count), self.subject.max() + 1))
        np.add.at(counts, (bins, self.subject), 1.0)
        freedom = counts.sum(axis=1) ** 2 / (counts**2).sum(axis=1) - 1.0
        factor = 0.5 * special.stdtrit(np.maximum(freedom, 1e-3), special.ndtr(2.0))
        return replace(
            difference,
            predicted=predicted.observed,
            observed=observed.observed,
            standard_error=difference.standard_error * factor,
        )

    def difference(self, other: Backtest) -> Interval:
        """Compute the mean of (R − f)² less that of another model, with its interval: below 0, this one is better.

        Both must be of the same rows, cut, steps and discount.
        """
        if not isinstance(other, Backtest):
            raise InvalidInputError(f"`other` must be the Backtest of another model; got {other!r:.80}.")
        same_rows = len(self.observed) == len(other.observed) and np.array_equal(self.subject, other.subject)
        is_comparable = (
            same_rows and self.cut == other.cut and np.allclose(self.observed, other.observed, rtol=1e-9, atol=0.0)
        )
        if not is_comparable:
            raise InvalidInputError(
                "`other` must be a backtest of the same rows with the same `cut`, `steps` and `gamma`. Run both "
                "models on one set of rows."
            )
        squared = (self.observed - self.forecast) ** 2
        squared_of_other = (self.observed - other.forecast) ** 2
        mean = float(np.mean(squared - squared_of_other))
        return self._interval(mean, self._influence - other._influence)

    @property
    def _near_zero(self) -> bool:
        """Whether ΣR is within two standard errors of 0."""
        return not abs(self.observed.mean()) > 2.0 * _standard_error(self.observed, self.subject)

    def _r2_of(self, forecast: Array) -> float:
        """Return R² of a forecast, (N,)."""
        deviation = self.observed - self.observed.mean()
        return 1.0 - float(np.sum((self.observed - forecast) ** 2) / np.sum(deviation**2))

    @property
    def _influence(self) -> Array:
        """ψ = (R − f)² − 2ê(i − f), whose scatter includes that of the regression in f."""
        return (self.observed - self.forecast) ** 2 - 2.0 * self.expected_error * (self.predicted - self.forecast)

    def _interval(self, mean: float, influence: Array) -> Interval:
        """Return the interval of a mean over entries of these influences, (N,)."""
        squares = np.asarray(np.bincount(self.subject, influence - influence.mean()) ** 2.0, np.float64)
        shares = np.asarray(np.bincount(self.subject) / len(self.subject), np.float64)
        freedom = degrees_of_freedom(squares[np.newaxis, :, np.newaxis], shares)[0, 0]
        error = np.asarray(_standard_error(influence, self.subject))
        return interval_of(np.asarray(mean), error, freedom, np.zeros(()), self.level)

    @property
    def moment(self) -> str:
        """The cut as text, a date without the time at midnight."""
        text = str(self.cut)
        if isinstance(self.cut, np.datetime64) and self.cut == self.cut.astype("datetime64[D]"):
            text, _, _ = text.partition("T")
        return text

    @property
    def document(self) -> dict[str, Any]:
        """The numbers of the table, for programs."""
        numbers = {
            "r2": self.r2,
            "naive_r2": self.naive_r2,
            "own_mean_r2": self.own_mean_r2,
            "predicted": float(self.predicted.sum()),
            "observed": float(self.observed.sum()),
        }
        counts = {"steps": self.steps, "rows": len(self.value), "left_out": self.n_left_out}
        return {"cut": self.moment, **counts, **numbers}

    @property
    def advised_steps(self) -> int | None:
        """Least number of steps that is advised, ¼ / (1 − γ); None at γ = 1, where all that follow count."""
        return None if self.gamma == 1.0 else math.ceil(round(0.25 / (1.0 - self.gamma), 6))

    def __str__(self) -> str:
        title = f"Backtest over {self.steps} steps"
        if not self.of_steps:
            title += f" ({self._advice} advised at gamma {self.gamma:g})"
        interval = f"{100 * self.level:g} % interval"
        heads = ("cut", "rows", "left out", "R²", "naive R²", "own mean R²", "predicted", "observed", "ratio", interval)
        table = [heads, *(one._line() for one in (*self.earlier, self))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [title]
        for row in table:
            cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells))
        if self.earlier:
            lines.append("Choose by the latest cut.")
        if self._better_forecast:
            lines.append(self._better_forecast)
        return "\n".join(lines)

    @property
    def _better_forecast(self) -> str:
        """At how many cuts a naive forecast has the larger R², and what to do; nothing where at none.

        Of the two, it is one that can be taken, then the one that is better at more cuts, then the one with the larger
        R² at the latest cut.
        """
        cuts = (*self.earlier, self)
        r2 = np.array([one.r2 for one in cuts])
        naive = _Rival("Naive forecast", "rates of recent steps", np.array([one.naive_r2 for one in cuts]))
        own_mean = _Rival("Own mean", "rates of all steps", np.array([one.own_mean_r2 for one in cuts]))
        better = max(naive, own_mean, key=lambda rival: rival.rank(r2))
        can_be_taken, n_better, _ = better.rank(r2)
        if not n_better:
            return ""
        advice = f"add what it knows to the features, such as {better.rates}"
        if can_be_taken:
            advice += ", or take it"
        of_cuts = "1 cut" if len(cuts) == 1 else f"{len(cuts)} cuts"
        return f"{better.name} better at {n_better} of {of_cuts}: {advice}."

    @property
    def _advice(self) -> str:
        """How many steps are advised."""
        if self.advised_steps is None:
            return "all that the data have are"
        return f"at least {self.advised_steps} are"

    __repr__ = __str__

    @property
    def _sentence(self) -> str:
        """The result at each cut in one sentence, for warnings."""
        results = []
        for one in (*self.earlier, self):
            total = f"{one.predicted.sum():.4g} where {one.observed.sum():.4g} came"
            if not one._near_zero:
                ratio = one.total
                total = f"{ratio.prediction:.2f} times what came ({ratio.lower:.2f} to {ratio.upper:.2f})"
            results.append(f"{total}, with R² {one.r2:.2f}, at {one.moment}")
        return f"A backtest of {self.steps} steps predicted {'; '.join(results)}."

    def _line(self) -> tuple[str, ...]:
        """Return the line of the table, under its heads."""
        ratio = "sum near 0"
        interval = "–"
        if not self._near_zero:
            total = self.total
            ratio = f"{total.prediction:.2f}"
            interval = f"{total.lower:.2f} to {total.upper:.2f}"
        return (
            self.moment,
            str(len(self.value)),
            str(self.n_left_out),
            f"{self.r2:.3f}",
            f"{self.naive_r2:.3f}",
            f"{self.own_mean_r2:.3f}",
            f"{self.predicted.sum():.6g}",
            f"{self.observed.sum():.6g}",
            ratio,
            interval,
        )


class _Rival(NamedTuple):
    """A naive forecast beside a model."""

    name: str
    rates: str  # features that know what it does
    r2: Array  # at each cut

    def rank(self, r2: Array) -> tuple[bool, int, float]:
        """Return whether it can be taken in place of a model with R² at each cut, at how many it is better, and R²."""
        can_be_taken = bool((self.r2 > np.maximum(r2, 0.0)).all())
        return can_be_taken, int(np.sum(self.r2 > r2)), float(self.r2[-1])


def _standard_error(values: Array, subject: NDArray[np.intp]) -> float:
    """Standard error of a mean, by subject; NaN for fewer than two."""
    sums = np.bincount(subject, values - values.mean())
    n_subjects = len(sums)
    if n_subjects < 2:
        return math.nan
    return math.sqrt(n_subjects / (n_subjects - 1.0) * float(sums @ sums)) / len(values)


_MOST_LEFT_OUT = 0.1  # of the subjects, without a warning
_LEAST = 1e-70  # difference of sums, whose squares are multiplied
_MOST = 1e70
_BLOCK = 5  # least length of a block of a stream, in multiples of the steps


def backtest(
    estimator: EstimatorOfReturns,
    X: FeaturesLike | Trajectories,
    y: ArrayLike | None = None,
    *,
    cut: Any,
    steps: int,
    time: Any = None,
    level: float = 0.95,
    **data: Any,
) -> Backtest:
    """Fit to what was known at a cut, and compare the predictions of active subjects with the steps that followed.

    A subject is a group, or an episode without `groups`. It counts if it is active at the cut and observed for k steps
    or to its end. If times increase over all rows, the data are one stream: all its rows from the cut on count that are
    observed for k steps or to an end.

    Parameters
    ----------
    estimator : estimator
        An unfitted :class:`lstd.LSTD`, :class:`lstd.LSTDCV` or :class:`lstd.HorizonLSTD`, or any estimator with the
        same `fit` and `gamma`. Clones are fitted.
    X, y, **data
        As in :meth:`lstd.LSTD.fit`, without `X_next` and `importance_ratio`: X, y, episode, terminated, discount,
        trace_coefficient, weight, groups. Or `X` is a :class:`lstd.Trajectories`. Or `X` is a data frame, and `data`
        are the arguments of :meth:`lstd.Trajectories.from_frame`: features, reward, episode, terminated and so on.
        `actions` and `behavior_probability` of Trajectories have no effect: the rewards that came are compared.
    cut : number, date, or several
        Rows up to this time are known, but not the rewards of steps that are not over then: a cut within the step of a
        subject counts as one at its start. The last step of an episode is taken to be as long as the one before it. In
        a single stream without `time`, the number of a row. With several, choose models by the latest one.
    steps : int
        Number of steps k to compare, advised to be ¼ / (1 − γ) or more; for HorizonLSTD at most its `horizon`.
    time : array-like of shape (T,) or str, optional
        Times of rows, which increase within each episode; for a frame, the name of the column. Needed unless the data
        are one episode, or Trajectories that have times.
    level : float in (0, 1), default 0.95
        Level of intervals.

    Returns
    -------
    Backtest
        R², total, calibration and, with another one, the difference of two models. Intervals take subjects as
        independent, or blocks of 5 k rows of a stream, and the fitted model as given.

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule; when fewer than 10 subjects, or 10 k rows of a stream, can be compared; when
        nothing was known at the cut; when all subjects received the same.

    Warns
    -----
    UnobservedWarning
        When more than a tenth of the active subjects are left out. Those that ended early are never left out, so the
        others are a biased sample. And once, with the result, when the fit at the latest cut has seen less than half of
        the returns; later fits and scores of this estimator have the result in their text too.

    Examples
    --------
    Customers spend 1 a week at first, and some stop for good in week 5. The feature is what was spent last:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.metrics import backtest
    >>> customer, week = np.repeat(np.arange(40), 13), np.tile(np.arange(13), 40)
    >>> spend = np.where((week < 5) | (customer % 2 == 0), 1.0, 0.0)
    >>> last = np.where(week > 0, np.roll(spend, 1), 1.0)[:, np.newaxis]
    >>> rows = {"time": week, "episode": customer, "terminated": np.zeros(520, dtype=bool)}
    >>> found = backtest(LSTD(gamma=0.8, lmbda=1.0, alpha=0.1), last, spend, cut=8, steps=4, **rows)
    >>> round(found.r2, 2), len(found.value)
    (0.76, 40)
    """
    if isinstance(estimator, type) or not isinstance(estimator, EstimatorOfReturns):
        raise InvalidInputError(
            f"`estimator` must be an unfitted estimator with `gamma` and `fit`; got {estimator!r:.80}. Pass an LSTD, "
            "an LSTDCV or a HorizonLSTD."
        )
    gamma = check_real("gamma", estimator.gamma, 0.0, 1.0)
    longest = None
    if isinstance(estimator, EstimatorOfSteps):
        longest = estimator.horizon
    steps = check_integer("steps", steps, 1, longest)
    level = check_real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    log = _Log.of(X, y, time, data, gamma)._replace(sums_steps=longest is not None)
    cuts = np.unique(parse_times("cut", np.atleast_1d(cut), log.time.dtype))
    if not len(cuts):
        raise InvalidInputError("`cut` must be a time, or several; got none. Pass the time up to which rows are known.")
    *earlier, (latest, unobserved) = [log.at(moment, estimator, steps, level) for moment in cuts]
    found = replace(latest, earlier=tuple(one for one, _ in earlier))
    result = found._sentence
    remember_backtest(estimator, result)
    warn(with_backtest(unobserved, result), UnobservedWarning)
    return found


_ELSE = "Correct its name, or leave it out: settings are those of `estimator`."
_POLICY = "Evaluate another policy with `lstd.ope`."
_REMEDIES = {
    "X_next": GIVE_HORIZON_ROWS,
    "next_features": GIVE_HORIZON_ROWS,
    "importance_ratio": _POLICY,
    "actions": _POLICY,
    "action": _POLICY,
    "behavior_probability": _POLICY,
    "sample_weight": USE_WEIGHT,
    "horizon": "The number of steps is `steps`.",
}
_COLUMNS = ("episode", "terminated", "discount", "trace_coefficient", "weight", "groups")
_ARRAYS = Takes(
    "a backtest of arrays",
    ("y", *_COLUMNS, "feature_names"),
    {**_REMEDIES, "reward": "Name the columns of a data frame with `features`, or pass arrays as `X` and `y`."},
    _ELSE,
)
_FRAME = Takes(
    "a backtest of a data frame",
    ("features", "reward", *_COLUMNS, "truncated", "sort", "start", "stop", "event", "gamma", "first_row"),
    {**_REMEDIES, "y": "The reward of a data frame is the name of its column, `reward`."},
    _ELSE,
)


def _check_given(given: dict[str, Any], trajectories: bool, y: Any) -> None:
    """Refuse arguments that the form of the data does not have."""
    if y is not None:
        given = {"y": y, **given}
    if trajectories and given:
        name = min(given)
        raise InvalidTypeError(f"`{name}` must not be given beside Trajectories, which have it. Leave it out.")
    if "features" in given:
        _FRAME.check(given)
    else:
        _ARRAYS.check(given)


def _with_names(data: Trajectories) -> Any:
    """Return the features as a data frame with their names, so that messages have them, where pandas is installed."""
    if data.feature_names is None or sparse.issparse(data.X) or importlib.util.find_spec("pandas") is None:
        return data.X
    return to_frame(data.X, data.feature_names, "pandas")


def _unobserved(estimator: EstimatorOfReturns) -> str:
    """Return what a fitted estimator of this package says of returns that were not observed; else nothing."""
    state = vars(estimator).get("model_")
    if isinstance(state, KnowsUnobserved):
        return state.unobserved
    return ""


def _check_rewards(data: Trajectories) -> None:
    """Refuse data without rows, with several rewards or importance ratios, or with several episodes without times."""
    if not len(data):
        raise InvalidInputError("`X` must have rows; got none. Pass the whole log, before and after the cut.")
    if data.y.ndim > 1:
        raise InvalidInputError(
            "`y` must have one reward: a backtest compares with the rewards that were received. Pass one column."
        )
    if data.importance_ratio is not None:
        raise InvalidInputError(
            "`importance_ratio` must not be given: a backtest compares with the rewards that were received. Evaluate "
            "another policy with `lstd.ope`."
        )
    if data.time is None and data.n_episodes > 1:
        raise InvalidInputError("`time` must be given with several episodes; got None. Pass the time of each row.")


class _Log(NamedTuple):
    """All rows: T of them, in time order within each episode."""

    data: Trajectories
    X: FeaturesLike  # as estimators take it
    time: NDArray[Any]
    discount: Array  # of the transition that leaves each row; 0 where it terminates
    last: NDArray[np.intp]  # last row of the episode of each row
    end: NDArray[Any]  # when the step of each row is over, in exact numbers
    is_stream: bool
    gamma: float
    sums_steps: bool = False  # whether the model predicts the sum over k steps itself

    @classmethod
    def of(cls, X: FeaturesLike | Trajectories, y: Any, time: Any, given: dict[str, Any], gamma: float) -> _Log:
        """Return the log of Trajectories, of a data frame with named columns, or of arrays."""
        _check_given(given, isinstance(X, Trajectories), y)
        features = None  # as they are given, if they are arrays
        if "features" in given:
            data = Trajectories.from_frame(X, time=time, **given)
        elif not isinstance(X, Trajectories):
            data = Trajectories(X, y, time=time, **given)
            features = X
        elif time is not None:
            data = Trajectories(**X.to_arrays(), time=time, feature_names=X.feature_names)
        else:
            data = X
        _check_rewards(data)
        times = data.time
        if times is None:
            times = np.arange(len(data))
        discount = data.discount
        if discount is None:
            discount = np.full(len(data), gamma)
        is_last = last_rows(data.episode)
        ends = np.flatnonzero(is_last)
        is_stream = bool((times[1:] > times[:-1]).all())
        end = ends_of_steps(times, is_last)
        if is_stream:  # a step is over at the latest where the next episode begins
            begin, _ = exact_numbers(times)
            end[:-1] = np.minimum(end[:-1], begin[1:])
        return cls(
            data=data,
            X=_with_names(data) if features is None else features,
            time=times,
            discount=np.where(data.terminated, 0.0, discount),
            last=ends[np.searchsorted(ends, np.arange(len(data)))],
            end=end,
            is_stream=is_stream,
            gamma=gamma,
        )

    def at(self, cut: Any, estimator: EstimatorOfReturns, steps: int, level: float) -> tuple[Backtest, str]:
        """Fit to what was known at a cut, and compare the rows that count with the steps after them.

        Returns the result, and what the fitted model says of returns that were not observed.
        """
        data = self.data
        known = self.time <= cut
        is_over = self._over_at(cut)
        ended = data.terminated & is_over  # what the step at the cut leads to is not known yet
        is_last_known = np.append(~known[1:] | (self.last[1:] != self.last[:-1]), True)
        at_cut = np.flatnonzero(known & ~ended & is_last_known)
        self._check_known(cut, known, at_cut)
        model = self._fitted(estimator, known, ended, at_cut)

        active = self._active(is_over, at_cut)
        last = self.last[active]
        rows = active[(active + steps <= last) | data.terminated[last]]
        subject = self._subjects(rows, steps)
        self._check_enough(cut, steps, len(active), rows, subject)
        later, factor, observed = self._followed(rows, steps)
        if not np.ptp(observed) > 0.0:
            raise InvalidInputError(
                f"`y` must differ between rows in the {steps} steps after {cut}; all subjects received the discounted "
                f"sum {observed[0]:g}. Take more steps or another cut."
            )
        with warnings.catch_warnings():  # the result shows how well predictions continue
            warnings.simplefilter("ignore", ExtrapolationWarning)
            value, ahead = self._values(model, rows, later, steps)
        ahead = np.where(factor > 0.0, factor * ahead, 0.0)
        if not (np.ptp(observed) > _LEAST and np.abs([value, observed]).max() < _MOST):
            raise InvalidInputError(
                f"`y` must lead to sums and predictions that differ by {_LEAST:g} to {_MOST:g}, so that their squares "
                f"can be compared; the sums after {cut} differ by {np.ptp(observed):.3g}. Give `y` in another unit."
            )

        folds = folds_of_subjects(subject)
        if self.is_stream:
            folds = folds_of_stream(rows, steps)
        X = dense(data.X[rows])
        forecast = value - cross_fitted(ahead, value, X, folds)
        recent, own_mean = self._naive(rows, steps, forecast)
        error = cross_fitted(observed - forecast, value, X, folds)
        result = Backtest(
            cut=cut,
            steps=steps,
            gamma=self.gamma,
            value=value,
            observed=observed,
            predicted=value - ahead,
            forecast=forecast,
            expected_error=error,
            subject=subject,
            n_left_out=len(active) - len(rows),
            level=level,
            naive=recent,
            own_mean=own_mean,
            of_steps=self.sums_steps,
        )
        return result, _unobserved(model)

    def _over_at(self, cut: Any) -> Flags:
        """Return the rows whose step is over at a cut: they are earlier, and the step of the cut is not theirs."""
        moment, _ = exact_numbers(np.asarray(cut)[np.newaxis])
        return np.asarray((self.time < cut) & (self.end <= moment[0]))

    def _active(self, is_over: Flags, active: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows to predict for: all of a stream from the step of the cut on, else the last known ones."""
        horizon = self.data.horizon
        if self.is_stream:
            return np.flatnonzero(~is_over & ~horizon)
        ended_before = horizon[active] & is_over[active]  # not followed up to the step of the cut
        return np.asarray(active[~ended_before])

    def _subjects(self, rows: NDArray[np.intp], steps: int) -> NDArray[np.intp]:
        """Return the number of the subject of each row, (N,), or of its block of a stream."""
        if self.is_stream:
            n_blocks = max(2, len(rows) // (_BLOCK * steps))
            return np.arange(len(rows)) * n_blocks // max(1, len(rows))
        subject = self.data.episode
        if self.data.groups is not None:
            subject = self.data.groups
        _, number = numbered(subject[rows])
        return np.asarray(number)

    def _fitted(
        self, estimator: EstimatorOfReturns, known: Flags, ended: Flags, active: NDArray[np.intp]
    ) -> EstimatorOfReturns:
        """Fit a clone to the known rows, in which active subjects have their horizon rows."""
        y = np.array(self.data.y)
        y[active] = np.nan
        columns = {}
        for name in ("discount", "trace_coefficient", "weight", "groups"):
            column = getattr(self.data, name)
            if column is not None:
                columns[name] = column[known]
        if self.sums_steps:
            columns["time"] = self.time[known]  # which must grow by equal steps
        X = _safe_indexing(self.X, np.flatnonzero(known))
        with warnings.catch_warnings():  # given afterwards, with the result
            warnings.simplefilter("ignore", UnobservedWarning)
            unfitted: EstimatorOfReturns = clone(estimator)
            return unfitted.fit(X, y[known], episode=self.data.episode[known], terminated=ended[known], **columns)

    def _values(
        self, model: EstimatorOfReturns, rows: NDArray[np.intp], later: NDArray[np.intp], steps: int
    ) -> list[Array]:
        """Return the predictions for rows, and those k steps later, which are zero for the sum of k steps."""
        if isinstance(model, EstimatorOfSteps):
            sums = model.predict(_safe_indexing(self.X, rows), horizon=steps)
            return [np.ravel(sums), np.zeros(len(rows))]
        return [np.ravel(model.predict(_safe_indexing(self.X, some))) for some in (rows, later)]

    def _followed(self, rows: NDArray[np.intp], steps: int) -> tuple[NDArray[np.intp], Array, Array]:
        """Return the row k steps later, or the last one of the episode, the discount up to it, and R."""
        later = rows
        factor = np.ones(len(rows))
        observed = np.zeros(len(rows))
        for _ in range(steps):
            goes_on = factor > 0.0
            reward = np.nan_to_num(self.data.y[later])
            observed = np.where(goes_on, observed + factor * reward, observed)
            factor = np.where(goes_on, factor * self.discount[later], 0.0)
            later = np.minimum(later + 1, self.last[rows])
            if not factor.any():
                break
        return later, factor, observed

    def _naive(self, rows: NDArray[np.intp], steps: int, forecast: Array) -> list[Array]:
        """Return two naive forecasts, by the mean reward of as many steps before, and of all before, (N,).

        A row without steps before it has the `forecast` of the model, so that it decides nothing.
        """
        rewards = np.nan_to_num(self.data.y)[:, np.newaxis]
        (last,) = np.nonzero(last_rows(self.data.episode))
        first = np.append(0, last[:-1] + 1)
        begin = first[np.searchsorted(last, rows)]
        discounted = np.full(len(rows), np.sum(self.gamma ** np.arange(steps)))
        found = naive_forecasts(rewards, rows, rows - begin, steps, discounted)
        return [np.where(np.isnan(one[:, 0]), forecast, one[:, 0]) for one in found]

    def _check_known(self, cut: Any, known: Flags, active: NDArray[np.intp]) -> None:
        """Refuse a cut before which no transition lies, or after which nothing does."""
        if known.sum() > len(active) and not known.all():
            return
        raise InvalidInputError(
            f"`cut` must lie between the times of rows, {self.time.min()} and {self.time.max()}, and at least one "
            f"transition must lie before it; got {cut}. Choose a later or an earlier time."
        )

    def _check_enough(self, cut: Any, steps: int, n_active: int, rows: NDArray[np.intp], number: NDArray[Any]) -> None:
        """Refuse too few rows or subjects, and warn if many subjects were not observed for long enough."""
        what = "subjects"
        n = len({*number})
        least = FOLDS
        if self.is_stream:
            what = "rows"
            n = len(rows)
            least = FOLDS * steps
        if n < least:
            raise InvalidInputError(
                f"`cut` must leave at least {least} {what} that are active then and observed for `steps` = {steps} "
                f"steps or to their end; {cut} leaves {n}. Choose an earlier cut or fewer steps."
            )
        if not self.is_stream and n_active - len(rows) > _MOST_LEFT_OUT * n_active:
            warn(
                f"{n_active - len(rows)} of {n_active} subjects active at {cut} were observed neither for {steps} "
                "steps nor to their end, and are left out. Subjects that ended are all counted, so the others are too "
                "few. Choose an earlier cut or fewer steps.",
                UnobservedWarning,
            )
