"""Backtest: fit to what was known at a cut, and compare predictions with what followed.

Let x be the features of a subject at the cut, x' those k steps later, R the discounted rewards between, and v(x') = 0
after an end. The prediction of R is i = v(x) − γᵏ v(x'). R − i is the TD error of k steps, whose square the true v does
not minimise: v(x') knows what happened in between. So R² compares R with

    f = v(x) − γᵏ m̂(x),   m̂ a cross-fitted regression of v(x') on v(x) and x (:mod:`lstd.metrics.cross_fitting`),

which is of what was known at the cut. Sums and deciles of i are right without m̂. A :class:`lstd.HorizonLSTD` predicts
the steps themselves: i = f = v_k(x).
"""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing

from lstd.data.arguments import check_integer, check_real
from lstd.data.feature_arrays import dense
from lstd.data.ids import last_rows
from lstd.errors import ExtrapolationWarning, InvalidInputError, InvalidTypeError, UnobservedWarning, warn
from lstd.metrics.backtest_result import Backtest
from lstd.metrics.cross_fitting import FOLDS, Folds, cross_fitted, standardised
from lstd.trajectories import Trajectories
from lstd.trajectories.frame import to_frame
from lstd.trajectories.joining import parse_times
from lstd.types import Array, Flags

_MOST_LEFT_OUT = 0.1  # of the subjects, without a warning
_LEAST, _MOST = 1e-70, 1e70  # differences of sums, whose squares are multiplied
_BLOCK = 5  # least length of a block of a stream, in multiples of the steps


def backtest(
    estimator: BaseEstimator, X: Any, y: ArrayLike | None = None, *, cut: Any, steps: int, time: Any = None,
    level: float = 0.95, **data: Any,
) -> Backtest:  # fmt: skip
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
    cut : number, date, or several
        Rows up to this time are known, but not the rewards of rows at that time. In a single stream without `time`, the
        number of a row. With several, choose models by the latest one.
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
        others are a biased sample.

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
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in ("gamma", "fit", "get_params")):
        raise InvalidInputError(
            f"`estimator` must be an unfitted estimator with `gamma` and `fit`; got {estimator!r:.80}. Pass an LSTD or "
            "an LSTDCV."
        )
    gamma = check_real("gamma", estimator.gamma, 0.0, 1.0)
    steps = check_integer("steps", steps, 1, getattr(estimator, "horizon", None))
    level = check_real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    log = _Log.of(X, y, time, data, gamma)._replace(sums_steps=hasattr(estimator, "horizon"))
    cuts = np.unique(parse_times("cut", np.atleast_1d(cut), log.time.dtype))
    if not len(cuts):
        raise InvalidInputError("`cut` must be a time, or several; got none. Pass the time up to which rows are known.")
    *earlier, latest = (log.at(moment, estimator, steps, level) for moment in cuts)
    return replace(latest, earlier=tuple(earlier))


def _check_given(given: dict[str, Any], trajectories: bool, y: Any) -> None:
    """Refuse arguments that the form of the data does not have."""
    given = given if y is None else {"y": y, **given}
    taken = inspect.signature(Trajectories.from_frame if "features" in given else Trajectories).parameters
    for name in sorted(given if trajectories else given.keys() - taken.keys()):
        where = " beside Trajectories" if trajectories else ": it is no argument of a backtest of such data"
        raise InvalidTypeError(
            f"`{name}` must not be given{where}. Correct its name, or leave it out; columns of a data frame are named "
            "with `features`, and an episode that was cut off has a last row with the features of its last state."
        )


def _with_names(data: Trajectories) -> Any:
    """Return the features as a data frame with their names, so that messages have them, where pandas is installed."""
    if data.feature_names is None or sparse.issparse(data.X) or importlib.util.find_spec("pandas") is None:
        return data.X
    return to_frame(data.X, data.feature_names, "pandas")


class _Log(NamedTuple):
    """All rows: T of them, in time order within each episode."""

    data: Trajectories
    X: Any  # as estimators take it
    time: NDArray[Any]
    discount: Array  # of the transition that leaves each row; 0 where it terminates
    last: NDArray[np.intp]  # last row of the episode of each row
    is_stream: bool
    gamma: float
    sums_steps: bool = False  # whether the model predicts the sum over k steps itself

    @classmethod
    def of(cls, X: Any, y: Any, time: Any, given: dict[str, Any], gamma: float) -> _Log:
        data = X
        _check_given(given, isinstance(X, Trajectories), y)
        if "features" in given:
            data = Trajectories.from_frame(X, time=time, **given)
        elif not isinstance(X, Trajectories):
            data = Trajectories(X, y, time=time, **given)
        elif time is not None:
            data = Trajectories(**X.to_arrays(), time=time, feature_names=X.feature_names)
        if not len(data):
            raise InvalidInputError("`X` must have rows; got none. Pass the whole log, before and after the cut.")
        if data.importance_ratio is not None or data.y.ndim > 1:
            what, remedy = "`importance_ratio` must not be given", "Evaluate another policy with `lstd.ope`."
            if data.y.ndim > 1:
                what, remedy = "`y` must have one reward", "Pass one column."
            raise InvalidInputError(f"{what}: a backtest compares with the rewards that were received. {remedy}")
        if data.time is None and data.n_episodes > 1:
            raise InvalidInputError("`time` must be given with several episodes; got None. Pass the time of each row.")
        times = np.arange(len(data)) if data.time is None else data.time
        discount = np.full(len(data), gamma) if data.discount is None else data.discount
        ends = np.flatnonzero(last_rows(data.episode))
        last = ends[np.searchsorted(ends, np.arange(len(data)))]
        features = X if data is not X and "features" not in given else _with_names(data)
        stream = bool((times[1:] > times[:-1]).all())
        return cls(data, features, times, np.where(data.terminated, 0.0, discount), last, stream, gamma)

    def at(self, cut: Any, estimator: BaseEstimator, steps: int, level: float) -> Backtest:
        """Fit to what was known at a cut, and compare the rows that count with the steps after them."""
        data, known = self.data, self.time <= cut
        ended = data.terminated & (self.time < cut)
        active = np.flatnonzero(known & ~ended & np.append(~known[1:] | (self.last[1:] != self.last[:-1]), True))
        self._check_known(cut, known, active)
        model = self._fitted(estimator, known, ended, active)
        if self.is_stream:
            active = np.flatnonzero((self.time >= cut) & ~data.horizon)
        else:
            active = active[~(data.horizon[active] & (self.time[active] < cut))]  # not followed up to the cut
        last = self.last[active]
        rows = active[(active + steps <= last) | data.terminated[last]]
        subject = data.episode if data.groups is None else data.groups
        number = np.unique(subject[rows], return_inverse=True)[1]
        if self.is_stream:
            number = np.arange(len(rows)) * max(2, len(rows) // (_BLOCK * steps)) // max(1, len(rows))
        self._check_enough(cut, steps, len(active), rows, number)
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
        folds = Folds.of_stream(rows, steps) if self.is_stream else Folds.of_subjects(number)
        X = standardised(dense(data.X[rows]))
        forecast = value - cross_fitted(ahead, value, X, folds)
        error = cross_fitted(observed - forecast, value, X, folds)
        return Backtest(
            cut, steps, self.gamma, value, observed, value - ahead, forecast, error, number, len(active) - len(rows),
            level, self.sums_steps,
        )  # fmt: skip

    def _fitted(self, estimator: BaseEstimator, known: Flags, ended: Flags, active: NDArray[np.intp]) -> Any:
        """Fit a clone to the known rows, in which active subjects have their horizon rows."""
        y = np.array(self.data.y)
        y[active] = np.nan
        names = ("discount", "trace_coefficient", "weight", "groups")
        columns = {name: column[known] for name in names if (column := getattr(self.data, name)) is not None}
        if self.sums_steps:
            columns["time"] = self.time[known]  # which must grow by equal steps
        return clone(estimator).fit(
            _safe_indexing(self.X, np.flatnonzero(known)), y[known], episode=self.data.episode[known],
            terminated=ended[known], **columns,
        )  # fmt: skip

    def _values(self, model: Any, rows: NDArray[np.intp], later: NDArray[np.intp], steps: int) -> list[Array]:
        """Return the predictions for rows, and those k steps later, which are zero for the sum of k steps."""
        if self.sums_steps:
            return [np.ravel(model.predict(_safe_indexing(self.X, rows), horizon=steps)), np.zeros(len(rows))]
        return [np.ravel(model.predict(_safe_indexing(self.X, r))) for r in (rows, later)]

    def _followed(self, rows: NDArray[np.intp], steps: int) -> tuple[NDArray[np.intp], Array, Array]:
        """Return the row k steps later, or the last one of the episode, the discount up to it, and R."""
        later, factor, observed = rows, np.ones(len(rows)), np.zeros(len(rows))
        for _ in range(steps):
            observed = np.where(factor > 0.0, observed + factor * np.nan_to_num(self.data.y[later]), observed)
            factor = np.where(factor > 0.0, factor * self.discount[later], 0.0)
            later = np.minimum(later + 1, self.last[rows])
            if not factor.any():
                break
        return later, factor, observed

    def _check_known(self, cut: Any, known: Flags, active: NDArray[np.intp]) -> None:
        if known.sum() > len(active) and not known.all():
            return
        raise InvalidInputError(
            f"`cut` must lie between the times of rows, {self.time.min()} and {self.time.max()}, and at least one "
            f"transition must lie before it; got {cut}. Choose a later or an earlier time."
        )

    def _check_enough(self, cut: Any, steps: int, n_active: int, rows: NDArray[np.intp], number: NDArray[Any]) -> None:
        what, n, least = ("rows", len(rows), FOLDS * steps) if self.is_stream else ("subjects", len({*number}), FOLDS)
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
