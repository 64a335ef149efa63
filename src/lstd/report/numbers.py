"""Numbers as text, the same way in figures, tables and pages."""

from __future__ import annotations

import numpy as np


def seconds(value: float | None) -> str:
    """Three significant digits, never in powers of ten.

    Examples
    --------
    >>> seconds(0.00123456), seconds(44.7), seconds(1234.5), seconds(None)
    ('0.00123', '44.7', '1234', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value >= 100:
        return f"{value:.0f}"
    digits = 2 if value <= 0 else int(max(0, 2 - np.floor(np.log10(value))))
    return f"{value:.{digits}f}"


def compact(value: float) -> str:
    """Two significant digits, with a power of ten from ten thousand on and below a thousandth.

    Examples
    --------
    >>> compact(1.26e7), compact(949.0), compact(2.6), compact(3.1e-05), compact(float("inf"))
    ('1.3 × 10^7', '950', '2.6', '3.1 × 10^-5', '∞')
    """
    if not np.isfinite(value):
        return "∞" if value > 0 else "–"
    rounded = float(f"{value:.2g}")
    if rounded != 0 and not 1e-3 <= abs(rounded) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa} × 10^{int(exponent)}"
    return f"{rounded:g}"


def percent(fraction: float) -> str:
    """A signed change in whole per cent.

    Examples
    --------
    >>> percent(0.197), percent(-0.051), percent(-0.001)
    ('+20 %', '−5 %', '±0 %')
    """
    whole = round(100 * fraction)
    sign = "±" if whole == 0 else "−" if whole < 0 else "+"
    return f"{sign}{abs(whole)} %"


def grouped(number: float) -> str:
    """A whole number with its digits in threes, the space between them not breaking.

    Examples
    --------
    >>> grouped(1234567).split("\\u202f")
    ['1', '234', '567']
    """
    return f"{number:,.0f}".replace(",", "\u202f")


VARIANT_NAMES = {"boyan": "Boyan's LSTD(λ)", "uncorrected": "Uncorrected LSTD(λ)", "mixed": "Mixed LSTD(λ)"}
