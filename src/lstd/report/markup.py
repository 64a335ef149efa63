"""Small functions that turn values into safe HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lstd.report.table import Table

# Letters of 9 points are then at least 9 pixels high, and no larger than the page's own.
_LEAST_REM_PER_INCH, _MOST_REM_PER_INCH = 4.6, 7.4
_PHONE_REM = 20.5  # what a phone shows between the margins
_POWER = re.compile(r"(?<=\d)\^(-?\d+)")


def text(words: str) -> str:
    """Plain text made safe, with powers such as 2^-8 raised.

    Examples
    --------
    >>> text("2^-8 < α")
    '2<sup>−8</sup> &lt; α'
    """
    return _POWER.sub(lambda found: f"<sup>{found[1].replace('-', '−')}</sup>", escape(words))


def paragraph(words: str, css: str = "prose") -> str:
    """A paragraph of plain text."""
    return f'<p class="{css}">{text(words)}</p>'


def section(identifier: str, heading: str, *parts: str) -> str:
    """A section with its heading, to which the table of contents points."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{identifier}">\n<h2>{escape(heading)}</h2>\n{inside}\n</section>'


def subheading(text: str) -> str:
    """A heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


def items(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return "<ul>\n" + "\n".join(f"<li>{text(words)}</li>" for words in sentences) + "\n</ul>"


def scroll(inside: str, label: str) -> str:
    """A region that scrolls sideways where the screen is narrow, reachable with the keyboard."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>'


def figure(svg: Path, identifier: str, caption: str, alternative: str) -> str:
    """A figure within the page, with links to its files beside the page."""
    links = ", ".join(
        f'<a href="figures/{svg.stem}{suffix}">{suffix[1:].upper()}</a>' for suffix in (".pdf", ".png", ".svg")
    )
    inside = scroll(_image(svg.read_bytes(), alternative), identifier)
    return _figure(inside, identifier, f"{text(caption)} Files beside this page: {links}.")


def picture(svg: bytes, identifier: str, caption: str, alternative: str, inches: float) -> str:
    """A figure of this width within the page; one that is too wide for a phone scrolls sideways there."""
    least, most = _LEAST_REM_PER_INCH * inches, _MOST_REM_PER_INCH * inches
    size = f"width:{most:.1f}rem;max-width:100%;min-width:{least:.1f}rem"
    image = _image(svg, alternative, size)
    inside = f'<div class="whole">{image}</div>' if least <= _PHONE_REM else scroll(image, identifier)
    return _figure(inside, identifier, text(caption))


def _figure(inside: str, identifier: str, caption: str) -> str:
    return f'<figure id="{identifier}">\n{inside}\n<figcaption>{caption}</figcaption>\n</figure>'


def _image(svg: bytes, alternative: str, style: str = "") -> str:
    """An image rather than inline SVG, so that the identifiers in one figure cannot meet those of another."""
    data = base64.b64encode(svg).decode("ascii")
    size = f' style="{style}"' if style else ""
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(alternative)}"{size}>'


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    n_labels: int = 1,
    groups: Iterable[int] = (),
    css: str = "data",
) -> str:
    """A table whose first `n_labels` columns are words; a rule is drawn above the rows in `groups`."""
    ruled = set(groups)
    lines = [f'<table class="{css}">', "<thead>", _row(header, n_labels, "th"), "</thead>", "<tbody>"]
    for index, row in enumerate(rows):
        lines.append(_row(row, n_labels, "td", "rule" if index in ruled else ""))
    return "\n".join((*lines, "</tbody>", "</table>"))


def _row(cells: Sequence[str], n_labels: int, tag: str, css: str = "") -> str:
    scope = ' scope="col"' if tag == "th" else ""
    words = [f'<{tag}{scope} class="word">{text(cell)}</{tag}>' for cell in cells[:n_labels]]
    numbers = [f"<{tag}{scope}>{text(cell)}</{tag}>" for cell in cells[n_labels:]]
    opening = f'<tr class="{css}">' if css else "<tr>"
    return opening + "".join((*words, *numbers)) + "</tr>"


def data_table(found: Table, suffixes: Sequence[str] = (), caption: str | None = None) -> str:
    """One of the report's tables, with its title, its caption or another, and links to its files."""
    links = ", ".join(f'<a href="tables/{found.name}.{suffix}">{suffix.upper()}</a>' for suffix in suffixes)
    files = f" Files beside this page: {links}." if links else ""
    body = table(found.header, found.rows, n_labels=found.n_labels, groups=found.groups)
    words = text(found.caption if caption is None else caption)
    return f'{subheading(found.title)}\n{scroll(body, found.title)}\n<p class="note">{words}{files}</p>'


def definitions(entries: Mapping[str, str]) -> str:
    """Cards, each a name and a value."""
    inside = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in entries.items())
    return f'<dl class="cards">{inside}</dl>'


def code(text: str) -> str:
    """A block of code or of a command."""
    return f"<pre><code>{escape(text)}</code></pre>"


def readable(value: Any) -> str:
    """A JSON value in words.

    Examples
    --------
    >>> readable([1, 50]), readable({"sweep": 8.1}), readable(None)
    ('1, 50', 'sweep: 8.1', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {readable(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(readable(entry) for entry in value)
    return str(value)
