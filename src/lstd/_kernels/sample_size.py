"""Effective sample size of a stream with importance ratios, trace coefficients or weights, in O(1) per transition.

The sizes are those of `lstd.data.effective_sample_size`: with ratios alone, with weights alone, and without both. With
forgetting f, all that came before counts f times as much. The sums begin with the first transition that has a factor;
the N transitions before it count as they would in one long episode,

    Σ g = N u,   Σ Σ κ g g = N₂ u² (1 + λγ)/(1 − λγ),   u = 1/(1 − λγ),   N = Σ f^k,  N₂ = Σ f^2k,

so that a stream without factors pays for nothing.
"""

from __future__ import annotations

from lstd._kernels.compilation import kernel

# Entries: whether the sums have begun, whether a ratio was other than one, and whether a warning is not to be given
# again; then, for each of the three sizes, the traces e and f, and both sums.
BEGUN, OFF_POLICY, SILENT = range(3)
FIRST, E, F, TOTAL, SQUARE = 3, 0, 1, 2, 3
N_SAMPLE = FIRST + 3 * 4
RUNS = 50.0  # of rows, with which errors are those of the stream and not of weights that few products of ratios decide


@kernel
def add_to_sample(ratio, weight, coefficient, decay, forgetting, n_before, sample):  # type: ignore[no-untyped-def]
    """Add a transition, with the decay λγ on arrival, 0 at the start of an episode."""
    if sample[BEGUN] == 0.0:
        begin(decay, forgetting, n_before, sample)
    if ratio != 1.0:
        sample[OFF_POLICY] = 1.0
    for which in range(3):
        rho = ratio if which == 0 else 1.0
        w = weight if which == 1 else 1.0
        left = decay * (coefficient if which == 0 else min(coefficient, 1.0))
        sums = sample[FIRST + 4 * which : FIRST + 4 * which + 4]
        sums[E] = rho * (1.0 + left * sums[E])
        g = w * sums[E]
        sums[F] = g + left * forgetting * sums[F]
        sums[TOTAL] = forgetting * sums[TOTAL] + g
        sums[SQUARE] = forgetting * forgetting * sums[SQUARE] + g * (2.0 * sums[F] - g)


@kernel
def few_runs(sample):  # type: ignore[no-untyped-def]
    """Return whether importance ratios leave fewer than RUNS runs of rows."""
    return sample[OFF_POLICY] == 1.0 and sample[FIRST + TOTAL] ** 2 < RUNS * sample[FIRST + SQUARE]


@kernel
def begin(decay, forgetting, n_before, sample):  # type: ignore[no-untyped-def]
    """Begin the sums after so many transitions without factors."""
    if n_before == 0:
        sample[BEGUN] = 1.0
        return
    e = 1.0 / max(1.0 - decay, 1.0 / n_before)
    n = (1.0 - forgetting**n_before) / (1.0 - forgetting) if forgetting < 1.0 else float(n_before)
    squares = n * (1.0 + forgetting**n_before) / (1.0 + forgetting)
    for which in range(3):
        sums = sample[FIRST + 4 * which : FIRST + 4 * which + 4]
        sums[E], sums[F] = e, e * e
        sums[TOTAL], sums[SQUARE] = n * e, squares * e * e * (2.0 * e - 1.0)
    sample[BEGUN] = 1.0
