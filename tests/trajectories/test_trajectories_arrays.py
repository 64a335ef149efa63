"""`Trajectories.from_arrays` against `from_minari` and `from_gymnasium` of the same episodes, row for row."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lstd import LSTD, HorizonLSTD, Trajectories
from lstd.errors import (
    InvalidInputError,
    LSTDWarning,
    MissingTerminationWarning,
    TerminationWarning,
    UnusedRewardWarning,
)
from tolerances import assert_close

NAN = float("nan")


def episodes_of(seed, n_episodes=12, *, sizes=(1, 9), ends=("terminated", "truncated")):
    """Random episodes as Minari has them; the last one is truncated, as an array that just stops."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(n_episodes):
        n_steps = int(random.integers(*sizes))
        end = "truncated" if number == n_episodes - 1 else random.choice(ends)
        flags = {name: np.zeros(n_steps, bool) for name in ("terminated", "truncated")}
        flags[end][-1] = True
        made.append(
            SimpleNamespace(
                observations=random.normal(size=(n_steps + 1, 2)),
                rewards=random.normal(size=n_steps),
                actions=random.integers(3, size=n_steps),
                terminations=flags["terminated"],
                truncations=flags["truncated"],
                probability=random.uniform(0.1, 1.0, size=n_steps),
            )
        )
    return made


def read_by_minari(episodes):
    return Trajectories.from_minari(
        episodes, features=lambda x: x, behavior_probability=lambda episode: episode.probability
    )


def joined(episodes):
    """The episodes one after another, as a replay buffer holds them."""
    return {
        "observations": np.concatenate([one.observations[:-1] for one in episodes]),
        "next_observations": np.concatenate([one.observations[1:] for one in episodes]),
        "rewards": np.concatenate([one.rewards for one in episodes]),
        "actions": np.concatenate([one.actions for one in episodes]),
        "behavior_probability": np.concatenate([one.probability for one in episodes]),
        "terminals": np.concatenate([one.terminations for one in episodes]),
        "timeouts": np.concatenate([one.truncations for one in episodes]),
    }


def check_equal(data, expected):
    for name in ("X", "y", "episode", "terminated", "horizon", "actions", "behavior_probability"):
        assert_array_equal(getattr(data, name), getattr(expected, name), name)


def without_last_steps(episodes):
    """What is left of episodes whose final observations are unknown: those truncated stop a step earlier."""
    return [
        one
        if one.terminations.any()
        else SimpleNamespace(
            **{name: values[:-1] for name, values in vars(one).items() if name != "truncations"},
            truncations=np.arange(len(one.rewards) - 1) == len(one.rewards) - 2,
        )
        for one in episodes
    ]


@pytest.fixture(params=range(5))
def episodes(request):
    return episodes_of(request.param)


@pytest.fixture
def arrays(episodes):
    return joined(episodes)


# ---------------------------------------------------------------- rows of the table


@pytest.mark.filterwarnings("error")
def test_flags_and_successors(arrays, episodes):
    check_equal(Trajectories.from_arrays(**arrays), read_by_minari(episodes))


def test_a_last_row_that_is_neither_is_read_as_a_timeout(arrays, episodes):
    arrays["timeouts"][-1] = False
    check_equal(Trajectories.from_arrays(**arrays), read_by_minari(episodes))
    del arrays["next_observations"]
    with pytest.warns(UnusedRewardWarning):
        data = Trajectories.from_arrays(**arrays)
    check_equal(data, read_by_minari(without_last_steps(episodes)))


def test_flags_alone_as_in_d4rl(arrays, episodes):
    del arrays["next_observations"]
    n_cut = sum(one.truncations.any() for one in episodes)
    with pytest.warns(UnusedRewardWarning, match=rf"The rewards of {n_cut} rows are not used.*`next_observations`"):
        data = Trajectories.from_arrays(**arrays)
    check_equal(data, read_by_minari(without_last_steps(episodes)))


def test_breaks_show_the_cuts(arrays, episodes):
    del arrays["timeouts"]
    check_equal(Trajectories.from_arrays(**arrays), read_by_minari(episodes))


def test_no_timeouts_at_all():
    episodes = episodes_of(1, ends=("terminated",))
    episodes[-1].terminations[-1] = True
    arrays = joined(episodes)
    for given in ({}, {"next_observations": None}):
        data = Trajectories.from_arrays(**arrays | {"timeouts": False} | given)
        check_equal(data, read_by_minari(episodes))
    arrays["dones"] = arrays.pop("terminals")
    check_equal(Trajectories.from_arrays(**arrays | {"timeouts": False}), read_by_minari(episodes))


@pytest.mark.filterwarnings("error")
def test_an_endless_stream():
    random = np.random.default_rng(0)
    observations = random.normal(size=(6, 2))
    data = Trajectories.from_arrays(observations[:-1], random.normal(size=5), terminals=False,
                                    next_observations=observations[1:])  # fmt: skip
    assert_array_equal(data.X, observations)
    assert data.horizon.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("scale", [0.0, 1.0])
@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_pairs_of_neighbouring_rows(arrays, scale):
    """As `qlearning_dataset` of D4RL makes them: o_{t+1} after terminal states too, and without rows of timeouts."""
    arrays["rewards"] *= scale
    del arrays["next_observations"]
    expected = Trajectories.from_arrays(**arrays)
    kept = np.flatnonzero(~arrays["timeouts"])
    pairs = {name: values[kept] for name, values in arrays.items() if name != "timeouts"}
    pairs["next_observations"] = arrays["observations"][kept + 1]
    data = Trajectories.from_arrays(**pairs)
    steps = np.isin(expected.episode, expected.episode[~expected.horizon])  # without episodes of a single horizon row
    assert_array_equal(data.X, expected.X[steps])
    assert_array_equal(data.y, expected.y[steps])
    assert_array_equal(data.terminated, expected.terminated[steps])


@pytest.mark.parametrize("successors", [True, False])
@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_dones_and_timeouts(arrays, episodes, successors):
    expected = read_by_minari(episodes if successors else without_last_steps(episodes))
    if not successors:
        del arrays["next_observations"]
    arrays["dones"] = arrays.pop("terminals") | arrays["timeouts"]
    check_equal(Trajectories.from_arrays(**arrays), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool])
def test_columns_and_types_of_flags(arrays, episodes, dtype):
    for name in ("rewards", "terminals", "timeouts", "actions", "behavior_probability"):
        column = arrays[name][:, np.newaxis]
        arrays[name] = column.astype(dtype) if arrays[name].dtype == bool else column
    check_equal(Trajectories.from_arrays(**arrays), read_by_minari(episodes))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_environments_side_by_side(n_envs):
    """An array (time, env, …) is what each environment gave, one after another."""
    columns = []
    for env in range(n_envs):
        episodes = episodes_of(10 + env, 40)
        columns.append({name: values[:50] for name, values in joined(episodes).items()})
    stacked = {name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}
    data = Trajectories.from_arrays(**stacked)
    expected = Trajectories.concat([Trajectories.from_arrays(**column) for column in columns], renumber=True)
    check_equal(data, expected)
    for name in ("observations", "next_observations"):
        stacked[name] = stacked[name].reshape(50, n_envs, 2, 1)
    check_equal(Trajectories.from_arrays(**stacked), expected)


def test_several_rewards():
    arrays = joined(episodes_of(3))
    both = np.column_stack([arrays["rewards"], -arrays["rewards"]])
    data = Trajectories.from_arrays(**arrays | {"rewards": both})
    one = Trajectories.from_arrays(**arrays)
    assert_array_equal(data.y, np.column_stack([one.y, -one.y]))
    width = {name: values[:, np.newaxis] for name, values in arrays.items()}
    data = Trajectories.from_arrays(**width | {"rewards": both[:, np.newaxis]})
    assert_array_equal(data.y, np.column_stack([one.y, -one.y]))


def moved(values, first):
    """An array of departures as one of arrivals."""
    return np.concatenate([[first], values[:-1]])


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_flags_on_arrival(arrays):
    """As in CleanRL's PPO: `dones` of row t say whether row t begins an episode."""
    del arrays["next_observations"]
    expected = Trajectories.from_arrays(**arrays)
    late = {name: moved(arrays[name], True) for name in ("terminals", "timeouts")}
    check_equal(Trajectories.from_arrays(**arrays | late, done_on="arrival"), expected)
    late["rewards"] = moved(arrays["rewards"], NAN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        data = Trajectories.from_arrays(**arrays | late, reward_on="arrival")
    check_equal(data, expected)
    check_equal(Trajectories.from_arrays(**arrays | late, done_on="arrival", reward_on="arrival"), expected)


@pytest.mark.parametrize("reward_on", ["departure", "arrival"])
@pytest.mark.filterwarnings("error")
def test_rows_of_resets_hold_the_final_observation(episodes, reward_on):
    """Each episode with its final observation, whose row has no reward: nothing is lost."""
    expected = read_by_minari(episodes)
    last = np.concatenate([np.arange(len(one.observations)) == len(one.rewards) for one in episodes])

    def with_resets(name, missing):
        return np.concatenate([[*getattr(one, name), missing] for one in episodes])

    arrays = {
        "observations": np.concatenate([one.observations for one in episodes]),
        "rewards": with_resets("rewards", NAN),
        "terminals": with_resets("terminations", False) == 1,
        "timeouts": with_resets("truncations", False) == 1,
        "actions": with_resets("actions", 0),
        "behavior_probability": with_resets("probability", 1.0),
    }
    if reward_on == "arrival":
        for name in ("rewards", "terminals", "timeouts"):
            arrays[name] = moved(arrays[name], NAN if name == "rewards" else False)
    check_equal(Trajectories.from_arrays(**arrays, reward_on=reward_on), expected)
    resets = moved(last, True) if reward_on == "arrival" else last
    arrays["rewards"][resets] = 0.0
    with pytest.raises(InvalidInputError, match=r"`rewards` are 0 in the row after each of \d+ ends .*to NaN"):
        Trajectories.from_arrays(**arrays, reward_on=reward_on)


@pytest.mark.parametrize("zero", [0.0, NAN])
def test_steps_of_resets_are_left_out(episodes, zero):
    """Gymnasium's autoreset mode NextStep: after an end comes a step from the final observation to the next episode."""
    arrays = joined(episodes)
    ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"])[:-1]
    resets = {
        "observations": arrays["next_observations"][ends],
        "next_observations": arrays["observations"][ends + 1],
        "rewards": zero,
        "actions": 1,
        "behavior_probability": 0.5,
        "terminals": False,
        "timeouts": False,
    }
    given = {name: np.insert(values, ends + 1, resets[name], axis=0) for name, values in arrays.items()}
    check_equal(Trajectories.from_arrays(**given), read_by_minari(episodes))
    given["rewards"] = np.nan_to_num(given["rewards"])
    del given["timeouts"]
    with pytest.warns(MissingTerminationWarning, match="`timeouts` is needed: rows of a reset"):
        Trajectories.from_arrays(**given)


def test_the_successor_of_an_end_may_be_the_next_observation_by_chance():
    data = Trajectories.from_arrays([[1.0], [0.0], [1.0]], [1.0, 0.0, 2.0], next_observations=[[0.0], [1.0], [0.0]],
                                    terminals=[0, 1, 0], timeouts=[0, 0, 1])  # fmt: skip
    assert data.X[:, 0].tolist() == [1, 0, 1, 0]
    assert data.y.tolist()[:3] == [1, 0, 2]


@pytest.mark.parametrize("lmbda", [0.0, 0.7, 1.0])
@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_shuffled_transitions(lmbda):
    arrays = joined(episodes_of(4, 40))
    del arrays["timeouts"]
    order = np.random.default_rng(0).permutation(len(arrays["rewards"]))
    shuffled = {name: values[order] for name, values in arrays.items()}
    data = Trajectories.from_arrays(**shuffled)
    assert data.n_episodes >= len(order) - 2  # transitions that follow one another by chance are joined
    assert data.n_transitions == len(order)
    model = LSTD(0.9, lmbda, 0.1).fit(**data.to_arrays())
    each = LSTD(0.9, lmbda, 0.1).fit(
        shuffled["observations"],
        shuffled["rewards"],
        X_next=shuffled["next_observations"],
        terminated=shuffled["terminals"],
        episode=np.arange(len(order)),
    )
    assert_close(model.coef_, each.coef_, "solve")
    steps = HorizonLSTD(3, gamma=0.9, lmbda=lmbda, alpha=0.1).fit(**data.to_arrays())
    assert np.isfinite(steps.predict(data.X)).all()


def test_observations_of_dicts_and_features():
    arrays = joined(episodes_of(5))
    trees = {name: {"a": arrays[name][:, :1], "b": (arrays[name][:, 1],)}
             for name in ("observations", "next_observations")}  # fmt: skip
    features = lambda x: [x["a"][0], x["b"][0], 1.0]  # noqa: E731
    data = Trajectories.from_arrays(**arrays | trees, features=features)
    expected = Trajectories.from_arrays(**arrays)
    assert_array_equal(data.X, np.column_stack([expected.X, np.ones(len(expected))]))
    with pytest.raises(InvalidInputError, match="`features` is needed, because `observations` is a dict"):
        Trajectories.from_arrays(**arrays | trees)


def test_names_of_features():
    data = Trajectories.from_arrays(**joined(episodes_of(5)), feature_names=["angle", "speed"])
    assert data.feature_names == ("angle", "speed")


def test_single_precision_of_one_side_is_no_cut():
    arrays = joined(episodes_of(6))
    arrays["next_observations"] = arrays["next_observations"].astype(np.float32)
    data = Trajectories.from_arrays(**arrays)
    assert data.n_episodes == len(episodes_of(6))


def test_one_environment_after_the_other_is_not_one_stream():
    """The first row of an environment does not follow the last one of the environment before."""
    observations = np.arange(4.0).reshape(2, 2, 1)
    data = Trajectories.from_arrays(observations, np.zeros((2, 2)), terminals=False, timeouts=np.zeros((2, 2)))
    assert data.horizon.tolist() == [False, True, False, True]
    assert data.X[:, 0].tolist() == [0, 2, 1, 3]


# ---------------------------------------------------------------- Gymnasium


@pytest.mark.filterwarnings("ignore::lstd.errors.TerminationWarning")  # the pole mostly falls in the ninth step
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("limit", [9, 30])
def test_a_loop_over_a_vector_environment(mode, limit):
    gym = pytest.importorskip("gymnasium")
    n_envs, n_steps, seed = 3, 60, 7
    make = lambda: gym.make("CartPole-v1", max_episode_steps=limit)  # noqa: E731
    envs = gym.vector.SyncVectorEnv([make] * n_envs, autoreset_mode=gym.vector.AutoresetMode(mode))
    policy = lambda x: int(x[..., 0] > 0.0)  # noqa: E731
    log = {name: [] for name in ("observations", "rewards", "terminals", "timeouts", "next_observations", "actions")}
    observations, _ = envs.reset(seed=seed)
    for _ in range(n_steps):
        actions = np.array([policy(one) for one in observations])
        after, rewards, terminals, timeouts, info = envs.step(actions)
        successors = after.copy()
        if mode == "SameStep":
            for env in np.flatnonzero(terminals | timeouts):
                successors[env] = info["final_obs"][env]
        for name, value in zip(log, (observations, rewards, terminals, timeouts, successors, actions), strict=True):
            log[name].append(np.copy(value))
        observations = after
        if mode == "Disabled" and (terminals | timeouts).any():
            observations, _ = envs.reset(options={"reset_mask": terminals | timeouts})
            observations = observations.copy()
    data = Trajectories.from_arrays(**{name: np.array(values) for name, values in log.items()})
    reset_steps = 0
    if mode == "NextStep":
        ended = np.array(log["terminals"]) | np.array(log["timeouts"])
        reset_steps = ended[:-1].sum(axis=0)
    alone = [
        Trajectories.from_gymnasium(make(), policy, n_steps=int(n), seed=seed + env)
        for env, n in enumerate(np.broadcast_to(n_steps - reset_steps, n_envs))
    ]
    expected = Trajectories.concat(alone, renumber=True)
    for name in ("X", "y", "episode", "terminated", "horizon", "actions"):
        assert_array_equal(getattr(data, name), getattr(expected, name), name)


# ---------------------------------------------------------------- refusals and warnings


SMALL = {
    "observations": np.arange(8.0).reshape(4, 2),
    "rewards": np.arange(1.0, 5.0),
    "terminals": [False, True, False, False],
    "timeouts": [False, False, False, True],
}
AFTER = {"next_observations": SMALL["observations"] + 2.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeouts": None}, r"`timeouts` or `next_observations` is needed with `terminals`.*timeouts=False"),
        ({"terminals": None}, r"`terminals` is needed.*`dones` and `timeouts`; terminals=False"),
        ({"terminals": None, "dones": [0, 1, 0, 1], "timeouts": None}, r"needed with `dones`.*time limit.*=False"),
        ({"terminals": None, "dones": [0, 1, 0, 1], "timeouts": None, **AFTER}, r"`timeouts` is needed with `dones`"),
        ({"dones": [0, 1, 0, 1]}, r"`terminals` and `dones` must not both be given.*dones & ~terminals"),
        ({"terminals": [0, 1, 0, 1]}, r"`terminals` must not be True at a timeout; all 1 .* Pass them as `dones`"),
        ({"terminals": None, "dones": [0, 1, 0, 1], "timeouts": [0] * 4}, r"optimize_memory_usage.*timeouts=False"),
        ({"terminals": [False, True, False]}, r"`terminals` must have one entry per reward, 4; got shape \(3,\)"),
        ({"terminals": True}, r"`terminals` must be one flag per row, or False for none; got True"),
        ({"terminals": [0, 2, 0, 0]}, r"`terminals` must hold True and False; row 1 has 2, which is neither"),
        ({"terminals": [0, NAN, 0, 0]}, r"`terminals` must hold True and False; row 1 has no value"),
        ({"terminals": ["maybe"] * 4}, r"`terminals` must hold True and False; row 0 has 'maybe', which is neither"),
        ({"observations": np.zeros((5, 2))}, r"`observations`.* 4; got shape \(5, 2\).*from_minari"),
        ({"observations": np.zeros((6, 2))}, r"`observations` must have one entry per reward, 4; got shape \(6, 2\)\."),
        ({"observations": [[1.0], [1.0, 2.0], [1.0], [1.0]]}, r"`observations` must be an array"),
        ({"observations": [[NAN, 1.0]] * 4}, r"`observations` must be finite; row 0 has nan"),
        ({"observations": [["a"]] * 4}, r"`observations` must be an array of real numbers"),
        ({"next_observations": np.zeros((4, 3))}, r"`next_observations` must have the shape.*\(4, 2\); got \(4, 3\)"),
        ({"rewards": [1.0, NAN, 1.0, 1.0]}, r"`rewards` must be finite; row 1 has nan"),
        ({"rewards": [1.0, 1.0, np.inf, 1.0]}, r"`rewards` must be finite; row 2 has inf"),
        ({"rewards": []}, r"`rewards` must have at least one row"),
        ({"rewards": np.ones((4, 2, 2))}, r"`rewards` must have one number per row, or a row of m rewards"),
        ({"done_on": "arrival", **AFTER}, r"`done_on` must be 'departure' where `next_observations` is given"),
        ({"reward_on": "arrival", **AFTER}, r"`reward_on` must be 'departure' where `next_observations` is given"),
        ({"done_on": "later"}, r"`done_on` must be one of 'departure', 'arrival'; got 'later'"),
        ({"actions": [0, 1]}, r"`actions` must have one entry per reward, 4; got shape \(2,\)"),
        ({"actions": [0.0, NAN, 1.0, NAN]}, r"`actions` must have an action on every row but horizon rows; row 1"),
        ({"behavior_probability": [0.5] * 4}, r"`behavior_probability` must come with `actions`"),
        ({"actions": [0] * 4, "behavior_probability": [0.5, 0, 1, 1]}, r"`behavior_probability` must be in \(0, 1\]"),
        ({"features": "x"}, r"`features` must be a function of one observation"),
        ({"features": lambda x: [NAN]}, r"finite features; feature 0 is nan in row 0 of `observations`"),
        ({"feature_names": ["a"]}, r"`feature_names` must have one name per feature, 2; got 1"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_refusals(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        Trajectories.from_arrays(**SMALL | changes)


def test_messages_name_the_environment():
    observations = np.zeros((4, 3, 2))
    observations[2, 1, 0] = NAN
    with pytest.raises(InvalidInputError, match="step 2 of environment 1 has nan"):
        Trajectories.from_arrays(observations, np.zeros((4, 3)), terminals=np.zeros((4, 3)), timeouts=False)
    with pytest.raises(InvalidInputError, match=r"per step and environment, shape \(4, 3, …\); got shape \(4, 2\)"):
        Trajectories.from_arrays(np.zeros((4, 2)), np.zeros((4, 3)), terminals=np.zeros((4, 3)), timeouts=False)


def test_successors_made_by_moving_the_observations_are_refused():
    episodes = episodes_of(0)
    arrays = joined(episodes)
    arrays["next_observations"] = np.roll(arrays["observations"], -1, axis=0)
    with pytest.raises(InvalidInputError, match=r"must hold the final observation at a timeout.* Leave"):
        Trajectories.from_arrays(**arrays)
    del arrays["timeouts"]
    with pytest.raises(InvalidInputError, match=r"`timeouts` is needed: after all \d+ terminals"):
        Trajectories.from_arrays(**arrays)


def test_successors_that_were_rounded_are_refused():
    arrays = joined(episodes_of(0, 3, sizes=(20, 30)))
    arrays["next_observations"] = arrays["next_observations"] * (1.0 + 1e-9)
    with pytest.raises(InvalidInputError, match=r"differ by rounding only.*transform the features afterwards"):
        Trajectories.from_arrays(**arrays)


LIMITED = {"observations": np.random.default_rng(0).normal(size=(48, 1)), "rewards": np.ones(48)}


def test_a_limit_taken_for_an_end_is_doubted():
    at_limit = np.arange(48) % 8 == 7
    text = r"6 of the 6 episodes that terminated did so after 8 steps, and none later.*`timeouts`"
    with pytest.warns(TerminationWarning, match=text):
        Trajectories.from_arrays(**LIMITED, terminals=at_limit, timeouts=False)
    with pytest.warns(TerminationWarning, match=text):
        Trajectories.from_arrays(**LIMITED, dones=at_limit, timeouts=False)
    mixed = at_limit | np.isin(np.arange(48), [2, 5])
    with pytest.warns(TerminationWarning, match=r"5 of the 8 episodes that terminated did so after 8 steps"):
        Trajectories.from_arrays(**LIMITED, terminals=mixed, timeouts=False)


@pytest.mark.parametrize("mean", [2, 5, 30])
@pytest.mark.filterwarnings("error")
def test_ends_by_chance_are_not_doubted(mean):
    wrong = 0
    for seed in range(100):
        ends = np.random.default_rng(seed).random(60 * mean) < 1 / mean
        ends[-1] = True
        try:
            Trajectories.from_arrays(np.zeros((len(ends), 1)), np.ones(len(ends)), terminals=ends, timeouts=False)
        except TerminationWarning:
            wrong += 1
    assert wrong <= 5


def test_data_stay_as_they_were():
    arrays = joined(episodes_of(0))
    before = {name: values.copy() for name, values in arrays.items()}
    data = Trajectories.from_arrays(**arrays)
    for name, values in arrays.items():
        assert_array_equal(values, before[name])
        values[:] = 0
    check_equal(data, read_by_minari(episodes_of(0)))


def sparse_walk(n_rows):
    """A walk from 0 with a reward of 1 beyond 2.5 and a limit of 15 steps: successors, and those of a moved array."""
    random = np.random.default_rng(0)
    rows, place, steps = [], 0.0, 0
    for _ in range(n_rows):
        after, steps = place + random.normal(0.15, 0.4), steps + 1
        terminal = after > 2.5
        timeout = not terminal and steps == 15
        start = 0.0 if terminal or timeout else after
        rows.append((place, float(terminal), terminal, timeout, after, start))
        place, steps = start, 0 if terminal or timeout else steps
    observations, rewards, terminals, timeouts, final, moved = map(np.array, zip(*rows, strict=True))
    flags = {"terminals": terminals, "timeouts": timeouts}
    return observations[:, np.newaxis], rewards, flags, final[:, np.newaxis], moved[:, np.newaxis]


def test_first_steps_without_a_reward_are_no_steps_of_a_reset():
    observations, rewards, flags, final, moved = sparse_walk(2000)
    data = Trajectories.from_arrays(observations, rewards, **flags, next_observations=final)
    assert data.n_transitions == 2000
    with pytest.raises(InvalidInputError, match="the first one of the next episode"):
        Trajectories.from_arrays(observations, rewards, **flags, next_observations=moved)


def test_a_state_that_is_start_and_cut_is_no_step_of_a_reset():
    """Of discrete states, some episodes are cut off where the next one starts."""
    states, successors = np.array([0, 1, 0, 1, 2]), np.array([1, 0, 1, 2, 3])
    flags = {"terminals": states == 2, "timeouts": np.arange(5) == 1}
    data = Trajectories.from_arrays(
        np.append(states, states), np.zeros(10), next_observations=np.append(successors, successors),
        **{name: np.append(values, values) for name, values in flags.items()}, features=lambda s: np.eye(4)[s],
    )  # fmt: skip
    assert data.n_transitions == 10


@pytest.mark.parametrize("flags", [{"timeouts": [True]}, {"timeouts": [False]}, {}])
def test_one_row_with_its_successor(flags):
    data = Trajectories.from_arrays([[0.0]], [1.0], terminals=[not flags], next_observations=[[1.0]], **flags)
    assert data.n_transitions == 1


def test_a_list_of_dicts_is_a_dict_of_arrays():
    seen = [{"a": np.full(2, t), "b": t} for t in range(4)]
    arrays = {"a": np.repeat(np.arange(4.0), 2).reshape(4, 2), "b": np.arange(4)}
    after = {name: values + 1 for name, values in arrays.items()}
    given = {"terminals": [0, 0, 0, 1], "timeouts": False, "features": lambda one: one["a"] + one["b"]}
    listed = Trajectories.from_arrays(
        seen, np.ones(4), next_observations=[{"a": one["a"] + 1, "b": one["b"] + 1} for one in seen], **given
    )
    assert np.array_equal(listed.X, Trajectories.from_arrays(arrays, np.ones(4), next_observations=after, **given).X)
    with pytest.raises(InvalidInputError, match="the parts of the first one"):
        Trajectories.from_arrays([*seen[:3], {"a": np.ones(2)}], np.ones(4), **given)


def test_ends_at_a_limit_that_cut_others_off_are_not_doubted():
    random = np.random.default_rng(0)
    lengths = np.minimum(random.geometric(0.1, size=300), 10)
    last = np.cumsum(lengths) - 1
    terminal = (lengths < 10) | (random.random(300) < 0.1)
    flags = {name: np.zeros(lengths.sum(), bool) for name in ("terminals", "timeouts")}
    flags["terminals"][last[terminal]] = True
    flags["timeouts"][last[~terminal]] = True
    X = random.normal(size=(lengths.sum(), 2))
    Trajectories.from_arrays(X, np.ones(len(X)), next_observations=X + 1.0, **flags)  # warns of nothing
