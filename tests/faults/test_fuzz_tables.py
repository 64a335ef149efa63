"""Tables changed at random, read by all that reads tables; and files of one kind in the place of another.

Each reading ends in a finite result, or in one line of ours that names the file.
"""

import csv
import gzip
import io
import re
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_fuzz_files import attempt, damaged

import lstd
from lstd import RecursiveLSTD
from lstd.cli.app import run
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model, write_model
from lstd.tables.predicting import csv_sink, parquet_sink, predict_tables
from lstd.tables.scoring import Score, score_tables
from table_files import ROLES, episodes, fit_files, write

CASES = 40
SIZES = (None, 1, 3, 7)
CELLS = (
    "", "nan", "NA", "inf", "-1", "0", "1e999", "1e308", "-1e308", "1e-320", "1e155", "0x10", "1,5", "١", "1_0", "True",
    '"', '""', '"a', "a\nb", "\x00", " 1", "é", "\ufeff", "9" * 400, "9" * 30, ";", "None", "1\r", "\r\n", "=1+1", "'",
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of sound tables, and those tables."""
    folder = tmp_path_factory.mktemp("sound")
    table = episodes([5] * 20, 0)
    large = pa.array(1000.0 * table["r"].to_numpy())  # so that predictions overflow where features are huge
    table = table.set_column(table.column_names.index("r"), "r", large)
    sound = {ext: write(table, folder / f"sound{ext}") for ext in (".csv", ".parquet")}
    fits = {gamma: fit_files([sound[".csv"]], ROLES, Settings(gamma, 0.7, 1.0)) for gamma in (0.9, 1.0)}
    return fits, sound


def fit(models, path, rng):
    return fit_files([path], ROLES, Settings(0.9, 0.7, float(rng.choice([0.0, 1.0]))), chunk_rows=_size(rng))


def fit_twice(models, path, rng):
    roles = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done"}
    return lstd.fit_tables(
        path, **roles, gamma=0.9, fit_intercept=bool(rng.integers(2)), n_jobs=int(rng.integers(1, 3))
    )


def score(models, path, rng):
    return score_tables(models[0][float(rng.choice([0.9, 1.0]))].linear, [path], ROLES, chunk_rows=_size(rng))


def predict(models, path, rng):
    """Predictions, alone or behind those for a sound table, beside columns that are passed on."""
    fits, sound = models
    file = io.BytesIO()
    kept = [name for name in ("x", "y", "r", "id", "done", "cut") if rng.random() < 0.3]
    sink, level = (csv_sink, parquet_sink)[int(rng.integers(2))], (None, 0.9)[int(rng.integers(2))]
    paths = [path] if rng.random() < 0.5 else [sound[".parquet"], path]
    n_rows = predict_tables(fits[0.9].linear, paths, kept, sink, file, level=level, chunk_rows=_size(rng))
    file.seek(0)
    if sink is parquet_sink:
        table = pq.read_table(file)
        assert table.num_rows == n_rows
        return table.column("prediction").to_numpy()
    names, *rows = csv.reader(io.StringIO(file.getvalue().decode(), newline=""))
    assert len(rows) == n_rows
    return np.array([float(row[names.index("prediction")]) for row in rows])


def _size(rng):
    return SIZES[int(rng.integers(len(SIZES)))]


READERS = (fit, fit_twice, score, predict)


def numbers_of(found):
    """What must be finite in a result."""
    found = getattr(found, "model_", found)
    if isinstance(found, Model):
        return [found.coef, found.intercept, found.statistics.A, found.statistics.b]
    return [found.mse] if isinstance(found, Score) else [found]


def check(models, path, rng, done):
    """Read a file in one of the ways; whether that went well."""
    call = READERS[int(rng.integers(len(READERS)))]
    done = f"{call.__name__}: {done}"
    found = attempt(lambda: call(models, str(path), rng), path, done)
    assert found is None or all(np.isfinite(values).all() for values in numbers_of(found)), done
    return found is not None


# Other bytes


@pytest.mark.parametrize("kind", ["text", "archive", "text in an archive", "none", "snappy", "zstd"])
def test_other_bytes(models, tmp_path, kind):
    """Text, also within a sound archive, and Parquet of several compressions."""
    rng, table = np.random.default_rng(1), episodes([5] * 8, 0)
    if kind in ("none", "snappy", "zstd"):
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, row_group_size=10, compression=kind, write_page_checksum=kind == "none")
    else:
        path = tmp_path / ("a.csv" if kind == "text" else "a.csv.gz")
        write(table, path)
    content, inside = path.read_bytes(), kind == "text in an archive"
    for case in range(CASES):
        changed, done = damaged(gzip.decompress(content) if inside else content, rng)
        path.write_bytes(gzip.compress(changed, 1) if inside else changed)
        check(models, path, rng, f"case {case}: {done}")


def test_other_cells(models, tmp_path):
    rng = np.random.default_rng(2)
    path = tmp_path / "a.csv"
    write(episodes([5] * 8, 0), path)
    cells = [line.split(",") for line in path.read_text().splitlines()]
    for case in range(CASES):
        changed = [list(line) for line in cells]
        row, column = int(rng.integers(len(cells)) * (rng.random() < 0.8)), int(rng.integers(len(cells[0])))
        changed[row][column] = CELLS[int(rng.integers(len(CELLS)))]
        ending = ["\n", "\r\n", "\r", "\n\n"][int(rng.integers(4))]
        path.write_bytes(ending.join(",".join(line) for line in changed).encode())
        check(models, path, rng, f"case {case}: {row}, {column}: {changed[row][column][:20]!r}")


# Other schemas


def columns_of_all_types(rng, n_rows):
    """Columns of every type that Arrow knows and Parquet holds."""
    some = rng.random(n_rows) < 0.2
    return (
        pa.array([None] * n_rows), pa.array(rng.normal(size=n_rows), mask=some), pa.array(rng.integers(0, 3, n_rows)),
        pa.array(rng.normal(size=n_rows).astype(np.float32)), pa.array([np.float16(1)] * n_rows),
        pa.array([str(value) for value in rng.normal(size=n_rows)]),
        pa.array([str(value) for value in rng.normal(size=n_rows)], pa.large_string()),
        pa.array([str(value) for value in rng.integers(0, 3, n_rows)]).dictionary_encode(),
        pa.array(rng.integers(0, 3, n_rows), mask=some).dictionary_encode(),
        pa.array([None] * n_rows, pa.dictionary(pa.int32(), pa.string())), pa.array(["é\x00\n\""] * n_rows),
        pa.array([b"\xff"] * n_rows), pa.array([b"\xff" * 4] * n_rows, pa.binary(4)), pa.array([b"1"] * n_rows),
        pa.array([[1.0]] * n_rows), pa.array([{"a": 1}] * n_rows), pa.array([[]] * n_rows, pa.list_(pa.int8())),
        pa.array([[("k", 1)]] * n_rows, pa.map_(pa.string(), pa.int64())),
        pa.array([[1.0, 2.0]] * n_rows, pa.list_(pa.float64(), 2)),
        pa.array([Decimal("1.25")] * n_rows, pa.decimal128(38, 5)),
        pa.array([Decimal(10) ** 60] * n_rows, pa.decimal256(70, 2)),
        pa.array(range(n_rows), pa.timestamp("ns", tz="Europe/Paris")), pa.array(range(n_rows), pa.timestamp("s")),
        pa.array([2**60] * n_rows, pa.timestamp("us")), pa.array([2**31 - 1] * n_rows, pa.date32()),
        pa.array([0] * n_rows, pa.time64("ns")), pa.array([0] * n_rows, pa.duration("ns")),
        pa.array(rng.random(n_rows) < 0.5, mask=some), pa.array([2**64 - 1] * n_rows, pa.uint64()),
        pa.array([1e308] * n_rows), pa.array([-np.inf] * n_rows), pa.array([1e-320] * n_rows),
        pa.array(np.arange(n_rows) // 5), pa.array(np.arange(n_rows) % 5 == 4),
    )  # fmt: skip


def changed_schema(table, rng):
    """A table with columns of other types and names, too many of them or too few, or hardly any rows."""
    done = []
    for _ in range(int(rng.integers(1, 4))):
        names, n_rows = table.column_names, table.num_rows
        place, kind = int(rng.integers(len(names))), int(rng.integers(8))
        if kind < 4:
            columns = columns_of_all_types(rng, n_rows)
            column = columns[int(rng.integers(len(columns)))]
            table = table.set_column(place, names[place], column)
            done.append(f"{names[place]} is {column.type}")
        elif kind == 4 and len(names) > 1:
            table = table.remove_column(place)
            done.append(f"no {names[place]}")
        elif kind == 5:
            table = table.append_column([names[place], "z", "prediction"][int(rng.integers(3))], table.column(place))
            done.append(f"{table.column_names[-1]} at the end")
        elif kind == 6:
            name = ["X", "", f"{names[place]} ", "prediction", "x"][int(rng.integers(5))]
            table = table.rename_columns([name if i == place else other for i, other in enumerate(names)])
            done.append(f"{names[place]} becomes {name!r}")
        else:
            table = table[: int(rng.integers(4))]
            done.append(f"{len(table)} rows")
    return table, ", ".join(done)


def test_other_schemas(models, tmp_path):
    rng = np.random.default_rng(3)
    path = tmp_path / "a.parquet"
    n_read = 0
    for case in range(2 * CASES):
        table, done = changed_schema(episodes([5] * 8, 0), rng)
        pq.write_table(table, path, row_group_size=7)
        n_read += check(models, path, rng, f"case {case}: {done}")
    assert CASES // 5 < n_read < 2 * CASES


def all_readers(models, path):
    """Every way to read a table, with one job and with two."""
    model, rng = models[0][0.9], np.random.default_rng(0)
    roles = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done"}
    for n_jobs in (1, 2):
        yield lambda: fit_files([path], ROLES, Settings(0.9), n_jobs=n_jobs)  # noqa: B023
        yield lambda: fit_files([path], ROLES, Settings.with_choice(0.9, "auto", "auto"), n_jobs=n_jobs)  # noqa: B023
        yield lambda: lstd.fit_tables([path], **roles, gamma=0.9, n_jobs=n_jobs)  # noqa: B023
    for sink in (csv_sink, parquet_sink):
        yield lambda: predict_tables(model.linear, [path], ["id"], sink, io.BytesIO())  # noqa: B023
    yield lambda: score_tables(model.linear, [path], ROLES)
    yield lambda: score(models, path, rng)


def test_an_archive_that_is_cut_off_is_named_by_all_readers(models, tmp_path):
    path = tmp_path / "a.csv.gz"
    write(episodes([5] * 400, 6), path)
    content = path.read_bytes()
    for length in (0, 1, 5, 10, 100, len(content) // 2, len(content) - 9, len(content) - 8, len(content) - 1):
        path.write_bytes(content[:length])
        for call in all_readers(models, str(path)):
            with pytest.raises(InvalidInputError, match=rf"^{re.escape(str(path))}( could not|, after row| is empty)"):
                call()


@pytest.fixture
def every_kind(models, tmp_path, monkeypatch):
    """A file of every kind that the package reads or writes, some under misleading names, and what is none."""
    monkeypatch.chdir(tmp_path)
    model, sound = models[0][0.9], models[1]
    contents = {extension: Path(path).read_bytes() for extension, path in sound.items()}
    write_model(model, "model")
    model.statistics.save("statistics")
    learner = RecursiveLSTD(2)
    learner.update([1.0, 2.0], 1.0, [2.0, 1.0])
    np.savez("snapshot.npz", **learner.snapshot())
    saved = (tmp_path / "model").read_bytes()
    files = {
        "a.csv": contents[".csv"], "a.parquet": contents[".parquet"], "a.csv.gz": gzip.compress(contents[".csv"]),
        "b.csv": contents[".parquet"], "b.parquet": contents[".csv"], "b.csv.gz": contents[".csv"],
        "c.csv": saved, "c.parquet": saved, "c.csv.gz": saved, "table-model": contents[".csv"],
        "empty": b"", "empty.csv": b"", "empty.parquet": b"", "empty.csv.gz": b"",
        "zeros.csv": bytes(9999), "zeros.parquet": bytes(9999), "zeros.csv.gz": bytes(9999),
        "page.html": b"<html/>", "noise.csv": np.random.default_rng(0).bytes(9999),
        "noise.parquet": b"PAR1" + np.random.default_rng(1).bytes(999) + b"PAR1",
        "noise.csv.gz": gzip.compress(np.random.default_rng(2).bytes(9999)),
        "document.json": b'{"format": "lstd model", "version": 2}',
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    return sorted([*files, "model", "statistics", "snapshot.npz", "folder.csv", "loop.csv", "none.csv", "none"])


def test_files_of_one_kind_in_the_place_of_another(every_kind, capsys):
    fit_words = ["--features", "x,y", "--reward", "r", "--episode", "id", "--terminated", "done", "--gamma", "0.9"]
    fit_words += ["--quiet", "--force", "-o", "out"]
    tables, good_models = {"a.csv", "a.parquet", "a.csv.gz"}, {"model", "c.csv", "c.parquet", "c.csv.gz"}
    for name in every_kind:
        cases = [
            (["fit", name, *fit_words], tables),
            (["fit", "a.csv", name, *fit_words, "--independent"], tables),
            (["predict", "model", name, "--quiet"], tables),
            (["predict", name, "a.csv", "--quiet"], good_models),
            (["score", "model", name, "--quiet"], tables),
            (["score", name, "a.csv", "--quiet"], good_models),
            (["inspect", name], good_models),
        ]
        for words, good in cases:
            code = run(words)
            out, err = capsys.readouterr()
            if name in good:
                assert (code, err) == (0, ""), words
                continue
            assert code == 2, words
            assert re.match(rf"lstd: '?{re.escape(name)}\b.*\.\n\Z", err), (words, err)
            assert out == "" or (words[0], out) == ("predict", "prediction\n"), words


def test_snapshots_of_other_bytes():
    """NumPy refuses the file, or the snapshot is refused, or the estimator is the one that it was."""
    rng = np.random.default_rng(4)
    learner, rows = RecursiveLSTD(3, gamma=0.9), rng.normal(size=(21, 3))
    for x, x_next in pairwise(rows):
        learner.update(x, 1.0, x_next)
    saved, n_refused = io.BytesIO(), 0
    np.savez(saved, **learner.snapshot())
    for case in range(4 * CASES):
        changed, done = damaged(saved.getvalue(), rng)
        try:
            file = np.load(io.BytesIO(changed))
        except Exception:  # NumPy and zipfile raise what they like
            n_refused += 1
            continue
        with file:
            found = attempt(lambda: RecursiveLSTD.restore(file), "`snapshot`", f"case {case}: {done}")  # noqa: B023
        n_refused += found is None
        if found is not None:
            for name, values in learner.snapshot().items():
                assert found.snapshot()[name].tobytes() == values.tobytes(), (name, done)
    assert n_refused > 2 * CASES
