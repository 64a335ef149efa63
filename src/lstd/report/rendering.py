"""Pages from Jinja2 templates: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lstd.report.formatting import compact, decimals, grouped, listed, share

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


def data_uri(svg: bytes) -> str:
    """Encode a figure as the source of an image, so that its identifiers cannot clash with another figure's."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")


_FILTERS = (data_uri, powers, compact, decimals, grouped, listed, share)
