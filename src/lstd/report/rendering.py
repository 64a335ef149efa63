"""Pages from Jinja2 templates, one HTML file that loads nothing from elsewhere, and numbers as text."""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lstd.data.arguments import listed

_POWER = re.compile(r"(?<=\d)\^(-?\d+)")


def render(template: str, package: str = __package__, **values: Any) -> str:
    """Render a template, a file in the folder ``templates`` of `package` or of this one.

    A page extends ``page.html``, whose head says what it must define; ``parts.html`` has tables and figures. `values`
    are what the names in the template stand for; text is escaped.

    >>> page = render("page.html", title="A < B", sections={})
    >>> "<h1>A &lt; B</h1>" in page, "http" in page
    (True, False)
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> Environment:
    """Make the environment that has compiled the templates of a package."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    return environment


def powers(text: object) -> Markup:
    """Escape text and raise its powers of numbers.

    >>> powers("2^-8 < α")
    Markup('2<sup>−8</sup> &lt; α')
    """
    return Markup(_POWER.sub(lambda match: f"<sup>{match[1].replace('-', '−')}</sup>", escape(text)))


def data_uri(image: bytes) -> str:
    """Encode a figure, SVG or PNG, as the source of an image: identifiers of two figures cannot clash."""
    kind = "png" if image.startswith(b"\x89PNG") else "svg+xml"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}"


def seconds(value: float | None) -> str:
    """Three significant digits, never in powers of ten.

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


def grouped(number: float) -> str:
    """A whole number with its digits in threes, the space between them not breaking.

    >>> grouped(1234567).split("\\u202f")
    ['1', '234', '567']
    """
    return f"{number:,.0f}".replace(",", "\u202f")


def decimals(value: float) -> str:
    """Three decimals; a dash for NaN.

    >>> decimals(0.12345), decimals(-0.00001), decimals(float("nan"))
    ('0.123', '0.000', '–')
    """
    return "–" if np.isnan(value) else f"{round(value, 3) + 0.0:.3f}".replace("-", "−")


def share(fraction: float) -> str:
    """A share in whole per cent, or with one significant digit if it is small.

    >>> share(0.345).split(), share(0.0123).split(), share(0.0).split()
    (['34', '%'], ['1', '%'], ['0', '%'])
    """
    return f"{100 * fraction:.0f}\u00a0%" if fraction >= 0.095 or not fraction else f"{100 * fraction:.1g}\u00a0%"


_FILTERS = (data_uri, powers, compact, decimals, grouped, listed, share)
