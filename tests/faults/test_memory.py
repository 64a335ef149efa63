"""Peak memory does not grow with the data, in processes forked from one that has imported everything."""

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lstd

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "fork"), reason="needs /proc and fork")

COLUMNS = ["--reward", "r", "--episode", "id", "--terminated", "done", "--gamma", "0.9"]
SIZES = {"parquet": (1, 64), "feather": (16, 64)}  # numbers of row groups


def run_command(*words):
    from lstd.cli import main

    code = main(words)
    print_peak()
    return code


def fit(path, how):
    source = ds.dataset(path, format=path.rpartition(".")[2]) if how == "whole" else path
    if how.isdecimal():
        source = [path] * int(how)
    lstd.fit_tables(source, features=None, reward="r", gamma=0.9, terminated="done", n_jobs=2, memory=2**24)
    print_peak()
    return 0


def print_peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@pytest.fixture(scope="module")
def peak(command):
    """A function that runs one of those above, and returns the most memory of its process, in MB."""

    def measure(function, *words):
        done = command(f"test_memory:{function}", *words)
        assert done.code == 0, done.err
        return int(done.out.splitlines()[-1]) / 1024

    return measure


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Paths of files by kind and number of row groups of 2 MB."""
    folder, rng = tmp_path_factory.mktemp("growing"), np.random.default_rng(0)
    columns = {f"x{j}": rng.normal(size=2048) for j in range(128)}
    group = pa.table(columns | {"r": rng.normal(size=2048), "done": np.arange(2048) % 64 == 63})
    paths = {(kind, n): folder / f"{n}.{kind}" for kind, numbers in SIZES.items() for n in numbers}
    for (kind, n_groups), path in paths.items():
        if kind == "parquet":
            with pq.ParquetWriter(path, group.schema, use_dictionary=False) as writer:
                for _ in range(n_groups):
                    writer.write_table(group)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, group.schema) as writer:
                for _ in range(n_groups):
                    writer.write_table(group)
    return paths


def test_memory_is_bounded_by_the_setting(peak, files):
    """Of 128 MB, eight times the bound, at most three times the bound stay with the chunks and the allocators."""
    peaks = [peak("fit", files["parquet", n_groups], "path") for n_groups in (1, 64)]
    assert peaks[1] - peaks[0] < 48, peaks


def test_memory_does_not_grow_with_the_number_of_files(peak, files):
    """The bound holds the blocks of a tree of sums too: of 126 MB in 63 files more, at most three times the bound."""
    peaks = [peak("fit", files["parquet", 1], how) for how in ("1", "64")]
    assert peaks[1] - peaks[0] < 48, peaks


def test_memory_of_a_dataset_is_bounded_by_the_setting(peak, files):
    """Of 96 MB more, six times the bound, at most three times the bound stay with the allocators and as footers."""
    peaks = [peak("fit", files["feather", n_groups], "whole") for n_groups in (16, 64)]
    assert peaks[1] - peaks[0] < 48, peaks


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, peak):
    """More rows, in one row group, read as one stream: 50 MB more of a file take at most 25 MB more."""
    monkeypatch.chdir(tmp_path)
    small, times, peaks = 200_000, 5, {}  # more than is read ahead
    rng = np.random.default_rng(0)
    for n_rows in (small, times * small):
        columns = {f"f{j}": rng.normal(size=n_rows) for j in range(5)}
        data = pa.table({**columns, "id": np.arange(n_rows) // 7 + n_rows, "r": np.ones(n_rows)})
        data = data.append_column("done", pa.array(np.arange(n_rows) % 7 == 6))
        path = Path(f"rows{n_rows}.parquet")
        pq.write_table(data, path, row_group_size=n_rows)
        del data, columns
        fit = ["fit", path, "--features", "f0,f1,f2,f3,f4", *COLUMNS, "-o", f"model{n_rows}", "--memory", "16MB"]
        commands = {"fit": fit, "predict": ["predict", f"model{n_rows}", path, "-o", f"out{n_rows}.parquet"]}
        for name, words in commands.items():
            peaks[name, n_rows] = peak("run_command", *words, "--quiet")
    for name in commands:
        assert peaks[name, times * small] < peaks[name, small] + 25, peaks
