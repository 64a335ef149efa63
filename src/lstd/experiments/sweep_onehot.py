"""LSTD(λ) error curves for one-hot features: all three variants, one pair (λ, α) after another.

The recursion is that of `lstd_dense`, where p = Pφ and ρ = φᵀP are a column and a row of P. Three things make it
fast:

- States are numbered in the order of their first visit, so that only the first rows matter: those of visited states.
- A column of P is read on visits to its state only: it is dropped after the last one. `plan` works out in
  advance, once for all pairs, in which column slot each state lives and when.
- Rank-one updates P − qρ are gathered in a panel of PANEL and applied together, in one pass over P; that pass also
  picks the rows of P that the next panel starts from.

P is stored by column: ``columns[slot]`` is the column of the state in that slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.alignment import aligned_zeros, padded
from lstd._kernels.compilation import kernel

PANEL = 8  # rank-one updates applied together, spelled out in `_factors` and `_combined`


class Plan(NamedTuple):
    """Where each state's row and column of P are, step by step; see `plan`."""

    row: NDArray[np.int64]  # (T + 1,) row of the state at each step
    slot: NDArray[np.int64]  # (T,) column slot of the state at each step
    n_rows: NDArray[np.int64]  # (panels,) rows in use, rounded up to whole cache lines
    n_slots: NDArray[np.int64]  # (panels,) column slots in use
    first_slot: NDArray[np.int64]  # (panels,) slots from here on are new in the panel
    new_row: NDArray[np.int64]  # (panels, PANEL) row of each new slot's state
    move_from: NDArray[np.int64]  # (panels, PANEL) after the panel, the column in this slot …
    move_to: NDArray[np.int64]  # (panels, PANEL) … moves to this one; −1: no more moves
    order: NDArray[np.int64]  # (k,) the state of each row


class Workspace(NamedTuple):
    """Buffers of one pair; rows and slots are padded to whole cache lines."""

    columns: NDArray[np.float64]  # (k, rows) P by column
    picked: NDArray[np.float64]  # (PANEL, slots) rows of P for the steps of the next panel
    Q: NDArray[np.float64]  # (PANEL, rows) q of each step in the panel
    R: NDArray[np.float64]  # (PANEL, slots) ρ of each step in the panel
    rho: NDArray[np.float64]  # (slots,) ρ = φᵀP
    p: NDArray[np.float64]  # (rows,) Pφ
    y: NDArray[np.float64]  # (rows,) Pz
    theta: NDArray[np.float64]  # (rows,)
    weight: NDArray[np.float64]  # (rows,) of the error, by row
    target: NDArray[np.float64]  # (rows,) by row
    boyan: NDArray[np.float64]  # (rows,) error so far of each row
    uncorrected: NDArray[np.float64]  # (rows,)
    mixed: NDArray[np.float64]  # (rows,)


@kernel
def plan(states, n_states):  # type: ignore[no-untyped-def]
    """Lay out rows by first visit and column slots by time of use, for a walk of T steps; returns a `Plan`."""
    n_steps = len(states) - 1
    n_panels = (n_steps + PANEL - 1) // PANEL
    last_visit = np.full(n_states, -1)
    for t in range(n_steps):
        last_visit[states[t]] = t
    row_of, order = _number_by_first_visit(states, n_states)
    row = row_of[states]
    slot_of = np.full(n_states, -1)  # of each state; -1 for none
    occupant = np.full(n_states, -1)  # the state in each slot
    slot = np.empty(n_steps, np.int64)
    n_rows, n_slots, first_slot = np.zeros((3, n_panels), np.int64)
    new_row, move_from, move_to = np.full((3, n_panels, PANEL), -1)
    rows = 0
    slots = 0
    for panel in range(n_panels):
        end = min(PANEL * (panel + 1), n_steps)
        first_slot[panel] = slots
        for t in range(PANEL * panel, end):
            rows = max(rows, row[t] + 1)
            if slot_of[states[t]] < 0:
                slot_of[states[t]] = slots
                occupant[slots] = states[t]
                new_row[panel, slots - first_slot[panel]] = row[t]
                slots += 1
            slot[t] = slot_of[states[t]]
        n_rows[panel] = padded(rows)
        n_slots[panel] = slots
        # States that are not visited again give up their slots, to which the last columns move.
        n_moves = 0
        for candidate in range(slots - 1, -1, -1):
            if last_visit[occupant[candidate]] < end:
                slots -= 1
                if candidate != slots:
                    move_from[panel, n_moves] = slots
                    move_to[panel, n_moves] = candidate
                    n_moves += 1
                    occupant[candidate] = occupant[slots]
                    slot_of[occupant[candidate]] = candidate
    return Plan(row, slot, n_rows, n_slots, first_slot, new_row, move_from, move_to, order)


@kernel
def _number_by_first_visit(states, n_states):  # type: ignore[no-untyped-def]
    """Number the states by their first visit before the last step, the others after them.

    Returns the number of each state and the state of each number.
    """
    number = np.full(n_states, -1)
    order = np.empty(n_states, np.int64)
    n_numbered = 0
    for state in np.concatenate((states[:-1], np.arange(n_states))):
        if number[state] < 0:
            number[state] = n_numbered
            order[n_numbered] = state
            n_numbered += 1
    return number, order


@kernel
def lstd_onehot(layout, rewards, discounts, weight, target, lmbdas, alphas, errors):  # type: ignore[no-untyped-def]
    """Sum over the steps of Σ_s weight_s (θ_s − target_s)², for every variant and pair.

    Parameters: `layout`, a `Plan` of the states; `rewards` (T,); `discounts` (T + 1,) on arrival in each row;
    `weight`, `target` (k,) by state; `lmbdas`, `alphas` (pairs,), the λ and α of each pair; `errors` (3, pairs),
    overwritten: rows Boyan, Uncorrected, Mixed.
    """
    n = len(weight)
    width = padded(n)
    vectors = aligned_zeros(9, width)
    work = Workspace(
        columns=aligned_zeros(n, width),
        picked=aligned_zeros(PANEL, width),
        Q=aligned_zeros(PANEL, width),
        R=aligned_zeros(PANEL, width),
        rho=vectors[0],
        p=vectors[1],
        y=vectors[2],
        theta=vectors[3],
        weight=vectors[4],
        target=vectors[5],
        boyan=vectors[6],
        uncorrected=vectors[7],
        mixed=vectors[8],
    )
    work.weight[:n] = weight[layout.order]
    work.target[:n] = target[layout.order]
    rest = 0.0  # error of the rows not yet in use, whose weights are zero
    for panel in range(len(layout.n_rows)):
        steps = min(PANEL, len(rewards) - PANEL * panel)
        for i in range(layout.n_rows[panel], n):
            rest += steps * work.weight[i] * work.target[i] ** 2
    for pair in range(len(lmbdas)):
        work.y[:] = 0.0
        work.theta[:] = 0.0
        work.Q[:] = 0.0  # steps ahead in a panel enter with factor zero: nothing infinite may be left there
        work.R[:] = 0.0
        work.boyan[:] = 0.0
        work.uncorrected[:] = 0.0
        work.mixed[:] = 0.0
        for panel in range(len(layout.n_rows)):
            _panel(layout, panel, rewards, discounts, lmbdas[pair], 1.0 / alphas[pair], work)
        errors[0, pair] = rest + work.boyan.sum()
        errors[1, pair] = rest + work.uncorrected.sum()
        errors[2, pair] = rest + work.mixed.sum()


@kernel
def _panel(layout, panel, rewards, discounts, lmbda, inverse_alpha, work):  # type: ignore[no-untyped-def]
    """Up to PANEL steps, whose rank-one updates of P are applied at the end."""
    begin = PANEL * panel
    end = min(begin + PANEL, len(rewards))
    n_rows = layout.n_rows[panel]
    n_slots = layout.n_slots[panel]
    _start_columns(layout, panel, end - begin, inverse_alpha, work)
    for t in range(begin, end):
        _take_row_and_column(layout.row[t], layout.slot[t], t - begin, n_rows, n_slots, work)
        _update_weights(
            layout.row[t],
            layout.row[t + 1],
            rewards[t],
            discounts[t],
            discounts[t + 1],
            lmbda,
            n_rows,
            work.Q[t - begin],
            work,
        )
    if end < len(rewards):
        _apply_panel(n_rows, n_slots, layout.row[end : min(end + PANEL, len(rewards))], work)
        _drop_columns(layout.move_from[panel], layout.move_to[panel], work)


@kernel
def _start_columns(layout, panel, n_steps, inverse_alpha, work):  # type: ignore[no-untyped-def]
    """Columns of the states first visited in this panel: those of I/α."""
    first = layout.first_slot[panel]
    for slot in range(first, layout.n_slots[panel]):
        row = layout.new_row[panel, slot - first]
        for i in range(work.columns.shape[1]):  # loops: copies of slices take 4 % of the time of the whole kernel
            work.columns[slot, i] = 0.0
        work.columns[slot, row] = inverse_alpha
        for step in range(n_steps):
            same = layout.row[PANEL * panel + step] == row
            work.picked[step, slot] = inverse_alpha if same else 0.0


@kernel
def _take_row_and_column(row, slot, step, n_rows, n_slots, work):  # type: ignore[no-untyped-def]
    """p = Pφ and ρ = φᵀP (into R) as they are after the steps of the panel so far."""
    Q = work.Q
    R = work.R
    p = work.p
    rho = work.rho
    r = _factors(R, slot, step)
    for i in range(n_rows):
        p[i] = work.columns[slot, i] - _combined(r, Q, i)
    q = _factors(Q, row, step)
    for j in range(n_slots):
        rho[j] = work.picked[step, j] - _combined(q, R, j)
    for j in range(n_slots):
        R[step, j] = rho[j]


@kernel
def _factors(panel, i, n_steps):  # type: ignore[no-untyped-def]
    """Entry i of the first `n_steps` rows of a panel, then zeros."""
    return (
        panel[0, i] if n_steps > 0 else 0.0,
        panel[1, i] if n_steps > 1 else 0.0,
        panel[2, i] if n_steps > 2 else 0.0,
        panel[3, i] if n_steps > 3 else 0.0,
        panel[4, i] if n_steps > 4 else 0.0,
        panel[5, i] if n_steps > 5 else 0.0,
        panel[6, i] if n_steps > 6 else 0.0,
        panel[7, i] if n_steps > 7 else 0.0,
    )


@kernel
def _combined(f, panel, i):  # type: ignore[no-untyped-def]
    """Entry i of the sum of the rows of a panel, each times its factor."""
    return (
        f[0] * panel[0, i]
        + f[1] * panel[1, i]
        + f[2] * panel[2, i]
        + f[3] * panel[3, i]
        + f[4] * panel[4, i]
        + f[5] * panel[5, i]
        + f[6] * panel[6, i]
        + f[7] * panel[7, i]
    )


@kernel
def _update_weights(  # type: ignore[no-untyped-def]
    row, next_row, reward, discount, next_discount, lmbda, n_rows, q, work
):
    """Update q, y, θ for one transition and add the errors of the three variants."""
    p = work.p
    y = work.y
    theta = work.theta
    decay = lmbda * discount
    ahead = (1.0 - lmbda) * discount  # o
    phi_y = y[row]
    phi_theta = theta[row]
    scale = 1.0 / (1.0 + p[row] - ahead * phi_y)
    along_p = scale * (1.0 - discount * phi_y)  # y' in terms of p and y
    along_y = decay + scale * ahead * (decay * phi_y + p[row])
    boyan = 0.0
    mixed = 0.0
    if next_row < n_rows:  # the weights of a state not yet visited are zero, and all variants agree
        next_q = (p[next_row] - ahead * y[next_row]) * scale
        next_y = along_p * p[next_row] + along_y * y[next_row]
        next_theta = theta[next_row] - next_q * phi_theta + reward * next_y
        next_ahead = (1.0 - lmbda) * next_discount
        boyan = next_discount * next_theta / (1.0 - next_discount * next_y)
        mixed = next_ahead * next_theta / (1.0 - next_ahead * next_y)
    for i in range(n_rows):
        q_i = (p[i] - ahead * y[i]) * scale
        y_i = along_p * p[i] + along_y * y[i]
        theta_i = theta[i] - q_i * phi_theta + reward * y_i
        q[i] = q_i
        y[i] = y_i
        theta[i] = theta_i
        error = theta_i - work.target[i]
        boyan_error = error + boyan * y_i
        mixed_error = error + mixed * y_i
        work.boyan[i] += work.weight[i] * boyan_error * boyan_error
        work.uncorrected[i] += work.weight[i] * error * error
        work.mixed[i] += work.weight[i] * mixed_error * mixed_error


@kernel
def _apply_panel(n_rows, n_slots, next_rows, work):  # type: ignore[no-untyped-def]
    """P ← P − Σ qρ over a full panel; in the same pass, pick the rows of P that the next panel starts from."""
    columns = work.columns
    Q = work.Q
    for j in range(n_slots):
        r = _factors(work.R, j, PANEL)
        for i in range(n_rows):
            columns[j, i] -= _combined(r, Q, i)
        for step in range(len(next_rows)):
            work.picked[step, j] = work.columns[j, next_rows[step]]


@kernel
def _drop_columns(move_from, move_to, work):  # type: ignore[no-untyped-def]
    """Fill the slots of states that are not visited again with the last columns."""
    for move in range(PANEL):
        if move_from[move] < 0:
            break
        source = move_from[move]
        goal = move_to[move]
        for i in range(work.columns.shape[1]):
            work.columns[goal, i] = work.columns[source, i]
        for step in range(PANEL):
            work.picked[step, goal] = work.picked[step, source]
