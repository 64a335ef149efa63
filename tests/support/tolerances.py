"""Every tolerance of the tests, each with its reason. No test relies on a default tolerance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    """Accepts |actual − desired| ≤ atol + rtol·|desired|."""

    rtol: float
    atol: float
    reason: str


TOLERANCES = {
    "sums": Tolerance(1e-12, 1e-12, "two orders of summation of a few hundred terms of order 1"),
    "solve": Tolerance(1e-9, 1e-10, "condition number at most 1e4, sums in another order"),
    "iterative": Tolerance(1e-7, 1e-7, "required of solves to a residual of 1e-12, condition number at most 1e4"),
    "iterative_intervals": Tolerance(1e-6, 1e-6, "required of standard errors solved for to a residual of 1e-6"),
    "iterative_choice": Tolerance(0.0, 1e-5, "held-out R² of weights that are solved for to a residual of 1e-5"),
    "iterative_default": Tolerance(0.01, 0.0, "promised of standard errors by default"),
    "shares": Tolerance(1e-3, 0.0, "shares of blocks by transitions, 7 or 8 per episode, against those by episodes"),
    "misfit": Tolerance(
        1e-6, 1e-9, "regressions of squares on features up to a ridge term of 1e-11 and clusters of 4e3"
    ),
    "check_value": Tolerance(0.0, 1e-9, "the published check values, given to ten digits"),
    "stationary": Tolerance(1e-12, 1e-13, "64 squarings of a stochastic matrix, rows rescaled each time"),
    "power_series": Tolerance(1e-11, 1e-12, "thousands of terms of a power series against a linear solve"),
    "cesaro": Tolerance(0.0, 2e-3, "the average of N = 2000 powers of P is within a few 1/N of its limit"),
    "stream_limit": Tolerance(0.0, 0.05, "averages of 20 000 dependent draws: 5 standard errors of at most 0.01"),
    "theory_exact": Tolerance(1e-12, 1e-13, "cumulative against double sums of up to 1e4 positive terms"),
    "theory_matrices": Tolerance(1e-10, 1e-10, "filtered against summed traces, sums over blocks"),
    "theory_weights": Tolerance(1e-9, 1e-10, "as theory_matrices, after a solve without a ridge term"),
    "theory_stderr": Tolerance(0.15, 0.0, "the spread over 400 seeds is known to 1/sqrt(800) = 3.5 %"),
    "normal_equations": Tolerance(1e-11, 1e-12, "residuals of a least-squares solve with data of order 1 to 10"),
    "fixed_point": Tolerance(1e-9, 1e-9, "solves with condition number at most 1e5"),
    "per_condition": Tolerance(5e-15, 0.0, "20 units in the last place times the growth that the test works out"),
    "recursions": Tolerance(1e-11, 0.0, "two orders of the same recursion over 100 steps, ridge at least 1/16"),
    "sweep_uncorrected": Tolerance(1e-12, 0.0, "required of Uncorrected; its denominators stay near 1 and above"),
    "sweep": Tolerance(1e-8, 0.0, "required of Boyan and Mixed, whose denominators reach 7e-5"),
    "sweep_td": Tolerance(1e-11, 0.0, "the same recursion in another order of summation and another basis"),
    "long_stream": Tolerance(1e-11, 0.0, "1e6 terms of one sign; errors grow as the square root of their number"),
    "reading": Tolerance(4e-14, 1e-7, "promised are 8 digits, or those of a solve; a read-out may grow errors by 100"),
    "units": Tolerance(1e-6, 1e-7, "promised under any scales of features and shifts of a million standard deviations"),
    "conformance": Tolerance(1e-13, 0.0, "stated in conformance/README.md; times the condition number for weights"),
    "long_recursion": Tolerance(1e-11, 0.0, "2e5 recursive updates against a solve of sums, condition number below 10"),
}


def assert_close(actual, desired, name, **options):
    """`numpy.testing.assert_allclose` with the tolerance of that name in the table."""
    tolerance = TOLERANCES[name]
    if not _surely_close(np.asarray(actual), np.asarray(desired), tolerance):
        np.testing.assert_allclose(actual, desired, rtol=tolerance.rtol, atol=tolerance.atol, **options)


def _surely_close(actual, desired, tolerance):
    """Whether finite floats of one shape are close, in a fifth of the time of `assert_allclose`."""
    if not (actual.dtype.kind == desired.dtype.kind == "f" and actual.shape == desired.shape):
        return False
    with np.errstate(all="ignore"):
        within = abs(actual - desired) <= tolerance.atol + tolerance.rtol * abs(desired)
    return bool(within.all() and np.isfinite(desired).all())
