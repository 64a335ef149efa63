"""`Trajectories.from_minari` on datasets made on the spot."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lstd import Trajectories
from lstd.errors import InvalidInputError, MissingTerminationWarning

gym = pytest.importorskip("gymnasium")
minari = pytest.importorskip("minari")
from gymnasium import spaces  # noqa: E402

NAN = float("nan")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def made(number, observations, rewards, *, terminated=False, truncated=False, **changes):
    """An episode as Minari gives it; the flags are those of the last step."""
    flags = np.zeros((2, len(rewards)), dtype=bool)
    if len(rewards):
        flags[:, -1] = terminated, truncated
    fields = {
        "id": number,
        "observations": np.asarray(observations) if isinstance(observations, list) else observations,
        "actions": np.zeros(len(rewards)),
        "rewards": np.asarray(rewards, dtype=float),
        "terminations": flags[0],
        "truncations": flags[1],
        "infos": {},
    }
    return minari.EpisodeData(**(fields | changes))


class Dataset(list):
    """Episodes with their space, which is all that is asked of a dataset."""

    def __init__(self, episodes, space=None):
        super().__init__(episodes)
        self.observation_space = space or spaces.Box(-np.inf, np.inf, (1,), np.float64)


def collected(name, make, policy, n_episodes, data_format):
    pytest.importorskip("jax")  # Minari's collector needs it
    pytest.importorskip({"hdf5": "h5py"}.get(data_format, "pyarrow"))
    env = minari.DataCollector(make(), data_format=data_format)
    for number in range(n_episodes):
        observation, _ = env.reset(seed=7 + number)
        over = False
        while not over:
            observation, _, terminated, truncated, _ = env.step(policy(observation))
            over = terminated or truncated
    dataset = env.create_dataset(
        name,
        algorithm_name="a",
        author="a",
        author_email="a@b.c",
        code_permalink="https://example.org",
        description="d",
    )
    env.close()
    return dataset


@pytest.mark.parametrize("data_format", ["hdf5", "parquet"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore:.*eval_env.*:UserWarning")
def test_a_collected_dataset_is_what_the_environment_gave(data_format):
    make = lambda: gym.make("CartPole-v1", max_episode_steps=9)  # noqa: E731
    policy = lambda observation: int(observation[0] > 0.0)  # noqa: E731
    dataset = collected("cart/pole/test-v0", make, policy, 6, data_format)
    data = Trajectories.from_minari(dataset)
    runs = [Trajectories.from_gymnasium(make(), policy, n_episodes=1, seed=7 + number) for number in range(6)]
    expected = Trajectories.concat(runs, renumber=True)
    for name, array in expected.to_arrays().items():
        assert_array_equal(data.to_arrays()[name], array)
    assert 0 < data.terminated.sum() < 6


def test_rows():
    data = Trajectories.from_minari(
        Dataset(
            [
                made(0, [[1.0], [2.0], [3.0]], [1.0, 2.0], terminated=True),
                made(1, [[4.0], [5.0]], [3.0], truncated=True),
                made(2, [[6.0]], []),
                made(3, [[7.0], [8.0]], [4.0], terminated=True, truncated=True),
            ]
        )
    )
    assert_array_equal(data.X[:, 0], [1, 2, 4, 5, 6, 7])
    assert_array_equal(data.y, [1, 2, 3, NAN, NAN, 4])
    assert data.episode.tolist() == [0, 0, 1, 1, 2, 3]
    assert data.terminated.tolist() == [False, True, False, False, False, True]
    assert (data.n_episodes, data.n_transitions) == (4, 4)


def test_a_terminated_episode_needs_no_final_observation():
    data = Trajectories.from_minari(Dataset([made(0, [[1.0], [2.0]], [1.0, 2.0], terminated=True)]))
    assert_array_equal(data.X[:, 0], [1, 2])


def test_neither_flag_warns():
    with pytest.warns(MissingTerminationWarning, match=r"1 of 2 episodes \(first: episode 1\)") as caught:
        data = Trajectories.from_minari(
            Dataset([made(0, [[1.0], [2.0]], [1.0], truncated=True), made(1, [[3.0], [4.0]], [1.0])])
        )
    assert caught[0].filename == __file__
    assert data.n_transitions == 2


def test_observations_of_other_spaces():
    box = spaces.Box(0, 9, (2, 2), np.float64)
    images = Dataset([made(0, np.arange(8.0).reshape(2, 2, 2), [1.0], truncated=True)], box)
    assert_array_equal(Trajectories.from_minari(images).X, np.arange(8.0).reshape(2, 4))
    states = Dataset([made(0, [3, 5], [1.0], truncated=True)], spaces.Discrete(4, start=2))
    assert_array_equal(Trajectories.from_minari(states).X, [[0, 1, 0, 0], [0, 0, 0, 1]])
    space = spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,), np.float64)])})
    parts = Dataset([made(0, {"a": (np.array([0, 1]), np.array([[3.0], [4.0]]))}, [1.0], truncated=True)], space)
    assert_array_equal(Trajectories.from_minari(parts).X, [[1, 0, 3], [0, 1, 4]])
    data = Trajectories.from_minari(parts, features=lambda x: [x["a"][1][0], x["a"][0]])
    assert_array_equal(data.X, [[3, 0], [4, 1]])


def test_rewards_of_the_caller():
    episodes = [made(0, [[1.0], [2.0], [3.0]], [1.0, 2.0], terminated=True, infos={"cost": np.array([0.0, 5.0, 7.0])})]
    data = Trajectories.from_minari(
        Dataset(episodes), reward=lambda e: np.column_stack([e.rewards, e.infos["cost"][1:]])
    )
    assert_array_equal(data.y, [[1, 5], [2, 7]])


GOOD = {"observations": [[1.0], [2.0], [3.0]], "rewards": [1.0, 2.0], "truncated": True}


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"observations": [[1.0], [2.0]]}, {}, r"Episode 1 must have its final observation.* 2 steps; got 2"),
        ({"observations": [[1.0]] * 4}, {}, r"Episode 1 must have one observation more than its 2 steps; got 4"),
        ({"terminations": np.array([True, False])}, {}, r"`terminations` .* episode 1 has True at step 0 of 2"),
        ({"truncations": np.array([True])}, {}, r"Episode 1 must have 2 `truncations`.* got 1"),
        ({"rewards": [1.0, NAN]}, {}, r"`rewards` must be finite; step 1 of episode 1 has nan"),
        ({"observations": [[1.0], [NAN], [3.0]]}, {}, r"finite features; feature 0 is nan at step 1 of episode 1"),
        ({"observations": [[1.0, 1.0]] * 3}, {}, r"got 1 first, and 2 at step 0 of episode 1"),
        ({}, {"reward": lambda e: [1.0]}, r"`reward` must have one entry per step; episode 0 has 2 steps"),
        ({}, {"reward": lambda e: np.ones((2, 1 + e.id))}, r"episode 0 has \(1,\) per step, episode 1 has \(2,\)"),
        ({}, {"features": lambda x: [x]}, r"`features` must give features of shape \(n,\); .* at step 0 of episode 0"),
    ],
)
def test_refusals(changes, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Trajectories.from_minari(Dataset([made(0, **GOOD), made(1, **(GOOD | changes))]), **arguments)


def test_other_refusals():
    with pytest.raises(InvalidInputError, match=r"`dataset` must be a Minari dataset; got 'a/b-v0'.*load_dataset"):
        Trajectories.from_minari("a/b-v0")
    with pytest.raises(InvalidInputError, match="`features` is needed"):
        Trajectories.from_minari([made(0, **GOOD)])
    with pytest.raises(InvalidInputError, match="at least one episode"):
        Trajectories.from_minari(Dataset([]))
    with pytest.raises(InvalidInputError, match="Episode 0 must have `observations`"):
        Trajectories.from_minari(Dataset([SimpleNamespace(rewards=[])]))
    with pytest.raises(InvalidInputError, match=r"in \[0, 1\].* got 2 at step 1 of episode 0"):
        Trajectories.from_minari(Dataset([made(0, [0, 2], [1.0], truncated=True)], spaces.Discrete(2)))
    space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])
    with pytest.raises(InvalidInputError, match=r"Episode 0 .* every part; got \[1, 2\]"):
        Trajectories.from_minari(Dataset([made(0, (np.zeros(2), np.zeros(1)), [1.0], truncated=True)], space))


def test_actions_are_kept():
    episodes = [made(0, [[1.0], [2.0], [3.0]], [1, 2], truncated=True, actions=np.array([[0.5, 1.0], [2.0, 3.0]]))]
    episodes.append(made(1, [[4.0], [5.0]], [3], terminated=True, actions=np.array([[4.0, 5.0]])))
    data = Trajectories.from_minari(Dataset(episodes))
    assert data.actions[~data.horizon].tolist() == [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]
    parts = {"turn": np.array([1, 2]), "push": np.array([0.5, 0.25])}
    data = Trajectories.from_minari(Dataset([made(0, [[1.0], [2.0], [3.0]], [1, 2], truncated=True, actions=parts)]))
    assert data.actions.tolist() == [{"turn": 1, "push": 0.5}, {"turn": 2, "push": 0.25}, None]


def test_probabilities_of_actions_come_from_a_function_of_episodes():
    episodes = [
        made(0, [[0.0], [0.5], [0.9]], [1.0, 1.0], truncated=True, infos={"p": np.array([0.1, 0.5, 0.25])}),
        made(1, [[0.0], [0.5]], [1.0], terminated=True, infos={"p": np.array([0.0, 1.0])}),
    ]
    data = Trajectories.from_minari(Dataset(episodes), behavior_probability=lambda episode: episode.infos["p"][1:])
    assert_array_equal(data.behavior_probability[~data.horizon], [0.5, 0.25, 1.0])
    with pytest.raises(InvalidInputError, match=r"one entry per step; episode 0 has 2 steps and shape \(3,\)"):
        Trajectories.from_minari(Dataset(episodes), behavior_probability=lambda episode: episode.infos["p"])
    with pytest.raises(InvalidInputError, match=r"`behavior_probability` must be above 0 and finite.*; row 3 has 0"):
        Trajectories.from_minari(Dataset(episodes), behavior_probability=lambda episode: episode.infos["p"][:-1])
    with pytest.raises(InvalidInputError, match="`behavior_probability` must be a function of one episode"):
        Trajectories.from_minari(Dataset(episodes), behavior_probability="p")
