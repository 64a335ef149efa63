"""What the pages of the documentation do, to the letter, for `pages_on_real_logs.py`.

A recipe turns a log into rows and features as its page does, fits as the page does, and predicts held-out subjects.
Each kind of warning comes with what its message advises, as settings of a second fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from lstd import LSTD, LSTDCV, HorizonLSTD, Trajectories
from lstd.errors import InvalidInputError, LSTDWarning, PanelWarning
from lstd.metrics import backtest
from page_logs import EventLog, SubjectLog, TrackLog
from page_verdicts import Fitted

Array = NDArray[np.float64]
Settings = dict[str, Any]
STEPS = 12  # of the window of a survival log
MISFIT = "MisfitWarning"
OF_AGE = "steps since the episode began"  # in the text of a MisfitWarning that advises an age
EXTRAPOLATION = "ExtrapolationWarning"
NAIVE = "MisfitWarning, naive forecast"  # that it is better than the model
PANEL = "PanelWarning"


class Recipe(NamedTuple):
    """A page and what it does; `fit` takes the settings that a warning advises."""

    page: str
    fit: Callable[..., Fitted]


def caught(fit: Callable[[], tuple[Array, Any]]) -> Fitted:
    """Fit and predict, and keep the kinds of warnings of `lstd`."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", LSTDWarning)
        predicted, total = fit()
    said = {kind_of(one): str(one.message) for one in given if issubclass(one.category, LSTDWarning)}
    return Fitted(predicted, float(total.prediction), float(total.lower), float(total.upper), said, {})


def kind_of(given: warnings.WarningMessage) -> str:
    """Return the kind of a warning; a MisfitWarning may be about the naive forecast."""
    if given.category.__name__ == MISFIT and " of a forecast that repeats " in str(given.message):
        return NAIVE
    return given.category.__name__


def with_products(X: pd.DataFrame) -> pd.DataFrame:
    """Add squares and products, which a MisfitWarning advises where no age is left to add."""
    maker = PolynomialFeatures(2, include_bias=False)
    columns = maker.fit_transform(X)
    return pd.DataFrame(columns, columns=maker.get_feature_names_out(), index=X.index).loc[:, columns.std(axis=0) > 0.0]


# ------------------------------------------------------------------------------------- what comes in the next h steps


class Steps(NamedTuple):
    """Rows of a log of events, as `Trajectories.from_events` makes them, and what came after its end."""

    log: EventLog
    table: pd.DataFrame  # totals of `from_events`, subject, y
    now: NDArray[np.bool_]  # last rows
    came: Array
    panel: str | None  # the warning that the log is one

    @classmethod
    def of(cls, log: EventLog) -> Steps:
        """Make the rows."""
        steps = from_log(log, amount="amount")
        table = steps.to_arrays(frame="pandas")["X"].assign(subject=steps.episode, y=steps.y)
        end = log.until + log.horizon * log.step
        later = log.events[log.events["time"].between(log.until, end, inclusive="left")]
        now = steps.horizon
        came = later.groupby("id")["amount"].sum().reindex(steps.episode[now]).fillna(0.0).to_numpy()
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always", PanelWarning)
            from_log(log, window=1)
        panel = None
        if given:
            panel = str(given[0].message)
        return cls(log, table, now, came, panel)

    @property
    def window(self) -> int:
        """A third of the horizon, with which the pages begin."""
        return max(1, round(self.log.horizon / 3))

    @property
    def length(self) -> int:
        """Steps of the log."""
        return int(self.back.max())

    @property
    def back(self) -> NDArray[np.int64]:
        """Steps from each row to the end of the log."""
        return np.asarray(self.table.groupby("subject").cumcount(ascending=False))

    @property
    def tested(self) -> int:
        """Steps of a backtest: the horizon, if it is at most a third of the log."""
        return min(self.log.horizon, max(1, self.length // 3))

    def rates(self, window: int, *, mean_at: float | None = None, **settings: Any) -> pd.DataFrame:
        """Features that `from_events` gives with a window; of a panel, those of both kinds that predict better.

        They do so in a backtest with some settings, as the warning of a panel says.
        """
        return self.best([self.rates_with(first, window, mean_at) for first in self.firsts], **settings)

    @property
    def firsts(self) -> tuple[str, ...]:
        """What the first events may be: apart, or counted in a panel."""
        return ("apart", "counted") if self.panel else ("apart",)

    def best(self, candidates: list[pd.DataFrame], **settings: Any) -> pd.DataFrame:
        """Return the features with the largest R² at the latest cut of a backtest; the first ones if none can be."""
        if len(candidates) == 1 or not self.cuts:
            return candidates[0]
        return max(candidates, key=lambda X: self.backtested(X, **settings).r2)

    def rates_with(self, first: str, window: int, mean_at: float | None = None) -> pd.DataFrame:
        """Features with the first events apart or counted; of counts, if each event counts one."""
        amount = None if self.log.of_counts else "amount"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PanelWarning)
            found = from_log(self.log, amount=amount, window=window, first=first, mean_at=mean_at)
        X: pd.DataFrame = found.to_arrays(frame="pandas")["X"]
        return X

    def naive(self) -> Array:
        """Predict that each of the next steps brings the mean of up to as many before; NaN where there are none."""
        inside = (self.back > 0) & (self.back <= self.log.horizon)
        mean = self.table["y"][inside].groupby(self.table["subject"][inside]).mean()
        return np.asarray(self.log.horizon * mean.reindex(self.table["subject"][self.now]).to_numpy())

    def own_mean(self) -> Array:
        """Predict that each of the next steps brings the mean of all steps before; NaN where there are none."""
        mean = self.table["y"].groupby(self.table["subject"]).mean()
        return np.asarray(self.log.horizon * mean.reindex(self.table["subject"][self.now]).to_numpy())

    def forecast(self, X: pd.DataFrame, **settings: Any) -> Array | None:
        """Return the naive forecast that the table of a backtest says to take, if it says so in its last line."""
        if not self.cuts:
            return None
        *_, last = str(self.backtested(X, **settings)).splitlines()
        if not last.endswith("or take it."):
            return None
        return self.own_mean() if last.startswith("Own mean") else self.naive()

    @property
    def cuts(self) -> list[float]:
        """Times of up to three cuts of a backtest, the latest one last; none of a log of one step."""
        steps = self.tested
        cuts = [-float(steps + more) for more in (steps // 2, steps // 4, 0)]
        return [*dict.fromkeys(cut for cut in cuts if -cut < self.length)]

    @property
    def earliest(self) -> float | None:
        """When the earliest cut is, in the time of the log."""
        return self.log.until + self.log.step * self.cuts[0] if self.cuts else None

    def backtested(self, X: pd.DataFrame, **settings: Any) -> Any:
        """Return a backtest of `HorizonLSTD`."""
        steps = self.tested
        roles = {"episode": self.table["subject"], "terminated": False, "time": -self.back.astype(float)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = HorizonLSTD(steps, **settings)
            return backtest(model, X, self.table["y"], cut=self.cuts, steps=steps, **roles)

    def fitted(self, X: pd.DataFrame, **settings: Any) -> Fitted:
        """Fit `HorizonLSTD` to the rows, and predict the last ones."""

        def fit() -> tuple[Array, Any]:
            model = HorizonLSTD(self.log.horizon, **settings)
            model.fit(X, self.table["y"], episode=self.table["subject"], terminated=False)
            return model.predict(X[self.now]), to_come(model, X[self.now], np.ones(self.now.sum()))

        return caught(fit)

    def advised(self, X: pd.DataFrame, advice: str | None, settings: Settings) -> Fitted:
        """Fit as a page does, or as a warning about that advises."""
        changed = dict(settings)
        aged = "age" in settings
        if advice == NAIVE:
            plain = self.fitted(X, **settings)
            forecast = self.forecast(X, **settings)
            if forecast is None:
                return plain
            return taken(forecast, plain)
        text = ""
        if advice == MISFIT and not aged:
            text = self.fitted(X, **settings).warned.get(MISFIT, "")
        if OF_AGE in text:
            X = X.assign(since_first=self.table["since_first"])
            changed["age"] = "since_first"
        elif advice == MISFIT and not aged:
            X = with_products(X)
        elif advice == MISFIT:
            age = X["since_first"]
            X = with_products(X.drop(columns="since_first")).assign(since_first=age)
        elif advice == EXTRAPOLATION:
            text = self.fitted(X, **settings).warned.get(advice, "")
            named = [name for name in X if repr(name) in text]
            X = X.drop(columns=named)
            if "since_first" in named:
                changed.pop("age")
        elif advice in SETTINGS_ADVISED:
            changed |= SETTINGS_ADVISED[advice]
        return self.fitted(X, **changed)


def from_log(log: EventLog, **settings: Any) -> Trajectories:
    """Make equal steps of a log."""
    return Trajectories.from_events(
        log.events,
        episode="id",
        time="time",
        step=log.step,
        until=log.until,
        **settings,
    )


def to_come(model: HorizonLSTD, X: pd.DataFrame, weights: Array) -> Any:
    """Return the interval of what some subjects will bring together; of the mean where that is not known."""
    try:
        return model.predict_interval(X, weights=weights, of="return")
    except InvalidInputError:
        return model.predict_interval(X, weights=weights)


SETTINGS_ADVISED: dict[str, Settings] = {
    "BiasWarning": {"lmbda": 1.0},
    "BoundsWarning": {"low": 0.0},
    "RidgeWarning": {"alpha": 0.01},
    "IllConditionedWarning": {"alpha": 10.0},
}


def readme(steps: Steps, advice: str | None = None) -> Fitted:
    """README, and coming-from for shops: rates with a window of a third of the horizon."""
    if advice == PANEL:
        return steps.fitted(steps.rates(steps.window, low=0.0), low=0.0)
    ours = steps.advised(steps.rates_with("apart", steps.window), advice, {"low": 0.0})
    if steps.panel:
        ours.warned[PANEL] = steps.panel
    return ours


def with_panel(steps: Steps, ours: Fitted, apart: pd.DataFrame, settings: Settings) -> Fitted:
    """Add what a page that follows the warning of a panel would have predicted with the first events apart."""
    if not steps.panel:
        return ours
    return ours._replace(before=ours.before | {PANEL: steps.fitted(apart, **settings).predicted})


def taken(forecast: Array, plain: Fitted) -> Fitted:
    """Take a naive forecast, for which there is no interval, in place of a model, where a subject has steps before."""
    predicted = np.where(np.isnan(forecast), plain.predicted, forecast)
    return Fitted(predicted, float(predicted.sum()), np.nan, np.nan, {}, {NAIVE: plain.predicted})


def first_model(steps: Steps, advice: str | None = None) -> Fitted:
    """first-model: as README, with what predicts better of a panel in a backtest.

    The naive forecast where `fit` says that it is better, and a backtest to take it. Where the check finds a misfit,
    the page adds an age, unless that extrapolates.
    """
    apart = steps.rates_with("apart", steps.window, steps.earliest)
    return with_panel(steps, first_model_of(steps, advice), apart, {"low": 0.0})


def first_model_of(steps: Steps, advice: str | None) -> Fitted:
    """first-model without what the page would have predicted otherwise."""
    settings = {"low": 0.0}
    X = steps.rates(steps.window, mean_at=steps.earliest, **settings)
    plain = steps.fitted(X, **settings)
    if NAIVE in plain.warned:
        forecast = steps.forecast(X, **settings)
        if forecast is not None:
            return taken(forecast, plain)
    if MISFIT not in plain.warned:
        if advice is None:
            return plain
        return steps.advised(X, advice, settings)
    X_aged = X.assign(since_first=steps.table["since_first"])
    aged = steps.fitted(X_aged, **settings, age="since_first")
    if "ExtrapolationWarning" in aged.warned:
        if advice is None:
            return plain
        return steps.advised(X, advice, settings)
    if advice is not None:
        aged = steps.advised(X_aged, advice, settings | {"age": "since_first"})
    return aged._replace(before={MISFIT: plain.predicted})


def never_goodbye(steps: Steps, advice: str | None = None) -> Fitted:
    """never-goodbye: rates with the window that predicts best in a backtest.

    The naive forecast where `fit` says that it is better, and that backtest to take it.
    """
    most = max(1, steps.length // 3)
    windows = [*dict.fromkeys(min(most, max(1, round(share * steps.log.horizon))) for share in (1 / 3, 2 / 3, 1.0))]
    settings = {"low": 0.0}
    candidates = [steps.rates_with(first, window, steps.earliest) for first in steps.firsts for window in windows]
    apart = steps.best(candidates[: len(windows)], **settings)
    X = steps.best(candidates, **settings)
    ours = steps.fitted(X, **settings)
    forecast = None
    if NAIVE in ours.warned:
        forecast = steps.forecast(X, **settings)
    if forecast is not None:
        ours = taken(forecast, ours)
    elif advice is not None:
        ours = steps.advised(X, advice, settings)
    return with_panel(steps, ours, apart, settings)


def next_twelve_months(steps: Steps, advice: str | None = None) -> Fitted:
    """next-twelve-months: rates, λ and α chosen from the data."""
    settings: Settings = {"lmbda": "auto", "alpha": "auto", "low": 0.0}
    ours = steps.advised(steps.rates(steps.window, **settings), advice, settings)
    return with_panel(steps, ours, steps.rates_with("apart", steps.window), settings)


# --------------------------------------------------------------------------------- the time to an event, from entry on


def survival_rows(log: SubjectLog, train: NDArray[np.int64]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row for each subject and step of the study, and one where observation stopped; and the features.

    `lived` is the share of the step that was lived, `ended` true in the step of the event.
    """
    step = log.window / STEPS
    time = log.time[train] / step
    event = log.cause[train] > 0
    begun = np.maximum(1, np.ceil(time - 1e-9)).astype(int)  # the step of the event counts
    full = np.floor(time + 1e-9).astype(int)  # steps seen whole by those without it
    rows = np.where(event, begun, full + 1)
    who = np.repeat(np.arange(len(train)), rows)
    first = np.cumsum(rows) - rows
    age = np.arange(len(who)) - first[who]
    last = age == rows[who] - 1
    table = pd.DataFrame({"subject": who, "since_first": age.astype(float)})
    table["ended"] = last & event[who]
    table["cause"] = np.where(table["ended"], log.cause[train][who], 0)
    table["lived"] = np.where(table["ended"], np.clip(time[who] - age, 0.0, 1.0), 1.0)
    table.loc[last & ~event[who], "lived"] = np.nan
    X = log.X.iloc[train[who]].reset_index(drop=True)
    return table, X


def by_horizon(
    log: SubjectLog,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    weight: Array,
    *,
    aged: bool,
    squares: bool,
    advice: str | None,
) -> Fitted:
    """Predict the time within the window by `HorizonLSTD`, from entry on."""
    if advice == MISFIT and aged:
        plain = by_horizon(log, train, test, weight, aged=True, squares=squares, advice=None)
        if OF_AGE in plain.warned.get(MISFIT, ""):  # subjects have no date, so what is left is to leave the age out
            return by_horizon(log, train, test, weight, aged=False, squares=squares, advice=None)
    table, X = survival_rows(log, train)
    entry = log.X.iloc[test].reset_index(drop=True)
    if squares:  # as `square` of the page, for each number that has more than two values
        numbers = [name for name in log.X if log.X[name].nunique() > 2]
        X = X.join((X[numbers] ** 2).add_suffix("_square"))
        entry = entry.join((entry[numbers] ** 2).add_suffix("_square"))
    if advice == MISFIT and aged:
        X = with_products(X)
        entry = with_products(entry).reindex(columns=X.columns, fill_value=0.0)
    if advice == EXTRAPOLATION:
        entry = entry.clip(X.min(), X.max(), axis=1)
    settings: Settings = {"low": 0.0, "high": float(STEPS)}
    if advice in SETTINGS_ADVISED:
        settings |= SETTINGS_ADVISED[advice]
    if aged or advice == MISFIT:
        X = X.assign(since_first=table["since_first"])
        entry = entry.assign(since_first=0.0)
        settings["age"] = "since_first"
    unit = log.window / STEPS

    def fit() -> tuple[Array, Any]:
        model = HorizonLSTD(STEPS, **settings)
        model.fit(X, table["lived"], episode=table["subject"], terminated=table["ended"])
        return unit * model.predict(entry), scaled(to_come(model, entry, weight), unit)

    return caught(fit)


class Total(NamedTuple):
    """A total and its interval."""

    prediction: float
    lower: float
    upper: float


def scaled(total: Any, unit: float, whole: float = 0.0) -> Total:
    """Return an interval in other units; of what is left of `whole` if there is one."""
    if whole:
        return Total(whole - unit * total.prediction, whole - unit * total.upper, whole - unit * total.lower)
    return Total(unit * total.prediction, unit * total.lower, unit * total.upper)


def visits(
    log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64], weight: Array, advice: str | None = None
) -> Fitted:
    """coming-from, lifelines: the time lived in the next steps, with squares of features, and an age."""
    return by_horizon(log, train, test, weight, aged=True, squares=True, advice=advice)


def with_age(
    log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64], weight: Array, advice: str | None = None
) -> Fitted:
    """remaining-time: equal steps, and an age."""
    return by_horizon(log, train, test, weight, aged=True, squares=False, advice=advice)


def to_go_columns(X: pd.DataFrame, to_go: Array) -> pd.DataFrame:
    """Multiply a one and the features by the square of the time to go, and the one by its cube, as the page does."""
    square = to_go**2
    columns = {"square": square, "cube": square * to_go}
    for name in X:
        columns[str(name)] = square * X[name].to_numpy()
    return pd.DataFrame(columns)


def windows(
    log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64], weight: Array, advice: str | None = None
) -> Fitted:
    """remaining-time: what is lost of a window, with features that vanish with the time to go."""
    table, X = survival_rows(log, train)
    inside = table["since_first"].to_numpy() < STEPS
    table = table[inside]
    X = X[inside].reset_index(drop=True)
    age = table["since_first"].to_numpy()
    to_go = 1.0 - age / STEPS
    ended = table["ended"].to_numpy()
    seen = table["lived"].notna().to_numpy()
    lost = np.where(ended, to_go - table["lived"].fillna(0.0).to_numpy() / STEPS, 0.0)
    over = ended | (seen & (age == STEPS - 1))  # the event, or alive at the end of the window
    entry = log.X.iloc[test].reset_index(drop=True)
    if advice == MISFIT:
        X = with_products(X)
        entry = with_products(entry).reindex(columns=X.columns, fill_value=0.0)
    features = to_go_columns(X, to_go)
    now = to_go_columns(entry, np.ones(len(test)))
    if advice == EXTRAPOLATION:
        now = now.clip(features.min(), features.max(), axis=1)
    settings: Settings = {"lmbda": 0.8, "alpha": 1.0}
    if advice in SETTINGS_ADVISED and advice != "BoundsWarning":  # predictions are within them already
        settings |= SETTINGS_ADVISED[advice]

    def fit() -> tuple[Array, Any]:
        model = LSTD(gamma=1.0, fit_intercept=False, **settings)
        model.fit(features, lost, episode=table["subject"].to_numpy(), terminated=over)
        predicted = log.window * (1.0 - np.clip(model.predict(now), 0.0, 1.0))
        total = model.predict_interval(now, weights=weight)
        return predicted, scaled(total, log.window, whole=log.window * weight.sum())

    return caught(fit)


def causes(
    log: SubjectLog, train: NDArray[np.int64], test: NDArray[np.int64], weight: Array, advice: str | None = None
) -> Fitted:
    """competing-risks: the probability of the first cause within the window, with squares of features."""
    table, X = survival_rows(log, train)
    numbers = [name for name in log.X if log.X[name].nunique() > 2]
    X = X.join((X[numbers] ** 2).add_suffix("_square"))
    entry = log.X.iloc[test].reset_index(drop=True)
    entry = entry.join((entry[numbers] ** 2).add_suffix("_square"))
    settings: Settings = {"low": 0.0, "high": 1.0}
    if advice == EXTRAPOLATION:
        entry = entry.clip(X.min(), X.max(), axis=1)
    if advice == MISFIT:
        X = X.assign(since_first=table["since_first"])
        entry = entry.assign(since_first=0.0)
        settings["age"] = "since_first"
    if advice in SETTINGS_ADVISED:
        settings |= SETTINGS_ADVISED[advice]
    came = np.column_stack([table["cause"] == 1, table["cause"] == 2]).astype(float)

    def fit() -> tuple[Array, Any]:
        model = HorizonLSTD(STEPS, **settings)
        model.fit(X, came, episode=table["subject"], terminated=table["ended"])
        total = to_come(model, entry, weight)
        first = Total(total.prediction[0], total.lower[0], total.upper[0])
        return model.predict(entry)[:, 0], first

    return caught(fit)


# ------------------------------------------------------------------------------------- what is left of whole episodes


def tracks(log: TrackLog, train: NDArray[np.bool_], test: NDArray[np.bool_], maker: Any) -> Fitted:
    """Predict the steps that are left by `LSTDCV`, from features that a pipeline makes."""

    def fit() -> tuple[Array, Any]:
        episode = log.episode[train]
        ended = np.append(episode[1:] != episode[:-1], True)
        features = maker.fit_transform(log.X[train])
        model = LSTDCV(gamma=1.0).fit(features, np.ones(len(features)), episode=episode, terminated=ended)
        now = maker.transform(log.X[test])
        return model.predict(now), model.predict_interval(now, weights=np.ones(len(now)))

    return caught(fit)


def straight() -> Any:
    """Features as they are."""
    return make_pipeline(SplineTransformer(2, degree=1, include_bias=False))


def settings_page(
    log: TrackLog, train: NDArray[np.bool_], test: NDArray[np.bool_], advice: str | None = None
) -> Fitted:
    """settings: λ and α by `LSTDCV`, features as they are."""
    maker = straight()
    if advice == MISFIT:
        maker = make_pipeline(SplineTransformer(5))
    return tracks(log, train, test, maker)


def features_page(
    log: TrackLog, train: NDArray[np.bool_], test: NDArray[np.bool_], advice: str | None = None
) -> Fitted:
    """features: curves of all numbers where the check finds a misfit, then their products."""
    plain = tracks(log, train, test, straight())
    if MISFIT not in plain.warned:
        return plain
    curves = tracks(log, train, test, make_pipeline(SplineTransformer(5)))
    if MISFIT not in curves.warned and advice is None:
        return curves._replace(before={MISFIT: plain.predicted})
    products = make_pipeline(SplineTransformer(3), PolynomialFeatures(interaction_only=True, include_bias=False))
    return tracks(log, train, test, products)._replace(before={MISFIT: plain.predicted})


ON_EVENTS = (
    Recipe("README; coming-from, shop", readme),
    Recipe("first-model", first_model),
    Recipe("never-goodbye", never_goodbye),
    Recipe("next-twelve-months", next_twelve_months),
)
ON_SUBJECTS = (
    Recipe("remaining-time, windows", windows),
    Recipe("remaining-time, age", with_age),
    Recipe("coming-from, lifelines", visits),
)
ON_CAUSES = (Recipe("competing-risks", causes),)
ON_TRACKS = (Recipe("settings", settings_page), Recipe("features", features_page))
