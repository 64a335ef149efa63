"""Files changed at random: each reading ends in a finite result or in an error of ours that names the file."""

from __future__ import annotations

import gzip
import re
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lstd
from lstd import LSTDStatistics
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, LSTDError, LSTDWarning
from lstd.estimators.model import read_model, write_model
from lstd.experiments.protocol import make_plan
from lstd.experiments.reproduce.folder import CONFIGURATION, PROVENANCE
from lstd.experiments.reproduce.run import reproduce
from lstd.tables.column_roles import Roles
from lstd.tables.fit_stream import fit_stream
from table_files import ROLES, episodes, write

CASES = 40  # per seed
SEEDS = range(3)
CELLS = (
    "", "nan", "NA", "inf", "-1", "0", "1e999", "1e308", "-1e308", "1e-320", "1e155", "0x10", "1,5", "١", "1_0", "True",
    '"', '""', '"a', "a\nb", "\x00", " 1", "é", "\ufeff", "9" * 400, "9" * 30, ";", "None", "1\r", "\r\n", "=1+1", "'",
)  # fmt: skip


def fit(path, rng, roles=ROLES):
    """A fit to one table, in chunks of any size."""
    chunk_rows = [None, 1, 3, 7][int(rng.integers(4))]
    return fit_stream([path], roles, Settings(0.9, 0.7, float(rng.choice([0.0, 1.0]))), chunk_rows=chunk_rows)[0]


def attempt(call, path, done):
    """The result of a call, or None when it ends in one line of ours that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LSTDWarning)
            return call()
    except LSTDError as error:
        message = str(error)
    except Exception as error:
        pytest.fail(f"{done}: {''.join(traceback.format_exception(error))}")
    named = str(path) in message or message.startswith("The sums over the data")
    assert named, (done, message)
    assert "\n" not in message, (done, message)
    return None


def check(found, done):
    if found is None:
        return
    assert np.isfinite(found.coef).all(), done
    assert np.isfinite(found.intercept).all(), done
    assert np.isfinite(found.statistics.A).all(), done


def damaged(content, rng):
    """Bytes with some flipped, cut out, put in twice or put in anew; and what was done."""
    kind = ["flip", "several flips", "cut", "hole", "twice", "noise", "zeros"][int(rng.integers(7))]
    place, length = int(rng.integers(len(content))), int(rng.integers(1, 40))
    changed = bytearray(content)
    if kind in ("flip", "several flips"):
        for _ in range(1 if kind == "flip" else 10):
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del changed[place:]
    elif kind == "hole":
        del changed[place : place + length]
    elif kind == "twice":
        changed[place:place] = changed[place : place + length]
    else:
        changed[place : place + length] = bytes(length) if kind == "zeros" else rng.bytes(length)
    return bytes(changed), f"{kind} at {place} of {len(content)}"


# Tables


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", ["text", "archive", "text in a sound archive"])
def test_csv_of_other_bytes(tmp_path, damage, seed):
    rng = np.random.default_rng([1 + (damage == "text in a sound archive"), seed])
    path = tmp_path / ("a.csv.gz" if damage == "archive" else "a.csv")
    write(episodes([5] * 8, seed), path)
    content = path.read_bytes()
    packed = damage == "text in a sound archive"
    path = tmp_path / "a.csv.gz" if packed else path
    for case in range(CASES):
        changed, done = damaged(content, rng)
        path.write_bytes(gzip.compress(changed, 1) if packed else changed)
        check(attempt(lambda: fit(str(path), rng), path, f"case {case}: {done}"), done)


@pytest.mark.parametrize("seed", SEEDS)
def test_csv_of_other_cells(tmp_path, seed):
    rng = np.random.default_rng([3, seed])
    path = tmp_path / "a.csv"
    write(episodes([5] * 8, seed), path)
    cells = [line.split(",") for line in path.read_text().splitlines()]
    for case in range(CASES):
        changed, done = [list(line) for line in cells], []
        for _ in range(int(rng.integers(1, 4))):
            row, column = int(rng.integers(len(cells)) * (rng.random() < 0.8)), int(rng.integers(len(cells[0])))
            changed[row][column] = CELLS[int(rng.integers(len(CELLS)))]
            done.append(f"{row}, {column}: {changed[row][column][:20]!r}")
        ending = ["\n", "\r\n", "\r", "\n\n"][int(rng.integers(4))]
        path.write_bytes(ending.join(",".join(line) for line in changed).encode())
        roles = ROLES if rng.random() < 0.7 else Roles(None, ("r",), "id", "done")
        check(attempt(lambda: fit(str(path), rng, roles), path, f"case {case}: {done}"), done)  # noqa: B023


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_parquet_of_other_bytes(tmp_path, compression, seed):
    rng = np.random.default_rng([4, seed])
    path = tmp_path / "a.parquet"
    pq.write_table(
        episodes([5] * 8, seed), path, row_group_size=10, compression=compression, write_page_checksum=bool(seed % 2)
    )
    content = path.read_bytes()
    for case in range(CASES):
        changed, done = damaged(content, rng)
        path.write_bytes(changed)
        check(attempt(lambda: fit(str(path), rng), path, f"case {case}: {done}"), done)


def test_parquet_of_other_columns(tmp_path):
    rng = np.random.default_rng(5)
    table, path = episodes([5] * 8, 0), tmp_path / "a.parquet"
    n_rows = table.num_rows
    columns = (
        pa.array([None] * n_rows), pa.array([None] * n_rows, pa.float64()), pa.array([np.nan] * n_rows),
        pa.array(["1"] * n_rows), pa.array(["a"] * n_rows).dictionary_encode(), pa.array([b"\xff"] * n_rows),
        pa.array([[1]] * n_rows), pa.array([{"a": 1}] * n_rows), pa.array([True] * n_rows),
        pa.array([2**63] * n_rows, pa.uint64()),
        pa.array([1e308] * n_rows), pa.array(rng.normal(size=n_rows) * 1e200), pa.array([np.float16(1)] * n_rows),
        pa.array([Decimal(10) ** 30] * n_rows, pa.decimal128(38)), pa.array([0] * n_rows, pa.timestamp("us")),
        pa.array([0] * n_rows, pa.time32("s")), pa.array([0] * n_rows, pa.duration("s")),
        pa.array(rng.integers(0, 2, n_rows)), pa.array(np.arange(n_rows)), pa.array([1e-320] * n_rows),
        pa.array([-np.inf] * n_rows), pa.array([float(2**53)] * n_rows), pa.array(["", "1"] * (n_rows // 2)),
        pa.array([(1 << 64) - 1] * n_rows, pa.uint64()), pa.array([1] * n_rows, pa.int8()).dictionary_encode(),
    )  # fmt: skip
    for name in ("x", "r", "id", "done"):
        for column in columns:
            pq.write_table(table.set_column(table.column_names.index(name), name, column), path)
            done = f"{name}: {column.type}, {column[0]}"
            check(attempt(lambda: fit(str(path), rng), path, done), done)


def test_damaged_row_groups_are_named(tmp_path):
    rng = np.random.default_rng(6)
    path = tmp_path / "a.parquet"
    pq.write_table(episodes([50] * 40, 6), path, row_group_size=500, write_page_checksum=True, compression="none")
    content, metadata = path.read_bytes(), pq.ParquetFile(path).metadata
    for _ in range(CASES):
        group, column = int(rng.integers(4)), int(rng.integers(2)) * 2
        chunk = metadata.row_group(group).column(column)
        end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        place = int(rng.integers(end - 400, end))
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        first = 500 * group + 1
        message = rf"^{re.escape(str(path))}: row group {group + 1} \(rows {first} to {first + 499}\) could not be read"
        with pytest.raises(InvalidInputError, match=message):
            fit_stream([str(path)], ROLES, Settings(0.9))


# Statistics and models


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["statistics", "model"])
def test_saved_sums(tmp_path, kind, seed):
    rng = np.random.default_rng([7, seed])
    path = tmp_path / "saved"
    model = fit(write(episodes([5] * 8, seed), tmp_path / "a.csv"), rng)
    if kind == "model":
        write_model(model, path)
    else:
        model.statistics.save(path)
    content = path.read_bytes()
    for case in range(4 * CASES):
        changed, done = damaged(content, rng)
        path.write_bytes(changed)
        found = attempt(
            lambda: (read_model if kind == "model" else LSTDStatistics.load)(path), path, f"case {case}: {done}"
        )
        assert found is None or changed == content, done


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_store_of_sums(tmp_path, caplog, kind, seed):
    """What is damaged is named, and summed again."""
    rng = np.random.default_rng([9, seed])
    store = tmp_path / "store"
    chunks, roles = [(rng.normal(size=(5, 2)), rng.normal(size=5)) for _ in range(4)], {}
    if kind == "tables":
        ids = [[4 * i + j for j in range(4)] for i in range(4)]
        tables = [episodes([5] * 4, seed, names=names) for names in ids]
        chunks = [write(table, tmp_path / f"{i}.parquet") for i, table in enumerate(tables)]
        roles = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done"}
    fit = partial(lstd.fit_tables, **roles) if roles else lstd.fit_chunks
    with ThreadPoolExecutor(2) as pool:

        def run():
            return fit(chunks, gamma=0.9, executor=pool, store=store).statistics_

        run().save(tmp_path / "total")
        total, sound = (tmp_path / "total").read_bytes(), contents(store)
        assert len(sound) == 4
        for case in range(CASES // 4):
            name = str(rng.choice(list(sound)))
            changed, done = damaged(sound[name], rng)
            (store / name).write_bytes(changed)
            caplog.clear()
            run().save(tmp_path / "total")
            assert (tmp_path / "total").read_bytes() == total, (case, done)
            assert contents(store) == sound, (case, done)
            assert len(caplog.messages) == (changed != sound[name]), done
            for message in caplog.messages:
                assert re.fullmatch(
                    rf"lstd: {re.escape(str(store / name))} is damaged\. It is computed again\.", message
                )


# A results folder


def contents(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.mark.usefixtures("fakes")
def test_results_folder(tmp_path, caplog):
    """Whatever is damaged is made again, and named where it is a cell; a configuration that is no one's is refused."""
    rng = np.random.default_rng(8)
    plan = make_plan("small", 2)
    reproduce(plan, tmp_path)
    sound = contents(tmp_path)
    for case in range(CASES):
        name = str(rng.choice(list(sound)))
        changed, done = damaged(sound[name], rng)
        done = f"case {case}, {name}: {done}"
        (tmp_path / name).write_bytes(changed)
        caplog.clear()
        outcome = attempt(lambda: reproduce(plan, tmp_path), tmp_path, done)
        if outcome is None:
            assert name == CONFIGURATION, done
        elif name.startswith("cells/") and outcome.computed:
            assert caplog.messages == [f"lstd: {tmp_path / name} is damaged. It is computed again."], done
        found = contents(tmp_path)
        alike = set(sound) - {name, PROVENANCE}
        assert {other: found[other] for other in alike} == {other: sound[other] for other in alike}, done
        if outcome is not None and name.startswith("cells/") and outcome.computed:
            assert found[name] == sound[name], done
        (tmp_path / name).write_bytes(sound[name])
