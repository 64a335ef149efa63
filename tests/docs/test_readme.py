"""What the README shows is what one gets."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import lstd

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)[1]


def test_example_prints_the_output_shown():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), "README.md", "exec"), {})
    assert printed.getvalue() == block("text")


def test_linked_pages_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


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
    names = re.search(r"numerical=\((.+?)\n\)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.DOTALL)[1]
    found = subprocess.run(["bash", "-c", f"shopt -s failglob; ls -d {' '.join(names.split())}"], cwd=ROOT)
    assert found.returncode == 0


def test_one_version():
    for name, pattern in (("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\S+)")):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(pattern, text, re.MULTILINE)[1] == lstd.__version__, name


def test_the_picture_is_small():
    assert "](docs/readme.png)" in README
    assert (ROOT / "docs" / "readme.png").stat().st_size < 60_000
