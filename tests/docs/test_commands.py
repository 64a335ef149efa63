"""Commands that the pages show and no test runs: their files, options and extras exist.

Blocks of ``console`` are run, by `test_pages`. Here are blocks of ``sh``, and commands within sentences.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from lstd.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "conformance" / "README.md"]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
OPTIONS = {
    name: {option for parameter in command.params for option in parameter.opts}
    for name, command in typer.main.get_command(app).commands.items()
}


class ArgumentsParsedError(Exception):
    """Ends a script before it begins to work."""


def names_extras(words, _):
    for names in re.findall(r"\[(.*?)\]", " ".join(words)):
        assert {*names.split(",")} <= {*EXTRAS}


def is_not_checked(*_):
    pass


def is_a_tool(words, _):
    name = words[2] if "-m" in words else words[0]
    packages = [package for extra in ("dev", "test", "docs") for package in EXTRAS[extra]]
    assert any(re.match(rf"{name}\b", package) for package in packages)
    assert all((ROOT / word).exists() for word in words if re.match(r"(tests|docs)(?!/_build)", word))


def has_these_options(words, _):
    known = {"--help"} | (set() if words[1] == "--help" else OPTIONS[words[1]])
    assert {word for word in words if word.startswith("--")} <= known


def takes_these_arguments(words, monkeypatch):
    script = ROOT / words[1]
    if not re.search("argparse|run_alone", script.read_text(encoding="utf-8")):
        assert len(words) == 2
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser, arguments=None, namespace=None):
        parse(parser, arguments, namespace)
        raise ArgumentsParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", words[1:])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(ArgumentsParsedError):
        runpy.run_path(str(script), run_name="__main__")


def is_run_by_ci(words, _):
    assert words == [".ci/run"] or " ".join(words) in CI
    assert (ROOT / words[-1]).is_file()


# How a command begins, why no test runs it, and what is checked instead. The first that fits holds.
NOT_RUN = {
    "pip ": ("needs a network", names_extras),
    "python -m pip ": ("needs a network", names_extras),
    "python -m venv ": ("makes an environment for pip", is_not_checked),
    "python -m sphinx ": ("takes minutes; .ci/run builds the site", is_a_tool),
    "python -m build": ("takes a minute; .ci/run builds", is_a_tool),
    "python -m pytest ": ("would run the tests within a test", is_a_tool),
    "ruff ": ("a tool of development", is_a_tool),
    "mypy": ("a tool of development", is_a_tool),
    "twine ": ("uploads", is_a_tool),
    "sed ": ("changes the README; test_readme runs it on a copy", is_not_checked),
    "node ": ("not installed everywhere", is_run_by_ci),
    ".ci/run": ("would run the tests within a test", is_run_by_ci),
    "python ": ("measures for minutes or hours", takes_these_arguments),
    "lstd reproduce": ("takes a minute", has_these_options),
}
IN_SENTENCES = NOT_RUN | {
    "lstd ": ("is shown in part", has_these_options),
    "tail -F ": ("waits for rows without end", is_not_checked),
}


BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES if "_build" not in page.parts}


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


@pytest.mark.parametrize("command", BLOCKS)
def test_a_command_that_is_not_run_could_be(command, monkeypatch):
    check(command, NOT_RUN, monkeypatch)


@pytest.mark.parametrize("command", SPANS)
def test_a_command_within_a_sentence_could_be_run(command, monkeypatch):
    check(command, IN_SENTENCES, monkeypatch)


def check(command, known, monkeypatch):
    fitting = [check for begin, (_, check) in known.items() if command.startswith(begin)]
    assert fitting, "show the command in a block of console, which is run, or add it to NOT_RUN with the reason"
    fitting[0](shlex.split(command), monkeypatch)


def test_options_in_the_guide_exist():
    known = {"--help"}.union(*OPTIONS.values())
    for page in (ROOT / "docs" / "guide").glob("*.md"):
        for span in re.findall(r"`(--[^`]*)`", BLOCK.sub("", TEXTS[page])):
            assert {word for word in span.split() if word.startswith("--")} <= known, f"{page.name}: {span}"
