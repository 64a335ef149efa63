"""The benchmarks' entry point: what it lists, writes and puts into the documentation."""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from lstd.experiments.provenance import describe_machine

ROOT = Path(__file__).parent.parent
BENCHMARKS, DOCS = ROOT / "benchmarks", ROOT / "docs"


@pytest.fixture
def load(monkeypatch):
    """Imports a script of the folder; none of them stays loaded."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if BENCHMARKS in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]


@pytest.fixture
def claims(load):
    return load("claims")


def command(*words):
    return subprocess.run(
        [sys.executable, BENCHMARKS / "claims.py", *words], check=True, capture_output=True, text=True, timeout=120
    )


def results(date="2030-01-01", *, quick=False, only=None, median=2.0):
    row = {
        "claim": "one", "page": "", "kind": "as fast", "ratio": {"median": median, "low": 1.0, "high": 3.0},
        "goal": None, "seconds_goal": None, "met": None, "pairs": 1,
        "seconds": {side: {"median": 1.0, "low": 1.0, "high": 1.0} for side in ("lstd", "beside")},
    }  # fmt: skip
    part = {"how": "So.", "seconds": 1, "ratios": [row]}
    machine = {"cpu": "one", "cores": 1, "python": "3", "packages": {}}
    names = ("paper", "batch", "online", "selection", "intervals", "scaling", "startup", "neighbours")
    return {
        "date": date, "arguments": {"quick": quick, "only": only}, "load_before": 0.0, "machine": machine,
        "packages": {}, "parts": dict.fromkeys(names, part), "seconds": 60,
    }  # fmt: skip


# ---------------------------------------------------------------- ratios


def test_both_sides_take_turns_after_a_run_that_does_not_count(load):
    ran = []
    ours, beside = load("ratios").in_turn(lambda: ran.append("A"), lambda: ran.append("B"), 3)
    assert "".join(ran) == "ABABABAB"
    assert (len(ours), len(beside)) == (3, 3)


def test_a_ratio_is_the_median_of_the_ratios_of_neighbours(load):
    row = load("ratios").Ratio("one", [1.0, 2.0, 4.0], [3.0, 20.0, 4.0]).row()
    assert row["ratio"] == {"median": 3.0, "low": 1.0, "high": 10.0}  # that of medians would be 2
    assert row["seconds"]["lstd"] == {"median": 2.0, "low": 1.0, "high": 4.0}
    assert row["met"] is None


@pytest.mark.parametrize(
    ("cost", "goal", "seconds_goal", "met"),
    [
        (False, 2.0, None, True),
        (False, 2.1, None, False),
        (True, 0.5, None, True),
        (True, 0.4, None, False),
        (False, 2.0, 0.9, False),
        (False, None, 1.0, True),
    ],
)
def test_goals_are_met_or_not(load, cost, goal, seconds_goal, met):
    ratios = load("ratios")
    row = ratios.Ratio("one", [1.0], [2.0], cost=cost, goal=goal, seconds_goal=seconds_goal).row()
    assert row["met"] is met
    assert ("MISSED" in ratios.table([row])[-1]) is not met


def test_what_was_skipped_says_why(load):
    ratios = load("ratios")
    line = ratios.table([ratios.Ratio("one", skipped="it is not there").row()])[-1]
    assert "skipped: it is not there" in line
    assert line.count("|") == ratios.table([])[0].count("|")


# ---------------------------------------------------------------- the entry point


def test_every_part_is_listed(claims):
    listed = dict(line.split(maxsplit=1) for line in command("--list").stdout.splitlines())
    assert listed == claims.TITLES
    assert [name for name in listed if not (BENCHMARKS / f"{name}.py").is_file()] == []


def test_a_part_is_printed_and_written_with_what_it_ran_on(tmp_path):
    done = command("--only", "intervals", "--quick", "--results", str(tmp_path))
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.json", path.name)
    assert found["arguments"] == {"quick": True, "only": ["intervals"]}
    assert found["machine"]["packages"]["numpy"]
    (part,) = found["parts"].values()
    for row in part["ratios"]:
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert f"| {row['claim']} |" in done.stdout
        assert row["claim"] in done.stderr
    assert "2000 rows of 100 features" in done.stdout


def test_a_part_is_not_written_without_a_folder(claims, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(claims, "measured", lambda name, quick: {"ratios": []})
    claims.main(["--only", "startup"])
    claims.main(["--quick"])
    assert list(tmp_path.iterdir()) == []
    assert "not written" in capsys.readouterr().err
    claims.main([])
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_written_when_a_measurement_fails(claims, monkeypatch, tmp_path):
    def fail(name, quick):
        if name == claims.NAMES[-1]:
            raise RuntimeError("no")
        return {"ratios": []}

    monkeypatch.setattr(claims, "measured", fail)
    with pytest.raises(RuntimeError, match="no"):
        claims.main(["--results", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_results_of_a_day_are_replaced_whole(claims, monkeypatch, tmp_path):
    path = claims.write(results(median=2.0), tmp_path)
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        claims.write(results(median=5.0), tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == results(median=2.0)


def test_the_newest_whole_results_count(claims, tmp_path):
    for found in (results("2030-01-01"), results("2030-01-02", median=7.0), results("2030-01-03", quick=True)):
        claims.write(found, tmp_path)
    claims.write(results("2030-01-04", only=["paper"]), tmp_path)
    (tmp_path / "cluster-2030-01-05.json").write_text("{}", encoding="utf-8")
    assert claims.newest(tmp_path) == results("2030-01-02", median=7.0)
    with pytest.raises(SystemExit, match="No results of a whole run"):
        claims.newest(tmp_path / "none")


def test_pages_are_made_from_results(claims, tmp_path):
    docs, folder = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    for page in claims.PAGES:
        (docs / page).write_text(f"before\n<!-- begin: {claims.SOURCE} -->\n<!-- end: {claims.SOURCE} -->\nafter\n")
    claims.write(results(median=7.25), folder)
    claims.write_docs(claims.newest(folder), docs)
    for page in claims.PAGES:
        text = (docs / page).read_text(encoding="utf-8")
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert text.count("7.25× as fast (1 to 3)") == len(claims.PAGES[page])


# ---------------------------------------------------------------- what is in the repository


def test_the_documentation_shows_the_newest_results(claims):
    found = claims.newest(claims.RESULTS)
    for page in claims.PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        begin, end = f"<!-- begin: {claims.SOURCE} -->", f"<!-- end: {claims.SOURCE} -->"
        shown = text.split(begin)[1].split(end)[0].strip()
        assert shown == claims.page_text(found, page), f"{page}: run `python {claims.SOURCE} --docs`"


def test_results_cover_every_part_and_name_no_one(claims):
    found = claims.newest(claims.RESULTS)
    assert tuple(found["parts"]) == claims.NAMES
    assert set(found["machine"]) == set(describe_machine())
    assert not re.search(r"(?<!\w)(/|\\\\)(home|tmp|usr|work|root|Users)\b", json.dumps(found))


def test_pages_that_results_name_exist(claims):
    pages = {row["page"] for part in claims.newest(claims.RESULTS)["parts"].values() for row in part["ratios"]}
    assert pages >= {"performance.md", "performance-estimators.md", "selection.md", "intervals.md"}
    assert [page for page in pages if page and not (DOCS / page).is_file()] == []


def test_no_script_shadows_a_package():
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    assert importlib.machinery.PathFinder.find_spec("json", folders) is not None
    shadowed = [
        path.stem
        for path in BENCHMARKS.glob("*.py")
        if importlib.machinery.PathFinder.find_spec(path.stem, folders) or path.stem in sys.builtin_module_names
    ]
    assert shadowed == []
