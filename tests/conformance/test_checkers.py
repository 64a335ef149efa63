"""The programs of `conformance/`: they write the same bytes, agree exactly, and notice a damaged vector."""

import re
import shutil
import subprocess
import sys
from fractions import Fraction

import pytest

from tolerances import TOLERANCES
from vectors import FOLDER, cases

FILES = ("lstd", "steps", "weights", "actions", "chunks", "td", "processes")
VARIANTS = ("boyan", "uncorrected", "mixed")
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CHECKERS = {"python": [sys.executable, "check.py"], "node": ["node", "check.mjs"]}


def run_checker(language, folder):
    """What the checker prints about the files in `folder`, and its exit code.

    Where Node.js is missing the test is skipped, which pytest reports; `.ci/run` runs the checker too and stops there.
    """
    program, script = CHECKERS[language]
    if shutil.which(program) is None:
        pytest.skip("Node.js is not installed, so conformance/check.mjs was not run; .ci/run does not pass without it")
    return subprocess.run([program, FOLDER / script, folder], capture_output=True, text=True, timeout=300)


def agreeing(result):
    return re.findall(r"^(\w+)\.json agrees$", result.stdout, re.MULTILINE)


# ---------------------------------------------------------------- the files


def test_programs_do_not_know_the_package():
    for name in ("make", "definitions", "draws", "check"):
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        imported = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))
        assert imported <= {*sys.stdlib_module_names, "definitions", "draws"}, name


def leaves(value):
    """Every text in a document."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    elif isinstance(value, str):
        yield value


def test_readme_says_what_every_field_is():
    rows = re.findall(r"^\| (`[^|]*) \|", README, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert described == set().union(*(fields(cases(name)) for name in FILES)) - set(VARIANTS)


def fields(value):
    """Every key in a document."""
    if isinstance(value, dict):
        return set(value).union(*map(fields, value.values()))
    return set().union(*map(fields, value)) if isinstance(value, list) else set()


# ---------------------------------------------------------------- the checkers


@pytest.mark.parametrize(
    ("language", "name"), [("python", "lstd"), ("node", "steps"), ("node", "td"), ("node", "processes")]
)
def test_checker_notices_a_damaged_number(language, name, tmp_path):
    """The last number of the last case differs by 1e-9 of itself, or by a bit where bits count."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "*.mjs", "*.md"))
    path = tmp_path / f"{name}.json"
    text = path.read_text(encoding="utf-8")
    pattern = r'"probabilities": \[\[".*?(?=p-)' if name == "processes" else r'"-?\d+/\d+(?="[^/]*$)'
    found = list(re.finditer(pattern, text))[-1]
    damaged = (
        changed_bit(found[0]) if name == "processes" else '"' + str(Fraction(found[0][1:]) * (1 + Fraction(1, 10**9)))
    )
    path.write_text(text[: found.start()] + damaged + text[found.end() :], encoding="utf-8")
    result = run_checker(language, tmp_path)
    assert result.returncode == 1
    assert f"{name}.json" in result.stderr
    assert name not in agreeing(result)


def changed_bit(text):
    """The hexadecimal digits with the last one changed."""
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def test_one_tolerance():
    stated = {
        float(number)
        for text in (README, *((FOLDER / name).read_text(encoding="utf-8") for name in ("check.py", "check.mjs")))
        for number in re.findall(r"(?:TOLERANCE = |≤ )(1e-\d+)", text)
    }
    assert stated == {TOLERANCES["conformance"].rtol}
