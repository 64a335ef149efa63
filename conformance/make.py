"""Write the vectors of this folder: python make.py [folder]. The same bytes on every run; standard library only.

A case is made from a seed or by hand, its answers by `definitions`. Every number given is a multiple of a power of two
that float64 holds exactly. `make` stops if two definitions of the same quantity differ.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from fractions import Fraction
from itertools import accumulate, pairwise, product
from pathlib import Path

import definitions
from definitions import VARIANTS, add, add_outer, axpy
from draws import RandomState, binary_features, random_process, run

VERSION = 1
MOST_DIGITS = 300  # of numerators and denominators, so that float64 holds each of the two
F = Fraction
TINY = F(1, 2**40)
ALPHAS = (F(1), F(1, 64))
PROBLEMS = (("small", 10, 3, 0.1), ("large", 100, 10, 0.1), ("deterministic", 100, 3, 0.0))  # k, b, σ
CHOICES = {
    "discount": [F(0), F(1, 2), F(3, 4), F(1)],
    "importance_ratio": [F(0), F(1, 2), F(1), F(3, 2)],
    "trace_coefficient": [F(0), F(1, 2), F(1)],
    "weight": [F(0), F(1, 2), F(1), F(2)],
}


def case(name, why, ends, *, gamma="7/8", lmbda="3/4", n=2, m=1, seed=None, given=(), **arrays):
    """A case; `ends` such as "3t 4c" has the rows of each episode and whether it terminated or was cut off.

    Columns that are `given` are drawn, like features and rewards, unless `arrays` has them; others have defaults.
    """
    source = RandomState(sum(map(ord, name)) if seed is None else seed)
    lengths = [(int(word[:-1]), word[-1] == "t") for word in ends.split()]
    rows = [(i, k == length - 1, ended) for i, (length, ended) in enumerate(lengths) for k in range(length)]
    drawn = {"X": draw_rows(source, len(rows), n, zero=5), "y": draw_rows(source, len(rows), m, zero=9)}
    for column in given:
        if column == "X_next":
            drawn[column] = draw_rows(source, len(rows), n, zero=5)
        else:
            drawn[column] = [CHOICES[column][source.integer(len(CHOICES[column]) - 1)] for _ in rows]
    keep_ends(drawn, [length for length, _ in lengths])
    drawn |= {column: exact(values) for column, values in arrays.items()}
    successors = drawn.get("X_next", [*drawn["X"][1:], None])
    terminated = [last and ended for _, last, ended in rows]
    horizon = ["X_next" not in drawn and last and not ended for _, last, ended in rows]
    discounts = drawn.get("discount", [F(gamma)] * len(rows))
    ones = [F(1)] * len(rows)
    return {
        "name": name, "why": why, "gamma": F(gamma), "lmbda": F(lmbda),
        "successors": "given" if "X_next" in drawn else "rows",
        "episode": [i for i, _, _ in rows], "terminated": terminated,
        "X": drawn["X"],
        "y": [[None] * m if h else r for h, r in zip(horizon, drawn["y"], strict=True)],
        "X_next": [
            None if h else [F(0)] * n if t else successor
            for h, t, successor in zip(horizon, terminated, successors, strict=True)
        ],
        "discount": [F(0) if t else discount for t, discount in zip(terminated, discounts, strict=True)],
        **{name: drawn.get(name, ones) for name in ("importance_ratio", "trace_coefficient", "weight")},
    }  # fmt: skip


def logged(name, why, ends, trace, actions=2, **settings):
    """A case of pairs of a state and an action: features of the pair, those expected of the successor, coefficients.

    Each action has a block of the features of the state. `states`, `actions` and the rest say where they come from.
    """
    data = case(name, why, ends, **settings)
    source, T = RandomState(sum(map(ord, name)) + 1), len(data["X"])
    taken = [source.integer(actions - 1) for _ in range(T)]
    policy = [definitions.shares([source.integer(3) for _ in range(actions)]) for _ in range(T)]
    behavior = [F(1, 2 ** source.integer(2)) for _ in range(T)]
    horizon = [successor is None for successor in data["X_next"]]
    return data | {
        "successors": "given", "trace": trace, "states": data["X"],
        "actions": [None if h else a for h, a in zip(horizon, taken, strict=True)],
        "target_policy": policy,
        "behavior_probability": [None if h else p for h, p in zip(horizon, behavior, strict=True)],
        "X": [None if h else definitions.pair(data["X"][t], taken[t], actions) for t, h in enumerate(horizon)],
        "X_next": [
            None if h else definitions.expected_pair(data["X_next"][t], policy[min(t + 1, T - 1)])
            for t, h in enumerate(horizon)
        ],
        "trace_coefficient": [
            None if h else definitions.TRACES[trace](policy[t][taken[t]], behavior[t]) for t, h in enumerate(horizon)
        ],
    }  # fmt: skip


def draw_rows(source, count, width, zero):
    """Multiples of 1/4 from −2 to 2; one in `zero` + 1 is 0."""
    return [
        [F(source.integer(16) - 8, 4) if source.integer(zero) else F(0) for _ in range(width)] for _ in range(count)
    ]


def keep_ends(drawn, lengths):
    """Replace drawn zeros by 1 in the first row and the last two of an episode: no end disappears by chance."""
    after = list(accumulate(lengths))
    ends = {t for end, length in zip(after, lengths, strict=True) for t in (end - length, end - 2, end - 1)} - {-1}
    for values in drawn.values():
        for t in ends:
            if isinstance(values[t], list):
                values[t][0] = values[t][0] or F(1)
            else:
                values[t] = values[t] or F(1)


def exact(value):
    return [exact(v) for v in value] if isinstance(value, list) else F(value)


def unit(n, states):
    """Tabular features of states."""
    return [[F(i == s) for i in range(n)] for s in states]


# ---------------------------------------------------------------- answers


def batch(data, alphas=ALPHAS, every_step=False):
    """A of each variant, b, and weights and condition numbers for each ridge coefficient and variant.

    Of all transitions, or of the first, the first two, and so on.
    """
    runs, n, m = definitions.episodes(data), len(data["X"][0]), len(data["y"][0])
    solutions = []
    for count, head in enumerate(definitions.heads(runs), start=1):
        systems = {v: definitions.system(head, n, m, data["lmbda"], v) for v in VARIANTS}
        if every_step or head == runs:
            for alpha, (v, (A, b)) in product(alphas, systems.items()):
                solutions.append({"transitions": count, "alpha": F(alpha), "variant": v} | solution(A, b, F(alpha)))
    A, b = {v: systems[v][0] for v in VARIANTS}, systems["boyan"][1]
    return data | {"expected": {"A": A, "b": b, "solutions": solutions}}


def with_duals(data):
    """Add the dual weights ω of each solution of pairs, (A + αI)ᵀ ω = φ̄₀, with φ̄₀ the mean over first states."""
    firsts = [episode[0].row for episode in definitions.episodes(data)]
    pairs = [definitions.expected_pair(data["states"][t], data["target_policy"][t]) for t in firsts]
    initial = [sum(column, F(0)) / len(firsts) for column in zip(*pairs, strict=True)]
    expected = data["expected"]
    for found in expected["solutions"]:
        transposed = [list(column) for column in zip(*expected["A"][found["variant"]], strict=True)]
        dual = solution(transposed, [[x] for x in initial], found["alpha"])
        omega, b = ([row[0] for row in rows] for rows in (dual["weights"], expected["b"]))
        assert definitions.dot(omega, b) == definitions.dot(initial, [row[0] for row in found["weights"]])
        found |= {"dual_condition": dual["condition"], "dual": omega}
    expected["initial"] = initial
    return data


def solution(A, b, alpha):
    M = definitions.with_ridge(A, alpha)
    weights = definitions.solve(M, b)
    return {"condition": rounded_up(definitions.condition(M, weights)), "weights": weights}


def rounded_up(number):
    """The least integer with two digits and zeros that is not below `number`."""
    unit = 10 ** max(0, len(str(math.floor(number))) - 2)
    return math.ceil(number / unit) * unit


def steps(data, alpha=1):
    return batch(data, (alpha,), every_step=True)


def chunks(data, *edges):
    """Sums of chunks that begin at these rows, and of the whole; asserted to merge exactly, from both sides."""
    edges = [0, *edges, len(data["X"])]
    parts = [definitions.chunk(data, data["lmbda"], *pair) for pair in pairwise(edges)]
    whole = definitions.chunk(data, data["lmbda"], 0, len(data["X"]))
    left, right = parts[0], parts[-1]
    for part in parts[1:]:
        left = merged(left, part)
    for part in reversed(parts[:-1]):
        right = merged(part, right)
    assert left == right == whole
    runs, n, m = definitions.episodes(data), len(data["X"][0]), len(data["y"][0])
    for variant, share in zip(VARIANTS, (1, 0, 1 - data["lmbda"]), strict=True):
        A, b = definitions.system(runs, n, m, data["lmbda"], variant)
        assert (A, b) == (add(whole["A"], whole["B"], -share), whole["b"])
    return data | {"edges": edges, "expected": {"chunks": parts, "whole": whole}}


def merged(one, two):
    """Two consecutive chunks of one stream."""
    return {
        "A": add_outer(add(one["A"], two["A"]), -1, one["z"], two["p"]),
        "B": add_outer(add(one["B"], two["B"]), 1, one["z"], two["h"]),
        "b": add_outer(add(one["b"], two["b"]), 1, one["z"], two["c"]),
        "z": axpy(two["D"], one["z"], two["z"]),
        **{name: axpy(one["D"], two[name], one[name]) for name in ("p", "h", "c")},
        "D": one["D"] * two["D"],
    }


def td(data, step_size, algorithms=("accumulating", "replacing", "true_online")):
    """Weights of each algorithm after each transition; true online TD by its recursion too, asserted to agree."""
    runs, arguments = definitions.episodes(data), (len(data["X"][0]), data["lmbda"], F(step_size))
    weights = {name: definitions.ALGORITHMS[name](runs, *arguments) for name in algorithms}
    if "true_online" in weights:
        assert weights["true_online"] == true_online_recursion(runs, *arguments)
    return data | {"step_size": F(step_size), "expected": weights}


def true_online_recursion(runs, n, lmbda, step_size):
    """Algorithm 1 of van Seijen et al. (2016), for the assertion of `td`."""
    w, result = [F(0)] * n, []
    for episode in runs:
        e, v_old = [F(0)] * n, F(0)
        for s in episode:
            v, v_next = definitions.dot(s.phi, w), definitions.dot(s.successor, w)
            e = [lmbda * s.arrival * x for x in e]
            e = axpy(1 - step_size * definitions.dot(e, s.phi), s.phi, e)
            error = s.rewards[0] + s.discount * v_next - v
            w = axpy(step_size * (error + v - v_old), e, w)
            w = axpy(-step_size * (v - v_old), s.phi, w)
            v_old = v_next
            result.append(w)
    return result


# ---------------------------------------------------------------- cases


# fmt: off
def batch_cases():
    """A, b and weights from all transitions."""
    yield batch(case("two states", "the end of the data is a cut", "6c", gamma="1/2", lmbda="1/2",
                     X=unit(2, [0, 1, 0, 0, 1, 0])), (0, 1))
    yield batch(case("continuing stream", "no episode ends", "9c", n=3))
    yield batch(case("lambda 0", "Mixed is Boyan's, plain LSTD", "8c", lmbda=0))
    yield batch(case("lambda 1", "Mixed is Uncorrected, ridge regression of observed returns", "8c", lmbda=1))
    yield batch(case("lambda 1, terminated", "all three are ridge regression of returns", "4t 3t", lmbda=1))
    yield batch(case("gamma 0", "a regression on rewards", "7c", gamma=0, lmbda="1/2"))
    yield batch(case("gamma 1, terminated", "no discount; the end of the data is terminal", "4t 2t 5t", gamma=1))
    yield batch(case("gamma 1, lambda 1, terminated", "sums of rewards", "3t 4t", gamma=1, lmbda=1), (0, 1))
    yield batch(case("gamma 1, cut", "no discount, and the last episode was cut off", "3t 4c", gamma=1, lmbda="1/2"))
    yield batch(case("one transition", "T = 1: a row and a horizon row", "2c"))
    yield batch(case("one terminated row", "T = 1: the value of its successor is zero", "1t"))
    yield batch(case("one feature", "n = 1", "6c", n=1))
    yield batch(case("episodes", "terminated and cut off in turn; nothing crosses their ends", "3t 4c 2t 3c", n=3))
    yield batch(case("episodes of one row", "terminated: a transition; cut off: a horizon row, which adds nothing",
                     "1t 2c 1c 1t 1c 3t 1c"))
    yield batch(case("several cuts", "boundary terms in the middle of the data", "3c 2c 4c", n=3))
    yield batch(case("repeated features", "two equal columns share a weight", "6c", n=3,
                     X=[[x, x, z] for x, z in [(1, 2), (2, -1), (0, 1), ("1/2", 1), (-1, 0), (1, 1)]]))
    yield batch(case("repeated features, alpha tiny", "the same at 2⁻³⁰", "6c", n=3, seed=879,
                     X=[[x, x, z] for x, z in [(1, 2), (2, -1), (0, 1), ("1/2", 1), (-1, 0), (1, 1)]]), (F(1, 2**30),))
    yield batch(case("zero features", "a column and a row of zeros", "6c", n=3,
                     X=[[1, 0, 2], [2, 0, -1], [0, 0, 0], ["1/2", 0, 1], [-1, 0, 0], [1, 0, 1]]))
    yield batch(case("all features zero", "A and b are zero", "3c", gamma="1/2", lmbda="1/2", X=[[0, 0]] * 3))
    yield batch(case("zero on the diagonal", "elimination needs its rows in another order", "3c", gamma=1, lmbda=0,
                     X=[[1, 0], [0, 1], [0, 0]], X_next=[[1, 1], [-1, 1], [0, 0]]), (0, TINY))
    yield batch(case("all rewards zero", "b is zero, A is not", "4c 2t", y=[[0]] * 6))
    yield batch(case("alpha tiny", "2⁻⁴⁰, and 0, beside a matrix of full rank", "5t 5c"), (TINY, 0))
    yield batch(case("alpha tiny, few rows", "2⁻²⁰ beside a matrix of rank 2", "3c", n=4), (F(1, 2**20),))
    yield batch(case("alpha large", "weights of order 2⁻²⁰", "6c"), (2**20,))
    yield batch(case("scales of features", "one column is about 2¹⁶ times the other", "7c",
                     X=[[2**16 * x, F(z, 2)] for x, z in [(1, 3), (-1, 1), (2, 0), (0, 1), (1, -2), (1, 1), (2, 2)]]))
    yield batch(case("discount per row", "0 and 1 among them", "4t 5c", n=3, given=["discount"]))
    yield batch(case("discount 0 within an episode", "the trace ends, the episode does not", "7c",
                     discount=["7/8", "7/8", 0, 0, "7/8", "7/8", "7/8"]))
    yield batch(case("ratios", "importance ratios from 0 to 3/2", "4t 5c", given=["importance_ratio"]))
    yield batch(case("ratios of 0", "each clears the trace", "7c", importance_ratio=[1, 0, 2, 0, "1/2", 1, 1]))
    yield batch(case("ratio 0 throughout", "A and b are zero", "4c", importance_ratio=[0] * 4))
    yield batch(case("ratios, lambda 1", "products of ratios along the whole return", "5c", lmbda=1,
                     importance_ratio=["1/2", "3/2", 1, "5/4", 1]))
    yield batch(case("several rewards", "one A serves all", "3t 5c", m=3))
    yield batch(case("successors", "given, and equal to the next row within each episode", "3t 4c",
                     X=[[1, 0], [2, 1], [0, 1], [1, 1], [0, 2], [-1, 1], [1, 2]],
                     X_next=[[2, 1], [0, 1], [0, 0], [0, 2], [-1, 1], [1, 2], [3, 1]]))
    yield batch(case("successors that are not the next row", "traces run from row to row all the same", "4t 5c 2c",
                     n=3, given=["X_next"]))
    yield batch(case("single transitions", "an episode each, with successors", "1c 1t 1c 1c 1t", given=["X_next"]))
    yield batch(case("successors, ratios and discounts", "expected successors off policy", "3c 4t 3c", m=2,
                     given=["X_next", "importance_ratio", "discount"]))
    for seed, ends, lmbda in (
        (1, "4t 1c 5c 2t", "3/4"), (2, "7c 1t 3c", "1/4"), (3, "2t 2c 6c", 1), (4, "5c 4t 1t 2c", 0),
    ):
        yield batch(case(f"everything {seed}", "discounts, ratios, rewards, ends, zeros", ends, lmbda=lmbda, n=3, m=2,
                         seed=seed, given=["discount", "importance_ratio"]))


def step_cases():
    """Weights after each transition."""
    yield steps(case("two states", "tabular features", "7c", gamma="1/2", lmbda="1/2",
                     X=unit(2, [0, 1, 0, 0, 1, 1, 0])))
    yield steps(case("continuing stream", "no episode ends", "9c", n=3), F(1, 16))
    yield steps(case("lambda 0", "no traces", "7c", lmbda=0))
    yield steps(case("lambda 1", "Uncorrected and Mixed agree", "7c", lmbda=1))
    yield steps(case("gamma 0", "a regression on rewards", "6c", gamma=0, lmbda="1/2"))
    yield steps(case("gamma 1, terminated", "no discount", "3t 2t 4t", gamma=1))
    yield steps(case("one feature", "n = 1", "7c", n=1))
    yield steps(case("one transition", "T = 1", "2c"))
    yield steps(case("episodes", "terminated, cut off, of one row", "3t 3c 1t 1c 3c"))
    yield steps(case("repeated and zero features", "rows that repeat one another, and zeros", "7c", n=3,
                     X=[[1, 1, 0], [1, 1, 0], [0, 0, 0], [2, 2, 0], [1, 1, 0], [0, 0, 0], [1, 1, 0]]))
    yield steps(case("alpha tiny", "the first weights rest on the ridge term alone", "7c"), F(1, 2**20))
    yield steps(case("alpha tiny, tabular", "2⁻⁴⁰ beside tabular features", "8c", lmbda="1/2", n=3,
                     X=unit(3, [0, 1, 1, 2, 0, 2, 1, 0])), TINY)
    yield steps(case("discounts and ratios", "0 among both", "3t 4c 3c", given=["discount", "importance_ratio"]))
    yield steps(case("successors that are not the next row", "traces run on all the same", "4c 2t 2c",
                     given=["X_next"]))


def chunk_cases():
    """Sums of chunks, and of the whole."""
    yield chunks(case("continuing stream", "two halves", "8c"), 4)
    yield chunks(case("one row each", "the smallest chunks", "5c"), 1, 2, 3, 4)
    yield chunks(case("no rows", "the sums of no rows change nothing", "4c"), 0, 2, 2, 4)
    yield chunks(case("lambda 0", "the trace goes no further than one row", "6c", lmbda=0), 3)
    yield chunks(case("lambda 1", "p is zero", "6c", lmbda=1), 2, 4)
    yield chunks(case("episodes", "a trace enters only the first episode of a chunk", "3t 4c 2t 2c", m=2), 2, 5, 9)
    yield chunks(case("before and after ends", "chunks begin at a horizon row and after it", "4c 3t 3c"), 3, 4, 6, 7)
    yield chunks(case("ratios and discounts", "0 among both", "6c 2t 4c", n=3, m=2,
                      given=["discount", "importance_ratio"]), 3, 7, 10)
    yield chunks(case("gamma 1, lambda 1", "D is 1 within an episode", "5t 3c", gamma=1, lmbda=1), 2, 6)


def td_cases():
    """Weights of TD(λ) and true online TD(λ) after each transition."""
    plain = {"gamma": F(3, 4), "lmbda": F(1, 2)}  # few digits in the exact weights
    yield td(case("two states", "tabular features", "8c", **plain, X=unit(2, [0, 1, 0, 0, 1, 1, 0, 1])), "1/2")
    yield td(case("continuing stream", "dense features", "8c", n=3, **plain), "1/8")
    yield td(case("lambda 0", "all three agree", "7c", gamma="3/4", lmbda=0), "1/4")
    yield td(case("lambda 1", "only the discount makes traces shorter", "7c", gamma="3/4", lmbda=1), "1/8")
    yield td(case("gamma 0", "least mean squares", "6c", gamma=0, lmbda="1/2"), "1/4")
    yield td(case("gamma 1, terminated", "no discount", "3t 2t 3t", gamma=1, lmbda="1/2"), "1/8")
    yield td(case("one feature", "n = 1", "7c", n=1, **plain), "1/4")
    yield td(case("one transition", "T = 1", "2c", **plain), "1/4")
    yield td(case("episodes", "traces begin anew after each end", "3t 3c 1t 1c 3c", **plain), "1/4")
    yield td(case("repeated and zero features", "a replacing trace ignores zeros", "7c", n=3, **plain,
                  X=[[1, 1, 0], [1, 1, 0], [0, 0, 0], [2, 2, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]), "1/4")
    yield td(case("discount per row", "0 within an episode among them", "5c 3t", **plain,
                  discount=["3/4", 0, 1, "1/2", 1, 1, "3/4", 1]), "1/8")
    yield td(case("ratios", "per decision: e = ρ(λγe + φ)", "4t 4c", **plain,
                  importance_ratio=[1, 0, 2, "1/2", "3/2", 1, 0, 1]), "1/8", ("accumulating", "replacing"))


def weight_cases():
    """Weights of rows and trace coefficients."""
    yield batch(case("weights", "0 leaves a row out of the sums, not out of the traces", "4t 5c", given=["weight"]))
    yield batch(case("forgetting", "1/2 to the power of the number of transitions that follow", "6c",
                     weight=["1/16", "1/8", "1/4", "1/2", 1, 1]))
    yield batch(case("trace coefficients", "0 ends the trace that comes in; the row is kept", "4t 5c",
                     given=["trace_coefficient"]))
    yield batch(case("one step", "coefficients of 0, with expected successors", "5c 3t", given=["X_next"],
                     trace_coefficient=[0] * 8))
    yield batch(case("Retrace", "coefficients of at most 1, with expected successors", "5c 3t", given=["X_next"],
                     trace_coefficient=["1/2", 1, "1/4", 1, 0, 1, 1, "3/4"]))
    yield batch(case("everything", "and discounts, ratios, rewards, ends, zeros", "4t 1c 5c", n=3, m=2,
                     given=["discount", "importance_ratio", "trace_coefficient", "weight"]))


def action_cases():
    """Action values of a target policy from logged actions."""
    yield batch(logged("one step", "λ = 0: coefficients do not matter", "4t 5c", "retrace", lmbda=0))
    yield batch(logged("no traces", "coefficients of 0 are as λ = 0", "4t 5c", "none"))
    yield batch(logged("Retrace", "min(1, π/μ)", "4t 1c 6c", "retrace", actions=3))
    yield batch(logged("Retrace, lambda 1", "gamma 1; all episodes end", "3t 5t", "retrace", gamma=1, lmbda=1))
    yield batch(logged("everything", "and discounts and weights", "2t 4c 3t", "retrace", n=3,
                       given=["discount", "weight"]))
    yield batch(logged("dual weights", "eight episodes; the transpose of A matters", "4t 3c 2t 3t 5c 2t 3c 4t", "none",
                       lmbda=0), (0, 1))
# fmt: on


# ---------------------------------------------------------------- random processes


def process_cases():
    """The paper's three problems, drawn by seed 1000, and a run of each."""
    for name, k, branching, reward_std in PROBLEMS:
        successors, probabilities, rewards, normal = random_process(k, branching, 1000)
        arrays = {"probabilities": probabilities, "rewards": rewards, "normal": normal, "binary": binary_features(k)}
        shown = k if k == 10 else 2
        runs = []
        for seed in (1, 50):
            states, received = run(successors, probabilities, rewards, reward_std, 12, seed)
            runs.append({"seed": seed, "states": states, "rewards": hexadecimal(received)})
        yield {
            "name": name, "n_states": k, "branching": branching, "reward_std": reward_std.hex(), "seed": 1000,
            "successors": successors[:shown],
            **{key: hexadecimal(rows[:shown]) for key, rows in arrays.items()},
            "sha256": {key: digest(rows) for key, rows in arrays.items()},
            "runs": runs,
        }  # fmt: skip


def hexadecimal(values):
    return [hexadecimal(v) for v in values] if isinstance(values, list) else values.hex()


def digest(rows):
    """SHA-256 of the numbers row by row, 8 bytes each, least significant first."""
    return hashlib.sha256(b"".join(struct.pack("<d", x) for row in rows for x in row)).hexdigest()


# ---------------------------------------------------------------- files

FILES = {
    "lstd": batch_cases, "steps": step_cases, "chunks": chunk_cases, "td": td_cases, "weights": weight_cases,
    "actions": lambda: map(with_duals, action_cases()), "processes": process_cases,
}  # fmt: skip


def text(value):
    """The value as JSON holds it: fractions as "p/q"."""
    if isinstance(value, dict):
        return {key: text(v) for key, v in value.items()}
    if isinstance(value, list):
        return [text(v) for v in value]
    if isinstance(value, F):
        assert max(abs(value.numerator), value.denominator) < 10**MOST_DIGITS
        return str(value)
    return value


def document(name):
    """The file of that name: a line for each field of each case, and for each expected array."""
    cases = ",\n".join(f"  {{\n{fields(text(found), 3)}\n  }}" for found in FILES[name]())
    return f'{{\n "format": "{name}",\n "version": {VERSION},\n "cases": [\n{cases}\n ]\n}}\n'


def fields(found, depth):
    """Lines of the fields of a dict; dicts and lists of dicts in it have lines of their own."""
    space, lines = " " * depth, []
    for key, value in found.items():
        shown = json.dumps(value, ensure_ascii=False)
        if key in ("expected", "A", "sha256", "whole") and isinstance(value, dict):
            shown = f"{{\n{fields(value, depth + 1)}\n{space}}}"
        elif key in ("solutions", "chunks", "runs"):
            rows = ",\n".join(f"{space} {json.dumps(row, ensure_ascii=False)}" for row in value)
            shown = f"[\n{rows}\n{space}]"
        lines.append(f"{space}{json.dumps(key)}: {shown}")
    return ",\n".join(lines)


def main(folder):
    for name in FILES:
        (folder / f"{name}.json").write_text(document(name), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent))
