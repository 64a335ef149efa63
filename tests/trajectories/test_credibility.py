"""How many steps the mean counts as in rates: by its definition, and where it should differ from the window."""

import pickle

import numpy as np
import pytest

import naive
from lstd import Trajectories
from lstd.errors import InvalidInputError
from tolerances import assert_close

pd = pytest.importorskip("pandas")

N_STEPS = 24
WINDOW = 4
NAMES = {"episode": "who", "time": "at", "step": 1.0, "until": float(N_STEPS), "window": WINDOW}


def counts(levels, seed=0):
    """Events of ids with a number per step that is Poisson of their level, and amounts that are one or two."""
    random = np.random.default_rng(seed)
    n_events = random.poisson(np.asarray(levels)[:, np.newaxis], (len(levels), N_STEPS))
    n_events[:, 0] = np.maximum(n_events[:, 0], 1)  # everybody begins in the first step
    who, step = np.nonzero(n_events)
    who = np.repeat(who, n_events[n_events > 0])
    at = np.repeat(step, n_events[n_events > 0]) + random.random(len(who))
    return pd.DataFrame({"who": who, "at": at, "spend": random.integers(1, 3, len(who)).astype(float)})


def read(log, **arguments):
    return Trajectories.from_events(log, **(NAMES | arguments))


def differing():
    """Events of ids that differ far more than each of them varies."""
    return counts(np.geomspace(0.5, 60.0, 30))


def expected(log):
    """Rows of the definition, of the events of a log with one amount; the mean is that of half-way."""
    events = [(who, time, [amount], False) for who, time, amount in log.itertuples(index=False)]
    return np.array(naive.rates_of_events(events, [float(k) for k in range(N_STEPS + 1)], WINDOW, N_STEPS // 2 + 1))


def test_what_the_mean_counts_as_is_that_of_the_definition():
    alike = counts([0.3] * 30)
    data = read(alike, amount="spend")
    assert data.mean_steps == {"rate": 4.0, "rate_spend": 4.0}
    assert_close(data.X, expected(alike), "sums")
    quarter = counts(np.linspace(0.5, 9.0, 20), seed=3)
    data = read(quarter, amount="spend")
    assert data.mean_steps == {"rate": 1.0, "rate_spend": 1.0}
    assert_close(data.X, expected(quarter), "sums")
    sixteenth = counts([3.0] * 20)
    sixteenth["spend"] *= np.exp(sixteenth["who"] / 4.0)
    data = read(sixteenth, amount="spend")
    assert data.mean_steps == {"rate": 4.0, "rate_spend": 0.25}
    assert_close(data.X, expected(sixteenth), "sums")


@pytest.mark.parametrize("seed", range(12))
def test_features_are_those_of_the_definition_for_any_levels(seed):
    random = np.random.default_rng(seed)
    log = counts(random.gamma(0.5, 2.0, 12), seed)
    assert_close(read(log, amount="spend").X, expected(log), "sums")


def test_one_id_of_many_does_not_decide():
    log = counts([0.3] * 300, seed=1)
    log.loc[log["who"] == 0, "spend"] *= 40.0  # the sum of squares alone would be smaller with another number
    data = read(log, amount="spend")
    assert data.mean_steps == {"rate": 4.0, "rate_spend": 4.0}


def test_rates_of_all_events_have_names_of_their_own():
    data = read(differing(), amount="spend", first="counted")
    assert data.mean_steps == {"all_rate": 0.25, "all_rate_spend": 0.25}


def test_what_comes_after_the_moment_of_the_mean_changes_nothing():
    log = differing()
    changed = log[(log["at"] < 12.0) | (log["who"] % 2 == 0)]
    kept = read(log).mean_steps
    assert read(changed, mean_at=12.0).mean_steps == kept
    assert read(log, mean_at=12.0).mean_steps == kept
    shuffled = log.sample(frac=1.0, random_state=0)
    assert read(shuffled).mean_steps == kept


@pytest.mark.parametrize(
    "log",
    [
        counts([2.0]),  # one id
        pd.DataFrame({"who": range(9), "at": [0.5] * 9, "spend": 1.0}),  # one event each
        counts([2.0] * 9).assign(spend=0.0),
        counts([2.0] * 9).assign(spend=-1.0),
        pd.DataFrame(
            {"who": [0, 1] * 24, "at": np.arange(48) / 2, "spend": [1.0, 1.0, -1.0, -1.0] * 12}
        ),  # sums of zero
    ],
)
def test_logs_that_cannot_say_keep_the_window(log):
    data = read(log, amount="spend")
    assert data.mean_steps == {"rate": 4.0, "rate_spend": 4.0}
    assert np.isfinite(data.X).all()


@pytest.mark.filterwarnings("ignore::lstd.errors.PanelWarning")
def test_ids_that_are_all_alike_say_the_same():
    log = pd.DataFrame({"who": np.repeat(range(9), 24), "at": np.tile(np.arange(24.0), 9), "spend": 2.0})
    assert read(log, amount="spend").mean_steps == {"rate": 4.0, "rate_spend": 4.0}


def test_what_is_lost_counts_as_what_is_gained():
    gained = read(differing().assign(spend=1.0), amount="spend").mean_steps
    lost = read(differing().assign(spend=-1.0), amount="spend").mean_steps
    assert gained == lost == {"rate": 0.25, "rate_spend": 0.25}


def test_mean_steps_stay_with_the_rows():
    data = read(differing())
    assert data.mean_steps == {"rate": 0.25}
    assert pickle.loads(pickle.dumps(data)).mean_steps == data.mean_steps
    assert data[:5].mean_steps == data.mean_steps
    assert data.with_history(1).mean_steps == data.mean_steps
    other = read(counts([0.3] * 30))
    assert Trajectories.concat([data, data], renumber=True).mean_steps == data.mean_steps
    assert Trajectories.concat([data, other], renumber=True).mean_steps is None
    assert read(counts([2.0] * 3), window=None).mean_steps is None
    with pytest.raises(TypeError):
        data.mean_steps["rate"] = 1.0


@pytest.mark.parametrize("steps", [3.0, {"other": 1.0}, {"rate": 0.0}, {"rate": "many"}])
def test_mean_steps_must_be_of_features(steps):
    with pytest.raises(InvalidInputError, match="`mean_steps` must be"):
        Trajectories([[1.0]], [1.0], terminated=[True], feature_names=["rate"], mean_steps=steps)
