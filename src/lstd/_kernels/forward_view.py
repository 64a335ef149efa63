"""Forward view of features that consist of one block per action, as the right factor of a matrix product."""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def forward_rows(  # type: ignore[no-untyped-def]
    states, at, successors, after, actions, policy, own, ahead, rewards, kept, places, running, left, right
):
    """Compute f_t = own_t φ(s_t, a_t) − ahead_t Σ_a π_t(a) φ(s'_t, a) + kept_t f_{t+1}, from the last row to the first.

    Parameters: `states` (S, n), of which row t has that at `at[t]`, and `successors` (S', n), at `after[t]`; `actions`
    (T,); `policy` (T, n_actions), in successors; `own`, `ahead`, `rewards` and `kept` (T,); `running` (K,), the f that
    follows the last row, replaced by that of the first: one block per action, one entry for a column of ones if `left`
    has one, and a last one for own_t r_t. s_t and f_t are written to the rows `places[t]` of `left` (T, n) or
    (T, n + 1), and of `right` (T, K).
    """
    n = states.shape[1]
    width = policy.shape[1] * states.shape[1]
    ones = left.shape[1] > n
    for t in range(len(actions) - 1, -1, -1):
        state = states[at[t]]
        place = places[t]
        if kept[t] == 0.0:
            running[:] = 0.0
        else:
            for i in range(len(running)):
                running[i] *= kept[t]
        block = running[actions[t] * n : (actions[t] + 1) * n]
        for i in range(n):
            block[i] += own[t] * state[i]
            left[place, i] = state[i]
        if ahead[t] != 0.0:
            successor = successors[after[t]]
            for a in range(policy.shape[1]):
                share = ahead[t] * policy[t, a]
                if share != 0.0:
                    block = running[a * n : (a + 1) * n]
                    for i in range(n):
                        block[i] -= share * successor[i]
        if ones:
            running[width] += own[t] - ahead[t]
            left[place, n] = 1.0
        running[-1] += own[t] * rewards[t]
        right[place] = running


@kernel
def dual_weights(states, at, actions, weights, ones, begins, discounts, coefficients, lmbda, g):  # type: ignore[no-untyped-def]
    """Compute g_t = φ(s_t, a_t)ᵀω + c_t λγ_{t−1} g_{t−1}, (T,); its second term is 0 where an episode `begins`.

    ω is in `weights` (n_actions, n) and `ones`. `discounts` (S,) are those of states. Empty `coefficients` are zeros,
    else they have shape (T,). `states`, `at` and `actions` are as in `forward_rows`.
    """
    n = states.shape[1]
    before = 0.0
    whole = n - n % 4
    for t in range(len(actions)):
        state = states[at[t]]
        omega = weights[actions[t]]
        b = 0.0
        c = 0.0
        d = 0.0
        if begins[t] or not len(coefficients):
            before = ones
        else:
            before = ones + coefficients[t] * lmbda * discounts[at[t - 1]] * before
        for i in range(0, whole, 4):  # four sums, of which none waits for another
            before += state[i] * omega[i]
            b += state[i + 1] * omega[i + 1]
            c += state[i + 2] * omega[i + 2]
            d += state[i + 3] * omega[i + 3]
        for i in range(whole, n):
            before += state[i] * omega[i]
        before += b + c + d
        g[t] = before
