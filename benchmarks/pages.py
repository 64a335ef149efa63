"""Tables in pages of the documentation."""

from __future__ import annotations

from pathlib import Path


def write_between(path: Path, source: str, text: str) -> None:
    """Replace the text between the markers of `source` in a page, whole or not at all."""
    begin, end = f"<!-- begin: {source} -->", f"<!-- end: {source} -->"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path} must have the lines {begin!r} and {end!r}, once each.")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")
    temporary.replace(path)
