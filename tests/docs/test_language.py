"""Words that the project does not use, because a reader would have to read them twice."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for folder, pattern in (
        (".", "*.md"),
        ("docs", "**/*.md"),
        ("conformance", "*.md"),
        ("conformance", "*.py"),
        ("examples", "**/*.py"),
        ("src", "**/*.py"),
        ("src", "**/*.html"),
        ("benchmarks", "*.py"),
    )
    for path in (ROOT / folder).glob(pattern)
)
AVOIDED = {
    "is told": "is given, is passed",
    "of ours": "name whose it is",
    "which is none": "say what is missing",
    "hangs on": "depends on",
    "as many as": "up to, at least, one per",
    "stretch": "block",
    "what it takes": "name it: time, memory",
    "whoever": "name who",
}
TO_REWRITE: dict[str, set[str]] = {}


@cache
def files_with():
    """The files that have each of the words."""
    found = {words: set() for words in AVOIDED}
    pattern = re.compile(rf"\b({'|'.join(AVOIDED)})".replace(" ", r"\s+"), re.IGNORECASE)
    for path in TEXTS:
        for match in pattern.finditer(path.read_text(encoding="utf-8")):
            words = " ".join(match[1].lower().split())
            found[words].add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("words", AVOIDED)
def test_words_that_are_avoided(words):
    left = sorted(files_with()[words] - TO_REWRITE.get(words, set()))
    assert not left, f"instead of {words!r} write {AVOIDED[words]!r} in {left}"
