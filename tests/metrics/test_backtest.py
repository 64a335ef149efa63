"""Backtests against their definition, and where the answer is known."""

import dataclasses
import datetime as dt
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.base import clone

import naive
from lstd import LSTD, LSTDCV, HorizonLSTD, RecursiveLSTD, Trajectories
from lstd.data.time_steps import ends_of_steps
from lstd.errors import InvalidInputError, InvalidTypeError, UnobservedWarning
from lstd.metrics import backtest
from lstd.metrics.cross_fitting import RIDGES
from tolerances import assert_close

pytestmark = [
    pytest.mark.usefixtures("few_pairs"),
    pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning"),  # of customers whose rates show with time
]

GAMMA = 0.9


def customers(seed, n=60, weeks=30, stop=0.03):
    """Customers who buy at a rate of their own until they leave, which nobody sees; the last row is a horizon row."""
    random = np.random.default_rng(seed)
    rate, alive = random.gamma(2.0, 0.5, n), np.ones(n, dtype=bool)
    spend, lately, count = np.zeros((n, weeks)), np.zeros((n, weeks)), np.zeros((n, weeks))
    for week in range(weeks):
        if week:
            lately[:, week] = 0.8 * lately[:, week - 1] + spend[:, week - 1]
            count[:, week] = count[:, week - 1] + spend[:, week - 1]
        spend[:, week] = alive * random.poisson(rate)
        alive &= random.random(n) > stop
    X = np.column_stack([lately.ravel(), count.ravel() / (1.0 + np.tile(np.arange(weeks), n))])
    time, episode = np.tile(np.arange(weeks), n), np.repeat(np.arange(n), weeks)
    return X, spend.ravel(), {"time": time, "episode": episode, "terminated": np.zeros(n * weeks, dtype=bool)}


def with_ends(seed):
    """Episodes of random lengths and starts, with and without ends, discounts of their own and groups of two."""
    random = np.random.default_rng(seed)
    parts = []
    for name in range(50):
        length, start, ends = int(random.integers(2, 25)), int(random.integers(0, 12)), random.random() < 0.5
        parts.append(
            {
                "id": name, "group": name // 2, "t": start + np.arange(length), "r": random.normal(1.0, size=length),
                "g": random.uniform(0.8, 1.0, length), "end": np.arange(length) == (length - 1 if ends else -1),
                "u": random.normal(size=length), "v": random.exponential(size=length),
            }
        )  # fmt: skip
    return pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_steps_of_a_horizon_are_predicted_from_what_was_known_and_compared_as_they_came():
    X, y, rows = customers(3)
    found = backtest(HorizonLSTD(8, gamma=GAMMA), X, y, cut=20, steps=5, **rows)
    known = rows["time"] <= 20
    now = rows["time"] == 20
    columns = {name: rows[name][known] for name in ("episode", "terminated")}
    model = HorizonLSTD(8, gamma=GAMMA).fit(X[known], np.where(now, np.nan, y)[known], **columns)
    came = sum(GAMMA**k * y[rows["time"] == 20 + k] for k in range(5))
    assert_close(found.value, model.predict(X[now], horizon=5), "solve")
    assert_close(found.observed, came, "sums")
    assert_close(found.r2, 1.0 - ((came - found.value) ** 2).sum() / ((came - came.mean()) ** 2).sum(), "solve")
    assert found.total.prediction == pytest.approx(found.value.sum() / came.sum())
    forecasts = []
    for row in np.flatnonzero(now):
        own = rows["episode"] == rows["episode"][row]
        rewards = np.nan_to_num(y[own])
        t = row - np.flatnonzero(own)[0]
        forecasts.append([naive.forecast_of_steps_before(rewards, t, 5, window, GAMMA) for window in (5, len(rewards))])
    assert_close(np.column_stack([found.naive, found.own_mean]), np.array(forecasts), "sums")
    for forecast, r2 in ((found.naive, found.naive_r2), (found.own_mean, found.own_mean_r2)):
        assert_close(r2, 1.0 - ((came - forecast) ** 2).sum() / ((came - came.mean()) ** 2).sum(), "solve")
    assert str(found).startswith("Backtest over 5 steps\n")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_it_is_its_definition():
    table, cut, steps = with_ends(1), 11, 4
    found = backtest(
        LSTD(GAMMA, 0.8, alpha=1.0), table[["u", "v"]].to_numpy(), table["r"], cut=cut, steps=steps, time=table["t"],
        episode=table["id"], terminated=table["end"], discount=table["g"], groups=table["group"],
    )  # fmt: skip
    known = table[table["t"] <= cut].copy()
    ended = known["end"] & (known["t"] < cut)
    known.loc[(known["id"] != known["id"].shift(-1)) & ~ended, "r"] = np.nan
    model = LSTD(GAMMA, 0.8, alpha=1.0).fit(
        known[["u", "v"]].to_numpy(),
        known["r"],
        episode=known["id"],
        terminated=ended,
        discount=known["g"],
        groups=known["group"],
    )
    value, observed, ahead, groups, X = [], [], [], [], []
    for _, one in table.groupby("id"):
        at = np.flatnonzero(one["t"] <= cut)
        if not len(at) or (one["t"].iloc[-1] < cut):
            continue
        t, ends = at[-1], bool(one["end"].iloc[-1])
        if t + steps > len(one) - 1 and not ends:
            continue
        total, factor, later = naive.steps_after(one["r"].to_numpy(), one["g"].to_numpy(), ends, t, steps)
        features = one[["u", "v"]].to_numpy()
        value.append(model.predict(features[[t]])[0])
        ahead.append(factor * model.predict(features[[later]])[0])
        observed.append(total)
        groups.append(one["group"].iloc[0])
        X.append(features[t])
    value, observed, ahead, groups, X = map(np.array, (value, observed, ahead, groups, X))
    number = np.unique(groups, return_inverse=True)[1]
    folds = number % 10
    near = [folds == fold for fold in range(10)]
    forecast = value - naive.cross_fitted(ahead, value, X, folds, near, RIDGES)
    e = naive.cross_fitted(observed - forecast, value, X, folds, near, RIDGES)
    assert len(value) > 20
    assert found.subject.tolist() == number.tolist()
    for name, expected in {
        "value": value,
        "observed": observed,
        "predicted": value - ahead,
        "forecast": forecast,
    }.items():
        assert_close(getattr(found, name), expected, "solve")
    squares = np.sum((observed - forecast) ** 2)
    assert_close(found.r2, 1.0 - squares / np.sum((observed - observed.mean()) ** 2), "solve")
    psi = (observed - forecast) ** 2 - 2.0 * e * (value - ahead - forecast)
    other = backtest(
        LSTD(GAMMA, 0.0, alpha=9.0), table[["u", "v"]].to_numpy(), table["r"], cut=cut, steps=steps, time=table["t"],
        episode=table["id"], terminated=table["end"], discount=table["g"], groups=table["group"],
    )  # fmt: skip
    between = found.difference(other)
    assert_close(between.prediction, np.mean((observed - forecast) ** 2 - (observed - other.forecast) ** 2), "solve")
    psi_other = (observed - other.forecast) ** 2 - 2.0 * other.expected_error * (other.predicted - other.forecast)
    assert_close(between.standard_error, naive.error_of_mean(psi - psi_other, number), "solve")
    ratio = found.total
    assert_close(ratio.prediction, np.sum(value - ahead) / observed.sum(), "solve")
    error = naive.error_of_mean((value - ahead - observed) / observed.mean(), number)
    assert_close(ratio.standard_error, error, "solve")


def arguments(table, time):
    """Features, rewards and columns of a table of `with_ends`, with these times."""
    columns = {"episode": table["id"], "terminated": table["end"], "discount": table["g"], "groups": table["group"]}
    return table[["u", "v"]].to_numpy(), table["r"].to_numpy(), {"time": time, **columns}


def same(found, expected):
    """Assert that two backtests compare the same rows and give the same numbers."""
    assert found.n_left_out == expected.n_left_out
    assert found.subject.tolist() == expected.subject.tolist()
    for name in ("value", "observed", "predicted", "forecast", "naive", "own_mean"):
        assert_close(getattr(found, name), getattr(expected, name), "solve")


WEEKS = {
    "numbers": lambda t: 7.0 * t,
    "whole numbers": lambda t: 7 * t,
    "days": lambda t: np.datetime64("2025-01-06") + 7 * t,
    "seconds": lambda t: np.datetime64("2025-01-06", "s") + np.timedelta64(7 * 86400, "s") * t,
    "nanoseconds": lambda t: np.datetime64("2025-01-06", "ns") + np.timedelta64(7 * 86400, "s") * t,
    "months": lambda t: (np.datetime64("2025-01") + t).astype("datetime64[D]"),
}


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize("kind", list(WEEKS))
def test_a_cut_within_a_step_is_one_at_its_start(kind):
    table = with_ends(1)
    weeks = WEEKS[kind]
    time = weeks(table["t"].to_numpy())
    at, after = weeks(np.array([11, 12]))
    least = np.timedelta64(1, "us") if kind == "nanoseconds" else np.timedelta64(1, "s")
    if kind in ("days", "months"):
        least = np.timedelta64(1, "D")
    if kind in ("numbers", "whole numbers"):
        least = 1e-6
    X, y, columns = arguments(table, time)
    start, *others, following = [
        backtest(LSTD(GAMMA, 0.8), X, y, cut=cut, steps=4, **columns)
        for cut in (at, at + least, at + (after - at) / 2, after - least, after)
    ]
    assert len(start.value) > 20
    for other in others:
        same(other, start)
    assert following.n_left_out != start.n_left_out


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize("cut", [11.0, 11.25, 11.5, 11.999, 12.0])
@pytest.mark.parametrize("model", [LSTD(GAMMA, 0.8), HorizonLSTD(6, gamma=GAMMA, check=False)])
def test_steps_of_subjects_begin_at_times_of_their_own(cut, model):
    table = with_ends(2)
    table["t"] += table["id"] % 4 / 4.0  # exact in float64
    own_cut = {}
    for name, one in table.groupby("id"):
        times = one["t"].tolist()
        at = naive.row_at(cut, times, naive.end_of_step(times, len(times) - 1, [], 1.0))
        if at is not None:
            own_cut[name] = times[at]
        else:  # before its start or after its end
            own_cut[name] = np.floor(cut - times[0]) + times[0]
    X, y, columns = arguments(table, table["t"].to_numpy())
    found = backtest(model, X, y, cut=cut, steps=4, **columns)
    at_starts = {**columns, "time": (table["t"] - table["id"].map(own_cut)).to_numpy()}
    expected = backtest(model, X, y, cut=0.0, steps=4, **at_starts)
    assert len(found.value) > 20
    same(found, expected)


def test_a_cut_within_a_step_of_a_stream_is_one_at_its_start():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    ends = np.arange(300) % 10 == 9
    rows = {"terminated": ends, "episode": np.arange(300) // 10, "time": np.arange(300)}
    for row in (148, 149, 150):
        start, within = [backtest(LSTD(GAMMA), x, x[:, 0], cut=cut, steps=4, **rows) for cut in (row, row + 0.75)]
        same(within, start)


def test_ends_of_steps_are_those_of_the_definition():
    random = np.random.default_rng(5)
    for trial in range(20):
        calendar = np.cumsum(random.integers(28, 32, 30)) if trial % 2 else np.cumsum(random.integers(1, 9, 30))
        episodes = []
        for _ in range(12):
            start, length = random.integers(0, 15), random.integers(1, 14)
            episodes.append(calendar[start : start + length].tolist())
        steps = [(a, b) for one in episodes for a, b in itertools.pairwise(one)]
        lengths = sorted(b - a for a, b in steps)
        median_step = lengths[(len(lengths) - 1) // 2]
        expected = [naive.end_of_step(one, t, steps, median_step) for one in episodes for t in range(len(one))]
        last = np.concatenate([np.arange(len(one)) == len(one) - 1 for one in episodes])
        assert ends_of_steps(np.concatenate(episodes), last).tolist() == expected


def test_a_stream_leaves_out_rows_near_each_fold():
    random = np.random.default_rng(0)
    X, y, steps, cut = random.normal(size=(260, 2)), random.normal(size=260), 4, 99
    found = backtest(LSTD(GAMMA, 0.5), X, y, cut=cut, steps=steps)
    rows = np.arange(cut, 260 - steps)  # the last row is a horizon row
    model = LSTD(GAMMA, 0.5).fit(X[: cut + 1], np.append(y[:cut], np.nan))
    ahead = GAMMA**steps * model.predict(X[rows + steps])
    folds = np.arange(len(rows)) * 10 // len(rows)
    near = []
    for fold in range(10):
        inside = rows[folds == fold]
        near.append(np.array([inside[0] - steps <= row <= inside[-1] + steps for row in rows]))
    value = model.predict(X[rows])
    expected = value - naive.cross_fitted(ahead, value, X[rows], folds, near, RIDGES)
    assert_close(found.forecast, expected, "solve")
    assert_close(found.observed, [naive.steps_after(y, np.full(260, GAMMA), False, t, steps)[0] for t in rows], "sums")
    assert np.bincount(found.subject).min() >= 5 * steps


def test_frames_trajectories_and_arrays_give_the_same():
    X, y, rows = customers(2)
    days = np.array([dt.datetime(2024, 1, 1) + dt.timedelta(weeks=int(week)) for week in rows["time"]])
    frame = pd.DataFrame(X, columns=["lately", "rate"]).assign(
        spend=y, customer=rows["episode"], gone=rows["terminated"], week=days
    )
    expected = backtest(LSTD(GAMMA, 0.8), X, y, cut=20, steps=5, **rows)
    roles = {"features": ["lately", "rate"], "reward": "spend", "episode": "customer", "terminated": "gone"}
    for cut in ("2024-05-20", np.datetime64("2024-05-20"), pd.Timestamp("2024-05-20"), dt.datetime(2024, 5, 20)):
        found = backtest(LSTD(GAMMA, 0.8), frame, cut=cut, steps=5, time="week", **roles)
        assert found.forecast.tolist() == expected.forecast.tolist()
        assert_close(found.r2, expected.r2, "solve")
    names = []
    backtest(Fixed(lambda X: names.append([*X]) or X["rate"]), frame, cut=cut, steps=5, time="week", **roles)
    assert ["lately", "rate"] in names
    data = Trajectories.from_frame(frame, time="week", **roles)
    assert backtest(LSTD(GAMMA, 0.8), data, cut="2024-05-20", steps=5).r2 == expected.r2
    assert_close(backtest(LSTD(GAMMA, 0.8), sparse.csr_array(X), y, cut=20, steps=5, **rows).r2, expected.r2, "solve")
    assert data[:90].time.tolist() == data.time[:90].tolist()


@pytest.mark.filterwarnings("ignore::lstd.errors.BiasWarning")
def test_the_estimator_is_not_fitted_and_what_follows_the_cut_is_not_seen():
    X, y, rows = customers(3)
    model = LSTDCV(GAMMA)
    before = backtest(model, X, y, cut=20, steps=5, **rows)
    assert not hasattr(model, "coef_")
    late = np.where(rows["time"] >= 20, y + 7.0, y)
    after = backtest(model, X, late, cut=20, steps=5, **rows)
    assert after.value.tolist() == before.value.tolist()
    assert_close(after.observed, before.observed + 7.0 * (1 - GAMMA**5) / (1 - GAMMA), "solve")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_the_latest_of_several_cuts_is_the_result():
    X, y, rows = customers(4)
    found = backtest(LSTD(GAMMA, 0.8), X, y, cut=[20, 10, 15], steps=5, **rows)
    assert [one.cut for one in (*found.earlier, found)] == [10, 15, 20]
    assert found.r2 == backtest(LSTD(GAMMA, 0.8), X, y, cut=20, steps=5, **rows).r2
    assert len(str(found).splitlines()) == 7  # a title, heads, three cuts, and two lines of advice
    assert "at least 3 are advised at gamma 0.9" in str(found)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns"])
def test_a_cut_at_midnight_is_printed_as_a_date(unit):
    X, y, rows = customers(3)
    days = np.datetime64("2025-01-06", "D") + 7 * rows["time"]
    columns = {**rows, "time": days.astype(f"M8[{unit}]")}
    found = backtest(LSTD(GAMMA), X, y, cut="2025-05-26", steps=5, **columns)
    assert found.moment == "2025-05-26"
    if unit != "D":
        later = backtest(LSTD(GAMMA), X, y, cut="2025-05-26T12:00", steps=5, **columns)
        assert later.moment.startswith("2025-05-26T12")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_the_table_says_at_how_many_cuts_a_naive_forecast_is_better():
    X, y, rows = customers(3)
    found = backtest(LSTD(GAMMA), X, y, cut=[16, 18, 20], steps=5, **rows)
    cuts = (*found.earlier, found)

    def with_right(rights):
        """The text of a backtest in which one forecast is right at each cut, and the others say 0."""
        changed = []
        for one, right in zip(cuts, rights, strict=True):
            forecasts = {name: np.zeros(len(one.observed)) for name in ("forecast", "naive", "own_mean")}
            forecasts[right] = one.observed
            changed.append(dataclasses.replace(one, earlier=(), **forecasts))
        return str(dataclasses.replace(changed[-1], earlier=tuple(changed[:-1])))

    assert "better at" not in with_right(["forecast"] * 3)
    some = with_right(["naive", "forecast", "naive"])
    assert "Naive forecast better at 2 of 3 cuts: add what it knows to the features, such as rates of recent" in some
    assert "or take it" not in some
    assert with_right(["naive"] * 3).endswith("recent steps, or take it.")
    assert with_right(["own_mean"] * 3).endswith(
        "\nOwn mean better at 3 of 3 cuts: add what it knows to the features, such as rates of all steps, or take it."
    )
    assert "Own mean better at 2 of 3 cuts" in with_right(["naive", "own_mean", "own_mean"])


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_naive_forecasts_of_who_comes_at_the_cut_are_those_of_the_model():
    X, y, rows = customers(3)
    late = (rows["episode"] % 3 == 0) & (rows["time"] < 20)
    kept = {name: column[~late] for name, column in rows.items()}
    found = backtest(LSTD(GAMMA), X[~late], y[~late], cut=20, steps=5, **kept)
    new = np.unique(rows["episode"]) % 3 == 0
    assert new.any()
    for forecast in (found.naive, found.own_mean):
        np.testing.assert_array_equal(forecast[new], found.forecast[new])
        assert not np.isclose(forecast[~new], found.forecast[~new]).any()


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_of_two_naive_forecasts_at_as_many_cuts_the_better_one_at_the_latest_is_named():
    X, y, rows = customers(3)
    found = backtest(LSTD(GAMMA), X, y, cut=20, steps=5, **rows)
    wrong = np.full(len(found.observed), 1000.0)
    nearly = found.observed + 0.01
    text = str(dataclasses.replace(found, forecast=wrong, naive=nearly, own_mean=found.observed))
    assert "Own mean better at 1 of 1 cut" in text
    text = str(dataclasses.replace(found, forecast=wrong, naive=found.observed, own_mean=nearly))
    assert "Naive forecast better at 1 of 1 cut" in text


def test_calibration_is_of_deciles_of_the_prediction():
    X, y, rows = customers(5, n=200)
    found = backtest(LSTD(GAMMA, 0.8), X, y, cut=20, steps=5, **rows)
    table = found.calibration()
    assert len(table.count) == 10
    assert table.count.sum() == len(found.value) == 200
    order = np.argsort(found.value)[:20]
    assert_close(table.predicted[0], found.predicted[order].mean(), "sums")
    error = naive.error_of_mean((found.observed - found.predicted)[order], found.subject[order])
    assert_close(table.standard_error[0], error * stats.t.ppf(stats.norm.cdf(2.0), 19) / 2.0, "sums")


class Fixed(LSTD):
    """Predicts by a formula."""

    def __init__(self, formula, gamma=GAMMA):
        self.formula, self.gamma = formula, gamma

    def fit(self, X, y, **rows):
        return self

    def predict(self, X):
        return self.formula(X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cut": 27}, "`cut` must leave at least 10 subjects"),
        ({"cut": 0}, "`cut` must lie between"),
        ({"cut": "soon"}, "`cut`"),
        ({"steps": 2.5}, "`steps`"),
        ({"level": 1.0}, "`level`"),
        ({"time": None}, "`time` must be given with several episodes"),
        ({"time": np.zeros(1800)}, "`time` must increase within each episode; row 1 has"),
        ({"importance_ratio": np.ones(1800)}, "`importance_ratio` must not be given"),
        ({"y": np.zeros((1800, 2))}, "`y` must have one reward"),
        ({"y": np.zeros(1800)}, "all subjects"),
        ({"y": 1e200 * customers(6)[1]}, "`y` must lead to sums .* in another unit"),
        ({"time": np.array("2024-01-01", "M8[D]") + customers(6)[2]["time"]}, "`cut` must hold dates, .* got \\[20\\]"),
        ({"estimator": LSTD}, "`estimator` must be"),
        ({"estimator": RecursiveLSTD(2, GAMMA)}, "`estimator` must be"),
        ({"estimator": HorizonLSTD(4)}, "`steps` must be in .1, 4.; got 5"),
        ({"estimator": HorizonLSTD(5), "time": np.tile(np.arange(30) ** 2, 60)}, "Steps must be equal"),
        ({"X": np.zeros((0, 2)), "y": [], "time": [], "episode": [], "terminated": []}, "`X` must have rows"),
        ({"X_next": np.zeros((1800, 2))}, "`X_next` must not be given: .* last state"),
        ({"foo": 1}, "`foo` must not be given: it is no argument .* Correct its name"),
        ({"reward": "r"}, "`reward` must not be given: .* with `features`"),
        ({"X": Trajectories(np.eye(2), np.ones(2))}, "`(episode|y)` must not be given beside Trajectories"),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    X, y, rows = customers(6)
    given = {"estimator": LSTD(GAMMA, 0.8), "X": X, "y": y, "cut": 20, "steps": 5, **rows} | changes
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message):
        backtest(**given)


def test_few_subjects_and_lost_ones_are_named():
    X, y, rows = customers(7, n=9)
    with pytest.raises(InvalidInputError, match=r"at least 10 subjects .* 20 leaves 9"):
        backtest(LSTD(GAMMA, 0.8), X, y, cut=20, steps=5, **rows)
    X, y, rows = customers(8)
    kept = (rows["episode"] % 5 > 0) | (rows["time"] < 23)
    with pytest.warns(UnobservedWarning, match="12 of 60 subjects"):
        found = backtest(
            LSTD(GAMMA, 0.8), X[kept], y[kept], cut=20, steps=5, **{name: v[kept] for name, v in rows.items()}
        )
    assert found.n_left_out == 12
    with pytest.raises(InvalidInputError, match="`other` must be the Backtest of another model; got None"):
        found.difference(None)
    with pytest.raises(InvalidInputError, match="`other` must be a backtest of the same rows"):
        found.difference(backtest(LSTD(GAMMA, 0.8), X, y, cut=20, steps=5, **rows))


def texts_of(act):
    """The texts of the UnobservedWarnings that an act gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in given if one.category is UnobservedWarning]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LSTD(0.99, alpha=1.0),
        lambda: LSTDCV(0.99, lmbdas=[0.5, 1.0], alphas=[1.0]),
        lambda: HorizonLSTD(25),
    ],
)
def test_little_observed_is_said_once_with_the_result(make):
    X, y, rows = customers(3)
    model = make()
    found = []
    text, *others = texts_of(lambda: found.append(backtest(model, X, y, cut=[14, 20], steps=5, **rows)))
    assert not others
    total = found[0].total
    result = (
        f"{total.prediction:.2f} times what came ({total.lower:.2f} to {total.upper:.2f}), with R² {found[0].r2:.2f}"
    )
    assert text.startswith("Only ")
    assert f"A backtest of 5 steps predicted {found[0].earlier[0].total.prediction:.2f} times" in text
    assert f"; {result}, at 20. To observe more" in text
    assert "lstd.metrics.backtest" not in text


def test_later_fits_and_scores_have_the_result():
    X, y, rows = customers(3)
    rows = {name: rows[name] for name in ("episode", "terminated")}
    y = np.where(np.append(np.diff(rows["episode"]) > 0, True), np.nan, y)
    for model in (LSTD(0.99, alpha=1.0), LSTDCV(0.99, lmbdas=[0.5], alphas=[1.0]), HorizonLSTD(29)):
        assert all("`lstd.metrics.backtest` does" in text for text in texts_of(lambda: model.fit(X, y, **rows)))  # noqa: B023
        time = np.tile(np.arange(30), 60)
        (text,) = texts_of(lambda: backtest(model, X, y, cut=10, steps=5, time=time, **rows))  # noqa: B023
        result = text[text.index("A backtest") : text.index(" To observe")]
        for act in (lambda: model.fit(X, y, **rows), lambda: model.score(X, y, **rows)):  # noqa: B023
            assert all(result in text for text in texts_of(act))
        assert not any(result in text for text in texts_of(lambda: clone(model).fit(X, y, **rows)))  # noqa: B023
        model.set_params(gamma=0.995)
        assert not any("A backtest" in text for text in texts_of(lambda: model.fit(X, y, **rows)))  # noqa: B023


def test_times_may_be_given_beside_trajectories_without_times():
    random = np.random.default_rng(0)
    X = random.normal(size=(360, 2))
    rows = {"episode": np.repeat(np.arange(30), 12), "terminated": np.zeros(360, dtype=bool)}
    time = np.tile(np.arange(12), 30)
    y = X[:, 0] + random.normal(size=360)
    expected = backtest(LSTD(0.8), X, y, time=time, cut=7, steps=4, **rows)
    found = backtest(LSTD(0.8), Trajectories(X, y, **rows), time=time, cut=7, steps=4)
    assert str(found) == str(expected)
