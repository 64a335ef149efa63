"""`HorizonLSTD`: its weights are those of the definition over rows, whole, in chunks and without each block."""

import re
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import lstd
import naive
from lstd import HorizonLSTD
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    IllConditionedWarning,
    InvalidInputError,
    InvalidTypeError,
    UnobservedWarning,
    UnusedRewardWarning,
)
from lstd.estimators import horizon_model
from lstd.metrics import backtest, calibration
from tolerances import assert_close

HORIZON = 6
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of small noisy data


def stream(seed, n_episodes=12, m=1, longest=9, cut=0.5):
    """Rows of episodes, some cut off, with weights and discounts; arguments of `fit`."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest, n_episodes)
    T = int(lengths.sum())
    X, y = random.normal(size=(T, 3)), random.normal(size=(T, m))
    last = np.zeros(T, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    terminated = last & (random.uniform(size=T) > cut)
    y[last & ~terminated] = np.nan
    return {
        "X": X, "y": y[:, 0] if m == 1 else y, "episode": np.repeat(np.arange(n_episodes), lengths),
        "terminated": terminated, "weight": random.uniform(0.5, 2.0, T),
        "discount": random.choice([0.0, 0.9, 1.0], T, p=[0.05, 0.45, 0.5]),
    }  # fmt: skip


def arguments(data, intercept):
    """Arguments of the definitions."""
    X = np.column_stack([data["X"], np.ones(len(data["X"]))]) if intercept else data["X"]
    y = np.nan_to_num(data["y"]).reshape(len(X), -1)
    last = np.append(data["episode"][1:] != data["episode"][:-1], True)
    discount = np.where(data["terminated"], 0.0, data["discount"])
    return X, y, discount, last, data["terminated"], data["weight"]


def ridge(alpha, intercept, n=3):
    return np.append(np.full(n, alpha), [0.0] * intercept)


def weights_of(model):
    """Weights (H, n, m), in the last row the intercept if there is one."""
    coef = model.coef_ if model.coef_.ndim == 3 else model.coef_[:, np.newaxis]
    rows = coef.swapaxes(1, 2)
    ones = np.asarray(model.intercept_).reshape(len(rows), 1, -1)
    return np.concatenate([rows, ones], axis=1) if model.fit_intercept else rows


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("lmbda", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_weights_are_those_of_the_definition(seed, lmbda, intercept, form):
    data = stream(seed, m=1 + seed % 2)
    expected = naive.horizon_weights(*arguments(data, intercept), lmbda, ridge(0.3, intercept), HORIZON)
    model = HorizonLSTD(HORIZON, check=False, lmbda=lmbda, alpha=0.3, fit_intercept=intercept, penalty="raw")
    model.fit(**data | {"X": form(data["X"])})
    assert_close(weights_of(model), expected, "solve")
    curve = model.predict_curve(form(data["X"]))
    for h in (1, 4, HORIZON):
        assert_close(model.predict(data["X"], horizon=h), curve[:, h - 1], "sums")
    assert_close(model.predict(data["X"]), curve[:, -1], "sums")


@pytest.mark.parametrize("kind", ["episodes", "one stream", "groups"])
@pytest.mark.parametrize("seed", range(3))
def test_any_split_gives_the_same_model(seed, kind):
    data = stream(seed, n_episodes=40, cut=1.0) if kind == "one stream" else uneven(seed)
    if kind == "one stream":
        data = {name: values for name, values in data.items() if name not in ("episode", "terminated")}
        data["y"] = np.nan_to_num(data["y"])
    if kind == "groups":
        data["groups"] = data["episode"] // 3
    whole = HorizonLSTD(HORIZON, check=False, lmbda=0.7, alpha="auto").fit(**data)
    parts = HorizonLSTD(HORIZON, check=False, lmbda=0.7, alpha="auto")
    random = np.random.default_rng(seed)
    edges = np.unique(np.append(random.integers(0, len(data["X"]), 15), [0, 1, 2, len(data["X"])]))
    for a, b in pairwise(edges.tolist()):
        chunk = {name: values[a:b].copy() for name, values in data.items()}
        parts.partial_fit(**chunk)
        if random.uniform() < 0.3:
            with warnings.catch_warnings(action="ignore"):
                try:
                    parts.predict(data["X"])
                except InvalidInputError as error:
                    assert re.search("a full transition|at least two blocks", str(error))  # noqa: PT017
    assert_close(parts.alpha_, whole.alpha_, "solve")
    assert_close(weights_of(parts), weights_of(whole), "solve")
    assert parts.n_transitions_ == whole.n_transitions_
    assert parts.n_episodes_ == whole.n_episodes_
    for one, two in zip(*(vars(m.predict_interval(data["X"])).values() for m in (parts, whole)), strict=True):
        assert_close(one, two, "solve")


def uneven(seed, n_episodes=40):
    """A stream with columns far from zero, of another unit, rare, mostly not zero and constant."""
    data, random = stream(seed, n_episodes), np.random.default_rng(seed)
    x, T = data["X"][:, 0], len(data["X"])
    rare, common = random.uniform(size=(2, T)) < [[0.2], [0.7]]
    columns = [x + 5.0, 100.0 * data["X"][:, 1], rare * (x + 1.0), common * (x + 1.0), np.full(T, 3.0), np.zeros(T)]
    return data | {"X": np.column_stack(columns)}


def units_of(data, intercept):
    """Squared spreads, and mean squares about the centres, of the columns over full rows, by the definition."""
    X, _, _, last, terminated, weight = arguments(data, False)
    full = terminated | ~last
    return np.transpose([naive.horizon_units(x, weight[full], intercept) for x in X[full].T])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_penalties_are_in_units_of_the_spread_of_all_data(seed, intercept, form):
    data = uneven(seed)
    spread, _ = units_of(data, intercept)
    expected = naive.horizon_weights(*arguments(data, intercept), 0.7, ridge(0.3 * spread, intercept, 6), HORIZON)
    model = HorizonLSTD(HORIZON, check=False, lmbda=0.7, alpha=0.3, fit_intercept=intercept)
    model.fit(**data | {"X": form(data["X"])})
    assert model.alpha_ == 0.3
    assert_close(model.ridge_, 0.3 * spread, "solve")
    assert_close(weights_of(model), expected, "solve")


def test_penalty_may_be_raw_or_factors_of_alpha():
    data, factors = uneven(2), np.array([2.0, 0.0, 0.5, 1.0, 3.0, 1.0])
    spread, square = units_of(data, True)
    raw = HorizonLSTD(HORIZON, check=False, penalty="raw").fit(**data)
    assert_close(raw.ridge_, np.ones(6), "sums")
    given = HorizonLSTD(HORIZON, check=False, alpha=0.3, penalty=factors).fit(**data)
    assert_close(given.ridge_, 0.3 * factors, "sums")
    assert_close(
        given.coef_, HorizonLSTD(HORIZON, check=False, alpha=0.3 * factors, penalty="raw").fit(**data).coef_, "solve"
    )
    each = HorizonLSTD(HORIZON, check=False, alpha=factors).fit(**data)
    assert each.alpha_ == 1.0
    assert_close(each.ridge_, factors * spread, "solve")
    weight = data["weight"][data["terminated"] | ~np.append(np.diff(data["episode"]) != 0, True)]
    positive = factors > 0.0
    in_factors = square[positive] / factors[positive]
    for penalty, terms in (("spread", square / spread), ("raw", square), (factors, in_factors)):
        chosen = HorizonLSTD(HORIZON, check=False, alpha="auto", penalty=penalty).fit(**data)
        unit = chosen.alpha_ / (terms.sum() * weight.mean())
        assert_close(unit, 2.0 ** round(np.log2(unit)), "solve")


@pytest.mark.parametrize("lmbda", [0.0, 0.7, 1.0])
def test_standard_errors_are_those_of_models_without_each_block(lmbda):
    data = stream(5, n_episodes=20)
    X, *rest = arguments(data, True)
    weight, full = data["weight"], data["terminated"] | ~rest[2]
    model = HorizonLSTD(HORIZON, check=False, lmbda=lmbda, alpha=0.3, n_blocks=10, penalty="raw").fit(**data)
    whole, squares, everything = weights_of(model), 0.0, (weight * full).sum()
    for block in range(10):
        kept = data["episode"] // 2 != block
        share = (weight * full)[~kept].sum() / everything
        left = naive.horizon_weights_of_pairs(X, *rest, lmbda, ridge(0.3 * (1 - share), True), HORIZON, kept)
        squares = squares + (1 - share) * (X @ (whole - left)[2]) ** 2
    assert_close(model.predict(data["X"], 3, return_std=True)[1], np.sqrt(squares[:, 0]), "solve")


def test_without_decay_it_is_ridge_regression_on_complete_windows():
    random = np.random.default_rng(0)
    X, y, n = random.normal(size=(300, 3)), random.normal(size=300), 300 - HORIZON
    episode = np.repeat(np.arange(20), 15)
    rows = [t for t in range(300) if t % 15 < 15 - HORIZON]
    data = {"X": X, "y": y, "episode": episode, "terminated": np.zeros(300, dtype=bool)}
    weight = np.isin(np.arange(300), rows).astype(float)
    model = HorizonLSTD(HORIZON, check=False, lmbda=1.0, alpha=0.5, fit_intercept=False, penalty="raw").fit(
        **data, weight=weight
    )
    for h in range(1, HORIZON + 1):
        returns = np.array([y[t : t + h].sum() for t in rows])
        assert_close(model.coef_[h - 1], naive.ridge(X[rows], returns, 0.5), "solve")
    assert n > 0


@pytest.mark.parametrize("settings", [{"lmbda": 0.7, "alpha": "auto"}, {"lmbda": "auto", "alpha": 0.5}])
@pytest.mark.parametrize("seed", range(2))
def test_a_choice_is_that_of_the_definition(seed, settings):
    data = stream(seed, n_episodes=16)
    X, *rest = arguments(data, True)
    *_, last, terminated, weight = rest
    full = terminated | ~last
    folds = [data["episode"] // 4 == k for k in range(4)]
    model = HorizonLSTD(HORIZON, check=False, **settings, penalty="raw", n_blocks=4).fit(**data)
    grid = model.cv_results_
    shares = [(weight * full)[fold].sum() / (weight * full).sum() for fold in folds]
    outside = [
        [
            naive.horizon_weights_of_pairs(X, *rest, lmbda, ridge(alpha * (1.0 - share), True), HORIZON, ~fold)
            for lmbda, alpha in zip(grid["lmbda"], grid["alpha"], strict=True)
        ]
        for fold, share in zip(folds, shares, strict=True)
    ]

    def errors(decay, reference):
        rows = [set(np.flatnonzero(fold)) for fold in folds]
        return np.array(
            [
                [naive.horizon_squared_error(some, theta, own[reference], decay, X, *rest) for theta in own]
                for some, own in zip(rows, outside, strict=True)
            ]
        )

    near_default = np.abs(grid["lmbda"] - 0.9) + np.abs(np.log(grid["alpha"]))
    defaults = int(near_default.argmin())
    first = defaults
    if settings["alpha"] == "auto":
        first = 6  # 1 of 2⁻¹², 2⁻¹⁰, …, 2¹⁰ units
    place, cost = naive.horizon_choice(errors, defaults, first, HORIZON)
    assert_close(grid["cost"], cost, "solve")
    assert (model.lmbda_, model.alpha_) == (grid["lmbda"][place], grid["alpha"][place])


def test_a_choice_that_only_bootstrapped_returns_prefer_is_left_for_the_defaults():
    random = np.random.default_rng(2)
    rate = random.gamma(1.0, 1.0, (300, 1))  # of a subject, which no feature shows whole
    y = random.poisson(rate, (300, 7)).astype(float)
    y[:, -1] = np.nan
    before = np.cumsum(np.pad(np.nan_to_num(y), ((0, 0), (1, 0))), axis=1)[:, :-1]
    X = np.column_stack([before.ravel(), np.tile(np.arange(7.0), 300)])
    data = {"X": X, "y": y.ravel(), "episode": np.repeat(np.arange(300), 7), "terminated": np.zeros(2100, bool)}
    model = HorizonLSTD(3, lmbda="auto", alpha="auto").fit(**data)
    came = rate[:, 0] * 3
    now = X[6::7]
    errors = [np.mean((one.predict(now) - came) ** 2) for one in (model, HorizonLSTD(3).fit(**data))]
    assert errors[0] <= errors[1] * 1.01


def test_units_of_features_make_no_difference_to_a_choice():
    random = np.random.default_rng(1)
    X, episode = random.normal(size=(600, 4)), np.repeat(np.arange(60), 10)
    y = X[:, 0] + random.normal(size=600)
    data = {"y": y, "episode": episode, "terminated": np.zeros(600, dtype=bool)}
    model, scaled = (
        HorizonLSTD(HORIZON, lmbda="auto", alpha="auto").fit(X * scale + shift, **data)
        for scale, shift in ((1.0, 0.0), (np.array([1e-3, 1.0, 1e3, 7.0]), np.array([1.0, 5.0, -1e4, 0.0])))
    )
    assert scaled.lmbda_ == model.lmbda_
    assert_close(
        scaled.predict(X * np.array([1e-3, 1.0, 1e3, 7.0]) + np.array([1.0, 5.0, -1e4, 0.0])), model.predict(X), "units"
    )
    assert model.cv_results_["cost"].shape == model.cv_results_["lmbda"].shape
    assert model.score(X, **data) > 0.05


def test_scores_complete_what_was_cut_off_by_the_value_of_the_steps_that_are_left():
    data = stream(6, n_episodes=30)
    model = HorizonLSTD(HORIZON).fit(**data)
    found = model.observed_returns(**data, horizon=4)
    X, y, discount, last, terminated, _ = arguments(data, True)
    theta = np.concatenate([np.zeros((1, 4, 1)), weights_of(model)])
    expected = [
        naive.horizon_return(t, 4, X, y, discount, last, terminated, 1.0, theta)[0] for t in range(len(X))
    ]  # fmt: skip
    assert_close(found.returns, np.array(expected), "solve")
    full, prediction = terminated | ~last, model.predict(data["X"], 4)
    weight = data["weight"] * full
    assert_close(found.weight, weight, "sums")
    residual, mean = found.returns - prediction, np.average(found.returns, weights=weight)
    r2 = 1 - weight @ residual**2 / (weight @ (found.returns - mean) ** 2)
    assert_close(model.score(**data, horizon=4), r2, "sums")
    assert ((found.unobserved > 0.0) <= (found.unobserved <= 1.0)).all()
    assert calibration(prediction, found, n_bins=3).count.sum() == full.sum()
    assert model.score(**data, horizon=2, unobserved="ipcw") <= 1.0
    with pytest.raises(InvalidInputError, match="biased sample"):
        model.score(**data, unobserved="drop")


def test_a_saved_model_predicts_the_same(tmp_path):
    data = stream(7, n_episodes=30)
    frame = pytest.importorskip("pandas").DataFrame(data["X"], columns=list("abc"))
    model = HorizonLSTD(HORIZON, low=0.0).fit(**data | {"X": frame})
    model.save(tmp_path / "model")
    for loaded in (HorizonLSTD.load(tmp_path / "model"), lstd.load(tmp_path / "model")):
        np.testing.assert_array_equal(loaded.predict_curve(frame), model.predict_curve(frame))
        interval = loaded.predict_interval(frame[["c", "a", "b"]], horizon=2)
        np.testing.assert_array_equal(interval.upper, model.predict_interval(frame, horizon=2).upper)
        assert loaded.feature_names_in_.tolist() == list("abc")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("cut", [0.0, 1.0])
def test_a_loaded_model_goes_on_where_it_was_saved(tmp_path, form, cut):
    data = stream(8, n_episodes=40, longest=12, cut=cut)
    data["y"], edge, whole = np.nan_to_num(data["y"]), 101, HorizonLSTD(HORIZON, check=False, alpha="auto")
    first, rest = ({name: values[part] for name, values in data.items()} for part in (slice(edge), slice(edge, None)))
    first["X"], rest["X"] = form(first["X"]), form(rest["X"])
    whole.partial_fit(**first).save(tmp_path / "model")
    loaded = lstd.load(tmp_path / "model").partial_fit(**rest)
    given = HorizonLSTD(HORIZON, check=False, alpha=whole.alpha_).partial_fit(**first).partial_fit(**rest)
    assert (loaded.alpha, loaded.alpha_, loaded.n_episodes_) == ("auto", whole.alpha_, given.n_episodes_)
    assert_close(weights_of(loaded), weights_of(given), "solve")
    with pytest.raises(InvalidInputError, match="files do not keep"):
        loaded.predict_interval(form(data["X"]))


def test_a_fit_says_what_makes_its_predictions_doubtful(tmp_path):
    age = np.arange(1200) % 24
    random = np.random.default_rng(0)
    data = {"X": np.column_stack([random.normal(size=1200), age]), "y": age + random.normal(size=1200)}
    data |= {"episode": np.arange(1200) // 24, "terminated": np.zeros(1200, dtype=bool)}
    with warnings.catch_warnings(record=True, action="always") as found:
        model = HorizonLSTD(30).fit(**data)
    texts = {one.category: str(one.message) for one in found}
    assert [*texts] == [UnusedRewardWarning, UnobservedWarning, ExtrapolationWarning, BoundsWarning]
    assert "grow within an episode (x1)" in texts[ExtrapolationWarning]
    assert f"above {30 * data['y'][age < 23].max():.4g}" in texts[BoundsWarning]
    model.save(tmp_path / "model")
    with pytest.warns(ExtrapolationWarning, match="far outside of their range in the fit"):
        lstd.load(tmp_path / "model").predict(data["X"] * 100.0)
    with pytest.warns(UnobservedWarning, match="compares the model with itself"):
        model.score(**data)
    with warnings.catch_warnings(action="error"):  # twelve months of three years, of features that stay in range
        HorizonLSTD(6).fit(data["X"][:, :1], data["X"][:, 0] * (age < 23), **{n: data[n] for n in [*data][2:]})


IRREGULAR = {"time": [0.0, 1.0, 2.0, 4.0, 0.0, 1.0], "episode": [1, 1, 1, 1, 2, 2], "terminated": [0] * 6}


@pytest.mark.parametrize(
    ("parameters", "columns", "error", "message"),
    [
        ({}, IRREGULAR, InvalidInputError, "row 3, `time` grows by 2 times the usual step.*from_events"),
        ({}, {"time": [0.0, 1.0]}, InvalidInputError, "`time` must have one entry per row"),
        ({}, {"X_next": np.ones((6, 2))}, InvalidTypeError, "`X_next` must not be given.*horizon row"),
        ({}, {"importance_ratio": np.ones(6)}, InvalidTypeError, "`importance_ratio` must not be given.*LSTD"),
        ({"horizon": 0}, {}, InvalidInputError, "`horizon` must be"),
        ({"lmbda": "best"}, {}, InvalidInputError, '`lmbda` must be a number or "auto"'),
        ({"penalty": "unit"}, {}, InvalidInputError, "`penalty` must be"),
        ({"penalty": [1.0, -1.0]}, {}, InvalidInputError, r"`penalty\[1\]` must be in"),
        ({"penalty": None}, {}, InvalidInputError, '`penalty` must be one of "spread" and "raw", or numbers; got None'),
        ({"penalty": [1.0]}, {}, InvalidInputError, "`penalty` must have one number for each of the 2 features; got 1"),
        ({"low": 1.0, "high": 0.0}, {}, InvalidInputError, "`low` must be below `high`"),
        ({}, {"episode": np.arange(6), "terminated": np.zeros(6)}, InvalidInputError, "must hold a full transition"),
        ({"lmbda": "auto", "n_blocks": 1}, {}, InvalidInputError, "at least two blocks"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_refused(parameters, columns, error, message):
    model = HorizonLSTD(**{"horizon": 3, "n_blocks": 0} | parameters)
    data = {"X": np.random.default_rng(0).normal(size=(6, 2)), "y": np.ones(6)} | columns
    with pytest.raises(error, match=message):
        model.fit(**data)
    assert not vars(model).keys() & {"coef_", "model_", "n_features_in_"}


MONTHS = np.array(["2024-01", "2024-02", "2024-03", "2024-04", "2024-05", "2024-06"], "M8[M]").astype("M8[D]")


@pytest.mark.parametrize("form", [np.asarray, lambda months: months.astype(str).tolist()])
def test_months_are_equal_steps(form):
    X, y, model = np.random.default_rng(0).normal(size=(6, 2)), np.ones(6), HorizonLSTD(2, n_blocks=0)
    model.fit(X, y, time=form(MONTHS))
    parts = HorizonLSTD(2, n_blocks=0).partial_fit(X[:3], y[:3], time=form(MONTHS[:3]))
    with pytest.raises(InvalidInputError, match=r"at row 0, `time` grows by 2.* times the usual step"):
        parts.partial_fit(X[4:], y[4:], time=form(MONTHS[4:]))
    assert_close(parts.partial_fit(X[3:], y[3:], time=form(MONTHS[3:])).coef_, model.coef_, "solve")


@pytest.mark.parametrize(
    ("parameters", "columns", "message"),
    [
        ({"n_blocks": 0}, {}, "`n_blocks` of at least 10; the model was fitted with 0"),
        ({}, {"groups": np.arange(24) // 2 % 3}, "at least 5 groups; the model was fitted to 3"),
        ({}, {"episode": np.arange(24) // 8}, "at least 5 episodes; the model was fitted to 3"),
        ({}, {"weight": 1.0 * (np.arange(24) < 8)}, "at least 5 blocks of episodes with full transitions; .* to 4"),
    ],
)
def test_why_there_are_no_intervals(parameters, columns, message):
    X, ends = np.random.default_rng(0).normal(size=(24, 1)), np.zeros(24, dtype=bool)
    columns = {"episode": np.arange(24) // 2, "terminated": ends} | columns
    model = HorizonLSTD(2, **parameters).fit(X, X[:, 0], **columns)
    with pytest.raises(InvalidInputError, match=message):
        model.predict_interval(X)


def test_fewer_blocks_are_kept_where_memory_holds_no_more(monkeypatch):
    assert horizon_model.BYTES == 2**28  # as the documentation says
    monkeypatch.setattr(horizon_model, "BYTES", 2**22)
    random = np.random.default_rng(0)
    episode = np.repeat(np.arange(60), 4)
    data = {"y": random.normal(size=240), "episode": episode, "terminated": np.arange(240) % 4 == 3}
    X = random.normal(size=(240, 30))
    few = HorizonLSTD(31, check=False).fit(X, **data)  # 0.45 MiB a block, of which eight fit
    assert 5 <= few.model_.stream.n_blocks <= 8
    assert np.isfinite(few.predict_interval(X[:2]).standard_error).all()
    none = HorizonLSTD(80, check=False).fit(X, **data)
    assert np.isfinite(none.predict(X)).all()
    with pytest.raises(
        InvalidInputError, match=r"at least 5 blocks.* a `horizon` of 80 each takes 1.17 MiB.* kept 3 in 4 MiB"
    ):
        none.predict_interval(X)
    monkeypatch.setattr(horizon_model, "BYTES", 2**20)
    none = HorizonLSTD(80, check=False).fit(X, **data)
    with pytest.raises(InvalidInputError, match=r'1.17 MiB, and n_blocks="auto" keeps none where fewer than two fit'):
        none.predict_interval(X)


@pytest.mark.parametrize("method", ["predict", "predict_curve", "predict_interval", "contributions"])
def test_a_missing_value_is_named_by_its_column(method):
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "dose": [1.0, 0.0, 1.0, 0.0]})
    model = HorizonLSTD(2).fit(X, [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(InvalidInputError, match=r"row 1 has nan in column 'dose'"):
        getattr(model, method)(X.assign(dose=[1.0, np.nan, 0.0, 1.0]))


@pytest.mark.parametrize(("gamma", "m"), [(1.0, 1), (0.9, 2)])
def test_a_window_is_the_fit_of_later_rewards_where_nothing_was_cut(gamma, m):
    a, b = 2, 5
    random = np.random.default_rng(0)
    episode = np.repeat(np.arange(40), 12)
    last = np.arange(480) % 12 == 11
    X, y = random.normal(size=(480, 2)), random.normal(size=(480, m))
    data = {"X": X, "episode": episode, "terminated": last}
    later = np.zeros_like(y)
    for t in range(480):
        if t + a < 480 and episode[t + a] == episode[t]:
            later[t] = gamma**a * y[t + a]
    model = HorizonLSTD(b, check=False, gamma=gamma, lmbda=1.0, alpha=0.7).fit(**data, y=y)
    shifted = HorizonLSTD(b - a, check=False, gamma=gamma, lmbda=1.0, alpha=0.7).fit(**data, y=later)
    assert_close(model.predict(X, (a, b)), shifted.predict(X), "solve")
    for one, two in zip(
        vars(model.predict_interval(X[:5], horizon=(a, b))).values(),
        vars(shifted.predict_interval(X[:5])).values(),
        strict=True,
    ):
        assert_close(one, two, "solve")
    assert_close(model.contributions(X[:5], (a, b)).values, shifted.contributions(X[:5]).values, "solve")
    assert_close(model.predict(X, (0, b)), model.predict(X), "sums")
    for wrong in ((2, 2), (-1, 3), (0, b + 1), (1,), (0, 1, 2)):
        with pytest.raises(InvalidInputError, match="`horizon"):
            model.predict(X, wrong)


def test_bounds_hold_for_windows_of_rewards_of_one_sign():
    random = np.random.default_rng(0)
    data = {"X": random.normal(size=(300, 2)), "episode": np.arange(300) // 10, "terminated": np.zeros(300, dtype=bool)}
    y = random.normal(size=300)
    for rewards, low, least in ((np.abs(y), 0.2, 0.0), (y, 0.2, -np.inf), (np.abs(y), None, -np.inf)):
        model = HorizonLSTD(HORIZON, check=False, alpha=0.0, low=low, high=2.0).fit(**data, y=rewards)
        window = model.predict(100.0 * data["X"], (2, 4))
        assert window.min() == least if np.isfinite(least) else window.min() < -1.0
        assert (window.max() == 2.0) == bool((rewards >= 0.0).all())


def test_a_pipeline_gives_intervals():
    data = stream(1, n_episodes=30)
    X = data.pop("X")
    columns = {f"model__{name}": values for name, values in data.items() if name != "y"}
    for estimator in (HorizonLSTD(HORIZON), lstd.LSTD(), lstd.LSTDCV(lmbdas=[0.5], alphas=[1.0])):
        pipeline = Pipeline([("scale", StandardScaler()), ("model", estimator)]).fit(X, data["y"], **columns)
        found = pipeline.predict(X, return_interval=0.9)
        expected = estimator.predict_interval(pipeline[0].transform(X), level=0.9)
        np.testing.assert_array_equal(found.upper, expected.upper)
        with pytest.raises(InvalidInputError, match="`return_std` must not be given with `return_interval`"):
            estimator.predict(X, return_std=True, return_interval=0.9)
        with pytest.raises(InvalidInputError, match="`return_interval` must be"):
            estimator.predict(X, return_interval=1.5)


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_bounds_of_a_window_are_those_of_each_reward():
    """A cost of either sign leaves the bounds of the probability of an event as they are."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 2))
    last = np.tile(np.arange(10) == 9, 40)
    died = (last & (random.random(400) < 0.5)).astype(float)
    both = np.column_stack([died, random.normal(size=400)])
    far = np.array([[9.0, -9.0], [-9.0, 9.0], [9.0, 9.0]])
    rows = {"episode": np.repeat(np.arange(40), 10), "terminated": last}
    alone, beside = (HorizonLSTD(6, check=False, low=0).fit(X, y, **rows) for y in (died, both))
    for horizon in ((2, 5), (0, 3)):
        assert_close(beside.predict(far, horizon=horizon)[:, 0], alone.predict(far, horizon=horizon), "solve")
        assert beside.predict_interval(far, horizon=horizon).lower[:, 0].min() == 0.0
    assert beside.predict(far, horizon=(2, 5))[:, 1].min() < 0.0


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("repeated", [True, False])
def test_weights_of_a_grid_are_those_of_each_pair(fit_intercept, repeated, monkeypatch):
    """One inverse serves all trace decays; where a system is nearly singular, each pair is solved by itself."""
    from lstd.statistics import horizon_grid

    data = stream(7, n_episodes=20)
    if repeated:
        data["X"] = np.column_stack([data["X"], data["X"][:, 0]])
    model = HorizonLSTD(HORIZON, check=False, alpha=0.3, fit_intercept=fit_intercept, penalty="raw").fit(**data).model_
    lmbdas = np.array([0.0, 0.4, 1.0])
    alphas = np.array([0.0, 1e-12, 0.1, 5.0])
    ridges = np.outer(alphas, model.factors)
    for n_bytes in (2**25, 0):
        monkeypatch.setattr(horizon_grid, "BYTES", n_bytes)
        grid = horizon_grid.weights_of_grid(model.total, lmbdas, ridges, model.penalty, intercept=fit_intercept)
        for i, lmbda in enumerate(lmbdas):
            for j, alpha in enumerate(alphas):
                assert_close(grid[i, j], model.recursion(model.total, lmbda, alpha).run(), "solve")


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_weights_of_parts_are_those_of_each_part(fit_intercept, alpha, monkeypatch):
    """Small systems are solved in one stack; that of a part in which a feature is zero is solved by itself."""
    from lstd.statistics import horizon_parts

    data = stream(7, n_episodes=20)
    first_half = data["episode"] < np.unique(data["episode"])[10]
    data["X"] = np.column_stack([data["X"], np.where(first_half, 0.0, data["X"][:, 0] ** 2)])
    settings = {"check": False, "alpha": alpha, "fit_intercept": fit_intercept, "penalty": "raw"}
    model = HorizonLSTD(HORIZON, **settings).fit(**data).model_
    parts = [model.stream.own(e) for e in range(model.stream.n_blocks)]
    for n_bytes in (2**25, 2**13, 0):
        monkeypatch.setattr(horizon_parts, "BYTES", n_bytes)
        weights = model.weights_of_parts(parts, 0.4, alpha)
        for part, of_part in zip(parts, weights, strict=True):
            assert_close(of_part, model.recursion(part, 0.4, alpha).run(), "solve")


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_of_a_horizon_beyond_the_log_is_warned_with_and_without_an_intercept(fit_intercept, tmp_path):
    random = np.random.default_rng(0)
    rows = {"X": 1.0 + random.uniform(size=(400, 1)), "y": random.uniform(size=400), "episode": np.arange(400) // 10}
    with pytest.warns(UnobservedWarning, match="Only 10 % .* smaller `horizon`"):
        model = HorizonLSTD(50, fit_intercept=fit_intercept, check=False).fit(**rows, terminated=False)
    assert model.summary().facts["returns observed"] == "10 %"
    model.save(tmp_path / "model")
    assert lstd.load(tmp_path / "model").summary().facts["returns observed"] == "10 %"


def test_a_summary_names_the_backtest_until_one_was_run():
    random = np.random.default_rng(0)
    week = np.tile(np.arange(12), 60)
    rows = {"episode": np.arange(720) // 12, "terminated": False}
    X, y = random.uniform(size=(720, 1)), random.uniform(size=720)
    model = HorizonLSTD(3).fit(X, y, **rows)
    assert model.summary().facts["backtest"].startswith("not run. Checks look at the rows of the fit")
    backtest(model, X, y, time=week, cut=8, steps=3, **rows)
    assert model.summary().facts["backtest"].startswith("A backtest of 3 steps predicted")
    assert model.set_params(horizon=2).fit(X, y, **rows).summary().facts["backtest"].startswith("not run")


def test_computing_the_weights_warns_of_nothing_and_the_first_use_warns_once():
    random = np.random.default_rng(0)
    x = random.normal(size=200)
    model = HorizonLSTD(3, alpha=0.0).partial_fit(np.column_stack([x, x]), random.normal(size=200))
    with warnings.catch_warnings(action="error"):
        assert np.isfinite(model.model_.solved.weights).all()
    with pytest.warns(IllConditionedWarning):
        first = model.predict(np.eye(2))
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(model.predict(np.eye(2)), first)
