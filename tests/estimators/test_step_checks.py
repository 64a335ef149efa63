"""The checks of a model of the next steps: those of the definition, quiet where it is right, loud where it is not."""

import numpy as np
import pytest
from scipy import sparse

import lstd
from lstd import LSTD, HorizonLSTD
from lstd.data.check_rows import check_rows
from lstd.errors import BiasWarning, InvalidInputError, MisfitWarning
from lstd.estimators.misfit_check import check_misfit
from tolerances import assert_close

HORIZON = 4
pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")


def log(n_episodes, seed, effect=lambda x, age: 0.0 * age, longest=12, cut=0.5):
    """Rows of episodes, some cut off, with rewards linear in two features, an error of the episode, and an effect."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, longest, n_episodes)
    episode = np.repeat(np.arange(n_episodes), lengths)
    T = len(episode)
    X = random.normal(size=(n_episodes, 2))[episode] + 0.5 * random.normal(size=(T, 2))
    age = np.arange(T) - np.searchsorted(episode, episode)
    y = X @ [1.0, -1.0] + effect(X, age) + 0.5 * random.normal(size=n_episodes)[episode] + random.normal(size=T)
    last = np.append(np.diff(episode) > 0, True)
    terminated = last & (random.uniform(size=T) > cut)[:T]
    y[last & ~terminated] = np.nan
    return {"X": X, "y": y, "episode": episode, "terminated": terminated, "weight": random.uniform(0.5, 2.0, T)}


@pytest.mark.parametrize(("n_episodes", "effect"), [(40, 0.0), (60, 0.0), (60, 2.0)])
def test_the_check_of_misfit_is_that_of_sums_that_reach_as_far(n_episodes, effect):
    data = log(n_episodes, 3, lambda x, age: 0.2 * x[:, 0] ** 2 + effect * np.exp(-age))
    model = HorizonLSTD(HORIZON, gamma=0.9).fit(**data)
    found = model.misfit_check(**data)
    assert found.of_age == bool(effect)
    assert_close(found.standard_error, model.predict(data["X"], return_std=True)[1].mean(), "misfit")
    discounted = LSTD(0.9 * (1.0 - 1.0 / HORIZON), 1.0).fit(**data)
    rows = check_rows(**data, gamma=discounted.gamma).with_ones()
    expected = check_misfit(rows, discounted.model_, tree=False)
    for name in ("p_value", "systematic", "expected", "residual", "of_age", "misfit"):
        assert_close(float(getattr(found, name)), float(getattr(expected, name)), "misfit")
    for other in (sparse.csr_array(data["X"]), data["X"] * [1e4, 1e-4] + [5e4, 0.0]):
        refit = HorizonLSTD(HORIZON, gamma=0.9).fit(**data | {"X": other})
        assert_close(refit.misfit_check(**data | {"X": other}).p_value, found.p_value, "misfit")
    both = {**data, "y": np.column_stack([data["y"], 2.0 * data["y"]])}
    two = HorizonLSTD(HORIZON, gamma=0.9).fit(**both).misfit_check(**both)
    assert_close(two.systematic / [1.0, 2.0], [found.systematic] * 2, "misfit")
    assert two.misfit.shape == two.of_age.shape == (2,)


def test_of_one_step_the_check_is_that_of_the_next_rewards():
    data = log(60, 3, square, cut=0.0)
    found = HorizonLSTD(1).fit(**data).misfit_check(**data)
    expected = LSTD(0.0).fit(**data)
    rows = check_rows(**data, gamma=0.0).with_ones()
    assert_close(found.systematic, check_misfit(rows, expected.model_, tree=False).systematic, "misfit")


def square(x, age):
    """An effect that no weighted sum follows."""
    return 3.0 * x[:, 0] ** 2


def test_a_fit_checks_itself_and_keeps_what_was_found(tmp_path):
    data = log(300, 1, square)
    with pytest.warns(MisfitWarning, match=r"Add features such as .* does not help\.$"):
        model = HorizonLSTD(HORIZON).fit(**data)
    assert model.misfit_check_.misfit is True
    assert model.misfit_check_.of_age is False
    assert vars(model.misfit_check_) == vars(HorizonLSTD(HORIZON, check=False).fit(**data).misfit_check(**data))
    assert 0.0 <= model.bias_check_.p_value <= 1.0
    model.save(tmp_path / "model")
    loaded = lstd.load(tmp_path / "model")
    assert vars(loaded.misfit_check_) == vars(model.misfit_check_)
    assert loaded.check is True
    with pytest.warns(MisfitWarning):
        loaded.fit(**data)
    for silent in (
        HorizonLSTD(HORIZON, check=False).fit(**data),
        model.partial_fit(**data | {"episode": data["episode"] + 999}),
    ):
        assert silent.misfit_check_ == (
            "Only `fit` checks a model, with check=True; this one was fitted without, or further by `partial_fit`. "
            "Call `misfit_check`."
        )
    with_one = HorizonLSTD(HORIZON, lmbda=1.0).fit(**data)
    assert with_one.bias_check_.startswith("`lmbda` must be below 1 for a check of bias")
    few = {name: values[: np.flatnonzero(np.diff(data["episode"]))[8] + 1] for name, values in data.items()}
    assert HorizonLSTD(HORIZON).fit(**few).misfit_check_.startswith("A check of misfit needs at least 10 episodes")
    with pytest.raises(InvalidInputError, match="`check` must be"):
        HorizonLSTD(HORIZON, check="yes").fit(**data)


def test_a_fit_to_chunks_checks_the_first(tmp_path):
    pytest.importorskip("pyarrow")
    data = log(300, 1, square)
    frame = {"a": data["X"][:, 0], "b": data["X"][:, 1], "r": data["y"], "w": data["weight"]}
    frame |= {"who": data["episode"], "end": data["terminated"].astype(int)}
    table = pytest.importorskip("pandas").DataFrame(frame)
    model = lstd.fit_tables(
        table, features=["a", "b"], reward="r", episode="who", terminated="end", weight="w", gamma=1.0, horizon=HORIZON
    )
    expected = HorizonLSTD(HORIZON).fit(**data)
    assert_close(model.misfit_check_.p_value, expected.misfit_check_.p_value, "sums")
    assert_close(model.model_.held_out.score, expected.model_.held_out.score, "sums")


def test_what_is_checked_is_the_same_each_time_and_from_all_over():
    data = log(1500, 2, lambda x, age: 3.0 * (np.arange(len(x)) > len(x) / 2) * x[:, 0] ** 2)
    data["X"] = np.hstack([data["X"], np.random.default_rng(3).normal(size=(len(data["X"]), 6))])
    with pytest.warns(MisfitWarning, match=rf"Checked on \d+ of {len(data['X'])} rows, from all over the data\.$"):
        first, again = (HorizonLSTD(HORIZON).fit(**data) for _ in range(2))
    assert vars(first.misfit_check_) == vars(again.misfit_check_)
    assert vars(first.model_.held_out) == vars(again.model_.held_out)


def test_bias_of_few_coarse_features_is_found():
    """A random walk over seven states from the middle to one end, of which two features see the halves."""
    random = np.random.default_rng(0)
    states, y, episode, terminated = [], [], [], []
    for e in range(400):
        s = 3
        while 0 <= s < 7:
            states.append(s)
            s += random.choice([-1, 1])
            y.append(float(s == 7))
            terminated.append(not 0 <= s < 7)
            episode.append(e)
    data = {"X": np.eye(2)[(np.array(states) >= 3).astype(int)], "y": y, "episode": episode, "terminated": terminated}
    with pytest.warns(BiasWarning, match="Predictions with `lmbda` 0 differ"):
        coarse = HorizonLSTD(20, lmbda=0.0).fit(**data)
    assert coarse.bias_check_.biased is True
    assert coarse.bias_check(**data).p_value < 1e-3
    fine = HorizonLSTD(20, lmbda=0.0).fit(**data | {"X": np.eye(7)[states]})
    assert fine.bias_check_.biased is False
    gram = np.column_stack([data["X"], np.ones(len(y))])
    gram = gram.T @ gram / len(y)
    of_one, of_lmbda = (HorizonLSTD(20, lmbda=lmbda, alpha=1e-9).fit(**data) for lmbda in (1.0, 0.0))
    d = np.append(of_one.coef_[-1] - of_lmbda.coef_[-1], of_one.intercept_[-1] - of_lmbda.intercept_[-1])
    assert coarse.bias_check_.difference == pytest.approx(np.sqrt(d @ gram @ d), rel=1e-3)


@pytest.mark.parametrize("kind", ["linear", "age"])
def test_checks_are_quiet_where_the_features_suffice(kind):
    """Of forty logs, one in a hundred may be blamed by chance."""
    n_found = 0
    for seed in range(40):
        data = log(80, seed)
        X, episode = data["X"], data["episode"]
        age = np.arange(len(X)) - np.searchsorted(episode, episode)
        if kind == "age":
            effect = np.exp(-age / np.array([[1.0], [4.0]]))
            data |= {"X": np.column_stack([X, effect.T]), "y": data["y"] + 2.0 * effect[0]}
        n_found += HorizonLSTD(HORIZON).fit(**data).misfit_check_.p_value < 0.01
    assert n_found <= 3


def test_the_summary_says_what_was_found(tmp_path):
    data = log(80, 1, square)
    model = HorizonLSTD(HORIZON).fit(**data)
    summary = model.summary()
    text = str(summary)
    assert summary.score == model.model_.held_out.score
    for line in (
        "horizon           4 steps",
        f"rows              {len(data['X'])}",
        "held-out R²       ",
        "misfit            ",
    ):
        assert line in text
    assert summary.names == ("x0", "x1", "(intercept)")
    assert_close(summary.coefficients[:, 0], np.append(model.coef_[-1], model.intercept_[-1]), "sums")
    error = np.append(*np.split(summary.interval.standard_error[:, 0], [2]))
    assert_close(
        error[:1], model.predict_interval([[1.0, 0.0], [0.0, 0.0]], weights=[1.0, -1.0]).standard_error, "solve"
    )
    assert "<table>" in summary._repr_html_()
    model.save(tmp_path / "model")
    assert str(lstd.load(tmp_path / "model").summary()) == text
    assert "unknown; fit with check=True" in str(HorizonLSTD(HORIZON, check=False).fit(**data).summary())
    positive = {**data, "y": np.exp(data["y"])}
    assert "low=0" in str(HorizonLSTD(HORIZON).fit(**positive).summary())
    assert "low=0" not in str(HorizonLSTD(HORIZON, low=0.0).fit(**positive).summary())
    assert "low=0" not in text
