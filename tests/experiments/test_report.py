"""A synthetic results folder goes in; figures, tables, statements and the page come out."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import lstd.report
from lstd.cli.app import run as command
from lstd.experiments.protocol import ALPHAS, LMBDAS, STEP_SIZES
from lstd.experiments.reproduce.figures import differences, figure2, sensitivity
from lstd.experiments.reproduce.folder import CONFIGURATION, OUR_FILES, ResultsFolder
from lstd.experiments.reproduce.report import draw, page
from lstd.experiments.reproduce.results import loop_ratio, points_above, sensitivity_limits, write_table
from lstd.experiments.reproduce.tables import best_table, timing_table, to_csv
from lstd.experiments.reproduce.verdicts import TESTS, evaluate, verdict_text
from lstd.report.style import figure_style
from page_outline import assert_sound, outline
from synthetic_results import DIVERGED, PROBLEMS, synthetic_results

# of one problem; those of the others are like figure 3
FIGURES = ("figure2", "differences", "figure3", "proposition1", "theorem2")
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def results():
    return synthetic_results()


@pytest.fixture(scope="module")
def small():
    """One problem, one run."""
    return synthetic_results(("small",), runs=1)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The folder of `lstd reproduce small --runs 2`."""
    folder = tmp_path_factory.mktemp("full")
    assert command(["reproduce", "small", "--runs", "2", "--jobs", "1", "--out", str(folder), "--quiet"]) == 0
    return folder


def page_of(results, image=PNG):
    figures = ("figure2", "differences", *(f"figure{3 + PROBLEMS.index(problem)}" for problem in results.problems))
    tables = [*(timing_table(results, problem) for problem in results.problems), best_table(results)]
    return page(results, tables, dict.fromkeys((*figures, "proposition1", "theorem2"), image))


def test_every_file_is_written_and_the_same_command_has_nothing_to_do(full, capsys):
    written = {path.relative_to(full).as_posix() for path in full.rglob("*") if path.is_file()}
    assert written == {path.relative_to(full).as_posix() for path in ResultsFolder(full, {}).files()} | {CONFIGURATION}
    others = ("figure4", "figure5", "table2", "table3", "cells/large", "cells/deterministic")
    assert set(OUR_FILES) - written == {name for name in OUR_FILES if any(other in name for other in others)}
    before = {name: (full / name).stat().st_mtime_ns for name in written}
    assert command(["reproduce", "small", "--runs", "2", "--out", str(full), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == {"computed": 0, "reused": 6}
    assert {name: (full / name).stat().st_mtime_ns for name in written} == before


def test_the_table_of_results_has_a_row_for_each_number(results):
    buffer = io.BytesIO()
    write_table(buffer, results.sweeps)
    table = pq.read_table(buffer)
    assert table.column_names == ["problem", "features", "algorithm", "lmbda", "alpha", "run", "error"]
    assert all("dictionary" in str(table.schema.field(name).type) for name in table.column_names[:3])
    assert table.num_rows == sum(sweep.errors.size for sweep in results.sweeps.values())
    rows = {tuple(row.values())[:-1]: row["error"] for row in table.slice(0, 4000).to_pylist()}
    rows |= {tuple(row.values())[:-1]: row["error"] for row in table.slice(table.num_rows - 4000).to_pylist()}
    assert len(rows) == 8000
    for (*key, lmbda, alpha, run), error in rows.items():
        sweep = results.sweeps[tuple(key)]
        i, j = np.flatnonzero(sweep.lmbdas == lmbda), np.flatnonzero(sweep.alphas == alpha)
        assert error == sweep.errors[run - 1, i, j]


def test_best_means_the_lowest_mean_over_runs_and_inf_never_is(results):
    sweep = results.sweeps["small", "normal", "true_online_td"]
    assert np.isinf(sweep.mean[-1, -DIVERGED:]).all()
    assert np.isnan(sweep.std[-1, -DIVERGED:]).all()
    assert (sweep.best_alpha < len(STEP_SIZES) - DIVERGED).all()
    finite = results.sweeps["small", "tabular", "boyan"]
    np.testing.assert_allclose(finite.mean, finite.errors.mean(axis=0), rtol=1e-14, atol=0)
    np.testing.assert_allclose(finite.std, finite.errors.std(axis=0, ddof=1), rtol=1e-11, atol=0)


def test_figure_files_are_whole_and_without_dates(full):
    for name in FIGURES:
        pdf, png = ((full / "figures" / f"{name}.{kind}").read_bytes() for kind in ("pdf", "png"))
        assert pdf.startswith(b"%PDF-")
        assert pdf.rstrip().endswith(b"%%EOF")
        assert b"CreationDate" not in pdf
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert png.rstrip().endswith(b"IEND\xaeB`\x82")
        assert int.from_bytes(png[16:20], "big") == 9.6 * 200


def test_figure2_draws_the_best_error_of_each_algorithm(results):
    with figure_style():
        axes = figure2(results).axes
    assert len(axes) == 9
    sweep = results.sweeps["large", "binary", "uncorrected"]
    line = axes[4].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), LMBDAS)
    np.testing.assert_array_equal(line.get_ydata(), sweep.mean.min(axis=1))
    bars = axes[4].containers[0]
    assert len(bars.lines[0].get_xdata()) == 11  # only λ = i/10


def test_differences_are_those_of_the_same_runs_at_each_best_alpha(results):
    with figure_style():
        axes = differences(results).axes
    errors = {name: results.sweeps["large", "binary", name] for name in ("uncorrected", "boyan")}
    best = {name: sweep.errors[:, range(20), sweep.best_alpha] for name, sweep in errors.items()}
    less = 100 * (best["uncorrected"] - best["boyan"]).mean(axis=0) / best["boyan"].mean(axis=0)
    np.testing.assert_allclose(axes[4].lines[1].get_ydata(), less, rtol=0, atol=1e-9)


def test_sensitivity_figures_draw_every_lmbda_and_count_what_they_clip(results):
    with figure_style():
        axes = sensitivity(results, "small").axes
    boyan = results.sweeps["small", "tabular", "boyan"]
    _, top = sensitivity_limits(results, "small", "tabular")
    above = int((boyan.mean > top).sum())
    assert above == points_above(boyan, top) > 0
    panel = axes[6]
    assert len(panel.collections[0].get_segments()) == len(LMBDAS)
    assert panel.get_ylim()[1] == top
    assert f"↑ {above} of 340 above" in [text.get_text() for text in panel.texts]
    assert axes[0].get_ylim() == axes[3].get_ylim() == axes[6].get_ylim()


def write_again(folder):
    """Write a figure, all tables and the page."""
    results, folder = synthetic_results(("small",)), Path(folder)
    tables = [timing_table(results, "small"), best_table(results)]
    buffer = io.BytesIO()
    write_table(buffer, results.sweeps)
    page = page_of(results).encode()
    files = {"report.html": page, "results.parquet": buffer.getvalue()}
    files |= {table.file: to_csv(table).encode() for table in tables}
    files |= {f"figures/theorem2.{kind}": content for kind, content in draw("theorem2", results).items()}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)


def records(table):
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def test_timing_tables_equal_the_seconds(results):
    rows = [row for problem in PROBLEMS for row in records(timing_table(results, problem))]
    assert len(rows) == 45
    for row in rows:
        timing = results.timings[row["problem"], row["features"], row["algorithm"]]
        for name in ("seconds", "low", "high", "runs", "loop_seconds", "paper_seconds", "paper_spread"):
            assert (float(row[name]) if row[name] else None) == timing.get(name)
        assert (float(row["loop_over_here"]) if row["loop_over_here"] else None) == loop_ratio(timing)


def test_best_table_equals_the_results(results):
    rows = records(best_table(results))
    assert len(rows) == 36
    for row in rows:
        errors = results.sweeps[row["problem"], row["features"], row["algorithm"]].errors
        mean = errors.mean(axis=0)
        assert float(row["mean"]) == pytest.approx(mean.min(), rel=1e-13)
        i, j = np.unravel_index(np.argmin(mean), mean.shape)
        assert float(row["lmbda"]) == LMBDAS[i]
        assert float(row["alpha"]) == (STEP_SIZES if row["algorithm"] == "true_online_td" else ALPHAS)[j]
        assert int(row["grid_diverged_entries"]) == np.isinf(errors).sum()


def test_the_page_is_sound_and_loads_nothing(full):
    text = (full / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 5e6
    found = outline(text)
    assert_sound(found, n_images=5, least_words=100)
    assert not re.search(r"url\(|@import|<script|<iframe", text)
    for link in found.links:
        if link.startswith("#"):
            assert link[1:] in found.identifiers
        elif not link.startswith("https://arxiv.org/"):
            assert (full / link).is_file()


def test_the_page_says_what_was_run_and_what_diverged(results):
    words = outline(page_of(results)).words.getvalue()
    assert "a CPU <x86> & more" in words
    assert f"{DIVERGED} of the stored errors are infinite" in words
    assert f"{DIVERGED} (1 of 3 runs)" in words
    assert "lstd reproduce all --runs 3 --out DIR" in words
    assert "number for number" not in words
    assert "2; versions, processor and threads are those of the last" in words
    assert "missing" not in words


def test_the_page_opens_with_its_verdict(results):
    words = outline(page_of(results)).words.getvalue()
    outcomes = evaluate(results)
    assert words.index(verdict_text(outcomes)) < words.index("Source: Takayuki Osogami")
    assert "All 4 statements about estimators" in verdict_text(outcomes)
    changed = outcomes | {"variance_ratio": outcomes["variance_ratio"]._replace(agrees=False)}
    assert "Of the 4 statements about estimators that can be tested here, 1 do not" in verdict_text(changed)


def verdicts(found):
    return {name: outcome.agrees for name, outcome in evaluate(found).items()}


def test_statements_agree_with_results_made_to_agree(results):
    found = verdicts(results)
    assert found == dict.fromkeys(TESTS, True)


def test_statements_do_not_agree_with_results_that_contradict_them():
    found = synthetic_results(("small",), runs=2)
    theory = found.theory
    for row in theory["proposition1"]["rows"]:
        row["bias_simulated"] += 5 * row["bias_stderr"]
    for row in theory["proposition1"]["ratio_rows"]:
        row["ratio_asymptotic"] = 1 + 2 * (row["ratio_exact"] - 1) * row["T"]
    for row in theory["theorem2"]["rows"]:
        row["error_A"] = 0.1
    outcomes = verdicts(found)
    assert outcomes == dict.fromkeys(outcomes, False)


def test_the_page_shows_each_statement_once(results):
    text = page_of(results)
    verdicts = re.findall(r'class="verdict (\w+)">([^<]*)<', text)
    assert verdicts == [("agrees", "agrees")] * len(TESTS)
    source = (Path(lstd.experiments.reproduce.__file__).parent / "templates" / "paper.html").read_text(encoding="utf-8")
    assert sorted(re.findall(r'call statement\("(\w+)"', source)) == sorted(TESTS)
