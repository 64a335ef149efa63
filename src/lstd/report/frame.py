"""The frame of every page: one file that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from string import Template

from lstd.report import markup

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style</style>
</head>
<body>
<header>
<h1>$title</h1>
$header
</header>
<nav aria-label="Contents">
<strong>Contents</strong>
<ol>
$contents
</ol>
</nav>
<main>
$body
</main>
</body>
</html>
""")


def framed(title: str, header: Iterable[str], sections: Mapping[str, tuple[str, Iterable[str]]]) -> str:
    """A page as text.

    Parameters
    ----------
    title : str
    header : iterable of str
        HTML under the title.
    sections : mapping of identifier to (heading, parts)
        In the order of the page; parts are HTML.

    Examples
    --------
    >>> page = framed("A < B", ["<p>above</p>"], {"first": ("First", ["<p>inside</p>"])})
    >>> "<h1>A &lt; B</h1>" in page, page.count("First"), "http" in page
    (True, 2, False)
    """
    body = (markup.section(name, heading, *parts) for name, (heading, parts) in sections.items())
    contents = (f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, (heading, _) in sections.items())
    return _PAGE.substitute(
        title=escape(title),
        style=resources.files(__package__).joinpath("templates/page.css").read_text(encoding="utf-8"),
        header="\n".join(header),
        contents="\n".join(contents),
        body="\n".join(body),
    )
