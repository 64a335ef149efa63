"""A synthetic results folder goes in; figures, tables, statements and the page come out."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lstd.report
from lstd.errors import OutputError
from lstd.experiments.protocol import ALPHAS, FEATURES, LMBDAS, STEP_SIZES
from lstd.experiments.report import load, write_all
from lstd.experiments.report.captions import alternative_text, caption
from lstd.experiments.report.figures import figure2, points_above, sensitivity, sensitivity_limits
from lstd.experiments.report.page import page
from lstd.experiments.report.statements import STATEMENTS, evaluate
from lstd.experiments.report.tables import best_table, timing_table, to_latex, to_markdown
from lstd.experiments.report.verdicts import AGREES, DISAGREES, NOT_COVERED, UNDECIDED
from lstd.report.style import figure_style
from page_outline import outline
from results_folders import (
    DIVERGED,
    LSTDS,
    PROBLEMS,
    build_folder,
    sweep_table,
    synthetic_errors,
    write_sweeps,
)

FIGURES = ("figure2", "figure3", "figure4", "figure5", "proposition1", "theorem2")
TABLES = ("table1", "table2", "table3")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A folder with everything, its report, and the calls of `progress`."""
    folder = build_folder(tmp_path_factory.mktemp("full"))
    calls = []
    paths = write_all(folder, lambda *call: calls.append(call))
    return folder, paths, calls


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    """One problem, one run, results only."""
    folder = build_folder(tmp_path_factory.mktemp("partial"), ("small",), runs=1, documents=False)
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def results(full):
    return load(full[0])


def test_every_file_is_written(full):
    folder, paths, calls = full
    expected = {f"figures/{name}{suffix}" for name in FIGURES for suffix in (".pdf", ".png", ".svg")}
    expected |= {f"tables/{name}{suffix}" for name in TABLES for suffix in (".csv", ".md", ".tex")}
    expected |= {"tables/best.csv", "tables/best.md", "report.html"}
    inputs = {"results.parquet", "timings.json", "theory.json", "provenance.json"}
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == expected | inputs
    assert {path.relative_to(folder).as_posix() for path in paths} == expected
    assert [call[:2] for call in calls] == [(i, len(calls)) for i in range(1, len(calls) + 1)]
    assert [call[2] for call in calls] == [*FIGURES, *TABLES, "best", "report.html"]


def test_load_gives_the_stored_errors_and_axes(results):
    assert len(results.sweeps) == 36
    assert results.problems == PROBLEMS
    for key, sweep in results.sweeps.items():
        assert np.array_equal(sweep.errors, synthetic_errors(*key, 3))
        assert np.array_equal(sweep.lmbdas, LMBDAS)
        assert np.array_equal(sweep.alphas, STEP_SIZES if key[2] == "true_online_td" else ALPHAS)
        assert sweep.runs.tolist() == [1, 2, 3]


def test_load_does_not_depend_on_the_order_of_rows(tmp_path):
    errors = synthetic_errors("small", "binary", "mixed", 2)
    table = sweep_table(errors, "small", "binary", "mixed", first=7)
    pq.write_table(table.take(np.random.RandomState(1).permutation(len(table))), tmp_path / "results.parquet")
    sweep = load(tmp_path).sweeps["small", "binary", "mixed"]
    assert np.array_equal(sweep.errors, errors)
    assert sweep.runs.tolist() == [7, 8]


@pytest.mark.parametrize("damage", ["missing", "garbage", "row lost", "row twice", "empty"])
def test_a_damaged_table_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "results.parquet"
    table = sweep_table(synthetic_errors("small", "binary", "mixed", 2), "small", "binary", "mixed")
    if damage == "garbage":
        path.write_bytes(b"not parquet")
    elif damage != "missing":
        twice = pa.concat_tables([table, table.slice(0, 1)])
        pq.write_table({"row lost": table.slice(1), "row twice": twice, "empty": table.slice(0, 0)}[damage], path)
    with pytest.raises(OutputError, match=r"results\.parquet"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '{"rows": [{"problem": "small"}]}'])
def test_a_malformed_document_is_one_clear_error(tmp_path, text):
    table = sweep_table(synthetic_errors("small", "binary", "mixed", 1), "small", "binary", "mixed")
    pq.write_table(table, tmp_path / "results.parquet")
    (tmp_path / "timings.json").write_text(text)
    with pytest.raises(OutputError, match=r"timings\.json"):
        load(tmp_path)


def test_best_means_the_lowest_mean_over_runs_and_inf_never_is(results):
    sweep = results.sweeps["small", "normal", "true_online_td"]
    assert np.isinf(sweep.mean[-1, -DIVERGED:]).all()
    assert np.isnan(sweep.std[-1, -DIVERGED:]).all()
    assert (sweep.best_alpha < len(STEP_SIZES) - DIVERGED).all()
    finite = results.sweeps["small", "tabular", "boyan"]
    np.testing.assert_allclose(finite.mean, finite.errors.mean(axis=0), rtol=1e-14, atol=0)
    np.testing.assert_allclose(finite.std, finite.errors.std(axis=0, ddof=1), rtol=1e-11, atol=0)


def test_errors_near_the_largest_number_do_not_overflow(tmp_path):
    errors = synthetic_errors("small", "binary", "boyan", 2)
    errors[:, 0, 0] = 1.5e308, 0.5e308
    pq.write_table(sweep_table(errors, "small", "binary", "boyan"), tmp_path / "results.parquet")
    sweep = load(tmp_path).sweeps["small", "binary", "boyan"]
    assert sweep.mean[0, 0] == pytest.approx(1e308, rel=1e-12)
    assert sweep.std[0, 0] == pytest.approx(1e308 / np.sqrt(2), rel=1e-12)


def test_figure_files_are_whole_and_without_dates(full):
    for name in FIGURES:
        svg, pdf, png = ((full[0] / "figures" / f"{name}{suffix}").read_bytes() for suffix in (".svg", ".pdf", ".png"))
        root = ET.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 50
        assert pdf.startswith(b"%PDF-")
        assert pdf.rstrip().endswith(b"%%EOF")
        assert b"CreationDate" not in pdf
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert png.rstrip().endswith(b"IEND\xaeB`\x82")
        assert int.from_bytes(png[16:20], "big") == 9.6 * 200
        assert not re.search(rb"<dc:date|Matplotlib v", svg)


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


def test_sensitivity_figures_draw_every_lmbda_and_count_what_they_clip(results):
    with figure_style():
        axes = sensitivity(results, "small").axes
    boyan = results.sweeps["small", "tabular", "boyan"]
    _, top = sensitivity_limits(results, "small", "tabular")
    above = int((boyan.mean > top).sum())
    assert above == points_above(boyan, top) > 0
    panel = axes[6]
    assert len(panel.lines) == len(LMBDAS) + 1  # and the line at 1
    assert panel.get_ylim()[1] == top
    assert f"↑ {above} of 340 above" in [text.get_text() for text in panel.texts]
    assert axes[0].get_ylim() == axes[3].get_ylim() == axes[6].get_ylim()


def test_pyplot_is_not_imported_and_the_bytes_depend_on_the_results_only(partial, tmp_path):
    again = build_folder(tmp_path / "again", ("small",), runs=1, documents=False)
    program = (
        "import sys; from lstd.experiments.report import write_all; write_all(sys.argv[1])\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program, str(again)], check=True, env=environment)
    names = [path.relative_to(partial) for path in partial.rglob("*") if path.suffix not in ("", ".parquet", ".html")]
    assert len(names) == 8
    for name in names:
        assert (partial / name).read_bytes() == (again / name).read_bytes(), name
    assert (partial / "report.html").read_text() == (again / "report.html").read_text()


def test_timing_tables_equal_the_stored_seconds(full):
    stored = json.loads((full[0] / "timings.json").read_text())["rows"]
    found = []
    for name in TABLES:
        with (full[0] / "tables" / f"{name}.csv").open(newline="") as file:
            found += list(csv.DictReader(file))
    by_key = {(row["problem"], row["features"], row["algorithm"]): row for row in found}
    assert len(by_key) == len(stored) == 45
    for row in stored:
        line = by_key[row["problem"], row["features"], row["algorithm"]]
        for name in ("seconds", "low", "high", "loop_seconds", "paper_seconds", "paper_spread"):
            assert (float(line[name]) if line[name] else None) == row[name]
        assert int(line["runs"]) == row["runs"]
        assert float(line["loop_over_here"]) == row["loop_seconds"] / row["seconds"]


def test_readable_tables_show_the_papers_numbers_and_say_what_was_timed(results):
    table = timing_table(results, "large")
    markdown, latex = to_markdown(table), to_latex(table)
    assert "27.1 ± 0.6 | 29.5 ± 0.4 | 44.7 ± 1.0 | 21.3 ± 0.2 | 101 |" in markdown
    assert "Median of 5 timings on one thread." in markdown
    assert "400×" in markdown
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3 * 5
    assert {line.count("|") for line in lines} == {8}
    assert latex.count(r"\begin{") == latex.count(r"\end{") == 2
    assert r"\toprule" in latex
    assert latex.count(r"\midrule") == 3
    assert latex.isascii()


def test_best_table_equals_the_results(full, results):
    with (full[0] / "tables" / "best.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 36
    for row in rows:
        errors = results.errors[row["problem"], row["features"], row["algorithm"]]
        mean = errors.mean(axis=0)
        assert float(row["mean"]) == pytest.approx(mean.min(), rel=1e-13)
        i, j = np.unravel_index(np.argmin(mean), mean.shape)
        assert float(row["lmbda"]) == LMBDAS[i]
        assert float(row["alpha"]) == (STEP_SIZES if row["algorithm"] == "true_online_td" else ALPHAS)[j]
        assert int(row["grid_diverged_entries"]) == np.isinf(errors).sum()


def test_the_page_is_sound_and_loads_nothing(full):
    text = (full[0] / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 5e6
    found = outline(text)
    assert len(found.images) == 6
    assert all(len(alternative) > 100 for alternative in found.images)
    assert all(load.startswith("data:") for load in found.loads)
    assert not re.search(r"url\(|@import|<script|<iframe", text)
    assert len(found.identifiers) == len(set(found.identifiers))
    for link in found.links:
        if link.startswith("#"):
            assert link[1:] in found.identifiers
        elif not link.startswith("https://arxiv.org/"):
            assert (full[0] / link).is_file()


def test_the_page_says_what_was_run_and_what_diverged(full):
    words = outline((full[0] / "report.html").read_text(encoding="utf-8")).words.getvalue()
    assert "a CPU <x86> & more" in words
    assert f"{DIVERGED} of the stored errors are infinite" in words
    assert f"{DIVERGED} (1 of 3 runs)" in words
    assert "lstd reproduce all --runs 3 --out DIR" in words
    assert "number for number" not in words
    assert "2; versions, processor and threads are those of the last" in words
    assert "missing" not in words


def test_partial_results_give_what_they_cover_and_say_what_is_missing(partial):
    found = {path.relative_to(partial).as_posix() for path in partial.rglob("*.*") if path.is_file()}
    assert "figures/figure3.png" in found
    assert not {name for name in found if re.search(r"figure[45]|table\d|theorem|proposition", name)}
    words = outline((partial / "report.html").read_text(encoding="utf-8")).words.getvalue()
    assert "Missing in this folder: timings.json, theory.json, provenance.json" in words
    assert "Tables 1–3 are left out" in words
    assert "theory.json is missing" in words
    assert "Not in these results: large, deterministic" in words
    assert "lstd reproduce small --runs 1" in words


def test_missing_features_and_algorithms_are_said_in_the_panels(tmp_path):
    key = ("deterministic", "tabular", "mixed")
    write_sweeps(tmp_path, {key: synthetic_errors(*key, 2)})
    found = load(tmp_path)
    with figure_style():
        for figure in (figure2(found), sensitivity(found, "deterministic")):
            figure.savefig(io.BytesIO(), format="svg")
            assert "not in these results" in [text.get_text() for ax in figure.axes for text in ax.texts]
    outline(page(found))


def test_an_algorithm_that_always_diverges_is_shown_as_such(tmp_path):
    keys = [("small", "tabular", algorithm) for algorithm in LSTDS]
    sweeps = {key: synthetic_errors(*key, 2) for key in keys}
    sweeps[keys[0]][:] = np.inf
    write_sweeps(tmp_path, sweeps)
    found = load(tmp_path)
    assert best_table(found).rows[0][3:] == ("–", "–", "∞", "2")
    with figure_style():
        for figure in (figure2(found), sensitivity(found, "small")):
            figure.savefig(io.BytesIO(), format="svg")
    assert "680 (2 of 2 runs)" in outline(page(found)).words.getvalue()


def verdicts(found):
    return {finding.statement.test.__name__: finding.verdict for finding in evaluate(found)}


def test_statements_agree_with_results_made_to_agree(results):
    found = verdicts(results)
    assert len(found) == len(STATEMENTS)
    expected = dict.fromkeys(found, AGREES) | {"fifty_runs": NOT_COVERED, "algebra": NOT_COVERED}
    assert found == expected


def test_statements_that_the_results_do_not_hold_are_not_covered(partial):
    found = verdicts(load(partial))
    agreeing = {name for name, verdict in found.items() if verdict == AGREES}
    assert agreeing == {"grids", "mixed_is_uncorrected", "mixed_is_boyan"}
    assert set(found.values()) == {AGREES, NOT_COVERED}


def test_statements_do_not_agree_with_results_that_contradict_them(tmp_path):
    folder = build_folder(tmp_path, ("small",), runs=2)
    keys = [("small", features, algorithm) for features in FEATURES for algorithm in ("boyan", "uncorrected")]
    sweeps = {(p, f, "mixed" if a == "boyan" else a): synthetic_errors(p, f, a, 2) for p, f, a in keys}
    write_sweeps(folder, sweeps)
    theory = json.loads((folder / "theory.json").read_text())
    for row in theory["proposition1"]["rows"]:
        row["bias_simulated"] += 5 * row["bias_stderr"]
    for row in theory["proposition1"]["ratio_rows"]:
        row["ratio_asymptotic"] = 1 + 2 * (row["ratio_exact"] - 1) * row["T"]
    for row in theory["theorem2"]["rows"]:
        row["error_A"] = 0.1
    (folder / "theory.json").write_text(json.dumps(theory))
    timings = json.loads((folder / "timings.json").read_text())
    for row in timings["rows"]:
        row["seconds"] = row["low"] = row["high"] = 1.0
        row["loop_seconds"] = row["loop_low"] = row["loop_high"] = 100.0
    (folder / "timings.json").write_text(json.dumps(timings))
    found = verdicts(load(folder))
    assert {name for name, verdict in found.items() if verdict == AGREES} == {"grids"}
    covered = set(found) - {"fifty_runs", "algebra", "mixed_is_boyan"}
    assert {name for name, verdict in found.items() if verdict == DISAGREES} == covered - {"grids"}


def test_seconds_whose_spread_covers_the_statement_decide_nothing(tmp_path):
    folder = build_folder(tmp_path, ("small",), runs=2)
    timings = json.loads((folder / "timings.json").read_text())
    for row in timings["rows"]:
        row["seconds"] = row["loop_seconds"] = 1.0  # all equally fast, as far as the medians say
        row["low"], row["high"], row["loop_low"], row["loop_high"] = 0.9, 1.2, 0.9, 1.2
    (folder / "timings.json").write_text(json.dumps(timings))
    found = load(folder)
    undecided = {name for name, verdict in verdicts(found).items() if verdict == UNDECIDED}
    assert undecided == {"uncorrected_time", "uncorrected_loop_time", "mixed_time", "mixed_loop_time"}
    words = outline(page(found)).words.getvalue()
    assert "that do not agree0not decided4not covered" in words.replace("\n", "")


def test_the_words_on_simulated_values_follow_the_numbers(tmp_path):
    found = load(build_folder(tmp_path, ("small",), runs=1))
    assert "lie on the exact curves" not in alternative_text(found, "proposition1")
    for row in found.theory["proposition1"]["ratio_rows"]:
        row["ratio_simulated"] = 0.997
        row["ratio_stderr"] = (row["ratio_exact"] - 0.997) / 3
    n = len(found.theory["proposition1"]["ratio_rows"])
    for text in (alternative_text(found, "proposition1"), caption(found, "proposition1")):
        assert "Simulated and exact differ by at most 3.0 standard errors; " in text
        assert f"which logarithmic axes cannot show: {n}." in text


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    build_folder(tmp_path, ("small",), runs=1, documents=False)
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(OutputError, match=r"figure2\.svg could not be written"):
        write_all(tmp_path)


def test_the_style_sheet_is_part_of_the_package():
    assert (Path(lstd.report.__file__).parent / "templates" / "page.css").is_file()
