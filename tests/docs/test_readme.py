"""What the README shows is what one gets."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import lstd
from lstd import LSTDCV
from lstd.datasets import load_shop
from lstd.metrics import observed_returns

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


def test_regression_on_finished_histories_is_as_far_off_as_it_says():
    table, truth = load_shop(return_truth=True)
    X, last = table[["recent", "since_last"]], table["spend"].isna()
    rows = {"episode": table["customer"], "terminated": table["closed"]}
    returns = observed_returns(table["spend"], gamma=0.98, prediction=np.zeros(len(table)), **rows).returns
    left = table.groupby("customer")["closed"].transform("any")
    models = (LinearRegression().fit(X[left], returns[left]), LSTDCV(gamma=0.98).fit(X, table["spend"], **rows))
    off = [np.sqrt(np.mean((model.predict(X[last]) - truth["value"][last]) ** 2)) for model in models]
    assert "is off by {:.0f}, LSTD by {:.0f}.".format(*off) in README.replace("\n", " ")
    true, found = truth["value"][last].to_numpy(), models[1].predict_interval(X[last])
    held = ((found.lower <= true) & (true <= found.upper))[np.argsort(true)[::10]]
    assert f"{held.sum()} of the {len(held)} intervals hold the truth" in README


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
