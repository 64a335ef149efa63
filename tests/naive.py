"""Slow, literal statements of every object from its definition: the judge of the compiled code.

Nothing here imports `lstd`; no estimator is computed by a recursion unless its docstring says so. Equation
numbers are those of Osogami (AAAI-20). A stream is ``phi`` (T+1, n), whose last row is only a successor;
``rewards`` (T,) or (T, m), ``rewards[t]`` = r_{t+1} received on leaving row t; ``discounts``, a scalar γ or
an array (T+1,), γ_t on arrival in row t (0 = row t starts an episode); ``rho`` (T,), importance ratios, by
default 1. ``lmbda`` is a scalar λ or, of the double sums, an array (T,), c_tλ with trace coefficients c_t; ``weight``
(T,), w_t, by default 1.
"""

import math
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

GAMMA = 0.99
PROBLEMS = {"small": (10, 3, 0.1, 100), "large": (100, 10, 0.1, 1000), "deterministic": (100, 3, 0.0, 1000)}
# Share of the boundary term γ z_{T−1} φ_Tᵀ that each variant subtracts from A where the data end, from λ
# (of integers, so that λ may be of any type of number)
SHARES = {"boyan": lambda lmbda: 1, "uncorrected": lambda lmbda: 0, "mixed": lambda lmbda: 1 - lmbda}
VARIANTS = tuple(SHARES)


def _stream(phi, discounts, rho):
    """`phi` and `discounts` with T+1 rows, `rho` (or another column) with T."""
    phi = np.asarray(phi, dtype=float)
    n_steps = len(phi) - 1
    discounts = np.broadcast_to(np.asarray(discounts, dtype=float), (n_steps + 1,))
    rho = np.broadcast_to(np.asarray(1.0 if rho is None else rho, dtype=float), (n_steps,))
    return phi, discounts, rho


# ---------------------------------------------------------------- least squares: double sums, forward view


def decay_of(lmbda, discounts, rho):
    """A function of i and t, the share of φ_i that is left in z_t: Π_{j=i..t} ρ_j Π_{j=i+1..t} c_jλγ_j.

    In the paper it is (λγ)^{t−i}.
    """
    ratios, steps = rho.tolist(), (lmbda * discounts[:-1]).tolist()  # products of floats are quicker than of an array
    return lambda i, t: math.prod(ratios[i : t + 1]) * math.prod(steps[i + 1 : t + 1])


def trace(phi, t, lmbda, discounts, rho=None):
    """Eligibility trace z_t = Σ_{i≤t} (λγ)^{t−i} φ_i, Theorem 1; z_{−1} = 0."""
    phi, discounts, rho = _stream(phi, discounts, rho)
    decay = decay_of(lmbda, discounts, rho)
    z = np.zeros(phi.shape[1])
    for i in range(t + 1):
        z += decay(i, t) * phi[i]
    return z


def vector_b(phi, rewards, lmbda, discounts, rho=None, weight=None):
    """(8): b_T = Σ_t φ_t Σ_{m=0}^{T−t−1} (λγ)^m w_{t+m} r_{t+1+m}; (n,) or (n, m)."""
    phi, discounts, rho = _stream(phi, discounts, rho)
    _, _, weight = _stream(phi, discounts, weight)
    rewards = np.asarray(rewards, dtype=float)
    n_steps = len(phi) - 1
    decay = decay_of(lmbda, discounts, rho)
    b = np.zeros(phi.shape[1:] + rewards.shape[1:])
    for t in range(n_steps):
        shares = [decay(t, t + m) for m in range(n_steps - t)]
        b += np.multiply.outer(phi[t], (weight[t:] * shares) @ rewards[t:])
    return b


def matrix_uncorrected(phi, lmbda, discounts, rho=None, weight=None):
    """(7): A_T = Σ_t φ_t (φ_t − (1−λ)γ Σ_{m=1}^{T−t−1} (λγ)^{m−1} φ_{t+m})ᵀ.

    In general: Σ_t φ_t (w_tρ_t φ_t − Σ_{k=t+1}^{T−1} (w_{k−1} − w_kρ_k c_kλ) γ_k decay(t, k−1) φ_k)ᵀ.
    """
    return _matrix(phi, lmbda, discounts, rho, weight, bootstraps=False)


def matrix_boyan(phi, lmbda, discounts, rho=None, weight=None):
    """(17): as (7), each row's bracket less w γ (λγ)^{T−t−1} φ_T, the bootstrap at the end of the data."""
    return _matrix(phi, lmbda, discounts, rho, weight, bootstraps=True)


def _matrix(phi, lmbda, discounts, rho, weight, bootstraps):
    phi, discounts, rho = _stream(phi, discounts, rho)
    _, _, weight = _stream(phi, discounts, weight)
    n_steps, n = len(phi) - 1, phi.shape[1]
    decay = decay_of(lmbda, discounts, rho)
    factors = (weight[:-1] - (weight * rho * lmbda)[1:]) * discounts[1:-1]
    A = np.zeros((n, n))
    for t in range(n_steps):
        shares = [decay(t, k - 1) for k in range(t + 1, n_steps)]
        row = weight[t] * rho[t] * phi[t] - (factors[t:] * shares) @ phi[t + 1 : n_steps]
        if bootstraps:
            end = weight[-1] * discounts[n_steps] * decay(t, n_steps - 1)
            row = row - end * phi[n_steps]
        A += np.outer(phi[t], row)
    return A


def matrix_mixed(phi, lmbda, discounts, rho=None, weight=None, share=None):
    """Mixed LSTD(λ): the weighted average λ·Uncorrected + (1−λ)·Boyan; `share` is λ where `lmbda` is an array."""
    share = lmbda if share is None else share
    uncorrected = matrix_uncorrected(phi, lmbda, discounts, rho, weight)
    return share * uncorrected + (1 - share) * matrix_boyan(phi, lmbda, discounts, rho, weight)


def transposed_product(u, phi, successors, lmbda, discounts, rho, weight):
    """Aᵀu of one episode, Σ w_t (φ_t − γ_{t+1} φ'_t) e_t with e_t = ρ_t (c_tλγ_t e_{t−1} + φ_tᵀu), from successors."""
    e, out = 0.0, np.zeros(phi.shape[1])
    for t in range(len(successors)):
        e = rho[t] * (lmbda[t] * discounts[t] * e + phi[t] @ u)
        out += weight[t] * (phi[t] - discounts[t + 1] * successors[t]) * e
    return out


MATRIX = {"boyan": matrix_boyan, "uncorrected": matrix_uncorrected, "mixed": matrix_mixed}


def weights(A, b, alpha):
    """θ = (A + αI)⁻¹ b."""
    return np.linalg.solve(A + alpha * np.eye(len(A)), b)


def forgotten_ridge(alpha, n_updates, forgetting):
    """Ridge (n,) beside a weight of 1 of the last row: it shrinks by f a row, that of feature i is restored every L.

    L is n, or a tenth of 1/(1 − f) if that is more, and 1/(1 − f) if n is more than that.
    """
    alpha = np.asarray(alpha, dtype=float)
    n, effective = len(alpha), 1.0 / (1.0 - forgetting)
    length = min(max(n, round(effective / 10)), max(1, round(effective)))
    ridge = alpha.copy()
    for t in range(1, n_updates + 1):
        ridge *= forgetting
        restored = [i for i in range(n) if i * length // n == t % length]
        ridge[restored] = alpha[restored]
    return ridge


def chosen_rate(losses):
    """Which rate is read after blocks with mean squared errors ``losses`` (J, K), the last of no forgetting.

    Block j of J has weight .99^{J−1−j}. A rate is eligible if it is better than no forgetting by three standard errors.
    """
    n_blocks, n_rates = losses.shape
    weight = 0.99 ** np.arange(n_blocks)[::-1]
    effective = weight.sum() ** 2 / (weight**2).sum() if n_blocks else 0.0
    best = n_rates - 1
    if effective < 3:
        return best
    for k in range(n_rates - 1):
        d = losses[:, -1] - losses[:, k]
        mean = np.average(d, weights=weight)
        error = math.sqrt(np.average((d - mean) ** 2, weights=weight) / (effective - 1))
        if mean > 3 * error and np.average(losses[:, k], weights=weight) < np.average(losses[:, best], weights=weight):
            best = k
    return best


def vanishing_ridge_weights(A, b, penalty):
    """The limit of (A + εD)⁻¹ b as ε falls to zero, D = diag(penalty): solved at ε = 10⁻⁴⁰ in rational numbers."""
    n = len(A)
    rows = [[Fraction(float(a)) for a in row] + [Fraction(float(value))] for row, value in zip(A, b, strict=True)]
    for i in range(n):
        rows[i][i] += Fraction(float(penalty[i])) / 10**40
    for i in range(n):  # Gauss and Jordan
        pivot = next(k for k in range(i, n) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = [one - rows[k][i] * two for one, two in zip(rows[k], rows[i], strict=True)]
    return np.array([float(row[n]) for row in rows])


def predictions_without_ridge(X, fitted, A, b):
    """Predictions (T,) at α = 0 of rows X (T, n), in which the last column is ones and has no penalty.

    The ones are needless if Xw = 1 in all rows for some w of the other columns, and the columns that occur in `fitted`
    rows have linearly independent equations. Then they are left out; their weight is zero.
    """
    X, n = np.asarray(X, dtype=float), len(A) - 1
    seen = np.flatnonzero(X[fitted, :n].any(axis=0))
    rank = np.linalg.matrix_rank
    needless = rank(X[:, :n]) == rank(X) and rank(A[np.ix_(seen, seen)]) == len(seen)
    if not needless:
        return X @ vanishing_ridge_weights(A, b, np.append(np.ones(n), 0.0))
    return X[:, :n] @ vanishing_ridge_weights(A[:n, :n], b[:n], np.ones(n))


def weights_every_step(variant, phi, rewards, lmbda, alpha, discounts, rho=None):
    """θ_0 … θ_T, (T+1, n): each by a solve of the double sums over the first rows alone."""
    phi, discounts, rho = _stream(phi, discounts, rho)
    result = []
    for end in range(len(phi)):
        head = (lmbda, discounts[: end + 1], rho[:end])
        A = MATRIX[variant](phi[: end + 1], *head)
        result.append(weights(A, vector_b(phi[: end + 1], rewards[:end], *head), alpha))
    return np.array(result)


def decays(t, lmbda, discounts, rho):
    """``[decay(i, t) for i in 0..t]``, the products formed from the latest row backwards; (t+1,)."""
    ratios = np.cumprod(rho[: t + 1][::-1])[::-1]
    return ratios * np.append(np.cumprod(lmbda * discounts[1 : t + 1][::-1])[::-1], 1.0)


def weights_every_step_grouped(variant, phi, rewards, lmbda, alpha, discounts, rho=None):
    """As `weights_every_step`, for long streams: the terms of the double sums grouped by their later row.

    Theorem 1 and Lemma 2, with each trace a direct sum; still one solve per step.
    """
    phi, discounts, rho = _stream(phi, discounts, rho)
    n_steps, n = len(phi) - 1, phi.shape[1]
    end_share = SHARES[variant](lmbda)
    A, b, z = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    result = [np.zeros(n)]
    for t in range(n_steps):
        z_last, z = z, decays(t, lmbda, discounts, rho) @ phi[: t + 1]
        A += np.outer(z - discounts[t] * z_last, phi[t])
        b += z * rewards[t]
        end = end_share * discounts[t + 1] * np.outer(z, phi[t + 1])
        result.append(weights(A - end, b, alpha))
    return np.array(result)


def discounted_returns(rewards, discounts):
    """G_t = Σ_{k=0}^{T−t−1} (Π_{j=1..k} γ_{t+j}) r_{t+1+k}: what was observed up to T; (T,)."""
    n_steps = len(rewards)
    discounts = np.broadcast_to(np.asarray(discounts, dtype=float), (n_steps + 1,))
    returns = np.zeros(n_steps)
    for t in range(n_steps):
        for k in range(n_steps - t):
            returns[t] += math.prod(discounts[t + 1 : t + 1 + k]) * rewards[t + k]
    return returns


def ridge(phi, targets, alpha):
    """Ridge regression without intercept by its normal equations: (ΦᵀΦ + αI)⁻¹ Φᵀ G."""
    return np.linalg.solve(phi.T @ phi + alpha * np.eye(phi.shape[1]), phi.T @ targets)


# ---------------------------------------------------------------- theory: Lemma 1, Proposition 1, Theorem 2


def reward_series(P, r, gamma):
    """γ^m P^m r, m = 0, 1, … until 1e-18 of the first; ends only if γ < 1 or P terminates; (M, k)."""
    terms = [np.asarray(r, dtype=float)]
    largest = np.abs(terms[0]).max()
    while np.abs(terms[-1]).max() > 1e-18 * largest:
        terms.append(gamma * (P @ terms[-1]))
    return np.array(terms)


def true_values(P, r, gamma):
    """v = Σ_m γ^m P^m r; (k,)."""
    return reward_series(P, r, gamma).sum(axis=0)


def hypothetical_b(features, P, r, states, rewards, lmbda, gamma):
    """Lemma 1: b*_T, where the return that the data cut at T goes on with its expectation given s_t.

    b*_T = Σ_t φ_t [Σ_{m<T−t} (λγ)^m r_{t+1+m} + λ^{T−t−1} Σ_{m≥T−t} γ^m (P^m r)(s_t)].
    """
    n_steps = len(rewards)
    terms = reward_series(P, r, gamma)
    b = np.zeros(features.shape[1])
    for t in range(n_steps):
        observed = sum((lmbda * gamma) ** m * rewards[t + m] for m in range(n_steps - t))
        tail = terms[n_steps - t :, states[t]].sum()
        b += features[states[t]] * (observed + lmbda ** (n_steps - t - 1) * tail)
    return b


def proposition1(n_steps, lmbda, gamma, mu, sigma):
    """Proposition 1 exactly, from double sums: φ_t = 1, i.i.d. rewards of mean μ and standard deviation σ."""
    ones = np.ones((n_steps + 1, 1))
    A = {name: MATRIX[name](ones, lmbda, gamma)[0, 0] for name in ("boyan", "uncorrected")}
    share = np.zeros(n_steps)  # of the reward R_n in b_T, n = t + 1 + m
    for t in range(n_steps):
        for m in range(n_steps - t):
            share[t + m] += (lmbda * gamma) ** m
    mean_b, variance_b = mu * share.sum(), sigma**2 * (share**2).sum()
    bias = {name: mean_b / A[name] - mu / (1 - gamma) for name in A}
    variance = {name: variance_b / A[name] ** 2 for name in A}
    return {"bias": bias, "variance": variance, "ratio": variance["boyan"] / variance["uncorrected"]}


def proposition1_asymptotic(n_steps, gamma, mu):
    """Proposition 1 less its o(1/T): (18), the bias of Uncorrected, and the ratio of the variances."""
    bias = {"boyan": 0.0, "uncorrected": -gamma * mu / ((1 - gamma) ** 2 * n_steps)}
    return {"bias": bias, "ratio": 1 + 2 * gamma / ((1 - gamma) * n_steps)}


def theorem2_limit(features, P, r, stationary, lmbda, gamma):
    """Theorem 2: Ā = ΦᵀDΦ + Σ_{m≥1} (λγ)^{m−1} (λγ − γ) ΦᵀDP^mΦ and b̄ = Σ_m (λγ)^m ΦᵀDP^m r."""
    left = features.T * stationary  # ΦᵀDP^m
    A, b = left @ features, left @ r
    factor = 1.0  # (λγ)^{m−1}
    while factor * np.abs(left).max() > 1e-18:
        left = left @ P
        A = A + factor * (lmbda * gamma - gamma) * (left @ features)
        b = b + factor * lmbda * gamma * (left @ r)
        factor *= lmbda * gamma
    return A, b


# ---------------------------------------------------------------- temporal differences


def n_step_return(t, n, phi, rewards, discounts, theta):
    """G_t^{(n)} = Σ_{k=1}^n γ^{k−1} r_{t+k} + γ^n φ_{t+n}ᵀθ_{t+n−1}; γ^n is a product of discounts."""
    products = np.append(1.0, np.cumprod(discounts[t + 1 : t + n + 1]))
    return products[:n] @ rewards[t : t + n] + products[n] * (phi[t + n] @ theta[t + n - 1])


def online_lambda_return(phi, rewards, lmbda, step_size, discounts):
    """Online λ-return algorithm (van Seijen et al. 2016, section 3): θ_h redone from θ_0 = 0 per horizon h.

    G_t^{λ|h} = (1−λ) Σ_{n=1}^{h−t−1} λ^{n−1} G_t^{(n)} + λ^{h−t−1} G_t^{(h−t)}; θ_0 … θ_T are (T+1, n).
    """
    phi, discounts, _ = _stream(phi, discounts, None)
    n_steps = len(phi) - 1
    theta = [np.zeros(phi.shape[1])]
    returns = np.zeros((n_steps, n_steps + 1))  # G_t^{(n)}; each uses a θ of an earlier horizon only
    for h in range(1, n_steps + 1):
        w = theta[0]
        for t in range(h):
            returns[t, h - t] = n_step_return(t, h - t, phi, rewards, discounts, theta)
            mixture = (1 - lmbda) * (lmbda ** np.arange(h - t - 1.0)) @ returns[t, 1 : h - t]
            target = mixture + lmbda ** (h - t - 1) * returns[t, h - t]
            w = w + step_size * (target - phi[t] @ w) * phi[t]
        theta.append(w)
    return np.array(theta)


def true_online_td(phi, rewards, lmbda, step_size, discounts):
    """True online TD(λ) as van Seijen et al. (2016, Algorithm 1) write its recursion; θ_0 … θ_T, (T+1, n)."""
    phi, discounts, _ = _stream(phi, discounts, None)
    w, e, v_old = np.zeros(phi.shape[1]), np.zeros(phi.shape[1]), 0.0
    theta = [w]
    for t in range(len(phi) - 1):
        v, v_next = phi[t] @ w, phi[t + 1] @ w
        delta = rewards[t] + discounts[t + 1] * v_next - v
        decayed = lmbda * discounts[t] * e
        e = decayed + phi[t] - step_size * (decayed @ phi[t]) * phi[t]
        w = w + step_size * (delta + v - v_old) * e - step_size * (v - v_old) * phi[t]
        v_old = v_next
        theta.append(w)
    return np.array(theta)


def accumulating_trace(phi, t, lmbda, discounts):
    """e_t = Σ_{i≤t} (Π_{j=i+1..t} λγ_j) φ_i."""
    return decays(t, lmbda, discounts, np.ones(t + 1)) @ phi[: t + 1]


def replacing_trace(phi, t, lmbda, discounts):
    """e_t[i] = (Π_{j=s+1..t} λγ_j) φ_s[i], s the last step up to t at which feature i was not 0."""
    left = decays(t, lmbda, discounts, np.ones(t + 1))
    e = np.zeros(phi.shape[1])
    for i in range(phi.shape[1]):
        nonzero = np.flatnonzero(phi[: t + 1, i])
        if nonzero.size:
            e[i] = left[nonzero[-1]] * phi[nonzero[-1], i]
    return e


def td(phi, rewards, lmbda, step_size, discounts, trace_of=accumulating_trace):
    """TD(λ): θ_{t+1} = θ_t + a (r_{t+1} + γ φ_{t+1}ᵀθ_t − φ_tᵀθ_t) e_t, e_t by a direct sum; (T+1, n)."""
    phi, discounts, _ = _stream(phi, discounts, None)
    theta = [np.zeros(phi.shape[1])]
    for t in range(len(phi) - 1):
        w = theta[-1]
        delta = rewards[t] + discounts[t + 1] * (phi[t + 1] @ w) - phi[t] @ w
        theta.append(w + step_size * delta * trace_of(phi, t, lmbda, discounts))
    return np.array(theta)


td_replacing = partial(td, trace_of=replacing_trace)
TD = {"true_online_td": true_online_td, "td": td, "td_replacing": td_replacing}


# ---------------------------------------------------------------- the paper's problems


def random_mrp(n_states, branching, seed):
    """P (k, k), rewards R (k, k) of (s, s'), and the generator, whose next draws are normal features."""
    random = np.random.RandomState(seed)
    for _ in range(n_states * n_states):
        random.uniform()
    P = np.zeros((n_states, n_states))
    for s in range(n_states):
        successors = random.choice(n_states, branching, replace=False)
        cuts = [0.0, *sorted(random.uniform() for _ in range(branching - 1)), 1.0]
        for i in range(branching):
            P[s, successors[i]] = cuts[i + 1] - cuts[i]
    R = np.array([[random.normal() for _ in range(n_states)] for _ in range(n_states)])
    for _ in range(n_states):
        random.uniform()
    return P, R, random


def make_features(name, n_states, random):
    """Unit vectors; the bits of s+1, most significant first; or 5 normals row by row. Rows have length 1."""
    if name == "tabular":
        return np.eye(n_states)
    if name == "binary":
        n = math.ceil(math.log2(n_states + 1))
        rows = np.array([[float(bit) for bit in format(s + 1, f"0{n}b")] for s in range(n_states)])
    else:
        rows = np.array([[random.normal() for _ in range(5)] for _ in range(n_states)])
    return np.array([row / math.sqrt(sum(row**2)) for row in rows])


def simulate(P, R, reward_std, n_steps, seed):
    """A run from state 0: states (T+1,), rewards (T,); uniforms and normals in turn from one generator."""
    random = np.random.RandomState(seed)
    states, rewards = [0], []
    for _ in range(n_steps):
        s, u, cumulative = states[-1], random.uniform(), 0.0
        for s_next in range(len(P)):
            cumulative += P[s, s_next]
            if u < cumulative:
                break
        noise = random.normal(0.0, reward_std) if reward_std > 0 else 0.0
        states.append(s_next)
        rewards.append(R[s, s_next] + noise)
    return np.array(states), np.array(rewards)


def stationary(P, start=0, restart=None):
    """Limit of the average of the distributions of s_0, …, s_N from state `start`; (k,).

    Powers of the lazy chain (I + P)/2 have the same limit and never cycle, so squaring 64 times reaches it.
    Where rows of P add to less than 1 the chain starts again from the distribution `restart`.
    """
    P = np.asarray(P, dtype=float)
    if restart is not None:
        P = P + np.outer(1 - P.sum(axis=1), restart)
    power = (np.eye(len(P)) + P) / 2
    for _ in range(64):
        power = power @ power
        power /= power.sum(axis=1, keepdims=True)
    return power[start]


def best_fit(features, values, stationary):
    """θ* that minimises Σ_s D(s) (φ(s)ᵀθ − v(s))², the shortest one where several do; (n,)."""
    root = np.sqrt(stationary)
    return np.linalg.lstsq(root[:, None] * features, root * values, rcond=None)[0]


def normalised_error(w, features, stationary, theta_star):
    """(Φθ−Φθ*)ᵀ D (Φθ−Φθ*) / (Φθ*)ᵀ D (Φθ*)."""
    fit = features @ theta_star
    return stationary @ (features @ w - fit) ** 2 / (stationary @ fit**2)


@lru_cache(maxsize=16)
def problem(name, features_name, mrp_seed=1000):
    """P, R, Φ, D, θ* of a problem of the paper."""
    n_states, branching, _, _ = PROBLEMS[name]
    P, R, random = random_mrp(n_states, branching, mrp_seed)
    features = make_features(features_name, n_states, random)
    values = true_values(P, (P * R).sum(axis=1), GAMMA)
    D = stationary(P)
    return P, R, features, D, best_fit(features, values, D)


def sweep_entry(name, features_name, algorithm, lmbda, alpha, run_seed, n_steps=None, mrp_seed=1000):
    """Normalised error averaged over the steps 1…T of a run; inf if the weights overflowed.

    `alpha` is the ridge coefficient, or the step size of a TD algorithm.
    """
    P, R, features, D, theta_star = problem(name, features_name, mrp_seed)
    _, _, reward_std, default_steps = PROBLEMS[name]
    states, rewards = simulate(P, R, reward_std, n_steps or default_steps, run_seed)
    arguments = (features[states], rewards, lmbda, alpha, GAMMA)
    run = TD.get(algorithm) or partial(weights_every_step_grouped, algorithm)
    with np.errstate(over="ignore", invalid="ignore"):
        theta = run(*arguments)
        error = np.mean([normalised_error(w, features, D, theta_star) for w in theta[1:]])
    return error if np.isfinite(error) else np.inf


def influence(matrices, vectors, theta, ridge, units):
    """q_e = √(1 − w_e) (S − A_e)⁻¹ (g_e − w_e Σ g) of blocks, (E, n), from A and b of what came before their ends.

    `units` is how many rows or episodes each block has; w_e their shares.
    """
    S, shares = matrices[-1] + np.diag(ridge), np.array(units) / np.sum(units)
    total = vectors[-1] - matrices[-1] @ theta
    found, A_before, b_before = [], np.zeros_like(S), np.zeros_like(theta)
    for A, b, share in zip(matrices, vectors, shares, strict=True):
        A_e, b_e = A - A_before, b - b_before
        score = b_e - A_e @ theta - share * total
        found.append(np.sqrt(1 - share) * np.linalg.inv(S - A_e) @ score)
        A_before, b_before = A, b
    return np.array(found)


def cluster_jackknife(sums):
    """Covariance of the weights at α = 0, (n, n): (1 − 1/G) Σ d_g d_gᵀ, where d_g is what leaving group g out changes.

    `sums` has A and b of each of G groups.
    """

    def weights_of(some):
        return np.linalg.solve(sum(A for A, _ in some), sum(b for _, b in some))

    theta = weights_of(sums)
    changes = [theta - weights_of(sums[:g] + sums[g + 1 :]) for g in range(len(sums))]
    return (1 - 1 / len(sums)) * sum(np.outer(d, d) for d in changes)


def uncorrelated(columns, features):
    """Columns less their least-squares fit by the features, each of mean square one; those that vanish are dropped."""
    rest = columns - features @ np.linalg.lstsq(features, columns, rcond=None)[0]
    kept = np.mean(rest**2, axis=0) > 1e-6 * np.mean(columns**2, axis=0)
    return rest[:, kept] / np.sqrt(np.mean(rest[:, kept] ** 2, axis=0))


def squares_and_products(features):
    """Squares and products of standardised features, clipped at three standard deviations, (T, n (n + 1) / 2)."""
    z = np.clip((features - features.mean(axis=0)) / features.std(axis=0), -3.0, 3.0)
    n = z.shape[1]
    return np.column_stack([z[:, i] * z[:, j] for i in range(n) for j in range(i, n)])


def block_scores(tests, phi, returns, slices, c):
    """s (r,) and u_e (E, r) of test functions that are uncorrelated with the features, where returns are complete."""
    S = phi.T @ phi
    residuals = returns - phi @ np.linalg.solve(S, phi.T @ returns)
    scores = []
    for part in slices:
        without = S - c * phi[part].T @ phi[part]
        changed = residuals[part] + c * phi[part] @ np.linalg.solve(without, phi[part].T @ residuals[part])
        scores.append(tests[part].T @ changed / len(phi))
    return tests.T @ residuals / len(phi), np.array(scores)


def functions_of_age(age):
    """e^(−s), e^(−s/4) and e^(−s/16) of the steps s since the episode, or the log, began, (T, 3)."""
    return np.array([[math.exp(-s / scale) for scale in (1, 4, 16)] for s in age])


def steps_since_earliest(time, episode):
    """Steps from the earliest time to each, in units of the median step between two rows of an episode, (T,)."""
    steps = [b - a for a, b, i, j in zip(time, time[1:], episode, episode[1:], strict=False) if i == j]
    return np.array([(t - min(time)) / np.median(steps) for t in time])


def ages_differ(age, time):
    """Whether two rows of one time, in whole steps, differ in age."""
    return any(s == t and a != b for s, a in zip(time, age, strict=True) for t, b in zip(time, age, strict=True))


def sign_flip_rank(statistic, s, u, signs):
    """Rank of a statistic of s (r,), the largest first, among those of Σ ±u_e, with `signs` (draws, E)."""
    draws = [s, *(some @ np.asarray(u) for some in signs)]
    return sum(statistic(draw) >= statistic(s) for draw in draws)


def sign_flip_p_value(statistics, s, u, signs):
    """Rank of the smallest rank of statistics of s (r,) among those of Σ ±u_e, with `signs` (draws, E)."""
    draws = [s, *(some @ np.asarray(u) for some in signs)]
    values = np.array([[statistic(draw) for draw in draws] for statistic in statistics])
    least = [min(np.sum(of >= of[k]) for of in values) for k in range(len(draws))]
    return sum(one <= least[0] for one in least) / len(draws)


def degrees_of_freedom(u, shares):
    """Satterthwaite's degrees of freedom of Σ u_e², with a guard of 10 w² on the kurtosis; a number."""
    w2 = sum(share**2 for share in shares)
    rho = sum(x**4 for x in u) / sum(x**2 for x in u) ** 2
    below = rho * (1 + 10 * w2) - w2
    return min(max(2 / below, 2.0), max(2.0, 1 / w2 - 1)) if below > 0 else max(2.0, 1 / w2 - 1)


def reference_returns(phi, rewards, w, lmbda, discounts, rho=None):
    """λ-returns bootstrapped by weights w, (T,): G_t = φ_tᵀw + Σ_{j≥t} decay(t, j) δ_j, to the end of the stream."""
    phi, discounts, rho = _stream(phi, discounts, rho)
    errors = [r + discounts[j + 1] * phi[j + 1] @ w - phi[j] @ w for j, r in enumerate(rewards)]
    decay, last = decay_of(lmbda, discounts, rho), len(rewards)
    return np.array([phi[t] @ w + sum(decay(t, j) * errors[j] for j in range(t, last)) for t in range(last)])


def beside_reference(phi, weights, reference, outside, reference_outside, variance):
    """D, C and the D without each fold, (K,), of one setting beside a reference; see `covariance_penalty`.

    ``phi`` (T, n) are the rows; ``weights`` (n,) those from all rows, ``outside`` (K, n) those without each fold.
    """

    def mean_product(one, other):
        return np.mean([(row @ one) * (row @ other) for row in phi]) / variance

    n_folds = len(outside)
    distance = mean_product(weights - reference, weights - reference)
    mean, mean_reference = outside.mean(axis=0), reference_outside.mean(axis=0)
    products = [mean_product(w - mean, r - mean_reference) for w, r in zip(outside, reference_outside, strict=True)]
    covariance = max(0.0, (n_folds - 1) / n_folds * sum(products))
    without = [mean_product(w - r, w - r) for w, r in zip(outside, reference_outside, strict=True)]
    return distance, covariance, np.array(without)


# ---------------------------------------------------------------- returns that were cut off


def completed_return(t, rewards, discounts, rho, values, cut, coefficients):
    """Return of row t with the value at the cut: expected over the ways to go on, where a ratio of 1 goes on surely.

    ``values`` (T+1,) of rows and of what follows the last one; the episode is rows 0, …, T−1 and was cut off, or ended.
    After row j, the share c_{j+1} of ``coefficients`` (T,) goes on, and the rest is the value there.
    """
    found, share = 0.0, 1.0
    for j in range(t, len(rewards)):
        found += share * (values[j] + rho[j] * (rewards[j] - values[j]))
        share *= rho[j] * discounts[j]
        if j + 1 < len(rewards):
            found += share * (1 - coefficients[j + 1]) * values[j + 1]
            share *= coefficients[j + 1]
    return found + (share * values[len(rewards)] if cut else 0.0)


def unobserved_share(t, discounts, cut, coefficients):
    """Π of the discounts from row t to the cut, 0 if the episode ended, and to where coefficients below 1 leave off."""
    found, share = 0.0, 1.0
    for j in range(t, len(discounts)):
        share *= discounts[j]
        if j + 1 < len(discounts):
            kept = min(1.0, coefficients[j + 1])
            found, share = found + share * (1 - kept), share * kept
    return found + (share if cut else 0.0)


def cut_survival(age, lengths, ended):
    """Kaplan-Meier: the probability that no cut comes at ages up to `age`; at equal ages an end comes before a cut.

    Zero from the last cut on if no episode has more rows than that one, which has a row more than it has steps.
    """
    found, cuts = 1.0, [length for length, end in zip(lengths, ended, strict=True) if not end]
    if cuts and age >= max(cuts) and max(lengths) <= max(cuts) + 1:
        return 0.0
    for a in range(int(age) + 1):
        cut = sum(length == a and not end for length, end in zip(lengths, ended, strict=True))
        at_risk = cut + sum(length > a for length in lengths)
        found *= 1 - cut / at_risk if at_risk else 1.0
    return found


def completion_probability(age, completion, lengths, ended):
    """Probability that an episode which was not cut at ages up to `age` is not cut before `completion` either."""
    return cut_survival(completion - 1, lengths, ended) / cut_survival(age, lengths, ended)


def ridge_movement(A, b, alpha, intercept):
    """|bᵀ(θ(α/2) − θ(α))| / |bᵀθ(α)|; with an intercept, of the system from which it was eliminated."""
    A, b = np.array(A, dtype=float), np.array(b, dtype=float)
    if intercept:
        n = len(b) - 1
        rows = [[A[i, j] - A[i, n] * A[n, j] / A[n, n] for j in range(n)] for i in range(n)]
        A, b = np.array(rows), np.array([b[i] - A[i, n] * b[n] / A[n, n] for i in range(n)])
    whole, half = (sum(b * weights(A, b, share * alpha)) for share in (1.0, 0.5))
    return abs(half - whole) / abs(whole)


def column_units(x, weight, centred=True):
    """The centre m of a column, its squared spread s² and its mean square about m, by weight.

    m is the value that at least half of the rows have, the smaller of two, else the mean; zero if the column is not
    centred. s² is the mean of (x − m)² over the rows with another value, and 1 if there are none.
    """
    rows, total = list(zip(x, weight, strict=True)), sum(weight)
    common = [value for value in x if 2 * sum(w for entry, w in rows if entry == value) >= total]
    m = 0.0 if not centred else min(common) if common else sum(w * entry for entry, w in rows) / total
    squares = sum(w * (entry - m) ** 2 for entry, w in rows)
    others = sum(w for entry, w in rows if entry != m)
    return m, squares / others if squares else 1.0, squares / total


def alpha_unit(X, weight, penalty, centred=True):
    """The unit of the chosen ridge coefficient: Σ_j mean((x_j − m_j)²) / penalty_j, times the mean weight."""
    squares = [column_units(x, weight, centred)[2] for x in X.T]
    return np.mean(weight) * sum(square / p for square, p in zip(squares, penalty, strict=True) if p)


def effective_sample(ratios, decay, lengths, weights, coefficients):
    """(Σ g)² / Σ Σ κ_ts g_t g_s with g_t = w_t Σ_i κ_it ρ_i ⋯ ρ_t; in an episode κ_it = Π_{i<j≤t} c_j λγ, else 0."""
    weight, square, start = 0.0, 0.0, 0
    for length in lengths:
        rho, w, c = (x[start : start + length] for x in (ratios, weights, coefficients))
        kappa = [[decay ** (t - i) * np.prod(c[i + 1 : t + 1]) for i in range(t + 1)] for t in range(length)]
        g = [w[t] * sum(kappa[t][i] * np.prod(rho[i : t + 1]) for i in range(t + 1)) for t in range(length)]
        weight += sum(g)
        square += sum(kappa[max(t, s)][min(t, s)] * g[t] * g[s] for t in range(length) for s in range(length))
        start += length
    return weight**2 / square


# ---------------------------------------------------------------- policy evaluation from logged actions


def pair_features(x, a, n_actions):
    """φ(s, a): the features of the state in the block of the action."""
    return np.concatenate([x if action == a else 0.0 * x for action in range(n_actions)])


def expected_pair(x, policy):
    """φ̄(s) = Σ_a π(a|s) φ(s, a)."""
    return sum(p * pair_features(x, a, len(policy)) for a, p in enumerate(policy))


def trace_coefficient(trace, target, behavior):
    """c_t of the probabilities of the logged action."""
    ratio = target / behavior
    return {"retrace": min(1.0, ratio), "none": 0.0}[trace]


def action_value_system(phi, successors, rewards, lmbda, discounts, coefficients, weight, variant):
    """A and b of one episode of T transitions: Σ_t Σ_{i≤t} Π_{i<j≤t} c_jλγ_j w_t φ_i (φ_t − γ_{t+1} φ̄_{t+1})ᵀ.

    `discounts` (T,) on leaving. An episode that was cut off loses φ̄_T by Uncorrected, and the share λ of it by Mixed.
    """
    A, b = np.zeros((phi.shape[1], phi.shape[1])), np.zeros(phi.shape[1])
    kept = SHARES[variant](lmbda)
    for t in range(len(phi)):
        share = kept if t == len(phi) - 1 else 1.0
        for i in range(t + 1):
            left = math.prod(coefficients[j] * lmbda * discounts[j - 1] for j in range(i + 1, t + 1)) * weight[t]
            A += left * np.outer(phi[i], phi[t] - share * discounts[t] * successors[t])
            b += left * phi[i] * rewards[t]
    return A, b


def products_of_ratios(ratios, length):
    """R_t = ρ_0 ⋯ ρ_t for t < `length`; after the end of the episode as it was."""
    return [math.prod(ratios[: t + 1]) for t in range(length)]


def importance_sampling(estimator, episodes, gamma):
    """Estimates from the definitions; an episode has `rewards`, `ratios`, `q` (T,) of logged pairs and `v` (T + 1,).

    `v` has the values of states, and of what follows the last transition.
    """
    length, n = max(len(one["rewards"]) for one in episodes), len(episodes)
    products = [products_of_ratios(one["ratios"], length) for one in episodes]
    returns = [sum(gamma**t * r for t, r in enumerate(one["rewards"])) for one in episodes]
    whole = [product[-1] for product in products]
    if estimator == "is":
        return sum(R * G for R, G in zip(whole, returns, strict=True)) / n
    if estimator == "wis":
        return sum(R * G for R, G in zip(whole, returns, strict=True)) / sum(whole)
    value = sum(one["v"][0] for one in episodes) / n if estimator[-2:] == "dr" else 0.0
    for t in range(length):
        total = sum(product[t] for product in products) if estimator[0] == "w" else n
        for one, product in zip(episodes, products, strict=True):
            if t < len(one["rewards"]):
                x = one["rewards"][t]
                if estimator[-2:] == "dr":
                    x += gamma * one["v"][t + 1] - one["q"][t]
                value += gamma**t * x * product[t] / total
    return value


def are_tied(sums, returns, bounds=None):
    """Whether more than half of the sums of rewards agree, or more than half of the returns are near their median.

    `bounds` are those of the return.
    """
    n, largest = len(sums), max(abs(x) for x in sums)
    if n < 2:
        return False
    for least in sums:
        if 2 * sum(least <= x <= least + 1e-9 * largest for x in sums) > n:
            return True
    if bounds is None:
        return False
    near = [abs(x - np.median(returns)) <= 0.01 * (bounds[1] - bounds[0]) for x in returns]
    return 2 * sum(near) > n


def missed(weights, level):
    """The largest share of a population that 1 / Σ w² draws miss with probability (1 − level)/2, Σ w = 1."""
    n = max(1.0, 1.0 / sum(w**2 for w in weights))
    return 1.0 - ((1.0 - level) / 2.0) ** (1.0 / n)


def tied_interval(value, half, largest, bounds, level):
    """The interval of a value of half width `half`, with the largest weight of each episode, within bounds (a, b)."""
    a, b = bounds
    p = missed([w / sum(largest) for w in largest], level)
    below, above = p * max(0.0, value - a), p * max(0.0, b - value)
    centre = min(max(value, a), b)
    lower = centre - (below / 2 + math.sqrt(below**2 / 4 + half**2))
    upper = centre + (above / 2 + math.sqrt(above**2 / 4 + half**2))
    return max(lower, a), min(upper, b)


def tied_difference(half, one, two, bounds, level):
    """The half width of the difference of two values, with the weights of episodes in each."""
    one, two = ([w / sum(each) for w in each] for each in (one, two))
    apart = [abs(w - v) for w, v in zip(one, two, strict=True)]
    if sum(apart) == 0.0:
        return half
    p = missed([x / sum(apart) for x in apart], level)
    c = p * min(1.0, sum(apart)) * (bounds[1] - bounds[0])
    return c / 2 + math.sqrt(c**2 / 4 + half**2)


def shrunk(estimate, direct, error):
    """The positive-part James-Stein value of an estimate, towards action values; `error` are contributions to both."""
    c = estimate - direct
    s2 = sum(x**2 for x in error)
    return direct + max(0.0, 1.0 - s2 / c**2) * c


def least_variance_mean(values, contributions):
    """The mean of two values with weights in [0, 1] of least variance, and its contributions, from their covariance."""
    one, two = contributions
    s11, s12, s22 = (sum(x * y for x, y in zip(u, v, strict=True)) for u, v in ((one, one), (one, two), (two, two)))
    a = min(max((s11 - s12) / (s11 - 2.0 * s12 + s22), 0.0), 1.0)
    return (1.0 - a) * values[0] + a * values[1], [(1.0 - a) * x + a * y for x, y in zip(one, two, strict=True)]


def value_by_table(episodes, discounts):
    """The value in the process of observed frequencies, and what each episode contributes to its error.

    An episode has `states` (T + 1,), `actions`, `rewards` and `terminated` (T,), and `policies` (T + 1, n_actions); a
    last state that is terminal is not used. `discounts` has those of transitions, (T,) for each episode.
    """
    moves = {}
    for one, discount in zip(episodes, discounts, strict=True):
        for t, pair in enumerate(zip(one["states"], one["actions"], strict=False)):
            left = 0.0 if one["terminated"][t] else discount[t]
            moves.setdefault(pair, []).append((one["rewards"][t], left, one["states"][t + 1], one["policies"][t + 1]))
    places = {pair: i for i, pair in enumerate(moves)}

    def mixture(state, policy):
        """The weights of logged pairs in Σ_a π(a|s) q(s, a)."""
        weights = np.zeros(len(moves))
        for action, p in enumerate(policy):
            like = [(state, action)]
            if like[0] not in moves:
                like = [pair for pair in moves if pair[0] == state] or [*moves]
            n = sum(len(moves[pair]) for pair in like)
            for pair in like:
                weights[places[pair]] += p * len(moves[pair]) / n
        return weights

    A, b = np.eye(len(moves)), np.zeros(len(moves))
    for pair, i in places.items():
        for reward, discount, after, policy in moves[pair]:
            b[i] += reward / len(moves[pair])
            if discount > 0.0:
                A[i] -= discount * mixture(after, policy) / len(moves[pair])
    q = np.linalg.solve(A, b)
    starts = [mixture(one["states"][0], one["policies"][0]) for one in episodes]
    visits = np.linalg.solve(A.T, np.mean(starts, axis=0))
    values = []
    for one, discount, start in zip(episodes, discounts, starts, strict=True):
        value = start @ q
        for t, pair in enumerate(zip(one["states"], one["actions"], strict=False)):
            delta = one["rewards"][t] - q[places[pair]]
            if not one["terminated"][t]:
                delta += discount[t] * mixture(one["states"][t + 1], one["policies"][t + 1]) @ q
            value += len(episodes) * visits[places[pair]] / len(moves[pair]) * delta
        values.append(value)
    m = len(values)
    return np.mean(values), (np.array(values) - np.mean(values)) / m / np.sqrt(1.0 - 1.0 / m)


def persistence(rewards, predictions, episode, action, group):
    """u_e of each group: products of successive errors of two predictions with the same action.

    `predictions` has two of each row, for each way to deal out folds; each is shrunk towards its mean.
    """
    u = dict.fromkeys(group, 0.0)
    for pair in predictions:
        one, two = (
            rewards - p.mean() - np.clip(rewards @ (p - p.mean()) / np.sum((p - p.mean()) ** 2), 0, 1) * (p - p.mean())
            for p in pair
        )
        for t in range(1, len(rewards)):
            if episode[t] == episode[t - 1] and action[t] == action[t - 1]:
                u[group[t]] += one[t] * two[t - 1] + two[t] * one[t - 1]
    return [*u.values()]


def chance_of_persistence(u, rewards, pair, episode, action, group, chance_above):
    """The p-value of z = Σ u / √Σ u²: that of a larger z, or 50 times that of a smaller one if it is less.

    A smaller one counts as the dependence of rewards of equal pairs on whether the action is that of the row before.
    `chance_above` is that of Student's t, by its value and degrees of freedom.
    """

    def chances(u):
        size = sum(x**2 for x in u)
        if not size:
            return 1.0, 1.0
        freedom = max(size**2 / sum(x**4 for x in u) - 1.0, 1.0)
        return chance_above(sum(u) / np.sqrt(size), freedom), chance_above(-sum(u) / np.sqrt(size), freedom)

    larger, smaller = chances(u)
    if sum(u) >= 0.0:
        return larger
    again = [float(t > 0 and episode[t] == episode[t - 1] and action[t] == action[t - 1]) for t in range(len(rewards))]
    within = dict.fromkeys(group, 0.0)
    for t, own in enumerate(pair):
        equal = [s for s, other in enumerate(pair) if other == own]
        mean_again, mean_reward = np.mean([again[s] for s in equal]), np.mean([rewards[s] for s in equal])
        within[group[t]] += (again[t] - mean_again) * (rewards[t] - mean_reward)
    depends = min(1.0, 2.0 * min(chances([*within.values()])))
    return min(larger, 50.0 * max(smaller, depends))


def first_choice(choice, estimate, per_decision, error, chance_if_nothing_is_hidden, times_wider=1.0):
    """The value where the state may hide something: a mean of both if that is sure and the second is no noise.

    `choice` is the shrunk value of `estimate`, and `error` are contributions to the difference of the two estimates.
    """
    if chance_if_nothing_is_hidden >= 0.01 or times_wider > 10.0:
        return choice
    s2 = sum(x**2 for x in error)
    w = max(0.5, 1.0 - 2.0 * s2 / (per_decision - estimate) ** 2)
    return (1.0 - w) * choice + w * per_decision


def linear_minimax(phi, successors, rewards, initial):
    """Values by linear MQL, MWL and DualDICE (Uehara et al. 2020; Nachum et al. 2019), and their weights of rows.

    MQL: q = φᵀθ with Σ f (r + φ̄ᵀθ − φᵀθ) = 0 for all f = φᵀη; `successors` φ̄ are discounted. MWL: w = φᵀω with
    Σ w (f − f̄) = f(initial) for all such f. DualDICE: the saddle point in θ and ω of
    Σ [(ν − ν̄) ζ − ζ²/2] − ν(initial), ν = φᵀθ, ζ = φᵀω; its value is Σ ζ r.
    """
    k = phi.shape[1]
    mql = np.zeros((k, k)), np.zeros(k)
    mwl, saddle, right = np.zeros((k, k)), np.zeros((2 * k, 2 * k)), np.append(np.zeros(k), initial)
    for x, after, r in zip(phi, successors, rewards, strict=True):
        mql = mql[0] + np.outer(x, x - after), mql[1] + r * x
        mwl += np.outer(x - after, x)
        saddle[:k, :k] += np.outer(x, x - after)  # the derivative by ω
        saddle[:k, k:] -= np.outer(x, x)
        saddle[k:, k:] += np.outer(x - after, x)  # the derivative by θ
    theta, omega = np.linalg.solve(*mql), np.linalg.solve(mwl, initial)
    zeta = np.linalg.solve(saddle, right)[k:]
    w, z = phi @ omega, phi @ zeta
    return {"mql": theta @ initial, "mwl": w @ rewards, "dualdice": z @ rewards}, {"mwl": w, "dualdice": z}


def first_td_errors(rewards, values, ratios, gamma, n_steps):
    """Σ_{t<n} γ^t ρ_0 ⋯ ρ_t δ_t of one episode that was cut off, of which the last row has a value and no reward."""
    total = 0.0
    for t in range(min(n_steps, len(rewards) - 1)):
        delta = rewards[t] + gamma * values[t + 1] - values[t]
        total += gamma**t * math.prod(ratios[: t + 1]) * delta
    return total


def value_without_episodes(systems, starts, e):
    """Mean of φ̄₀ᵀθ over the episodes but e, to first order: the change of θ, and of the mean start, each alone.

    `systems` are A and b of each episode, `starts` (E, k) its φ̄₀; returns the two changes against all episodes.
    """
    theta = np.linalg.solve(sum(A for A, _ in systems), sum(b for _, b in systems))
    rest = [i for i in range(len(systems)) if i != e]
    without = np.linalg.solve(sum(systems[i][0] for i in rest), sum(systems[i][1] for i in rest))
    mean = starts.mean(axis=0)
    return mean @ (theta - without), (mean - starts[rest].mean(axis=0)) @ theta


# ---------------------------------------------------------------- intervals of time


def discounted_time(begin, end, gamma, n_parts=2000):
    """Discounted time ∫ γ^(s − begin) ds from `begin` to `end`, by Simpson's rule."""
    width = (end - begin) / n_parts
    values = [gamma ** (i * width) for i in range(n_parts + 1)]
    return width / 3 * (values[0] + 4 * sum(values[1::2]) + 2 * sum(values[2:-1:2]) + values[-1])


def interval_rows(table, gamma):
    """Rows of subjects observed in intervals: a list of (subject, features, reward, discount, terminated).

    `table` is a list of (subject, start, stop, event, features). After a subject without event comes a row without
    reward, for the time of its last stop, with the features of its last interval.
    """
    rows = []
    for place, (subject, start, stop, event, features) in enumerate(table):
        is_last = place + 1 == len(table) or table[place + 1][0] != subject
        discount = 0.0 if event else gamma ** (stop - start)
        rows.append((subject, features, discounted_time(start, stop, gamma), discount, bool(event)))
        if is_last and not event:
            rows.append((subject, features, math.nan, None, False))
    return rows


def steps_of_events(events, edges, start=-math.inf, first="apart", ends=None):
    """Rows of equal steps: a list of (id, place of the edge, features, rewards or None in a horizon row, terminated).

    `events` is a list of (id, time, amounts, ended), `edges` are the starts of steps, and the last one the end of
    observation. Where the first events of an id, all those at its earliest time, are "counted", features are the number
    of events before the edge and their amounts; where they are "apart", the number of the later events before the edge,
    the amounts of these, and those of the first events. Then come steps since the last and since the first event before
    the edge. A row has the number of events in its step, then their amounts, as rewards.

    `ends` has the time at which observation of some ids ended, and whether they ended for good then.
    """
    rows = []
    for name in dict.fromkeys(event[0] for event in events):
        own = sorted((event for event in events if event[0] == name), key=lambda event: (event[1], event[3]))
        for k, edge in enumerate(edges):
            before = [event for event in own if event[1] < edge]
            end, has_ended = (ends or {}).get(name, (math.inf, False))
            if not before or edge < start or edge > end or any(event[3] for event in before):
                continue
            is_last = k == len(edges) - 1
            closes = not is_last and (
                (has_ended and end < edges[k + 1]) or any(event[3] for event in own if edge <= event[1] < edges[k + 1])
            )
            is_last = is_last or (end < edges[k + 1] and not closes)
            during = [] if is_last else [event for event in own if edge <= event[1] < edges[k + 1]]
            since = [k - position(before[place][1], edges) for place in (-1, 0)]
            known = count_and_amounts(before)
            if first == "apart":
                repeat = [event for event in before if event[1] > own[0][1]]
                at_first = [event for event in before if event[1] == own[0][1]]
                known = count_and_amounts(repeat, width=len(own[0][2])) + count_and_amounts(at_first)[1:]
            gain = None if is_last else count_and_amounts(during, width=len(own[0][2]))
            rows.append((name, k, [*known, *since], gain, closes))
    return rows


def rates_of_events(events, edges, window, at, start=-math.inf, first="apart"):
    """Features of the rows of `steps_of_events` where a window is given; `at` is the place of the edge of the mean.

    For the number of events, and for each amount: a rate since the first event, towards which the mean of all ids
    counts as the steps of `steps_of_mean`; the rate of the last complete steps, a window of them at most, towards which
    the mean counts as one step; and the first of them, times exp(-2 steps since the last event / window). Then come the
    amounts of the first events, where they are "apart", and the steps since the last event, a window of them at most.
    """
    rows = steps_of_events(events, edges, start, first)
    n_amounts = len(events[0][2])
    n_sums = 1 + n_amounts
    then = [features for _, k, features, _, _ in rows if k == at]
    since_first = sum(features[-1] for features in then)
    means = [sum(features[j] for features in then) / since_first for j in range(n_sums)]
    mean_steps = [steps_of_mean(events, edges, rows, j, mean, window, at) for j, mean in enumerate(means)]
    found = []
    for name, k, features, _, _ in rows:
        own = sorted((event for event in events if event[0] == name), key=lambda event: event[1])
        born = min(j for j, edge in enumerate(edges) if own[0][1] < edge)  # the first edge that knows the id
        begin = max(k - window, born)
        inside = [event for event in own if edges[begin] <= event[1] < edges[k]]
        if first == "apart":
            inside = [event for event in inside if event[1] > own[0][1]]
        recent = count_and_amounts(inside, width=n_amounts)
        since_last, since_first = features[-2:]
        row = []
        for j, mean in enumerate(means):
            rate = (features[j] + mean_steps[j] * mean) / (since_first + mean_steps[j])
            row += [rate, (recent[j] + mean) / (k - begin + 1), rate * math.exp(-2.0 * since_last / window)]
        found.append([*row, *features[n_sums:-2], min(since_last, window)])
    return found


def steps_of_mean(events, edges, rows, j, mean, window, at):
    """How many steps the mean counts as in the rate of sum `j`: the window, a quarter or a sixteenth of it.

    Each row that has a complete step behind it and a window of steps before the edge `at` ahead of it forecasts the
    sum of that window, per step. A smaller number needs a smaller squared error, and one that is clearly smaller where
    each square is divided by the mean plus the rate that the whole window gives.
    """
    sums = {(name, k): features for name, k, features, _, _ in rows}
    squares = {}  # id, number of steps -> squares, and those that are divided
    for (name, k), features in sums.items():
        first = min(time for own, time, *_ in events if own == name)
        born = min(place for place, edge in enumerate(edges) if first < edge)
        later = sums.get((name, k + window))
        if k == born or later is None or k + window > at:
            continue
        came = (later[j] - features[j]) / window
        usual = (features[j] + window * mean) / (features[-1] + window)
        if abs(mean) + abs(usual) == 0:
            return window
        for steps in (window, window / 4, window / 16):
            square = (came - (features[j] + steps * mean) / (features[-1] + steps)) ** 2
            squares.setdefault((steps, name), []).append((square, square / (abs(mean) + abs(usual))))
    names = [name for steps, name in squares if steps == window]
    best = window
    for steps in (window / 4, window / 16):
        total = {u: sum(pair[0] for name in names for pair in squares[u, name]) for u in (best, steps)}
        gains = [sum(a[1] - b[1] for a, b in zip(squares[window, i], squares[steps, i], strict=True)) for i in names]
        before = sum(pair[1] for name in names for pair in squares[window, name])
        if len(names) < 2 or sum(gains) <= 0.01 * before or total[steps] >= total[best]:
            continue
        average = sum(gains) / len(gains)
        variance = len(gains) * sum((gain - average) ** 2 for gain in gains) / (len(gains) - 1)
        if sum(gains) > 2.0 * math.sqrt(variance):
            best = steps
    return best


def count_and_amounts(events, width=None):
    """The number of events, then the sum of each of their `width` amounts."""
    width = len(events[0][2]) if width is None else width
    return [len(events), *(sum(event[2][j] for event in events) for j in range(width))]


def position(time, edges):
    """A time in steps: the number of its step, and the share of the step that has passed."""
    k = max(k for k, edge in enumerate(edges) if edge <= time)
    return k + (time - edges[k]) / (edges[k + 1] - edges[k])


# ---------------------------------------------------------------- a fixed horizon


def horizon_return(t, h, phi, rewards, discounts, last, terminated, lmbda, theta):
    """G_{t,h}, (m,): λ-return of the next h steps from row t; `theta[h]` are the weights of horizon h, theta[0] = 0.

    `discounts[t]` is that of the transition that leaves row t. A last row that did not terminate is a horizon row.
    """
    if h == 0:
        return np.zeros(rewards.shape[1])
    if last[t] and not terminated[t]:
        return phi[t] @ theta[h]
    if last[t]:
        return rewards[t]
    later = horizon_return(t + 1, h - 1, phi, rewards, discounts, last, terminated, lmbda, theta)
    share = 1.0 if last[t + 1] and not terminated[t + 1] else 1.0 - lmbda
    return rewards[t] + discounts[t] * (share * (phi[t + 1] @ theta[h - 1]) + (1.0 - share) * later)


def horizon_weights(phi, rewards, discounts, last, terminated, weight, lmbda, ridge, horizon):
    """Weights θ_1, …, θ_H, (H, n, m): ridge regressions of the returns G_{t,h} on the features of full rows."""
    full = [t for t in range(len(phi)) if terminated[t] or not last[t]]
    gram = sum(weight[t] * np.outer(phi[t], phi[t]) for t in full) + np.diag(ridge)
    theta = [np.zeros((phi.shape[1], rewards.shape[1]))]
    for h in range(1, horizon + 1):
        returns = [horizon_return(t, h, phi, rewards, discounts, last, terminated, lmbda, theta) for t in full]
        theta.append(
            np.linalg.solve(gram, sum(weight[t] * np.outer(phi[t], g) for t, g in zip(full, returns, strict=True)))
        )
    return np.array(theta[1:])


def horizon_weights_of_pairs(phi, rewards, discounts, last, terminated, weight, lmbda, ridge, horizon, kept):
    """The same by a double loop over rows, with those pairs only whose later row is `kept`, (T,)."""
    n, T, n_rewards = phi.shape[1], len(phi), rewards.shape[1]
    full = [bool(terminated[t] or not last[t]) for t in range(T)]
    gram = sum((weight[t] * np.outer(phi[t], phi[t]) for t in range(T) if full[t] and kept[t]), np.diag(ridge))
    theta = [np.zeros((n, n_rewards))]
    for h in range(1, horizon + 1):
        right = np.zeros((n, n_rewards))
        for t in range(T):
            factor = weight[t]
            for k in range(h if full[t] else 0):
                s = t + k
                if kept[s]:
                    right += factor * lmbda**k * np.outer(phi[t], rewards[s])
                if last[s]:
                    break
                factor *= discounts[s]
                share = 1.0 - lmbda if full[s + 1] else 1.0
                if kept[s + 1]:
                    right += factor * lmbda**k * share * np.outer(phi[t], phi[s + 1] @ theta[h - 1 - k])
                if not full[s + 1]:
                    break
        theta.append(np.linalg.solve(gram, right))
    return np.array(theta[1:])


def step_spread(phi, rewards, discounts, last, terminated, weight, theta, ridge, gamma, horizon, group, share):
    """Weights u_h (H, n), least values (H,) and degrees of freedom of the variance of the rewards of the next h steps.

    `theta[t]` (H, n) are the weights that predict row t, fitted without it. The variance of a row is φᵀ u_h, at least a
    `share` of its mean. V_h of a row adds Γ² δ² along its path, and the variance at a cut for the steps that are left.
    """
    full = [t for t in range(len(phi)) if terminated[t] or not last[t]]
    total = sum(weight[t] for t in full)
    gram = sum(weight[t] * np.outer(phi[t], phi[t]) for t in full) + np.diag(ridge)

    def value(t, h):
        return phi[t] @ theta[t][h - 1] if h else 0.0

    def path(t, h):
        """Γ and δ of each step that is observed; and at a cut, if any, Γ, the row and the steps that are left."""
        steps, factor, left = [], 1.0, h
        while left > 0:
            if last[t] and not terminated[t]:
                return steps, (factor, t, left)
            after = 0.0 if terminated[t] else discounts[t] * value(t + 1, left - 1)
            steps.append((factor, rewards[t] + after - value(t, left)))
            if terminated[t]:
                break
            factor, t, left = factor * discounts[t], t + 1, left - 1
        return steps, None

    def effective(factors):
        return sum(factors) ** 2 / sum(factor**2 for factor in factors)

    unscaled, means, weights, least = [], [], [], []
    for h in range(1, horizon + 1):
        found = []
        for t in full:
            steps, cut = path(t, h)
            E = sum(factor * delta for factor, delta in steps)
            W = sum((factor * delta) ** 2 for factor, delta in steps)
            V = W
            factors = [factor for factor, _ in steps]
            reached = list(factors)
            if cut:
                factor, row, left = cut
                V += factor**2 * max(phi[row] @ unscaled[left - 1], share * means[left - 1])
                reached += [factor * gamma**j for j in range(left)]
            found.append((E, W, V, effective(factors), effective(reached)))
        E, W, V, k, K = np.transpose(found)
        w = np.array([weight[t] for t in full])
        u = np.linalg.solve(gram, sum(w[i] * V[i] * phi[t] for i, t in enumerate(full)))
        mean = w @ V / total
        level = mean / (w @ np.maximum(phi[full] @ u, share * mean) / total)
        factor = 1.0
        if w @ ((k - 1) * W) > 0.0:
            rho = w @ (E**2 - W) / (w @ ((k - 1) * W))
            per_rho = w @ ((K - 1) * V) / (w @ V)
            if rho < 0.0:
                per_rho = w @ ((k - 1) * W) / (w @ W)
            by_group = [
                sum(w[i] * (E[i] ** 2 - W[i] - rho * (k[i] - 1) * W[i]) for i, t in enumerate(full) if group[t] == g)
                for g in {*group}
            ]
            error = per_rho * math.sqrt(sum(g**2 for g in by_group)) / (w @ ((k - 1) * W))
            excess = rho * per_rho
            factor = 1.0 + excess * max(0.0, 1.0 - error**2 / excess**2)
        unscaled.append(u)
        means.append(mean)
        weights.append(factor * level * u)
        least.append(factor * level * share * mean)
    of_groups = [[i for i, t in enumerate(full) if group[t] == g] for g in dict.fromkeys(group[t] for t in full)]
    return np.array(weights), np.array(least), [(w[own] @ V[own], w[own].sum()) for own in of_groups]


def shared_shock(cuts):
    """The variance of a factor that all subjects share, relative to a total.

    Each of `cuts` has rows (group, weight, came, predicted) and the variance of the predicted total. Without a shock,
    the squared difference of the totals at a cut has the expected value V, of independent groups and of the prediction,
    and the variance 2 V² if it is normal. What this explains of the excess over all cuts is no shock.
    """
    squares, by_chance, sizes = [], [], []
    for cut, of_prediction in cuts:
        mean = sum(w * (came - v) for _, w, came, v in cut) / sum(w for _, w, _, _ in cut)
        sums = {}
        for group, w, came, v in cut:
            sums[group] = sums.get(group, 0.0) + w * (came - v - mean)
        squares.append(sum(w * (came - v) for _, w, came, v in cut) ** 2)
        G = len(sums)
        by_chance.append(G / (G - 1) * sum(x**2 for x in sums.values()) + of_prediction)
        sizes.append(max(sum(w * abs(v) for _, w, _, v in cut), sum(w * abs(came) for _, w, came, _ in cut)))
    excess = sum(squares) - sum(by_chance)
    chance = 2 * sum(V**2 for V in by_chance)
    if excess <= math.sqrt(chance):
        return 0.0
    return (excess - chance / excess) / sum(S**2 for S in sizes)


def interval_of_what_comes(parts, shift, quantile):
    """Half width, standard error and degrees of freedom from parts (variance, degrees of freedom); `quantile` (df)."""
    variance = sum(v for v, _ in parts)
    freedom = variance**2 / sum(v**2 / df for v, df in parts)
    return quantile(freedom) * math.sqrt(variance + shift**2), math.sqrt(variance), freedom


def forecast_of_steps_before(rewards, t, k, window, gamma):
    """The discounted sum of k steps after row t of an episode, if each brings the mean of the `window` steps before."""
    before = rewards[max(0, t - window) : t]
    return sum(gamma**j * sum(before) / len(before) for j in range(k))


def beside_naive_forecasts(cuts, survival):
    """Ratio of the errors to the naive forecast that counts, and twice its p-value.

    Each of `cuts` has rows (subject, weight, came, predicted, [forecasts]). Of each subject, the differences of squared
    errors are summed, each by the mean size of prediction and forecast and a tenth of its mean over all rows. The test
    is Student's, `survival` (t, degrees of freedom); the p-value is 1 unless predictions are worse over all rows and at
    more than half of the cuts. Of forecasts that a warning names, the better one counts, else that of the smaller p.
    """
    rows = [row for cut in cuts for row in cut]
    found = []
    for j in range(2):
        sizes = [(abs(predicted) + abs(forecasts[j])) / 2 for _, _, _, predicted, forecasts in rows]
        sums = {}
        for (subject, weight, came, predicted, forecasts), size in zip(rows, sizes, strict=True):
            worse = weight * ((came - predicted) ** 2 - (came - forecasts[j]) ** 2)
            sums[subject] = sums.get(subject, 0.0) + worse / (size + sum(sizes) / len(sizes) / 10)
        p_value = survival(sum(sums.values()) / math.sqrt(sum(x**2 for x in sums.values())), len(sums) - 1)
        excess = [sum(w * ((g - v) ** 2 - (g - forecasts[j]) ** 2) for _, w, g, v, forecasts in cut) for cut in cuts]
        if sum(excess) <= 0 or 2 * sum(x > 0 for x in excess) <= len(cuts):
            p_value = 1.0
        ours = sum(w * (g - v) ** 2 for _, w, g, v, _ in rows)
        theirs = sum(w * (g - forecasts[j]) ** 2 for _, w, g, _, forecasts in rows)
        least = 1e-4 * sum(w * g**2 for _, w, g, _, _ in rows)
        ours, theirs = max(ours, least), max(theirs, least)
        found.append((math.sqrt(ours / theirs), min(1.0, 2 * p_value)))
    named = [(ratio, p) for ratio, p in found if (ratio > 1.1 and p < 0.01) or (ratio >= 1.2 and p < 0.05)]
    if named:
        return max(named)
    return min(found, key=lambda one: (one[1], -one[0]))


def horizon_squared_error(fold, theta, reference, lmbda, phi, rewards, discounts, last, terminated, weight):
    """Mean over horizons h and rewards of Σ_t w_t (φ_tᵀθ_h − G_{t,h})² on the rows of a fold, in units of h E[r²].

    `reference` are weights (H, n, m) that complete the λ-returns.
    """
    full = [t for t in range(len(phi)) if terminated[t] or not last[t]]
    mean_square = sum(weight[t] * rewards[t] ** 2 for t in full) / sum(weight[t] for t in full)
    completes = [np.zeros_like(reference[0]), *reference]
    errors = []
    for h in range(1, len(theta) + 1):
        squares = np.zeros(rewards.shape[1])
        for t in full:
            if t in fold:
                g = horizon_return(t, h, phi, rewards, discounts, last, terminated, lmbda, completes)
                squares = squares + weight[t] * (phi[t] @ theta[h - 1] - g) ** 2
        errors.append(squares / (h * mean_square))
    return float(np.mean(errors))


def horizon_choice(errors, defaults, first, horizon):
    """Number of the pair of λ and α that is chosen, and the costs of all pairs.

    `errors(decay, reference)` are those of all pairs on K folds, (K, pairs), on λ-returns that the weights of one pair
    complete. `defaults` and `first` are numbers of pairs.
    """
    pair = first
    for _ in range(2):
        pair = int(errors(max(0.0, 1.0 - 3.0 / horizon), pair).sum(axis=0).argmin())
    observed = errors(1.0, defaults).sum(axis=0)
    if observed[defaults] < observed[pair]:
        pair = defaults
    of_pairs = errors(1.0, pair)
    difference = of_pairs - of_pairs[:, [pair]]
    cost = difference.sum(axis=0) + np.sqrt(len(of_pairs)) * difference.std(axis=0, ddof=1)
    return int(cost.argmin()), cost


def horizon_units(x, weight, intercept):
    """The squared spread of a column of full rows and its mean square about its centre, by weight.

    Where fewer than half of the rows, by weight, are not zero, the centre is 0 and the spread Σ w x² / Σ w 1{x ≠ 0}.
    Else both are the variance, about zero without an intercept. The spread is 1 if nothing differs from the centre.
    """
    total = sum(weight)
    filled = sum(w for entry, w in zip(x, weight, strict=True) if entry != 0)
    is_rare = 2 * filled < total
    centre = 0.0
    if intercept and not is_rare:
        centre = sum(w * entry for entry, w in zip(x, weight, strict=True)) / total
        if min(x) == max(x):
            centre = min(x)
    squares = sum(w * (entry - centre) ** 2 for entry, w in zip(x, weight, strict=True))
    if squares == 0:
        return 1.0, 0.0
    return squares / (filled if is_rare else total), squares / total


def age_columns(X, place, horizon):
    """The other columns, e^(−s/4ᵏ) of the age s for k = 0, 1, … while 4ᵏ ≤ H, and products with the first and the last.

    If there is but one of them, the products come once.
    """
    scales = [4**k for k in range(horizon.bit_length()) if 4**k <= horizon]
    rows = []
    for row in X:
        others = [x for j, x in enumerate(row) if j != place]
        decays = [math.exp(-row[place] / scale) for scale in scales]
        multiplied = decays[:1] if len(decays) == 1 else [decays[0], decays[-1]]
        rows.append([*others, *decays, *(x * decay for decay in multiplied for x in others)])
    return np.array(rows)


# ---------------------------------------------------------------- the spread of one return


def followed_return(t, rewards, discounts, last, terminated, values, donor, least, horizon=math.inf):
    """Return from row t, and Σ Γ_k² δ_k², along observed rows; at a cut the path goes on from row `donor(t, left)`.

    `values(t, left)` predicts row t, for the steps that are left. A cut ends the path where the discount is below
    `least`.
    """
    total, squares, factor, left = 0.0, 0.0, 1.0, horizon
    while left > 0:
        if last[t] and not terminated[t]:
            if factor < least:
                break
            t = donor(t, left)
        after = 0.0 if terminated[t] else discounts[t] * values(t + 1, left - 1)
        total += factor * rewards[t]
        squares += (factor * (rewards[t] + after - values(t, left))) ** 2
        if terminated[t]:
            break
        t, factor, left = t + 1, factor * discounts[t], left - 1
    return total, squares


def return_interval(value, std, values, residuals, on_bounds, group, weight, tail, bounds, share):
    """Ends of the range of one return, by the residuals of the rows nearest in prediction.

    `on_bounds` are the rows' flags that their return lies on the lower and on the upper bound. Of fewer groups than the
    level needs, the range is that of all residuals and 0.
    """
    near = sorted(range(len(values)), key=lambda i: abs(values[i] - value))[: math.ceil(share * len(values))]
    beyond, ends = tail - 0.5 / len({group[i] for i in near}), []
    total = sum(weight[i] for i in near)
    for side, sign in enumerate((1.0, -1.0)):
        passed = 0.0
        for i in sorted(near, key=lambda i: sign * residuals[i]):
            passed += weight[i]
            if passed > beyond * total:
                break
        residual = residuals[i] if beyond >= 0.0 else sign * min(sign * residuals[i], 0.0)
        on_bound = sum(weight[j] for j in near if on_bounds[side][j]) >= tail * total
        ends.append(bounds[side] if on_bound else min(max(value + std * residual, bounds[0]), bounds[1]))
    return ends


# ---------------------------------------------------------------- changes of a stream


def monitored_errors(errors, ratios, decay):
    """Those errors of one continuing stream that enter the charts: each with 50 runs of rows up to its own, or more."""
    off_policy = np.cumsum(ratios != 1.0) > 0
    sizes = [effective_sample(ratios[: t + 1], decay, [t + 1], *np.ones((2, t + 1))) for t in range(len(errors))]
    return [error for error, off, size in zip(errors, off_policy, sizes, strict=True) if not off or size >= 50]


def change_levels(errors, gamma, n_features):
    """After each short block of one-step errors, how high the charts are over their limits; see `change_detection`."""
    ahead = max(16.0, 1.0 / (1.0 - gamma))
    length = round(min(ahead, 32.0))
    slow_length = length * round(5.0 * ahead / length)
    cut, most = [], np.inf
    for error in errors:
        cut.append(float(np.clip(error, -most, most)))
        if len(cut) % length == 0 and any(cut):
            most = 8.0 * np.mean(np.abs(cut))
    fast = chart_levels(cut, length, 10 * max(n_features, length), 1.0, 8.0, 100, np.inf, (0.5, 1.0))
    slow = chart_levels(cut, slow_length, 10 * max(n_features, slow_length), 0.5, 9.0, 24, 2.5, (1.0, 1.5))
    return [max(level, slow[(j + 1) * length // slow_length - 1]) if (j + 1) * length >= slow_length else level
            for j, level in enumerate(fast)]  # fmt: skip


def chart_levels(errors, length, skipped, less, rare, warm, outlying, expected):
    """After each block of errors, the height of the highest of three sums over its limit; 0 before there are enough."""
    ends = [end for end in range(length, len(errors) + 1, length) if end > skipped]
    means, sizes = ([np.mean(f(errors[end - length : end])) for end in ends] for f in (np.array, np.abs))
    if outlying == np.inf:  # the fast chart
        means = [mean / size if size else 0.0 for mean, size in zip(means, sizes, strict=True)]
    roots = np.sqrt(sizes)
    scale = np.array([np.mean(np.abs(errors[:end])) for end in ends])
    least = 0.02 * (np.ones(len(ends)) if outlying == np.inf else scale), 0.01 * np.sqrt(scale)
    scores = [np.clip(normal_scores(values, floor, outlying), -most, most)
              for values, floor, most in ((means, least[0], 3.0), (roots, least[1], 5.0))]  # fmt: skip
    up, down, large = climbs(scores[0], less), climbs(-scores[0], less), climbs(scores[1], less)
    levels = [0.0] * (len(errors) // length - len(ends))
    for j in range(len(ends)):
        of_mean = excesses(up[: j + 1]) + excesses(down[: j + 1])
        means = [(4.0 * known + sum(over)) / (4.0 + len(over)) for known, over in (
            (expected[0], of_mean), (expected[0], of_mean), (expected[1], excesses(large[: j + 1])))]  # fmt: skip
        heights = [chart[j] / (1.5 + rare * m) for chart, m in zip((up, down, large), means, strict=True)]
        levels.append(max(heights) if j >= warm else 0.0)
    return levels


def normal_scores(values, least, outlying):
    """Each value given the one before: studentised residual of a regression on all earlier pairs, as a normal score.

    The standard deviation of residual j is at least `least[j]`. Later regressions have a residual beyond `outlying`
    cut to that.
    """
    scores, kept = [], []
    for j, value in enumerate(values):
        x, y = np.array(kept[: max(0, j - 1)]), np.array(kept[1:j])
        n = len(y)
        if n < 8:
            scores.append(0.0)
            kept.append(value)
            continue
        dx, dy = x - x.mean(), y - y.mean()
        slope = dx @ dy / (dx @ dx)
        slope = np.clip(slope - 2.0 * (1.0 - slope) / np.sqrt(n), 0.0, 0.98)
        here = kept[j - 1] - x.mean()
        spread = max(np.sum((dy - slope * dx) ** 2) / (n - 2), least[j] ** 2) * (1.0 + 1.0 / n + here**2 / (dx @ dx))
        expected = y.mean() + slope * here
        t, nu = (value - expected) / np.sqrt(spread), n - 2
        scores.append(np.sign(t) * (8 * nu + 1) / (8 * nu + 3) * np.sqrt(nu * np.log1p(t**2 / nu)))
        kept.append(expected + np.clip(t, -outlying, outlying) * np.sqrt(spread))
    return np.array(scores)


def climbs(scores, less):
    """A chart: the sum of scores less a reference value, never below 0."""
    heights = [0.0]
    for score in scores:
        heights.append(max(0.0, heights[-1] + score - less))
    return heights[1:]


def excesses(heights):
    """By how much the highest point of each excursion that is over exceeds 1.5, where it does."""
    found, highest = [], 0.0
    for height in heights:
        if height == 0.0 and highest > 1.5:
            found.append(highest - 1.5)
        highest = max(highest, height) if height > 0.0 else 0.0
    return found


# ---------------------------------------------------------------- fingerprints


# ---------------------------------------------------------------- causes and states


def aalen_johansen(exits, causes, n_causes, h, entries=None):
    """Probability of each cause within h steps, F_j(h) = Σ_{u≤h} S(u − 1) d_j(u) / n(u); Aalen and Johansen (1978).

    A subject leaves at step `exits` of one of the causes 1…J, or of 0 if it was still there when last seen. n(u) are
    the subjects seen in step u, the u-th one, and d_j(u) those who leave in it of cause j;
    S(u) = Π_{v≤u} (1 − Σ_j d_j(v)/n(v)). A subject is seen from the step after `entries` on, by default from the first.
    """
    entries = [0] * len(exits) if entries is None else entries
    survival, found = 1.0, [0.0] * n_causes
    for u in range(1, h + 1):
        seen = [i for i in range(len(exits)) if entries[i] < u <= exits[i]]
        shares = [sum(exits[i] == u and causes[i] == j for i in seen) / len(seen) for j in range(1, n_causes + 1)]
        found = [before + survival * share for before, share in zip(found, shares, strict=True)]
        survival *= 1.0 - sum(shares)
    return found


def state_probabilities(paths, n_states, start, h):
    """Probability of each state after h steps, row `start` of Π_{u<h} Q(u), Q_ij(u) the share of i at u that is j next.

    A path lists the states of a subject from step 0 on, for as long as it was seen; a state that is never left stays
    in it.
    """
    found = [float(state == start) for state in range(n_states)]
    for u in range(h):
        pairs = [(path[u], path[u + 1]) for path in paths if len(path) > u + 1]
        left = [sum(i == state for i, _ in pairs) for state in range(n_states)]
        found = [
            sum(found[i] * sum(pair == (i, j) for pair in pairs) / left[i] for i in range(n_states) if left[i])
            for j in range(n_states)
        ]
    return found


# ---------------------------------------------------------------- backtests


def end_of_step(times, t, others, median_step):
    """When the step of row t of an episode is over: at its next row, else after a step as long as the one before.

    Of steps (begin, end) of others that begin at the same time, the nearest decides, up to a quarter of a step away.
    """
    if t + 1 < len(times):
        return times[t + 1]
    length = times[t] - times[t - 1] if t else median_step
    expected = times[t] + length
    near = [end for begin, end in others if begin == times[t] and abs(end - expected) <= 0.25 * length]
    return min(near, key=lambda end: abs(end - expected), default=expected)


def row_at(cut, times, end_of_last):
    """The row whose step is not over at the cut, which an episode has then; None before it and after its end."""
    ends = [*times[1:], end_of_last]
    for t in range(len(times)):
        if times[t] <= cut < ends[t]:
            return t
    return None


def steps_after(rewards, discounts, ends, t, k):
    """R = Σ_{h<k} (Π_{j<h} γ_j) r_{t+h}, the discount of what comes after, and its row; (R, γ…, t + k).

    `rewards` and `discounts` are those on leaving each row of an episode; after its end, both are 0.
    """
    total, factor = 0.0, 1.0
    for h in range(k):
        if t + h >= len(rewards) or (t + h == len(rewards) - 1 and not ends):
            break
        total += factor * rewards[t + h]
        factor *= 0.0 if ends and t + h == len(rewards) - 1 else discounts[t + h]
    return total, factor, min(t + k, len(rewards) - 1)


def cross_fitted(target, value, X, folds, near, ridges):
    """Least squares on (1, v), then a ridge regression of the rest on features of variance 1, by rows of other folds.

    `near[f]` are the rows left out with fold f; the ridge coefficient, in units of the number of rows that are left, is
    the one with the least error on rows that are left out one at a time.
    """

    def fitted(Z, y, alpha, x):
        centre, mean = np.mean(Z, axis=0), np.mean(y)
        w = np.linalg.solve((Z - centre).T @ (Z - centre) + alpha * np.eye(len(centre)), (Z - centre).T @ (y - mean))
        return mean + (x - centre) @ w

    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    design = np.column_stack([np.ones(len(value)), value])
    found = np.empty(len(target))
    for own in range(len(near)):
        kept = ~near[own]
        a = np.linalg.solve(design[kept].T @ design[kept], design[kept].T @ target[kept])
        rest = (target - design @ a)[kept]
        errors = []
        for alpha in len(rest) * np.array(ridges):
            error = 0.0
            for i in range(len(rest)):
                others = np.arange(len(rest)) != i
                error += (fitted(Z[kept][others], rest[others], alpha, Z[kept][i]) - rest[i]) ** 2
            errors.append(error)
        best = len(rest) * ridges[int(np.argmin(errors))]
        for i in np.flatnonzero(folds == own):
            found[i] = design[i] @ a + fitted(Z[kept], rest, best, Z[i])
    return found


def error_of_mean(values, subject):
    """Standard error of a mean by subject: √(G/(G − 1) Σ_g (Σ_{i∈g} (u_i − ū))²) / N."""
    names = set(subject.tolist())
    sums = [sum(u - np.mean(values) for u, s in zip(values, subject, strict=True) if s == name) for name in names]
    return math.sqrt(len(names) / (len(names) - 1) * sum(u * u for u in sums)) / len(values)


def contributions(x, rows, coef, intercept, covariance):
    """Contribution of each feature to the prediction for `x`, its standard error, and the prediction at the means."""
    n = len(coef)
    means = [sum(row[j] for row in rows) / len(rows) for j in range(n)]
    base = intercept + sum(coef[j] * means[j] for j in range(n))
    values = [coef[j] * (x[j] - means[j]) for j in range(n)]
    return values, [abs(x[j] - means[j]) * math.sqrt(covariance[j][j]) for j in range(n)], base


def moved_by_bounds(value, low, high):
    """By how much a value moves to the nearest number from `low` to `high`, either of which may be None."""
    if low is not None and value < low:
        return low - value
    if high is not None and value > high:
        return high - value
    return 0.0
