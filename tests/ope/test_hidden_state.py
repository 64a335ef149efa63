"""The check for a state that hides something, and the value that needs none."""

import numpy as np
import pytest
from scipy import stats

import naive
from logged_actions import PROCESS
from lstd.errors import MisfitWarning
from lstd.ope import compare_policies, evaluate_policy
from lstd.ope.hidden_state import hidden_state_check, predicted_rewards
from lstd.ope.logged_rows import logged_data
from lstd.ope.logged_states import LoggedStates
from tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # of small logs
    pytest.mark.usefixtures("few_trees"),
]
GAMMA = 0.9


def simulated(n=60, length=6, seed=1, p_end=0.2):
    data = PROCESS.simulate(n, length, seed, p_end=p_end)
    return data, data["X"] @ np.arange(4.0)[:, np.newaxis]


def log_of(data, state):
    return LoggedStates.of(logged_data(data, GAMMA), GAMMA, state)


def diseases(n, lasts, seed=0, target=(0.1, 0.9)):
    """Patients with one of two diseases, on which the effect of two treatments depends; it lasts, or changes daily."""
    random, T = np.random.default_rng(seed), 6
    disease = random.integers(2, size=(n, 1 if lasts else T)) * np.ones((1, T), int)
    actions = random.integers(2, size=(n, T))
    y = 2.0 * (actions == disease) + random.normal(size=(n, T))
    return {
        "X": np.eye(T)[np.tile(np.arange(T), n)], "y": y.ravel(), "actions": actions.ravel(),
        "behavior_probability": np.full(n * T, 0.5), "target_policy": np.full((n * T, 2), target),
        "episode": np.repeat(np.arange(n), T), "terminated": np.tile(np.arange(T) == T - 1, n),
    }  # fmt: skip


def cured(n, seed=0, visits=6):
    """Patients with one of two diseases, which the right one of two treatments cures; visits cost until then."""
    random = np.random.default_rng(seed)
    disease = random.integers(2, size=n)
    actions = random.integers(2, size=(n, visits))
    right = actions == disease[:, np.newaxis]
    last = np.where(right.any(axis=1), right.argmax(axis=1), visits - 1)
    there = np.arange(visits) <= last[:, np.newaxis]
    visit = np.tile(np.arange(visits), (n, 1))[there]
    y = np.where(right[there], 10.0, -1.0) + 0.1 * random.normal(size=len(visit))
    return {
        "X": np.eye(visits)[visit], "y": y, "actions": actions[there], "behavior_probability": np.full(len(y), 0.5),
        "target_policy": np.full((len(y), 2), [0.2, 0.8]), "episode": np.repeat(np.arange(n), last + 1),
        "terminated": visit == np.repeat(last, last + 1),
    }  # fmt: skip


def doses(n, seed):
    """Patients whom three doses in a row cure; the record has the dose alone."""
    random = np.random.default_rng(seed)
    rows = []
    for patient in range(n):
        in_a_row = 0
        end = False
        while not end:
            dose = int(random.random() < 0.5)
            in_a_row = dose * (in_a_row + 1)
            cure = in_a_row == 3
            end = cure or random.random() < 0.1
            rows.append((patient, dose, float(cure), end))
    patient, dose, cure, end = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "X": np.ones((len(rows), 1)), "y": cure, "actions": dose, "behavior_probability": np.full(len(rows), 0.5),
        "target_policy": np.full((len(rows), 2), [0.1, 0.9]), "episode": patient, "terminated": end,
    }  # fmt: skip


def rare_gains(n, seed, chance=0.02):
    """One state, and rewards that are rare and do not depend on one another; few logs hold two in a row."""
    random = np.random.default_rng(seed)
    episode = np.repeat(np.arange(n), 10)
    last = np.tile(np.arange(10) == 9, n)
    gains = (random.random(10 * n) < chance).astype(float)
    return {
        "X": np.ones((10 * n, 1)), "y": gains, "actions": random.integers(2, size=10 * n), "episode": episode,
        "behavior_probability": np.full(10 * n, 0.5), "target_policy": np.full((10 * n, 2), [0.1, 0.9]),
        "terminated": last,
    }  # fmt: skip


def test_the_check_is_that_of_the_definition():
    data, state = simulated()
    data["groups"] = data["episode"] // 2
    log = log_of(data, state)
    found = hidden_state_check(log)
    group = data["groups"][log.logged.full].tolist()
    predicted = predicted_rewards(log)
    u = naive.persistence(log.logged.rewards, predicted, log.logged.episode, log.logged.codes, group)
    z = sum(u) / np.sqrt(sum(x**2 for x in u))
    expected = expected_chance(log, u)
    assert_close(found.z, z, "sums")
    assert_close(found.p_value, expected, "sums")
    for k in range(3):  # rewards are predicted for groups that did not teach them, by others in the two errors
        changed = data | {"y": data["y"] + (log.folds == k)}
        for before, after in zip(predicted, predicted_rewards(log_of(changed, state)), strict=True):
            moved = np.array(
                [[np.abs(y - x)[log.fold == j].max() for j in range(3)] for x, y in zip(before, after, strict=True)]
            )
            assert (moved[:, k] == 0.0).all()
            others = np.delete(moved, k, axis=1) > 1e-9
            assert others.sum(axis=1).tolist() == [1, 1]
            assert others.sum(axis=0).tolist() == [1, 1]


def expected_chance(log, u):
    """The p-value by its definition, from the products of each group."""
    logged = log.logged
    codes = logged.codes.tolist()
    pair = [(*row, code) for row, code in zip(log.at.tolist(), codes, strict=True)]
    group = logged.group.tolist()
    return naive.chance_of_persistence(u, logged.rewards, pair, logged.episode, codes, group, stats.t.sf)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_chance_is_that_of_the_definition_on_both_sides(seed):
    data = doses(30, seed) if seed % 2 else diseases(30, lasts=True, seed=seed)
    log = log_of(data, None)
    logged = log.logged
    found = hidden_state_check(log)
    predicted = predicted_rewards(log)
    u = naive.persistence(logged.rewards, predicted, logged.episode, logged.codes, logged.group.tolist())
    assert_close(found.p_value, expected_chance(log, u), "sums")
    assert (found.z < 0.0) == (seed % 2 == 1)


def test_a_few_groups_that_decide_prove_nothing():
    data, state = simulated(60)
    columns = np.column_stack([state, 0.0 * state])
    corners = {3: (10.0, 0.0), 17: (-10.0, 0.0), 29: (0.0, 10.0), 41: (0.0, -10.0)}  # that nobody else reaches
    for number, (episode, corner) in enumerate(corners.items()):
        rare = data["episode"] == episode
        columns[rare] = corner
        data["y"] = np.where(rare, data["y"] + 50.0 * (-1.0) ** number, data["y"])
    found = hidden_state_check(log_of(data, columns))
    assert found.z > 0.9
    assert found.p_value > 1.3 * stats.norm.sf(found.z)


def rejected(n_logs, lasts):
    """Number of logs in which a disease that lasts, or changes daily, is noticed."""
    logs = [log_of(diseases(150, lasts, seed), None) for seed in range(n_logs)]
    return sum(hidden_state_check(log).hides for log in logs)


def test_what_lasts_and_is_not_recorded_is_noticed():
    """Where 5 % are rejected by chance, more than 2 of 10 logs are in 1.2 % of all choices of seeds; of 50 %, 95 %."""
    assert rejected(10, lasts=1) == 10
    assert rejected(10, lasts=0) <= 2


@pytest.mark.usefixtures("real_trees")
def test_it_is_noticed_by_the_trees_of_users():
    """That 5 % are rejected by chance is a law of few trees above; both of 2 logs are in 0.3 % of choices of seeds."""
    assert rejected(3, lasts=1) == 3
    assert rejected(2, lasts=0) < 2


@pytest.mark.usefixtures("real_trees")
def test_errors_that_alternate_are_noticed():
    truth = np.zeros(3)  # by doses in a row so far; 0.9 is both the target's chance of a dose and that to stay
    for _ in range(1000):
        after = np.array([0.9 * truth[1], 0.9 * truth[2], 1.0])
        truth = 0.9 * after + 0.1 * 0.9 * truth[0]
    for seed in range(2):
        with pytest.warns(MisfitWarning, match=r"seems to hide something .* z = -.*with_history"):
            found = evaluate_policy(**doses(300, seed), gamma=1.0, bounds=(0.0, 1.0))
        assert found.hidden.z < -5.0
        assert found.hidden.p_value < 0.01
        assert "table of pairs" not in found.candidates
        assert found.lower <= truth[0] <= found.upper


def cards(n, seed):
    """Draw on at random, up to 21: the sum says all, but trees fit only a part of what it says."""
    random = np.random.default_rng(seed)
    rows = []
    for game in range(n):
        total = int(random.integers(4, 21))
        end = False
        while not end:
            draw = int(random.random() < 0.7)
            after = total + draw * int(min(random.integers(1, 14), 10))
            lost = after > 21 or (not draw and random.random() > (total - 3) / 18)
            end = lost or not draw
            reward = float(end) * (1.0 - 2.0 * lost)
            rows.append((game, total, draw, reward, end))
            total = after
    game, total, draw, reward, end = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "X": total[:, np.newaxis] / 20.0, "y": reward, "actions": draw, "episode": game, "terminated": end,
        "behavior_probability": np.where(draw, 0.7, 0.3), "target_policy": np.full((len(rows), 2), [0.5, 0.5]),
    }  # fmt: skip


def check_markov_logs(n_seeds):
    """Errors that alternate clearly must be among those of Markov logs, and none may be rejected."""
    logs = []
    for seed in range(n_seeds):
        data, state = simulated(70, 8, seed)
        logs += [log_of(rare_gains(300, seed), None), log_of(cards(500, seed), None), log_of(data, state)]
    found = [hidden_state_check(log) for log in logs]
    assert min(one.z for one in found) < -3.0
    assert not any(one.hides and one.z < 0.0 for one in found)


def test_below_zero_markov_logs_are_not_rejected():
    check_markov_logs(8)


@pytest.mark.usefixtures("real_trees")
def test_nor_are_they_by_the_trees_of_users():
    check_markov_logs(1)


@pytest.mark.parametrize("reward", [0.0, 0.1])
def test_equal_rewards_hide_nothing(reward):
    data = diseases(50, True) | {"y": np.full(300, reward)}
    found = hidden_state_check(log_of(data, None))
    assert (found.z, found.p_value, found.hides) == (0.0, 1.0, False)


def test_the_per_decision_value_is_that_of_the_definition():
    data, state = simulated()
    log = log_of(data, state)
    found = log.per_decision
    q, after, start = log.log_values
    parts = []
    for e in range(60):
        own = log.logged.episode == e
        terminal = data["terminated"][log.logged.full[own]][-1]
        v = np.append(start[e], after[own])
        v[-1] *= not terminal
        parts.append({"rewards": log.logged.rewards[own], "ratios": log.ratio[own], "q": q[own], "v": v})
    assert_close(found.value, naive.importance_sampling("dr", parts, GAMMA), "sums")
    first, weight = found.log.begins, found.dual
    assert_close(weight[first], log.ratio[first] / 60, "sums")
    t = np.flatnonzero(~first)
    assert_close(weight[t], GAMMA * log.ratio[t] * weight[t - 1], "sums")


def test_where_the_state_hides_something_the_interval_holds_both():
    data = diseases(300, True)
    with pytest.warns(
        MisfitWarning, match=r"seems to hide something .* z = .*per-decision doubly robust .*with_history"
    ):
        found = evaluate_policy(**data, gamma=1.0)
    other = found.candidates["per-decision doubly robust"]
    choice = found.candidates[taken(found)]
    assert found.hidden.hides
    assert found.method == f"mean of {taken(found)} and per-decision"
    assert found.lower == min(other.lower, choice.lower)
    assert found.upper == max(other.upper, choice.upper)
    assert found.lower <= found.value <= found.upper
    second = evaluate_policy(**data | {"target_policy": np.full((1800, 2), [0.6, 0.4])}, gamma=1.0)
    compared = compare_policies({"one": found, "two": second})
    assert (compared.values[0].lower, compared.values[0].upper) == (found.lower, found.upper)
    assert_close(compared.difference[0, 1], found.value - second.value, "sums")
    candidates = [[one.candidates[taken(one)] for one in (found, second)]]
    candidates.append([one.candidates["per-decision doubly robust"] for one in (found, second)])
    for pair in candidates:
        part = compare_policies(dict(zip("ab", pair, strict=True)))
        assert compared.lower[0, 1] <= part.lower[0, 1]
        assert compared.upper[0, 1] >= part.upper[0, 1]


def test_where_it_hides_nothing_the_interval_is_that_of_the_choice():
    data, state = simulated()
    state = np.column_stack([state, np.random.default_rng(7).uniform(size=len(state))])  # no pair recurs: no table
    found = evaluate_policy(**data, gamma=GAMMA, state=state)
    assert not found.hidden.hides
    choice = found.candidates[found.method]
    assert (found.lower, found.upper) == (choice.lower, choice.upper)
    assert "per-decision doubly robust" in found.candidates


def taken(found):
    """Name of the estimate that is taken if nothing is hidden."""
    return found.method.removeprefix("mean of ").removesuffix(" and per-decision")


def expected_value(found):
    """The value by its definition, from the candidates."""
    names = (taken(found), "action values", "per-decision doubly robust")
    one, direct, other = (found.candidates[name].by_blocks for name in names)
    errors = [found.candidates[name].standard_error for name in (names[2], names[0])]
    choice = naive.shrunk(one.value, direct.value, one.blocks - direct.blocks)
    apart = other.blocks - one.blocks
    return naive.first_choice(choice, one.value, other.value, apart, found.hidden.p_value, errors[0] / errors[1])


def weight(found):
    """Weight of the per-decision value before it is cut at 1/2."""
    names = (taken(found), "per-decision doubly robust")
    one, other = (found.candidates[name].by_blocks for name in names)
    return 1.0 - 2.0 * np.sum((one.blocks - other.blocks) ** 2) / (one.value - other.value) ** 2


@pytest.mark.parametrize(("n", "sure"), [(300, True), (20, False)])
def test_where_the_check_is_sure_the_value_is_a_mean_with_the_per_decision_value(n, sure):
    found = evaluate_policy(**diseases(n, True), gamma=1.0)
    assert found.hidden.hides
    assert (found.hidden.p_value < 0.01) == sure
    assert_close(found.value, expected_value(found), "sums")
    assert ("The value is a mean" in "".join(found.said)) == sure


def test_the_per_decision_value_counts_more_where_it_is_clearly_apart():
    near = evaluate_policy(**diseases(300, True, target=(0.4, 0.6)), gamma=1.0)
    apart = evaluate_policy(**cured(1000), gamma=1.0)
    assert weight(near) < 0.5
    assert weight(apart) > 0.6
    for found in (near, apart):
        assert found.hidden.p_value < 0.01
        assert_close(found.value, expected_value(found), "sums")


def test_a_per_decision_value_of_noise_changes_no_value():
    random, data = np.random.default_rng(0), diseases(300, True)
    mu = random.choice([0.02, 0.98], size=1800)  # of the logged action: products of ratios have no bound in practice
    found = evaluate_policy(**data | {"behavior_probability": mu}, gamma=1.0)
    other, choice = (found.candidates[name] for name in ("per-decision doubly robust", found.method))
    assert found.hidden.p_value < 0.01
    assert other.standard_error > 10.0 * choice.standard_error
    expected = expected_value(found)
    assert_close(found.value, min(max(expected, choice.lower), choice.upper), "sums")
    assert found.lower <= other.lower < other.upper <= found.upper
