"""`Trajectories.from_gymnasium` against loops written by hand, on the same seeds."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lstd import Trajectories
from lstd.errors import InvalidInputError

gym = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper  # noqa: E402

MODES = list(AutoresetMode)
NAN = float("nan")


class Script(gym.Env):
    """Plays fixed episodes again and again; an episode is a list of (observation, reward, terminated, truncated).

    The first entry is what reset gives. With `reuse`, one buffer holds every observation, as some environments do it.
    """

    def __init__(self, episodes, space=None, reuse=False):
        self._reuse = reuse
        self.observation_space = space or spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(2)
        self._episodes = episodes
        self._played = -1
        self._buffer = np.zeros(1)
        self.actions = []

    def _seen(self, observation):
        if not isinstance(observation, float):
            return observation
        self._buffer[0] = observation
        return self._buffer if self._reuse else self._buffer.copy()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._played += 1
        self._now = list(self._episodes[self._played % len(self._episodes)])
        return self._seen(self._now.pop(0)[0]), {}

    def step(self, action):
        self.actions.append(action)
        observation, reward, terminated, truncated = self._now.pop(0)
        return self._seen(observation), reward, terminated, truncated, {}


def episode(*observations, terminated=False, truncated=False, reward=1.0):
    """Rewards are `reward` times the observation that is left."""
    steps = [(observations[0],)]
    for i in range(1, len(observations)):
        end = i == len(observations) - 1
        steps.append((observations[i], reward * observations[i - 1], terminated and end, truncated and end))
    return steps


def by_hand(env, policy, seed, n_episodes, phi=lambda x: np.asarray(x, dtype=np.float64)):
    """Rows of whole episodes of one environment: (features, reward, episode, terminated)."""
    rows = []
    for number in range(n_episodes):
        observation, _ = env.reset(seed=seed if number == 0 else None)
        terminated = truncated = False
        while not (terminated or truncated):
            before = phi(observation).copy()
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            rows.append((before, reward, number, terminated))
        if not terminated:
            rows.append((phi(observation).copy(), NAN, number, False))
    return rows


def check(data, rows):
    assert_array_equal(data.X, [row[0] for row in rows])
    assert_array_equal(data.y, [row[1] for row in rows])
    assert_array_equal(data.episode, [row[2] for row in rows])
    assert_array_equal(data.terminated, [row[3] for row in rows])


def one_hot(n):
    return lambda state: np.eye(n)[state]


def toward_left(observation):
    return int(observation[0] > 0.0)


def toward_left_each(observations):
    return np.array([toward_left(observation) for observation in observations])


def cartpole(limit=9):
    return lambda: gym.make("CartPole-v1", max_episode_steps=limit)


# One environment


def test_frozen_lake():
    env = gym.make("FrozenLake-v1", max_episode_steps=15)
    data = Trajectories.from_gymnasium(env, lambda state: env.action_space.sample(), n_episodes=20, seed=3)
    env.action_space.seed(3)
    rows = by_hand(env, lambda state: env.action_space.sample(), 3, 20, one_hot(16))
    check(data, rows)
    assert 0 < data.terminated.sum() < 20  # both kinds of end are met
    again = Trajectories.from_gymnasium(env, lambda state: env.action_space.sample(), n_episodes=20, seed=3)
    assert_array_equal(again.X, data.X)


def test_both_flags_mean_terminated():
    env = gym.wrappers.TimeLimit(Script([episode(1.0, 2.0, 3.0, terminated=True)]), 2)
    data = Trajectories.from_gymnasium(env, lambda x: 0, n_episodes=2)
    assert_array_equal(data.X[:, 0], [1, 2, 1, 2])
    assert data.terminated.tolist() == [False, True, False, True]
    assert not data.horizon.any()


@pytest.mark.parametrize("reuse", [False, True])
def test_time_limit_gives_a_horizon_row(reuse):
    env = gym.wrappers.TimeLimit(Script([episode(1.0, 2.0, 3.0, 4.0, terminated=True)], reuse=reuse), 2)
    data = Trajectories.from_gymnasium(env, lambda x: 0, n_episodes=1)
    assert_array_equal(data.X[:, 0], [1, 2, 3])
    assert_array_equal(data.y, [1, 2, NAN])


def test_steps_cut_the_last_episode():
    env = Script([episode(1.0, 2.0, 3.0, terminated=True)])
    data = Trajectories.from_gymnasium(env, lambda x: 0, n_steps=5)
    assert_array_equal(data.X[:, 0], [1, 2, 1, 2, 1, 2])
    assert_array_equal(data.y, [1, 2, 1, 2, 1, NAN])
    assert data.horizon.tolist() == [False] * 5 + [True]
    assert data.episode.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(env.actions) == 5


def test_composite_observations():
    space = spaces.Dict({"where": spaces.Box(-9, 9, (2,), np.float64), "which": spaces.Discrete(3, start=1)})
    seen = [{"where": np.array([1.5, 2.5]), "which": 2}, {"where": np.array([3.5, 4.5]), "which": 3}]
    env = Script([[(seen[0],), (seen[1], 1.0, False, True)]], space)
    data = Trajectories.from_gymnasium(env, lambda x: 0, n_episodes=1)
    assert_array_equal(data.X, [[1.5, 2.5, 0, 1, 0], [3.5, 4.5, 0, 0, 1]])


# Vector environments


def rows_of_all(functions, policy, seed, shares, phi=lambda x: np.asarray(x, dtype=np.float64)):
    """Rows of the sub-environments, run one by one; sub-environment i has seed + i."""
    rows = []
    for i, (make, share) in enumerate(zip(functions, shares, strict=True)):
        first = rows[-1][2] + 1 if rows else 0
        rows += [(x, y, first + e, end) for x, y, e, end in by_hand(make(), policy, seed + i, share, phi)]
    return rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copy", [True, False])
def test_vector_environment_is_its_sub_environments(mode, copy):
    functions = [cartpole()] * 3
    envs = SyncVectorEnv(functions, autoreset_mode=mode, copy=copy)
    data = Trajectories.from_gymnasium(envs, toward_left_each, n_episodes=8, seed=5)
    check(data, rows_of_all(functions, toward_left, 5, [3, 3, 2]))
    assert 0 < data.terminated.sum() < 8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_steps", [1, 2, 5, 24])
def test_steps_are_transitions_whatever_the_mode(mode, n_steps):
    functions = [
        lambda: Script([episode(1.0, 2.0, terminated=True), episode(3.0, 4.0, 5.0, truncated=True)]),
        lambda: Script([episode(10.0, 20.0, 30.0, 40.0, terminated=True, truncated=True)]),
    ]
    envs = SyncVectorEnv(functions, autoreset_mode=mode)
    data = Trajectories.from_gymnasium(envs, lambda x: np.zeros(2, dtype=int), n_steps=n_steps)
    assert data.n_transitions == n_steps
    singles = [
        Trajectories.from_gymnasium(make(), lambda x: 0, n_steps=n_steps // 2 + (i < n_steps % 2))
        for i, make in enumerate(functions)
        if n_steps // 2 + (i < n_steps % 2)
    ]
    expected = Trajectories.concat(singles, renumber=True)
    for name, array in expected.to_arrays().items():
        assert_array_equal(data.to_arrays()[name], array)


@pytest.mark.parametrize("mode", MODES)
def test_vector_environment_with_composite_observations(mode):
    space = spaces.Dict({"a": spaces.Box(-9, 9, (1,), np.float64), "b": spaces.Discrete(2)})
    seen = [{"a": np.array([float(i)]), "b": i % 2} for i in range(4)]
    script = [
        [(seen[0],), (seen[1], 1.0, False, False), (seen[2], 2.0, False, True)],
        [(seen[3],), (seen[0], 3.0, True, False)],
    ]
    envs = SyncVectorEnv([lambda: Script(script, space)] * 2, autoreset_mode=mode)
    data = Trajectories.from_gymnasium(envs, lambda x: np.zeros(2, dtype=int), n_episodes=4)
    assert_array_equal(data.X, [[0, 1, 0], [1, 0, 1], [2, 1, 0], [3, 0, 1]] * 2)
    assert_array_equal(data.y, [1, 2, NAN, 3] * 2)


class ChangeInfo(VectorWrapper):
    def __init__(self, env, change):
        super().__init__(env)
        self._change = change

    def step(self, actions):
        *result, info = self.env.step(actions)
        return (*result, self._change(dict(info)))


def same_step(change):
    functions = [lambda: Script([episode(1.0, 2.0, 3.0, truncated=True)])] * 2
    return ChangeInfo(SyncVectorEnv(functions, autoreset_mode=AutoresetMode.SAME_STEP), change)


def batched(info):
    return info | ({"final_obs": np.stack(info["final_obs"])} if "final_obs" in info else {})


def without_mask(info):
    return {key: value for key, value in info.items() if key != "_final_obs"}


@pytest.mark.parametrize("change", [lambda info: info, batched, without_mask])
def test_final_observations_of_same_step(change):
    data = Trajectories.from_gymnasium(same_step(change), lambda x: np.zeros(2, dtype=int), n_episodes=4)
    assert_array_equal(data.X[:, 0], [1, 2, 3] * 4)


@pytest.mark.parametrize("change", [lambda info: {}, lambda info: info | {"_final_obs": [False, False]}])
def test_a_missing_final_observation_is_refused(change):
    with pytest.raises(
        InvalidInputError, match=r"info\['final_obs'\].* after step 1 of episode 0 of environment 0.*NEXT"
    ):
        Trajectories.from_gymnasium(same_step(change), lambda x: np.zeros(2, dtype=int), n_episodes=4)


def test_a_mode_that_is_not_told_is_refused():
    envs = SyncVectorEnv([cartpole()] * 2)
    del envs.metadata["autoreset_mode"]
    with pytest.raises(InvalidInputError, match=r"autoreset_mode'\].* got None.*AutoresetMode"):
        Trajectories.from_gymnasium(envs, toward_left_each, n_steps=1)
    envs.metadata["autoreset_mode"] = "NextStep"
    assert Trajectories.from_gymnasium(envs, toward_left_each, n_steps=4).n_transitions == 4


# Refusals


class OldEnvironment:
    """The interface of the package gym before 0.26."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, seed=None):
        return np.zeros(1)

    def step(self, action):
        return np.zeros(1), 0.0, False, {}


class Batches(OldEnvironment):
    num_envs = 2


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        (Batches, {}, r"`env` must be a gymnasium.Env .*got Batches"),
        (object, {}, r"`env` must be a Gymnasium environment; got <object"),
        (lambda: Script([[(1.0,), (2.0, NAN, True, False)]]), {}, r"finite reward.*nan after step 0 of episode 0"),
        (lambda: Script([[(1.0,), (NAN, 1.0, False, False)]]), {}, r"finite features; feature 0 is nan after step"),
        (lambda: Script([episode(1.0, 2.0)]), {"features": lambda x: [x]}, r"`features` .* shape \(1, 1\)"),
        (
            lambda: Script([episode(1.0, 2.0)]),
            {"features": lambda x: "wet"},
            r"`features` must give numbers; got 'wet'",
        ),
        (lambda: Script([episode(1.0, 2.0)]), {"features": lambda x: [1.0] * int(x[0])}, r"got 1 first, and 2 after"),
        (lambda: Script([], spaces.Text(5)), {}, r"`features` is needed, because observations of Text"),
        (lambda: Script([episode(1.0, 2.0)]), {"n_steps": None}, r"`n_episodes` or `n_steps` is needed"),
        (lambda: Script([episode(1.0, 2.0)]), {"n_steps": 0}, r"`n_steps` must be at least 1; got 0"),
        (lambda: Script([episode(1.0, 2.0)]), {"seed": -1}, r"`seed` must be at least 0; got -1"),
    ],
)
def test_refusals(env, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Trajectories.from_gymnasium(env(), **({"policy": lambda x: 0, "n_steps": 9} | arguments))


@pytest.mark.parametrize("chance", [None, 0.25])
def test_actions_of_steps_are_kept_with_their_probabilities(chance):
    taken = iter([1, 0, 1, 1, 0])
    env = Script([episode(1.0, 2.0, 3.0, truncated=True), episode(4.0, 5.0, 6.0, 7.0, terminated=True)])

    def policy(observation):
        action = next(taken)
        return action if chance is None else (action, chance)

    data = Trajectories.from_gymnasium(env, policy, n_episodes=2)
    assert data.actions[~data.horizon].tolist() == env.actions == [1, 0, 1, 1, 0]
    assert data.actions.dtype.kind == "i"
    if chance is None:
        assert data.behavior_probability is None
    else:
        assert data.behavior_probability[~data.horizon].tolist() == [chance] * 5


@pytest.mark.parametrize("mode", MODES)
def test_actions_of_vector_environments(mode):
    makers = [lambda: Script([episode(1.0, 2.0, 3.0, 4.0, truncated=True)])] * 2
    env = SyncVectorEnv(makers, autoreset_mode=mode)
    data = Trajectories.from_gymnasium(
        env, lambda x: (np.array([0, 1]), np.array([0.5, 0.25]) + x[:, 0] / 100), n_episodes=4
    )
    rows = ~data.horizon
    assert data.actions[rows].tolist() == [0] * 6 + [1] * 6
    np.testing.assert_allclose(data.behavior_probability[rows], np.repeat([0.5, 0.25], 6) + data.X[rows, 0] / 100)
    with pytest.raises(InvalidInputError, match="one probability per sub-environment, 2"):
        Trajectories.from_gymnasium(env, lambda x: (np.array([0, 1]), 0.5), n_episodes=2)


def test_probabilities_of_some_steps_only_are_refused():
    answers = iter([0, (1, 0.5)])
    env = Script([episode(1.0, 2.0, 3.0, terminated=True)])
    with pytest.raises(
        InvalidInputError, match="`behavior_probability` must be known for all 2 steps or for none; got 1"
    ):
        Trajectories.from_gymnasium(env, lambda x: next(answers), n_episodes=1)


@pytest.mark.parametrize("state", [(np.zeros((1, 1, 4)), np.zeros((1, 1, 4))), {"hidden": 1}, np.zeros((1, 4))])
def test_the_state_of_a_recurrent_policy_is_no_probability(state):
    """`predict` of a recurrent policy returns the action and its state."""
    text = r"`policy` must return the action, or the pair.*got a pair with .*state of a recurrent policy.* alone"
    env = Script([episode(1.0, 2.0, 3.0, terminated=True)])
    with pytest.raises(InvalidInputError, match=text):
        Trajectories.from_gymnasium(env, lambda x: (np.array(1), state), n_episodes=1)
    if not isinstance(state, np.ndarray):
        makers = [lambda: Script([episode(1.0, 2.0, 3.0, truncated=True)])] * 2
        with pytest.raises(InvalidInputError, match=text):
            Trajectories.from_gymnasium(SyncVectorEnv(makers), lambda x: (np.array([0, 1]), state), n_episodes=2)


def test_a_policy_without_a_state_may_return_none_for_it():
    """`predict` of other policies returns the action and None."""
    env = Script([episode(1.0, 2.0, 3.0, terminated=True)])
    data = Trajectories.from_gymnasium(env, lambda x: (np.array(1), None), n_episodes=1)
    assert data.actions.tolist() == [1, 1]
    assert data.behavior_probability is None
