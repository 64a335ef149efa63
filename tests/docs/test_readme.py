"""What the README shows is what one gets."""

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lstd

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), BLOCKS, ids=("shop", "chain"))
def test_examples_print_the_output_shown(code, shown):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == shown
    assert len(BLOCKS) == README.count("```python")


def test_numbers_of_the_shops_are_those_measured():
    stored = sorted((ROOT / "benchmarks" / "results").glob("shops-*.json"))[-1].read_text(encoding="utf-8")
    mean = {
        size: {key: np.mean([shop[key] for shop in shops]) for key in shops[0]}
        for size, shops in json.loads(stored)["shops"].items()
    }
    text, small, middle, large = README.replace("\n", " "), mean["125"], mean["1000"], mean["4000"]
    assert "is off by {left:.0f}, LSTD by {LSTD:.0f}.".format(**middle) in text
    assert f"LSTD is off by {small['LSTD']:.0f} to {large['LSTD']:.0f}, and by {small['features']:.0f} to" in text
    assert f"for {100 * large['covered LSTD']:.0f} % of the active customers of 4000" in text
    assert f"they hold it for {100 * large['covered features']:.0f} %" in text


def test_links_become_absolute_for_a_release(tmp_path):
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = re.search(r"^(address=ADDRESS .*?)^python", contributing, re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    subprocess.run(["bash", "-ec", commands.replace("ADDRESS", "https://host/lstd")], cwd=tmp_path, check=True)
    changed = (tmp_path / "README.md").read_text(encoding="utf-8")
    addresses = re.findall(r"\]\(https://host/lstd/(blob|raw)/v0.1.0/([^)#]+)(?:#[^)]*)?\)", changed)
    assert len(addresses) == changed.count("](") == README.count("](")
    assert {way for way, path in addresses if path == "docs/readme.png"} == {"raw"}
    assert [path for _, path in addresses if not (ROOT / path).exists()] == []


def test_continuous_integration_finds_exactly_one_test_command():
    pattern = re.search(r"grep -E '(.+?)'", (ROOT / ".ci/run").read_text(encoding="utf-8"))[1]
    assert len(re.findall(pattern, README, re.MULTILINE)) == 1


def test_continuous_integration_names_tests_that_exist():
    names = re.findall(r"tests/\S+", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    found = subprocess.run(["bash", "-c", f"shopt -s failglob; ls -d {' '.join(names)}"], cwd=ROOT)
    assert found.returncode == 0


def test_one_version():
    for name, pattern in (("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\S+)")):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(pattern, text, re.MULTILINE)[1] == lstd.__version__, name


def test_the_picture_is_small():
    assert "](docs/readme.png)" in README
    assert (ROOT / "docs" / "readme.png").stat().st_size < 60_000
