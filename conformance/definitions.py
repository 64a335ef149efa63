"""Exact, literal definitions of every estimator, on `fractions.Fraction`: nothing here rounds, and none is a recursion
unless its docstring says so.

Equation numbers are those of Osogami (AAAI-20). An episode is a list of transitions; `rewards` have m columns.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

VARIANTS = ("boyan", "uncorrected", "mixed")
COLUMNS = ("X", "y", "X_next", "discount", "importance_ratio", "trace_coefficient", "weight")
ZERO = Fraction(0)


class Transition(NamedTuple):
    """One transition: its row, γ_t on arrival in it (0 where an episode begins), and the columns of a case."""

    row: int
    arrival: Fraction
    phi: list  # (n,)
    rewards: list  # (m,)
    successor: list  # (n,)
    discount: Fraction  # on leaving the row; 0 = termination
    ratio: Fraction
    coefficient: Fraction  # of the trace
    weight: Fraction


# ---------------------------------------------------------------- rows to transitions


def begins(case, t):
    """Whether row t is the first one of its episode."""
    return t == 0 or case["episode"][t] != case["episode"][t - 1]


def is_horizon(case, t):
    """Whether row t only has the features of a successor: its episode was cut off there."""
    return case["X_next"][t] is None


def arrival(case, t):
    """γ_t, the discount on arrival in row t."""
    return ZERO if begins(case, t) else case["discount"][t - 1]


def episodes(case):
    """Transitions of each episode; an episode of a horizon row alone has none."""
    result = []
    for t in range(len(case["X"])):
        if begins(case, t):
            result.append([])
        if not is_horizon(case, t):
            result[-1].append(Transition(t, arrival(case, t), *(case[name][t] for name in COLUMNS)))
    return [episode for episode in result if episode]


# ---------------------------------------------------------------- pairs of a state and an action


def pair(phi, action, actions):
    """φ(s, a): the features of the state in the block of the action."""
    return [x if block == action else ZERO for block in range(actions) for x in phi]


def expected_pair(phi, policy):
    """Σ_a π(a|s) φ(s, a)."""
    result = [ZERO] * (len(phi) * len(policy))
    for action, probability in enumerate(policy):
        result = axpy(probability, pair(phi, action, len(policy)), result)
    return result


def shares(counts):
    """Probabilities that are multiples of 1/4, from numbers of any sum: quarters are dealt out in turn."""
    quarters = [Fraction(0)] * len(counts)
    for k in range(4):
        quarters[counts[k % len(counts)] % len(counts)] += Fraction(1, 4)
    return quarters


TRACES = {
    "retrace": lambda target, behavior: min(Fraction(1), target / behavior),
    "none": lambda target, behavior: Fraction(0),
}


# ---------------------------------------------------------------- arithmetic


def zeros(n, m):
    return [[ZERO] * m for _ in range(n)]


def add_outer(A, factor, u, v):
    """A + factor · u vᵀ."""
    return [[a + factor * x * y for a, y in zip(row, v, strict=True)] for row, x in zip(A, u, strict=True)]


def add(A, B, factor=1):
    return [[a + factor * b for a, b in zip(*rows, strict=True)] for rows in zip(A, B, strict=True)]


def axpy(factor, x, y):
    return [factor * a + b for a, b in zip(x, y, strict=True)]


def dot(u, v):
    return sum((x * y for x, y in zip(u, v, strict=True)), ZERO)


def with_ridge(A, alpha):
    return [[a + alpha * (i == j) for j, a in enumerate(row)] for i, row in enumerate(A)]


def solve(A, b):
    """A⁻¹ b by Gauss and Jordan, (n, m); ZeroDivisionError if A is singular."""
    rows, n = [[*row, *right] for row, right in zip(A, b, strict=True)], len(A)
    for i in range(n):
        pivot = next((k for k in range(i, n) if rows[k][i]), None)
        if pivot is None:
            raise ZeroDivisionError("a singular system")
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = axpy(-rows[k][i], rows[i], rows[k])
    return [row[n:] for row in rows]


def condition(A, x):
    """The condition number of a solution, max (|A⁻¹| |A| |x|) / max |x| (Skeel 1979); 1 if x = 0.

    Relative changes of ε in the entries of A move x by at most ε times it, relative to its largest entry.
    """
    if not any(map(any, x)):
        return Fraction(1)
    identity = [[Fraction(i == j) for j in range(len(A))] for i in range(len(A))]
    moved = product(absolute(solve(A, identity)), product(absolute(A), absolute(x)))
    return max(map(max, moved)) / max(map(max, absolute(x)))


def absolute(A):
    return [[abs(a) for a in row] for row in A]


def product(A, B):
    return [[dot(row, column) for column in zip(*B, strict=True)] for row in A]


# ---------------------------------------------------------------- least squares: double sums, forward view


def decay(episode, i, t, lmbda):
    """Share of φ_i that is left in z_t: Π_{j=i..t} ρ_j Π_{j=i+1..t} c_jλγ_j; (λγ)^{t−i} in the paper."""
    ratios = math.prod((s.ratio for s in episode[i : t + 1]), start=Fraction(1))
    return ratios * math.prod((s.coefficient * lmbda * s.arrival for s in episode[i + 1 : t + 1]), start=Fraction(1))


def trace(episode, t, lmbda):
    """z_t = Σ_{i≤t} decay(i, t) φ_i, Theorem 1."""
    z = [ZERO] * len(episode[0].phi)
    for i in range(t + 1):
        z = axpy(decay(episode, i, t, lmbda), episode[i].phi, z)
    return z


def vector_b(episode, lmbda):
    """(8): b = Σ_t φ_t Σ_{k≥t} decay(t, k) w_k r_{k+1}; (n, m)."""
    b = zeros(len(episode[0].phi), len(episode[0].rewards))
    for t, step in enumerate(episode):
        for k in range(t, len(episode)):
            b = add_outer(b, decay(episode, t, k, lmbda) * episode[k].weight, step.phi, episode[k].rewards)
    return b


def matrix_uncorrected(episode, lmbda):
    """(7), where each successor is the next row: Σ_t φ_t (ρ_tφ_t − Σ_{k>t} (1 − ρ_kλ) γ_k decay(t, k−1) φ_k)ᵀ."""
    A = zeros(*[len(episode[0].phi)] * 2)
    for t, step in enumerate(episode):
        row = [step.ratio * x for x in step.phi]
        for k in range(t + 1, len(episode)):
            later = episode[k]
            factor = (1 - later.ratio * lmbda) * later.arrival * decay(episode, t, k - 1, lmbda)
            row = axpy(-factor, later.phi, row)
        A = add_outer(A, 1, step.phi, row)
    return A


def matrix_boyan(episode, lmbda):
    """(17), where each successor is the next row: as (7), each bracket less γ_T decay(t, T−1) φ_T."""
    A, end = matrix_uncorrected(episode, lmbda), len(episode) - 1
    for t, step in enumerate(episode):
        A = add_outer(A, -episode[end].discount * decay(episode, t, end, lmbda), step.phi, episode[end].successor)
    return A


def matrix_with_successors(episode, lmbda, variant):
    """Σ_t φ_t Σ_{k≥t} decay(t, k) w_k (φ_k − γ_{k+1} φ'_k)ᵀ; at the end, a share of the successor only.

    Boyan's takes it whole, Uncorrected drops it, Mixed takes 1 − λ of it.
    """
    share = {"boyan": Fraction(1), "uncorrected": ZERO, "mixed": 1 - lmbda}[variant]
    A = zeros(*[len(episode[0].phi)] * 2)
    for t, step in enumerate(episode):
        for k in range(t, len(episode)):
            later = episode[k]
            part = share if k + 1 == len(episode) else 1
            row = axpy(-part * later.discount, later.successor, later.phi)
            A = add_outer(A, decay(episode, t, k, lmbda) * later.weight, step.phi, row)
    return A


def system(runs, n, m, lmbda, variant):
    """A and b, summed over episodes. The paper's definitions are asserted to agree where they apply."""
    A, b = zeros(n, n), zeros(n, m)
    for episode in runs:
        A_e = matrix_with_successors(episode, lmbda, variant)
        if all(s.coefficient == s.weight == 1 for s in episode) and follow_one_another(episode):
            uncorrected, boyan = matrix_uncorrected(episode, lmbda), matrix_boyan(episode, lmbda)
            mixed = add([[lmbda * a for a in row] for row in uncorrected], boyan, 1 - lmbda)
            assert A_e == {"uncorrected": uncorrected, "boyan": boyan, "mixed": mixed}[variant]
        A, b = add(A, A_e), add(b, vector_b(episode, lmbda))
    return A, b


def follow_one_another(episode):
    return all(one.successor == two.phi for one, two in pairwise(episode))


def heads(runs):
    """The episodes up to each transition: all before it whole, its own cut after it."""
    for number, episode in enumerate(runs):
        for end in range(1, len(episode) + 1):
            yield [*runs[:number], episode[:end]]


# ---------------------------------------------------------------- chunks of a stream


def chunk(case, lmbda, start, end):
    """Sums over rows start ≤ t < end of a stream as if no trace entered them, and what a trace z that enters changes.

    D_t = Π_{start≤j≤t} ρ_jλγ_j. A is Uncorrected's, B the boundary terms at the cuts among these rows;
    p = Σ γ_t(1 − ρ_tλ) D_{t−1} φ_t, c = Σ D_t r_{t+1}, h = Σ_cuts γ_t D_{t−1} φ_t: A −= z pᵀ, B += z hᵀ, b += z cᵀ.
    """
    n, m = len(case["X"][0]), len(case["y"][0])
    inside = [t for t in range(start, end) if not is_horizon(case, t)]
    own = [[s for s in episode if s.row in inside] for episode in episodes(case)]
    own = [[run[0]._replace(arrival=ZERO), *run[1:]] for run in own if run]
    A, b = system(own, n, m, lmbda, "uncorrected")
    B, p, h, c = zeros(n, n), [ZERO] * n, [ZERO] * n, [ZERO] * m
    for run in own:
        horizon = run[-1].row + 1
        if horizon < end and is_horizon(case, horizon) and not begins(case, horizon):
            B = add_outer(B, run[-1].discount, trace(run, len(run) - 1, lmbda), run[-1].successor)
    for t in range(start, end):
        before = arrival(case, t) * products(case, lmbda, start, t)
        phi = case["X"][t]
        if is_horizon(case, t):
            h = axpy(before, phi, h)
        else:
            rho = case["importance_ratio"][t]
            p = axpy((1 - rho * lmbda) * before, phi, p)
            c = axpy(rho * lmbda * before, case["y"][t], c)
    z = [ZERO] * n
    if own and own[-1][-1].row == end - 1:
        z = trace(own[-1], len(own[-1]) - 1, lmbda)
    return {"A": A, "B": B, "b": b, "z": z, "p": p, "h": h, "c": c, "D": products(case, lmbda, start, end)}


def products(case, lmbda, start, end):
    """Π_{start≤j<end} ρ_jλγ_j; 0 from a horizon row on, where no trace goes on."""
    rows = range(start, end)
    factors = (ZERO if is_horizon(case, j) else case["importance_ratio"][j] * lmbda * arrival(case, j) for j in rows)
    return math.prod(factors, start=Fraction(1))


# ---------------------------------------------------------------- temporal differences


def accumulating_trace(episode, t, lmbda):
    """e_t = Σ_{i≤t} decay(i, t) φ_i."""
    return trace(episode, t, lmbda)


def replacing_trace(episode, t, lmbda):
    """e_t[i] = decay(s, t) φ_s[i], s the last step up to t at which feature i was not 0; 0 if there was none."""
    e = [ZERO] * len(episode[0].phi)
    for i in range(len(e)):
        seen = [s for s in range(t + 1) if episode[s].phi[i] != 0]
        if seen:
            e[i] = decay(episode, seen[-1], t, lmbda) * episode[seen[-1]].phi[i]
    return e


def td(runs, n, lmbda, step_size, trace_of):
    """TD(λ): θ ← θ + a (r + γφ'ᵀθ − φᵀθ) e_t, e_t by a direct sum; θ after each transition."""
    theta, result = [ZERO] * n, []
    for episode in runs:
        for t, step in enumerate(episode):
            error = step.rewards[0] + step.discount * dot(step.successor, theta) - dot(step.phi, theta)
            theta = axpy(step_size * error, trace_of(episode, t, lmbda), theta)
            result.append(theta)
    return result


def true_online_td(runs, n, lmbda, step_size):
    """Online λ-return algorithm (van Seijen et al. 2016, section 3): the weights are redone for every horizon.

    From those at the start of the episode, each row is updated once towards its λ-return up to the horizon, whose
    bootstrap values are under the weights before the transition that leads there. θ after each transition.
    """
    theta, result = [ZERO] * n, []
    for episode in runs:
        start, known = theta, []  # weights before each transition
        for last in range(len(episode)):
            known.append(theta)
            theta = start
            for t in range(last + 1):
                error = lambda_return(episode, t, last, lmbda, known) - dot(episode[t].phi, theta)
                theta = axpy(step_size * error, episode[t].phi, theta)
            result.append(theta)
    return result


def lambda_return(episode, t, last, lmbda, known):
    """G_t^λ = (1−λ) Σ_{k<last} λ^{k−t} G_t^{(k+1−t)} + λ^{last−t} G_t^{(last+1−t)}."""
    total, product, rewards = ZERO, Fraction(1), ZERO
    for k in range(t, last + 1):
        rewards += product * episode[k].rewards[0]
        product *= episode[k].discount
        part = 1 if k == last else 1 - lmbda
        total += part * lmbda ** (k - t) * (rewards + product * dot(episode[k].successor, known[k]))
    return total


ALGORITHMS = {
    "accumulating": lambda *arguments: td(*arguments, accumulating_trace),
    "replacing": lambda *arguments: td(*arguments, replacing_trace),
    "true_online": true_online_td,
}
