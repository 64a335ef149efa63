"""Transitions of online estimators: random streams of them, and the estimators' definitions by direct sums."""

from __future__ import annotations

import warnings
from decimal import MAX_EMAX, MIN_EMIN, Decimal, getcontext, localcontext
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

import naive
from lstd.errors import IllConditionedWarning
from streams import draw_rows
from tolerances import TOLERANCES
from twins import python_bodies

VARIANTS = naive.VARIANTS
PLACES = ("blocked", "change_detection", "traces", "inverse", "online_step", "td_update")
UNIT = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))


PYTHON = python_bodies({name: f"lstd._kernels.{name}" for name in PLACES}, lanes=0)


class Transition(NamedTuple):
    """Arguments of one update."""

    x: np.ndarray
    reward: float
    x_next: np.ndarray
    terminated: bool
    truncated: bool
    discount: float
    ratio: float
    coefficient: float = 1.0
    weight: float = 1.0

    @property
    def ahead(self):
        """Discount on arrival."""
        return 0.0 if self.terminated else self.discount

    def feed(self, model, form=lambda row: row):
        more = {} if self.coefficient == 1.0 else {"trace_coefficient": self.coefficient}
        more |= {} if self.weight == 1.0 else {"weight": self.weight}
        model.update(
            form(self.x), self.reward, form(self.x_next), terminated=self.terminated, truncated=self.truncated,
            discount=self.discount, importance_ratio=self.ratio, **more,
        )  # fmt: skip


def transitions(X, y, gamma=0.95):
    """One stream whose last row is the successor of the one before."""
    return [Transition(X[t], y[t], X[t + 1], False, False, gamma, 1.0) for t in range(len(X) - 1)]


@st.composite
def streams(draw, most=16, gaps=True, ratios=True, widths=(1, 2, 3, 4, 17), weighted=False):
    """Transitions, among them ends of episodes, zero and repeated features, and where asked for rows that jump.

    Weights and trace coefficients too, if `weighted`.
    """
    n_steps, n = draw(st.integers(1, most)), draw(st.sampled_from(widths))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    rows = draw_rows(draw, random, n_steps + 1, n)
    gamma = draw(UNIT)
    discounts = np.full(n_steps, gamma)
    if draw(st.booleans()):
        discounts = random.uniform(size=n_steps) * (random.uniform(size=n_steps) < 0.8)
    importance = random.uniform(0.0, 2.0, n_steps) if ratios and draw(st.booleans()) else np.ones(n_steps)
    ones, some = np.ones(n_steps), draw(st.booleans()) if weighted else False
    coefficients, weights = random.choice([0.0, 0.5, 1.0, 1.2], (2, n_steps)) if some else (ones, ones)
    ends = random.choice(
        3, n_steps, p=draw(st.sampled_from([(1, 0, 0), (0.8, 0.2, 0), (0.8, 0, 0.2), (0.6, 0.2, 0.2)]))
    )
    jumps = random.uniform(size=n_steps) < (draw(st.sampled_from([0.0, 0.3])) if gaps else 0.0)
    stream = []
    for t in range(n_steps):
        x_next = random.normal(size=n) if jumps[t] or ends[t] == 2 else rows[t + 1]
        stream.append(Transition(
            rows[t], random.normal(), x_next, bool(ends[t] == 1), bool(ends[t] == 2), discounts[t], importance[t],
            coefficients[t], weights[t],
        ))  # fmt: skip
    return stream


def spans(stream):
    """Index of the first transition of the episode of each."""
    first, result = 0, []
    for t, transition in enumerate(stream):
        result.append(first)
        if transition.terminated or transition.truncated:
            first = t + 1
    return result


def trace(stream, t, lmbda):
    """z_t = Σ_i (Π_{j=i..t} ρ_j)(Π_{j=i..t−1} c_{j+1}λγ_{j+1}) φ_i over the rows i of its episode, a direct sum."""
    z = np.zeros(len(stream[t].x))
    for i in range(spans(stream)[t], t + 1):
        ratios = np.prod([stream[j].ratio for j in range(i, t + 1)])
        z += ratios * np.prod([stream[j + 1].coefficient * lmbda * stream[j].ahead for j in range(i, t)]) * stream[i].x
    return z


def share(variant, lmbda):
    return naive.SHARES[variant](lmbda)


def system(stream, variant, lmbda):
    """A = Σ wz (φ − γφ')ᵀ + (1 − share) Σ_ends wγ z φ'ᵀ over truncated ends and the end of the data; b = Σ wz r."""
    n = len(stream[0].x) if stream else 0
    A, b = np.zeros((n, n)), np.zeros(n)
    for t, step in enumerate(stream):
        z = step.weight * trace(stream, t, lmbda)
        A += np.outer(z, step.x - step.ahead * step.x_next)
        b += step.reward * z
        if t == len(stream) - 1 or (step.truncated and not step.terminated):
            A += (1.0 - share(variant, lmbda)) * step.ahead * np.outer(z, step.x_next)
    return A, b


decimals = np.vectorize(lambda number: Decimal(float(number)), otypes=[object])


def exact_every_step(stream, variants, lmbda, alpha, last_only=False, digits=50, steps=None):
    """Matrices A + αI and weights, from so many digits rounded to float64, after each transition; per variant.

    With `steps`, only after those of the transitions, counted from 0, in the order of the stream.

    The sums of `system`, kept as they grow; None for the weights of a system that is singular.
    """
    if steps is None:
        steps = [len(stream) - 1] if last_only else range(len(stream))
    with localcontext(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX):
        n, lmbda, z, within = len(stream[0].x), Decimal(lmbda), 0, False
        unc, ends, b = decimals(alpha * np.eye(n)), decimals(np.zeros((n, n))), decimals(np.zeros(n))
        result = []
        for t, step in enumerate(stream):
            phi, phi_next, ahead = decimals(step.x), decimals(step.x_next), Decimal(float(step.ahead))
            past = Decimal(float(step.coefficient)) * lmbda * Decimal(float(stream[t - 1].ahead)) * z if within else 0
            z, weight = Decimal(float(step.ratio)) * (past + phi), Decimal(float(step.weight))
            end = weight * ahead * np.outer(z, phi_next)
            b = b + weight * Decimal(float(step.reward)) * z
            unc = unc + weight * np.outer(z, phi)
            if t in steps:
                parts = {v: Decimal(naive.SHARES[v](lmbda)) for v in variants}
                systems = {v: unc - part * (ends + end) for v, part in parts.items()}
                result.append({v: (M.astype(float), _solve_exactly(M, b)) for v, M in systems.items()})
            within = not (step.terminated or step.truncated)
            if step.truncated:
                ends = ends + end
            else:
                unc = unc - end
        return result


def _solve_exactly(A, b):
    """Gaussian elimination with the largest pivot; None where that is lost in the rounding of so many digits."""
    rows, n = np.column_stack([A, b]), len(b)
    negligible = abs(A).sum(axis=0).max() * Decimal(10).scaleb(-getcontext().prec)
    for k in range(n):
        pivot = k + int(np.argmax(abs(rows[k:, k])))
        if abs(rows[pivot, k]) <= negligible:
            return None
        rows[[k, pivot]] = rows[[pivot, k]]
        rows[k + 1 :, k:] -= np.outer(rows[k + 1 :, k] / rows[k, k], rows[k, k:])
    weights = rows[:, n]
    for k in reversed(range(n)):
        weights[k] = (weights[k] - rows[k, k + 1 : n] @ weights[k + 1 :]) / rows[k, k]
    return weights.astype(float)


def read_weights(model, variant):
    """Weights of a variant, and whether the reading warned that the system is ill-conditioned."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = model.weights_for(variant)
    assert {warning.category for warning in given} <= {IllConditionedWarning}
    return found, bool(given)


def scales(M):
    """Compute the diagonals of R and C, (n,) each: powers of two, so that entries of R M C are of order 1.

    The diagonal comes first, as for a Gram matrix, then the largest entries of rows, then of columns.
    """
    start = _inverse_power(np.sqrt(np.abs(M.diagonal())))
    size = start[:, np.newaxis] * np.abs(M) * start
    rows = _inverse_power(size.max(axis=1))
    return start * rows, start * _inverse_power((rows[:, np.newaxis] * size).max(axis=0))


def _inverse_power(sizes):
    """Round 1 / size to a power of two; 1 if the size is zero or not finite."""
    usable = (sizes > 0.0) & np.isfinite(sizes)
    return np.ldexp(1.0, -np.frexp(np.where(usable, sizes, 0.5))[1])


def relative_size(move, value, scale):
    """Compute |move / scale| / |value / scale| in the maximum norm, the largest over columns if there are several.

    0 if nothing moves, NaN if numbers overflowed.
    """
    moved, size = (np.abs(v.T / scale).max(axis=-1) for v in (move, value))
    still = moved == 0.0
    return float(np.where(still, 0.0, np.divide(moved, np.where(still, 1.0, size))).max())


def check_reading(found, warned, M, expected):
    """What is promised of weights that were read: digits, or a warning; each weight in units of its own."""
    rows, columns = scales(M)
    condition = np.linalg.cond(rows[:, np.newaxis] * M * columns)
    assert warned or condition <= 1e11, condition
    error = relative_size(found - expected, np.where(expected == 0.0, 1e-300, expected), columns)
    tolerance = TOLERANCES["reading"]
    assert error <= tolerance.atol + tolerance.rtol * condition, (error, condition)


def td_trace(stream, t, lmbda, kind, step_size):
    """Traces by direct sums (accumulating, replacing), or by the dutch trace's own definition (true online)."""
    first = spans(stream)[t]
    if kind == "accumulating":
        return trace(stream, t, lmbda)
    n = len(stream[t].x)
    e = np.zeros(n)
    for i in range(n):
        seen = [s for s in range(first, t + 1) if stream[s].x[i] != 0.0]
        if seen:
            ratios = np.prod([stream[j].ratio for j in range(seen[-1], t + 1)])
            e[i] = ratios * np.prod([lmbda * stream[j].ahead for j in range(seen[-1], t)]) * stream[seen[-1]].x[i]
    return e


def td_every_step(stream, lmbda, step_size, kind):
    """TD(λ): θ ← θ + a (r + γ φ'ᵀθ − φᵀθ) e with e by a direct sum; (T, n)."""
    theta, result = np.zeros(len(stream[0].x)), []
    for t, step in enumerate(stream):
        error = step.reward + step.ahead * (step.x_next @ theta) - step.x @ theta
        theta = theta + step_size * error * td_trace(stream, t, lmbda, kind, step_size)
        result.append(theta)
    return np.array(result)


def online_lambda_return(stream, lmbda, step_size):
    """Online λ-return algorithm (van Seijen et al. 2016): in each episode θ is redone per horizon; (T, n).

    Bootstrap values are of `x_next`, under the weights before the transition that leads there.
    """
    n = len(stream[0].x)
    result, before = [], np.zeros(n)  # weights at the start of the episode
    first, known = 0, []  # weights before each transition of the episode
    for t in range(len(stream)):
        if spans(stream)[t] != first:
            first, before, known = t, result[-1], []
        known.append(before if t == first else result[-1])
        theta = before
        for k in range(first, t + 1):
            theta = (
                theta
                + step_size * (lambda_return(stream, k, t, first, lmbda, known) - stream[k].x @ theta) * stream[k].x
            )
        result.append(theta)
    return np.array(result)


def lambda_return(stream, k, t, first, lmbda, known):
    """Σ_m (1 − λ)λ^{m−1} of the m-step returns from row k up to transition t, the last with all the weight left."""
    total, product, so_far = 0.0, 1.0, 0.0
    for j in range(k, t + 1):
        so_far += product * stream[j].reward
        product *= stream[j].ahead
        value = so_far + product * (stream[j].x_next @ known[j - first])
        total += lmbda ** (j - k) * (1.0 if j == t else 1.0 - lmbda) * value
    return total


def entries(row):
    return np.flatnonzero(row), row[np.flatnonzero(row)]


FORMS = {
    "dense": lambda row: row,
    "list": lambda row: row.tolist(),
    "read-only": lambda row: np.broadcast_to(row, row.shape),
    "strided": lambda row: np.repeat(row, 2)[::2],
    "entries": entries,
    "csr_array": lambda row: sparse.csr_array(row[np.newaxis]),
    "csr_matrix": lambda row: sparse.csr_matrix(row[np.newaxis]),
    "coo_array": lambda row: sparse.coo_array(row[np.newaxis]),
}
