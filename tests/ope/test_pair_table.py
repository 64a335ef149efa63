"""The value by a table of pairs, and when the one call takes it."""

import numpy as np
import pytest
from scipy import sparse

import naive
from logged_actions import PROCESS, DecisionProcess
from lstd.ope import LSTDQ, compare_policies, evaluate_policy
from lstd.ope.logged_rows import logged_data
from lstd.ope.logged_states import LoggedStates
from lstd.ope.pair_table import LoggedPairs, places_of_rows, value_by_table
from tolerances import assert_close

GAMMA = 0.9
TABLE = "table of pairs"
pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # of small logs
    pytest.mark.usefixtures("few_trees"),
]


def simulated(n=60, length=6, seed=1, p_end=0.2, process=PROCESS):
    """Logged rows of the process, and raw columns of their states."""
    data = process.simulate(n, length, seed, p_end=p_end)
    return data, data["X"] @ np.arange(float(process.S))[:, np.newaxis]


def table_of(data, state=None, gamma=GAMMA, **options):
    return value_by_table(LoggedStates.of(logged_data(data, gamma), gamma, state, **options))


def episodes_of(data):
    """Episodes for the definition; after an end, anything."""
    states = data["X"].argmax(axis=1)
    found = []
    for e in np.unique(data["episode"]):
        rows = np.flatnonzero(data["episode"] == e)
        full = rows[~np.isnan(data["y"][rows])]
        terminated = data["terminated"][full]
        after = [*rows, rows[-1]][: len(full) + 1]
        found.append(
            {
                "states": states[after].tolist(),
                "policies": data["target_policy"][after],
                "actions": data["actions"][full].tolist(),
                "rewards": data["y"][full],
                "terminated": terminated,
            }
        )
    return found


@pytest.mark.parametrize("given", ["all", "few actions in a state", "a state at cuts alone", "sparse"])
def test_the_value_is_that_of_the_definition(given):
    data, state = simulated(p_end=0.1)
    if given == "few actions in a state":
        data["actions"][data["X"][:, 2] > 0.0] = 1
        data["target_policy"][data["X"][:, 2] > 0.0] = [0.04, 0.9, 0.06]
    if given == "a state at cuts alone":
        cut = np.isnan(data["y"]) & (data["episode"] % 4 == 0)
        data["X"] = np.column_stack([data["X"], cut]) * np.column_stack([*[~cut] * 4, cut])
        state = data["X"] @ np.arange(5.0)[:, np.newaxis]
        data["target_policy"][cut] = [0.2, 0.3, 0.5]
    episodes = episodes_of(data)
    value, contributions = naive.value_by_table(episodes, [[GAMMA] * len(one["actions"]) for one in episodes])
    if given == "sparse":
        data["X"] = sparse.csr_array(data["X"])
    found = table_of(data, state)
    assert_close(found.value, value, "solve")
    assert_close(found.blocks, contributions, "solve")
    full = ~np.isnan(data["y"])
    assert_close(found.dual @ data["y"][full], value, "solve")
    more = data["y"] + 0.0
    more[np.flatnonzero(full)[7]] += 1.0
    assert_close(table_of(data | {"y": more}, state).value, value + found.dual[7], "solve")


def test_given_successors_are_those_of_the_next_rows():
    data, state = simulated()
    full = ~np.isnan(data["y"])
    after = np.minimum(np.flatnonzero(full) + 1, len(full) - 1)
    ended = data["terminated"][full]
    given = {name: column[full] for name, column in data.items()}
    given |= {"X_next": data["X"][after], "target_policy_next": data["target_policy"][after]}
    state_next = np.where(ended[:, np.newaxis], np.nan, state[after])
    assert_close(table_of(given, state[full], state_next=state_next).value, table_of(data, state).value, "solve")


def test_with_all_pairs_logged_it_is_lstdq_of_pairs():
    data, state = simulated(200)
    found = table_of(data, state)
    model = LSTDQ(GAMMA, 0.0, alpha=1e-9, fit_intercept=False, weighting="none").fit(**data)
    begins = np.diff(data["episode"], prepend=-1) > 0
    values = (model.action_values(data["X"][begins]) * data["target_policy"][begins]).sum(axis=1)
    assert_close(found.value, values.mean(), "iterative")


def test_its_errors_leave_nothing_to_correct():
    data, state = simulated(200)
    log = LoggedStates.of(logged_data(data, GAMMA), GAMMA, state)
    found = value_by_table(log)
    model = LSTDQ(GAMMA, 0.0, alpha=1e-9, fit_intercept=False, weighting="none").fit(**data)
    taken, after, start = log.action_values(model.action_values)
    errors = log.logged.rewards + log.logged.discount * after - taken
    for weight in (1.0, np.array([0.5, 3.0, 0.2, 1.0])[log.at[:, 0].astype(int)]):
        assert_close(log.estimate(weight, errors, start).value, found.value, "iterative")


def chain(n=40, seed=0, steps=60):
    """Rows of moves along five states, where the first action goes forwards, and the last state ends."""
    random = np.random.default_rng(seed)
    columns = []
    for episode in range(n):
        s = 0
        for _ in range(steps):
            action = int(random.integers(2))
            after = max(s - 1, 0) if action else s + 1
            columns.append((episode, s, action, after == 5))
            s = after
            if s == 5:
                break
        else:
            columns.append((episode, s, 0, False))
    episode, s, actions, terminated = (np.array(column) for column in zip(*columns, strict=True))
    cut = np.append(np.diff(episode) > 0, True) & ~terminated
    return {
        "X": np.eye(5)[s],
        "y": np.where(cut, np.nan, -1.0),
        "actions": actions,
        "episode": episode,
        "terminated": terminated,
        "target_policy": np.full((len(s), 2), [0.8, 0.2]),
        "behavior_probability": np.full(len(s), 0.5),
    }


def value_of_chain():
    """The value from the first state."""
    P = np.zeros((5, 5))
    for s in range(5):
        P[s, max(s - 1, 0)] += 0.2
        if s < 4:
            P[s, s + 1] += 0.8
    return np.linalg.solve(np.eye(5) - GAMMA * P, np.full(5, -1.0))[0]


def test_where_moves_are_certain_the_table_is_exact_and_the_interval_is_not_empty():
    data = chain()
    found = evaluate_policy(gamma=GAMMA, **data)
    one = found.candidates[TABLE]
    assert_close(one.value, value_of_chain(), "solve")
    assert_close(found.value, value_of_chain(), "solve")
    assert_close(one.standard_error, 0.0, "solve")
    other = found.candidates["weighted state values"]
    assert found.lower <= other.lower < other.upper <= found.upper
    assert_close(found.lower, min(other.lower, one.value), "solve")


def test_a_table_is_compared_with_another_of_the_same_log():
    data = chain()
    one = evaluate_policy(gamma=GAMMA, **data)
    two = evaluate_policy(gamma=GAMMA, **data | {"target_policy": np.full((len(data["y"]), 2), [0.6, 0.4])})
    compared = compare_policies({"one": one, "two": two})
    assert_close(compared.difference[0, 1], one.value - two.value, "sums")
    assert compared.lower[0, 1] <= one.value - two.value <= compared.upper[0, 1]


def test_it_takes_the_place_of_trees_where_pairs_recur():
    data, state = simulated(400, process=DecisionProcess(seed=6), p_end=0.1)
    found = evaluate_policy(gamma=GAMMA, state=state, **data)
    table, weighted = (found.candidates[name].by_blocks for name in (TABLE, "weighted state values"))
    value, contributions = naive.least_variance_mean([table.value, weighted.value], [table.blocks, weighted.blocks])
    mean = found.candidates["least-variance mean"]
    assert found.method == "least-variance mean"
    assert_close(mean.value, value, "sums")
    assert_close(mean.by_blocks.blocks, contributions, "sums")
    assert_close(found.value, naive.shrunk(value, table.value, contributions - table.blocks), "sums")
    assert_close(found.features.difference[2], table.value - weighted.value, "sums")
    assert found.lower == min(mean.lower, found.candidates["weighted state values"].lower)
    assert found.upper == max(mean.upper, found.candidates["weighted state values"].upper)
    full = ~np.isnan(data["y"])
    assert_close(mean.dual_weights @ data["y"][full], mean.value, "iterative")


@pytest.mark.parametrize("coarse", [False, True])
def test_features_that_are_too_coarse_leave_the_table_alone(coarse):
    data, state = simulated(400, process=DecisionProcess(seed=6), p_end=0.1)
    groups = np.repeat(np.eye(2), 2, axis=0)
    found = evaluate_policy(gamma=GAMMA, state=state, **data | ({"X": data["X"] @ groups} if coarse else {}))
    assert found.method == (TABLE if coarse else "least-variance mean")
    other = found.candidates["doubly robust" if coarse else "weighted state values"]
    assert found.lower == min(other.lower, found.candidates[found.method].lower)
    assert found.upper == max(other.upper, found.candidates[found.method].upper)


@pytest.mark.parametrize(
    "why", ["numbers of their own", "few logs", "features know more", "the policy knows more", "action values given"]
)
def test_where_pairs_do_not_recur_there_is_no_table(why):
    random = np.random.default_rng(0)
    data, state = simulated(5 if why == "few logs" else 60)
    options = {}
    T = len(state)
    if why == "numbers of their own":
        state = state + random.uniform(size=(T, 1))
    if why == "features know more":
        data["X"] = np.column_stack([data["X"], random.integers(2, size=T)])
    if why == "the policy knows more":
        p = random.uniform(0.1, 0.3, size=T)
        data["target_policy"] = np.column_stack([p, 0.4 - p, np.full(T, 0.6)])
    if why == "action values given":
        options = {"q": lambda X: X @ PROCESS.r}
    found = evaluate_policy(gamma=GAMMA, state=state, **data, **options)
    assert TABLE not in found.candidates
    assert found.method in ("doubly robust", "least-variance mean", "weighted state values")


def forks(n=150, n_states=40, seed=0):
    """Single steps from one of many states; the second of two actions costs 10, and is rarely logged."""
    random = np.random.default_rng(seed)
    state = random.integers(n_states, size=n * 3)
    actions = (random.uniform(size=n * 3) < 0.03).astype(int)
    return {
        "X": np.ones((n * 3, 1)),
        "y": np.where(actions == 1, -10.0, 1.0),
        "actions": actions,
        "episode": np.arange(n * 3),
        "terminated": np.ones(n * 3, np.bool_),
        "target_policy": np.full((n * 3, 2), 0.5),
        "behavior_probability": np.where(actions == 1, 0.03, 0.97),
    }, state[:, np.newaxis] * 1.0


def test_actions_that_few_states_logged_leave_no_table():
    data, state = forks()
    log = LoggedStates.of(logged_data(data, GAMMA), GAMMA, state)
    pairs = LoggedPairs.of(log)
    assert pairs.recur
    assert value_by_table(log) is None
    data["actions"] = np.arange(450) % 2
    data |= {"y": np.where(data["actions"] == 1, -10.0, 1.0), "behavior_probability": np.full(450, 0.5)}
    found = table_of(data, state)
    assert abs(found.value + 4.5) < 0.1


def test_a_process_that_never_ends_has_no_table():
    data, state = simulated(100, p_end=0.0)
    assert table_of(data, state, gamma=1.0) is None
    assert table_of(data, state, gamma=0.99) is not None


def test_where_the_state_hides_something_there_is_no_table():
    random = np.random.default_rng(0)
    n = 300
    T = 6
    disease = random.integers(2, size=(n, 1)) * np.ones((1, T), int)
    actions = random.integers(2, size=(n, T))
    y = 2.0 * (actions == disease) + random.normal(size=(n, T))
    found = evaluate_policy(
        np.eye(T)[np.tile(np.arange(T), n)],
        y.ravel(),
        gamma=1.0,
        actions=actions.ravel(),
        behavior_probability=np.full(n * T, 0.5),
        target_policy=np.full((n * T, 2), [0.1, 0.9]),
        episode=np.repeat(np.arange(n), T),
        terminated=np.tile(np.arange(T) == T - 1, n),
    )
    assert found.hidden.hides
    assert TABLE not in found.candidates


def test_equal_rows_are_one_state():
    columns = np.array([[0.0, np.nan], [1.0, 2.0], [-0.0, np.nan], [1.0, 2.0], [1.0, np.nan]])
    assert places_of_rows(columns, 3).tolist() == [0, 1, 0, 1, 2]
    assert places_of_rows(columns, 2) is None
