"""Commands that the pages show and no test runs: their files, options and extras exist.

Blocks of ``console`` are run, by `test_pages`. Here are blocks of ``sh``, and commands within sentences.
"""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from lstd.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "conformance" / "README.md"]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES if "_build" not in page.parts}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
OPTIONS = {
    name: {"--help"}.union(*(parameter.opts for parameter in command.params))
    for name, command in typer.main.get_command(app).commands.items()
}
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
TOOLS = ("pip", "ruff", "mypy", "twine", "sed", "node", "tail", ".ci/run")  # beside modules that Python runs


def commands(shown):
    """Return the commands in some lines, one each, without comments, variables and the folder of an environment."""
    parts = [part for line in shown for part in re.split(r" && | \\?\| ", line)]
    words = [
        shlex.split(re.sub(r"^\s*(\w+=\S+\s+)*(\.venv/bin/)?(python(?=3))?3?", r"\3", part), comments=True)
        for part in parts
    ]
    return sorted({shlex.join(each) for each in words if each})


BLOCKS = commands(
    line
    for text in TEXTS.values()
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
)
SPANS = commands(
    span for text in TEXTS.values() for span in re.findall(r"`((?:lstd|python|pip|tail) [^`]*)`", BLOCK.sub("", text))
)


def check(command):
    words, options = shlex.split(command), set(re.findall(r"(?<!\S)--[\w-]+", command))
    if words[0] == "lstd":
        assert options <= OPTIONS.get(words[1], {"--help"})
    elif words[0] == "python" and words[1] != "-m":
        script = ROOT / words[1]
        known = script.read_text(encoding="utf-8") + (ROOT / "benchmarks" / "ratios.py").read_text(encoding="utf-8")
        assert all(re.search(rf"\b{option[2:]}\b", known) for option in options)
    else:
        packages = [package for extra in ("dev", "test", "docs") for package in EXTRAS[extra]]
        modules = ("pip", "venv", *(re.match(r"[\w-]+", package)[0] for package in packages))
        assert words[2] in modules if words[0] == "python" else words[0] in TOOLS
        extras = re.findall(r"\[([\w,]+)\]", command)
        assert {name for names in extras for name in names.split(",")} <= {*EXTRAS}
        assert all((ROOT / word).exists() for word in words if re.match(r"(tests|docs)(?!/_build)", word))


@pytest.mark.parametrize("command", BLOCKS)
def test_a_command_that_is_not_run_could_be(command):
    assert command.startswith("lstd reproduce") or not command.startswith("lstd "), "show it in a block of console"
    check(command)


@pytest.mark.parametrize("command", SPANS)
def test_a_command_within_a_sentence_could_be_run(command):
    check(command)


def test_options_in_the_guide_exist():
    known = set().union(*OPTIONS.values())
    for page in (ROOT / "docs" / "guide").glob("*.md"):
        for span in re.findall(r"`(--[^`]*)`", BLOCK.sub("", TEXTS[page])):
            assert {word for word in span.split() if word.startswith("--")} <= known, f"{page.name}: {span}"
