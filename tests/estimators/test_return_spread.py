"""`ReturnSpread`: paths, variances and ranges are those of their definitions, and ranges hold single returns."""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import lstd
import naive
from lstd import LSTD, LSTDCV, HorizonLSTD
from lstd.data.check_rows import check_rows
from lstd.errors import EffectiveSampleWarning, InvalidInputError, InvalidTypeError, LSTDWarning
from lstd.estimators import return_spread
from lstd.inference import ReturnSpread
from tolerances import assert_close

GAMMA = 0.8
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of small logs


def log(seed, n_episodes=40, cut=0.5, m=1):
    """Rows of episodes, some cut off, with weights; arguments of `fit`."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 8, n_episodes)
    T = int(lengths.sum())
    X, y = random.normal(size=(T, 2)), random.exponential(size=(T, m))
    last = np.zeros(T, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    terminated = last & (random.uniform(size=T) > cut)
    y[last & ~terminated] = np.nan
    episode, weight = np.repeat(np.arange(n_episodes), lengths), random.uniform(0.5, 2.0, T)
    return {"X": X, "y": y[:, 0] if m == 1 else y, "episode": episode, "terminated": terminated, "weight": weight}


def definition(seed, horizon):
    """Checked rows, values for each number of steps left, and a full row for each row and number of steps left."""
    data = log(seed)
    rows = check_rows(**data, gamma=GAMMA)
    random, full = np.random.default_rng(seed), np.flatnonzero(rows.full)
    values = random.normal(size=(horizon + 1, len(rows)))
    values[0] = 0.0
    return rows, values, full[random.integers(len(full), size=values.shape)]


@pytest.mark.parametrize("seed", range(3))
def test_followed_returns_are_those_of_the_definition(seed):
    rows, values, donors = definition(seed, 1)
    value = values[1]
    of_value = {v: donors[1, t] for t, v in enumerate(value)}
    G, V = return_spread.followed(rows, rows.y[:, 0], value, value, lambda at: np.array([of_value[v] for v in at]))
    for t in np.flatnonzero(rows.full):
        expected = naive.followed_return(
            t, rows.y[:, 0], rows.discount, rows.last, rows.terminated, lambda s, _: value[s],
            lambda s, _: donors[1, s], 1e-3,
        )  # fmt: skip
        assert_close((G[t], V[t]), expected, "sums")


@pytest.mark.parametrize("seed", range(3))
def test_followed_steps_are_those_of_the_definition(seed):
    horizon = 6
    rows, values, donors = definition(seed, horizon)
    cut = np.flatnonzero(~rows.full)
    left = iter(range(1, horizon + 1))

    def draw_by(_):
        return partial(lambda h, _: donors[h, cut], next(left))

    G, V = return_spread.followed_steps(rows, rows.y[:, 0], zip(values[1:], values[1:], strict=True), draw_by)
    for t in np.flatnonzero(rows.full):
        expected = naive.followed_return(
            t, rows.y[:, 0], rows.discount, rows.last, rows.terminated, lambda s, h: values[h, s],
            lambda s, h: donors[h, s], 0.0, horizon,
        )  # fmt: skip
        assert_close((G[t], V[t]), expected, "sums")


def test_draws_are_among_the_nearest_and_by_weight():
    values, weight = np.sort(np.random.default_rng(0).normal(size=200)), np.ones(200)
    weight[50:] = np.where(np.arange(150) % 2, 3.0, 0.0)
    draw = return_spread.drawing(np.arange(200), values, weight, np.random.default_rng(1))
    for at in (values[0] - 1.0, values[80], values[-1]):
        near = np.argsort(np.abs(values - at))[:20]
        drawn = draw(np.full(4000, at))
        assert {*drawn} == {*near[weight[near] > 0.0]}
    assert (np.abs(np.bincount(drawn)[near[weight[near] > 0.0]] - 400) < 100).all()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_ranges_are_those_of_the_definition(level):
    data = log(3, n_episodes=60)
    model = LSTD(GAMMA).fit(**data)
    spread = ReturnSpread(model).fit(**data)
    (one,) = spread.spreads_
    X = np.random.default_rng(9).normal(size=(30, 2))
    found = spread.predict_interval(X, level)
    assert len(one.values) < 256  # as many windows as rows
    for i in range(len(X)):
        expected = naive.return_interval(
            found.prediction[i], found.std[i], one.values, one.residuals, (one.on_low, one.on_high), one.group,
            one.weight, 0.5 * (1.0 - level), (0.0, np.inf), 0.1,
        )  # fmt: skip
        assert_close((found.lower[i], found.upper[i]), expected, "sums")


def test_values_and_variances_are_held_out():
    """Another reward in one fold changes the predictions of the other folds, and no prediction of its own."""
    data = log(4)
    model, changed = LSTD(GAMMA).fit(**data), data["y"].copy()
    first = np.flatnonzero(data["episode"] < 4)  # of 40 episodes in ten folds
    changed[first] += 100.0
    one, two = (
        return_spread.held_out(model, None, data["X"], y, {k: data[k] for k in ("episode", "terminated", "weight")})
        for y in (data["y"], changed)
    )
    same = one.values(0) == two.values(0)
    assert same[first].all()
    assert not same[first[-1] + 1 :].any()
    variances = [
        return_spread.variances_of(one, V)[1]
        for V in (np.ones(len(same)), np.where(np.arange(len(same)) > first[-1], 1.0, 9.0))
    ]
    assert_close(variances[0][first], variances[1][first], "sums")
    assert (np.abs(variances[0] - variances[1])[first[-1] + 1 :] > 1e-3).all()


def test_variances_are_a_ridge_regression():
    data = log(5, m=2)
    model = LSTD(GAMMA, alpha=0.7).fit(**data)
    columns = {name: data[name] for name in ("episode", "terminated", "weight")}
    held = return_spread.held_out(model, None, data["X"], data["y"], columns)
    V = np.random.default_rng(0).exponential(size=len(held.rows))
    weights, _, floor = return_spread.variances_of(held, V)
    full, phi, w = held.rows.full, np.column_stack([data["X"], np.ones(len(V))]), data["weight"]
    gram = (phi[full].T * w[full]) @ phi[full] + np.diag([0.7, 0.7, 0.0])
    assert_close(weights, np.linalg.solve(gram, phi[full].T @ (w * V)[full]), "solve")
    assert_close(floor, 0.05 * np.average(V[full], weights=w[full]), "sums")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_of_several_rewards_and_sparse_features(form):
    data = log(6, m=2)
    for model in (LSTD(GAMMA), LSTDCV(GAMMA, lmbdas=[0.9]), HorizonLSTD(5)):
        found = []
        for y, X in ((data["y"], form(data["X"])), (data["y"][:, 0], data["X"])):
            given = data | {"y": y, "X": X}
            found.append(ReturnSpread(model.fit(**given)).fit(**given).predict_interval(X[:9]))
        assert found[0].lower.shape == found[0].std.shape == (9, 2)
        assert (found[0].lower >= 0.0).all()
        assert (found[0].upper > found[0].lower).all()
        if not isinstance(model, LSTDCV):  # which chooses for both rewards
            assert_close(found[0].std[:, 0], found[1].std, "solve")


def purchases(n, seed, cut=30):
    """A log of customers in two states, who spend at random and leave; and features of both states."""
    random, rows = np.random.default_rng(seed), []
    for customer in range(n):
        until, state = random.integers(3, cut), random.integers(2)
        for _ in range(until):
            gone = random.random() < (0.05, 0.25)[state]
            rows.append((customer, state, random.exponential((1.0, 3.0)[state]), gone))
            if gone:
                break
            state = state if random.random() < 0.9 else 1 - state
        else:
            rows.append((customer, state, np.nan, False))
    customer, state, y, gone = (np.array(column) for column in zip(*rows, strict=True))
    return {"X": np.eye(2)[state], "y": y, "episode": customer, "terminated": gone}


def test_ranges_of_too_few_groups_hold_the_prediction_and_say_so():
    data = log(2, n_episodes=21)
    spread = ReturnSpread(LSTD(GAMMA).fit(**data)).fit(**data)
    with pytest.warns(EffectiveSampleWarning, match="which needs 50 among the rows .* lower `level`"):
        found = spread.predict_interval(data["X"], level=0.98)
    assert ((found.lower <= found.prediction) & (found.prediction <= found.upper)).all()
    with warnings.catch_warnings(action="error"):
        spread.predict_interval(data["X"], level=0.5)


def test_a_model_that_was_fitted_again_is_noticed():
    data = log(1)
    for model in (LSTD(GAMMA), HorizonLSTD(3)):
        spread = ReturnSpread(model.fit(**data)).fit(**data)
        spread.predict_std(data["X"])
        model.fit(**data)
        for ask in (spread.predict_std, spread.predict_interval):
            with pytest.raises(InvalidInputError, match="it was fitted again"):
                ask(data["X"])
        spread.fit(**data).predict_std(data["X"])


def test_the_end_is_a_bound_that_returns_lie_on():
    random = np.random.default_rng(0)
    X, done = np.ones((4000, 1)), np.ones(4000, dtype=bool)
    for share, low in ((0.5, 0.0), (0.02, 0.05)):
        y = np.where(random.random(4000) < share, 0.0, 0.1 + random.random(4000))
        spread = ReturnSpread(LSTD(fit_intercept=False).fit(X, y, terminated=done)).fit(X, y, terminated=done)
        found = spread.predict_interval([[1.0]])
        assert found.lower[0] == 0.0 if not low else found.lower[0] > low
        assert found.upper[0] < 1.2
    bought = (random.random(4000) < 0.5) * 1.0
    model = HorizonLSTD(1, low=0, high=1).fit(X, bought, terminated=done)
    found = ReturnSpread(model).fit(X, bought, terminated=done).predict_interval([[1.0]])
    assert (found.lower[0], found.upper[0]) == (0.0, 1.0)
    data = log(8)
    bounded = ReturnSpread(HorizonLSTD(5, high=1.0).fit(**data)).fit(**data)
    assert bounded.spreads_[0].values.max() == 1.0  # as predictions are


def test_variances_are_scaled_by_residuals_beyond_chance():
    group, one = np.arange(4), np.ones(4)
    for squares, expected in (([1.0, 1.2, 0.8, 1.0], 1.0), ([3.0, 3.0, 3.0, 3.0], 3.0)):
        assert_close(return_spread.scale_of(np.array(squares), one, group), expected, "sums")
    error = np.sqrt(0.5)  # of the mean, 3, over groups
    assert_close(return_spread.scale_of(np.array([2.0, 2.0, 4.0, 4.0]), one, group // 2), 3.0 - error**2 / 2.0, "sums")


def test_negative_variances_are_raised_and_counted():
    data = purchases(60, 1)
    X = data["X"][:, :1] + 20.0 * (np.arange(len(data["X"])) == 5)[:, np.newaxis]
    model = LSTD(0.9, fit_intercept=False, alpha=0.0).fit(X, data["y"], episode=data["episode"],
                                                          terminated=data["terminated"])  # fmt: skip
    spread = ReturnSpread(model).fit(X, data["y"], episode=data["episode"], terminated=data["terminated"])
    assert spread.n_floored_ > 0
    assert (spread.predict_std([[-5.0], [1.0]]) > 0.0).all()


@pytest.mark.parametrize("model", [LSTD(0.9), LSTDCV(0.9, lmbdas=[0.9]), HorizonLSTD(4)])
def test_files_hold_the_spread_and_its_model(model, tmp_path):
    data = log(7, m=2)
    spread = ReturnSpread(model.fit(**data)).fit(**data)
    spread.save(tmp_path / "spread")
    loaded = lstd.load(tmp_path / "spread")
    assert type(loaded.model) is type(model)
    for name in ("lower", "upper", "std", "prediction"):
        one, two = (getattr(s.predict_interval(data["X"]), name) for s in (spread, loaded))
        np.testing.assert_array_equal(one, two)
    assert (loaded.n_groups_, loaded.n_floored_) == (spread.n_groups_, spread.n_floored_)
    again = ReturnSpread(loaded.model).fit(**data)  # files of models keep the sums that it needs
    assert_close(again.predict_std(data["X"]), spread.predict_std(data["X"]), "solve")


def test_what_is_refused():
    data = purchases(30, 0)
    model, columns = LSTD(0.9).fit(**data), {k: data[k] for k in ("episode", "terminated")}
    fit = partial(ReturnSpread(model).fit, data["X"], data["y"])
    with pytest.raises(InvalidTypeError, match="`importance_ratio` must not be given"):
        fit(importance_ratio=np.ones(len(data["y"])), **columns)
    with pytest.raises(InvalidInputError, match="`model` must be an LSTD"):
        ReturnSpread("model").fit(data["X"], data["y"], **columns)
    with pytest.raises(InvalidInputError, match="at least 20 groups"):
        fit(groups=data["episode"] // 2, **columns)
    with pytest.raises(InvalidInputError, match="`low` must be below `high`"):
        ReturnSpread(model, low=2.0, high=1.0).fit(**data)
    with pytest.raises(InvalidInputError, match="`horizon` must be None"):
        ReturnSpread(model, horizon=3).fit(**data)
    with pytest.raises(NotFittedError):
        ReturnSpread(model).predict_std(data["X"])
    endless = columns | {"terminated": np.zeros(len(data["y"]), dtype=bool), "X": data["X"]}
    endless["y"] = np.where(np.append(np.diff(data["episode"]), 1), np.nan, np.nan_to_num(data["y"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        model = LSTD(1.0, alpha=50.0, variant="uncorrected").fit(**endless)
    with pytest.raises(InvalidInputError, match="`terminated` must be true for more"):
        ReturnSpread(model).fit(**endless)


def test_a_spread_of_fewer_steps_is_that_of_a_model_of_as_many():
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 2))
    rows = {"X": X, "y": X[:, 0] + random.normal(size=600), "episode": np.arange(600) // 6}
    rows["terminated"] = np.arange(600) % 6 == 5
    short = HorizonLSTD(2, n_blocks=0, check=False).fit(**rows)
    expected = ReturnSpread(short).fit(**rows).predict_interval(X[:20])
    longer = ReturnSpread(HorizonLSTD(5, n_blocks=0, check=False).fit(**rows), horizon=2).fit(**rows)
    assert longer.horizon_ == 2
    found = longer.predict_interval(X[:20])
    for name in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)
