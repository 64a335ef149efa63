"""The benchmarks' entry point: what it lists, writes and puts into the documentation."""

import contextlib
import importlib
import importlib.machinery
import itertools
import json
import platform
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.reproduce.run import describe_machine

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
PARTS = (
    "paper",
    "batch",
    "in_memory",
    "online",
    "selection",
    "choice",
    "intervals",
    "scaling",
    "startup",
    "neighbours",
)


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


@pytest.fixture
def rows(load, monkeypatch):
    """All rows of a part as the script has them now, with nothing measured and little data."""
    monkeypatch.setattr(load("ratios"), "in_turn", lambda ours, beside, pairs, **_: ([1.0] * pairs, [1.0] * pairs))
    monkeypatch.setattr(load("ratios"), "timed", lambda task: 1.0)

    def of(name):
        module = load(name)
        if name == "paper":
            every = itertools.product(PROBLEMS, FEATURES, module.TIMED)
            rows = [
                {"problem": problem, "features": features, "algorithm": algorithm, "seconds": 1.0, "loop_seconds": 1.0}
                for problem, features, algorithm in every
            ]
            monkeypatch.setattr("lstd.experiments.timing.measure", lambda progress: {"rows": rows})
            monkeypatch.setattr(module, "whole_paper_process", lambda cache: 1.0)
        elif name == "choice":
            monkeypatch.setattr(module, "processor_seconds", lambda code, cache: 1.0)
            chosen = SimpleNamespace(cv_results_={"alpha": [1.0]})
            chooser = SimpleNamespace(fit=lambda *rows, **columns: chosen)
            monkeypatch.setattr(module, "LSTDCV", lambda gamma: chooser)
        elif name == "online":
            monkeypatch.setattr(module, "timed", lambda block, count: 1.0)
        elif name == "scaling":
            monkeypatch.setattr(module, "WORKERS", dict.fromkeys(module.WORKERS, lambda: contextlib.nullcontext({})))
            monkeypatch.setattr(module.out_of_core, "make_files", lambda folder, n, n_bytes: 0)
            monkeypatch.setattr(module.out_of_core, "measure", lambda *words, **options: {"seconds": 1.0, "digest": ""})
        return [ratio.row() for ratio in module.ratios(name != "paper")]

    return of


def results(date="2030-01-01", *, quick=False, only=None, median=2.0):
    row = {
        "claim": "one", "kind": "as fast", "ratio": {"median": median, "low": 1.0, "high": 3.0},
        "goal": None, "seconds_goal": None, "met": None, "pairs": 1,
        "seconds": {side: {"median": 1.0, "low": 1.0, "high": 1.0} for side in ("lstd", "beside")},
    }  # fmt: skip
    part = {"how": "So.", "seconds": 1, "ratios": [row]}
    machine = {"lstd": "0", "cpu": "one", "cores": 1, "python": "3", "packages": {}}
    return {
        "date": date, "arguments": {"quick": quick, "only": only}, "load_before": 0.0, "machine": machine,
        "packages": {}, "source": ["0123456789ab"], "parts": dict.fromkeys(PARTS, part), "seconds": 60,
    }  # fmt: skip


# ---------------------------------------------------------------- ratios


def test_a_ratio_is_the_median_of_the_ratios_of_neighbours(load):
    row = load("ratios").Ratio("one", [1.0, 2.0, 4.0], [3.0, 20.0, 4.0]).row()
    assert row["ratio"] == {"median": 3.0, "low": 1.0, "high": 10.0}  # that of medians would be 2
    assert row["seconds"]["lstd"] == {"median": 2.0, "low": 1.0, "high": 4.0}
    assert row["met"] is None


# ---------------------------------------------------------------- the entry point


def test_every_part_is_listed(claims, capsys):
    claims.main(["--list"])
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert listed == claims.TITLES
    assert [name for name in listed if not (BENCHMARKS / f"{name}.py").is_file()] == []


def test_a_part_is_printed_and_written_with_what_it_ran_on(load, claims, tmp_path, capsys):
    claims.main(["--only", "intervals", "--quick", "--results", str(tmp_path)])
    done = capsys.readouterr()
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-intervals\.json", path.name)
    assert found["arguments"] == {"quick": True, "only": ["intervals"]}
    assert found["machine"]["packages"]["numpy"]
    assert found["machine"]["platform"] == f"{platform.system()} {platform.machine()}"
    assert found["source"] == [load("provenance").source_digest()]
    (part,) = found["parts"].values()
    for row in part["ratios"]:
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert f"| {row['claim']} |" in done.out
        assert row["claim"] in done.err
    assert "2000 rows of 100 features" in done.out


def test_the_newest_whole_results_count(claims, tmp_path):
    for found in (results("2030-01-01"), results("2030-01-02", median=7.0), results("2030-01-03", quick=True)):
        claims.write(found, tmp_path)
    claims.write(results("2030-01-04", only=["paper"]), tmp_path)
    (tmp_path / "cluster-2030-01-05.json").write_text("{}", encoding="utf-8")
    assert claims.newest(tmp_path) == results("2030-01-02", median=7.0)
    shown = claims.complete(tmp_path)
    assert shown["date"] == "2030-01-02"
    assert [name for name, part in shown["parts"].items() if "ran_on" in part] == ["paper"]
    assert "2030-01-04" in claims.page_text(shown)
    with pytest.raises(SystemExit, match="No results of a whole run"):
        claims.newest(tmp_path / "none")


# ---------------------------------------------------------------- what is in the repository


def test_the_documentation_shows_the_newest_results(claims):
    found = claims.complete(claims.RESULTS)
    text = claims.PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin: {claims.SOURCE} -->", f"<!-- end: {claims.SOURCE} -->"
    assert text.split(begin)[1].split(end)[0].strip() == claims.page_text(found), f"`python {claims.SOURCE} --docs`"


def test_the_page_on_large_data_shows_the_newest_results(load):
    module = load("out_of_core")
    text = module.PAGE.read_text(encoding="utf-8")
    shown = text.split(f"<!-- begin: {module.SOURCE} -->")[1].split(f"<!-- end: {module.SOURCE} -->")[0]
    assert shown == f"\n\n{module.page_text(module.newest('out-of-core'))}\n\n"


def test_results_cover_every_part_and_name_no_one(claims):
    found = claims.complete(claims.RESULTS)
    assert tuple(found["parts"]) == claims.NAMES
    assert set(found["machine"]) == set(describe_machine())
    assert not re.search(r"(?<!\w)(/|\\\\)(home|tmp|usr|work|root|Users)\b", json.dumps(found))


@pytest.mark.parametrize("name", PARTS)
def test_claims_are_those_of_the_script(claims, rows, name):
    """But for numbers: with little data they are others."""
    measured, now = claims.complete(claims.RESULTS)["parts"][name], rows(name)
    if any("skipped" in row for row in now):
        pytest.skip(f"{', '.join(row['claim'] for row in now)}: not installed")
    found = [{re.sub(r"\d+", "#", row["claim"]) for row in each} for each in (measured["ratios"], now)]
    assert found[0] == found[1], "run `python benchmarks/claims.py`"
    assert measured["how"] == importlib.import_module(name).HOW


def test_the_page_on_clusters_has_the_newest_results_which_its_formula_is_near(load):
    cluster = load("cluster")
    page = (ROOT / "docs" / "results" / "cluster-costs.md").read_text(encoding="utf-8")
    for name, text in cluster.sections(cluster.newest("cluster")).items():
        assert f"<!-- begin: benchmarks/cluster.py: {name} -->\n\n{text}\n\n<!-- end: " in page
    checked = json.loads((BENCHMARKS / "results" / "cluster-2026-11-20.json").read_text(encoding="utf-8"))
    fits = list(itertools.product(cluster.TRANSITIONS, cluster.FEATURES, cluster.WORKERS))
    excess = [
        seconds / cluster.fit_of(checked, n, T, W).seconds() - 1.0
        for seconds, (T, n, W) in zip(checked["simulated"]["dask"], fits, strict=True)
    ]
    assert max(map(abs, excess)) < 0.1
    assert f"between −{-100 * min(excess):.1f} % and +{100 * max(excess):.1f} % more time" in " ".join(page.split())


def test_the_page_on_real_logs_has_the_newest_results_losses_first(load):
    real_logs = load("real_logs")
    page = real_logs.PAGE.read_text(encoding="utf-8")
    for kind in real_logs.KINDS:
        assert "\n".join(real_logs.table(real_logs.newest(f"real-{kind}"))) in page

    def row(log, ours, theirs):
        return {"log": log, "measure": "m", "way": "w", "size": 5, "lstd": ours, "theirs": theirs}

    lines = list(real_logs.by_log([row("better", [1.0], [2.0]), row("worse", [1.0, 2.0, 9.0], [1.0, 1.0, 3.0])]))
    assert lines[2:] == ["| worse | m | w | 5 | 2 | 1 | 2.00 (1.00 to 3.00) |", "| better | m | w | 5 | 1 | 2 | 0.50 |"]


def test_the_page_about_the_pages_has_the_newest_results_and_its_verdicts_are_those_of_the_rule(load):
    verdicts = load("page_verdicts")
    page = (ROOT / "docs" / "results" / "pages-on-real-logs.md").read_text(encoding="utf-8")
    assert "\n".join(verdicts.table(load("pages").newest("pages-on-real-logs"))) in page

    def row(ratio=1.0, total=1.0, half=0.1, other=1.0, warned=()):
        return {
            "ratio": ratio,
            "total": total,
            "lower": total - half,
            "upper": total + half,
            "other_total": other,
            "warned": [*warned],
        }

    assert not verdicts.wrong(row())
    assert verdicts.wrong(row(ratio=1.16))
    assert verdicts.wrong(row(total=0.85))
    assert not verdicts.wrong(row(total=0.85, half=0.13))  # within 1.25 half widths
    assert not verdicts.wrong(row(total=0.91, half=0.01))  # within a tenth
    assert not verdicts.wrong(row(total=0.85, other=0.88))  # the other method fails alike
    assert verdicts.wrong(row(total=0.85, other=1.12))
    assert verdicts.verdict(row(ratio=2.0, warned=["UnobservedWarning"])) == "**wrong, silent**"
    assert verdicts.verdict(row(ratio=2.0, warned=["MisfitWarning"])) == "wrong, warned"


def test_every_script_serves_a_page():
    """Each is named by a page, or imported, directly or not, by one that is."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages if "_build" not in page.parts)
    source = {path.stem: path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("*.py")}
    imports = {
        name: {other for other in source if re.search(rf"^ *(?:from|import) {other}\b", code, re.MULTILINE)}
        for name, code in source.items()
    }
    imports["claims"] |= set(PARTS)  # by their names
    imports["real_logs"] |= {name for name in source if name.startswith("real_")}
    imports["cluster"].add("cluster_measure")  # a process of its own
    serving = {name for name in source if f"benchmarks/{name}.py" in text}
    while more := {other for name in serving for other in imports[name]} - serving:
        serving |= more
    assert sorted(set(source) - serving) == []
