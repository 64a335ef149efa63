"""Models of pyarrow datasets: the same as of their files, errors that name them, memory that is bounded."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import lstd
from lstd.data.settings import Settings
from lstd.data.table import dataset_tables
from lstd.errors import InvalidInputError
from lstd.estimators.model import write_model
from table_files import ROLES, episodes, fit_files, write
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

NAMES = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done", "gamma": 0.9}
DATA = episodes([30, 20, 7, 50, 40], seed=1)
FORMATS = ("feather", "csv")


def files(tmp_path, data=DATA, cuts=(60, 61), extension=".parquet"):
    """The rows in several files."""
    spans = [(first, end - first) for first, end in pairwise([0, *cuts, len(data)])]
    return [write(data.slice(*span), tmp_path / f"part{i}{extension}") for i, span in enumerate(spans)]


def hive(folder, kind, data=DATA):
    """A dataset that is partitioned by `part`, whose rows are in the order of the files."""
    data = data.append_column("part", pa.array(np.arange(len(data)) // 60))
    ds.write_dataset(data, folder, format=kind, partitioning=["part"], partitioning_flavor="hive", use_threads=False)
    return ds.dataset(folder, format=kind, partitioning="hive")


def saved(model, path):
    """Bytes of the model's file but for what says where it came from."""
    model = getattr(model, "model_", model)
    write_model(model.changed(origin=dataclasses.replace(model.origin, date="", files=())), path)
    return Path(path).read_bytes()


# The same model


@pytest.mark.parametrize("extension", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("chunk_rows", [None, 11])
def test_the_same_bytes_as_of_the_files(tmp_path, extension, chunk_rows):
    paths = files(tmp_path, extension=extension)
    dataset = ds.dataset(paths, format="csv" if "csv" in extension else "parquet")
    settings = Settings(0.9, 0.7, 2.0, "mixed", True)
    kept = [
        fit_files(tables, ROLES, settings, chunk_rows=chunk_rows, n_jobs=n_jobs)
        for n_jobs, tables in ((1, paths), (1, dataset_tables(dataset)), (2, dataset_tables(dataset)))
    ]
    bytes_of = [saved(model, tmp_path / "model") for model in kept]
    assert bytes_of[1] == bytes_of[2]
    if chunk_rows is None or extension == ".parquet":
        assert bytes_of[0] == bytes_of[1]
    else:  # chunks of text end where blocks do, whose size is another
        assert_close(kept[0].statistics.A, kept[1].statistics.A, "sums")
    assert kept[1].origin.files == tuple(paths)


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_of_partitions_are_columns(tmp_path, kind):
    dataset = hive(tmp_path / "data", kind)
    model = lstd.fit_tables(dataset, **{**NAMES, "features": None}, truncated="cut")
    assert model.model_.feature_names == ("x", "y", "part")
    assert [Path(file).parent.name for file in model.model_.origin.files] == ["part=0", "part=1", "part=2"]
    whole = write(DATA.append_column("part", pa.array(np.arange(len(DATA)) // 60)), tmp_path / "whole.parquet")
    expected = lstd.fit_tables(whole, **{**NAMES, "features": ["x", "y", "part"]})
    assert_close(model.statistics_.A, expected.statistics_.A, "sums")
    assert_close(model.coef_, expected.coef_, "solve")


def test_batches_in_memory_are_one_table(tmp_path, caplog):
    batches = [batch for first in range(0, len(DATA), 13) for batch in DATA.slice(first, 13).to_batches()]
    found = lstd.fit_tables(ds.dataset(batches), **NAMES, lmbda="auto")
    expected = lstd.fit_tables(write(DATA, tmp_path / "a.parquet"), **NAMES, lmbda="auto")
    assert saved(found, tmp_path / "one") == saved(expected, tmp_path / "two")
    assert found.model_.origin.files == ("the dataset in memory",)
    lstd.fit_tables(ds.dataset(batches), **{**NAMES, "episode": None, "truncated": "cut"})
    assert not caplog.records  # of files that go on with one another


def test_a_filter_is_refused_with_a_remedy(tmp_path):
    whole = hive(tmp_path / "data", "parquet")
    with pytest.raises(InvalidInputError, match=r"`source` must be a dataset without a filter; give .*to_table\(\)"):
        lstd.fit_tables(whole.filter(ds.field("part") > 0), **NAMES)


@pytest.mark.parametrize("kinds", [(pa.float32(), pa.float64()), (pa.float64(), pa.float32())])
def test_floats_of_later_files_are_not_rounded_to_the_type_of_the_first(tmp_path, kinds):
    data = [DATA.slice(0, 60), DATA.slice(60)]
    paths = [
        write(table.set_column(0, "x", table["x"].cast(kind)), tmp_path / f"{i}.parquet")
        for i, (table, kind) in enumerate(zip(data, kinds, strict=True))
    ]
    found, expected = lstd.fit_tables(ds.dataset(paths), **NAMES), lstd.fit_tables(paths, **NAMES)
    assert saved(found, tmp_path / "one") == saved(expected, tmp_path / "two")


def test_files_that_are_not_on_this_machine(tmp_path):
    """A file system of Arrow's own in memory stands for one over a network."""
    filesystem = pyarrow.fs._MockFileSystem()
    filesystem.create_dir("data")
    for i in range(3):
        with filesystem.open_output_stream(f"data/{i}.parquet") as stream:
            pq.write_table(DATA.slice(50 * i, 50), stream, row_group_size=7)
    found = lstd.fit_tables(ds.dataset("data", filesystem=filesystem), **NAMES)
    assert found.model_.origin.files == ("data/0.parquet", "data/1.parquet", "data/2.parquet")
    assert np.array_equal(found.coef_, lstd.fit_tables(files(tmp_path, cuts=(50, 100)), **NAMES).coef_)


# Errors


@pytest.mark.parametrize("kind", FORMATS)
def test_bad_rows_are_named_with_their_file(tmp_path, kind):
    x = DATA["x"].to_numpy().copy()
    x[130] = np.nan
    dataset = hive(tmp_path / "data", kind, DATA.set_column(0, "x", pa.array(x)))
    with pytest.raises(InvalidInputError, match=rf"part=2\Wpart-0\.{kind}: column 'x', row 11 \(.* has no value"):
        lstd.fit_tables(dataset, **NAMES)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_that_one_file_lacks_is_named(tmp_path, kind):
    for name, table in (("a", DATA.slice(0, 50)), ("b", DATA.slice(50).drop_columns(["done"]))):
        ds.write_dataset(
            table,
            tmp_path,
            format=kind,
            basename_template=f"{name}{{i}}.{kind}",
            existing_data_behavior="overwrite_or_ignore",
        )
    with pytest.raises(InvalidInputError, match=rf"b0\.{kind}: column 'done' is missing; the file has 'x', 'id', 'y'"):
        lstd.fit_tables(ds.dataset(tmp_path, format=kind), **NAMES)
    with pytest.raises(InvalidInputError, match=rf"a0\.{kind}: column 'z' is missing"):
        lstd.fit_tables(ds.dataset(tmp_path, format=kind), **{**NAMES, "features": "z"})


def test_a_damaged_row_group_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(episodes([50] * 40, seed=6), path, row_group_size=500, write_page_checksum=True, compression="none")
    start = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"a\.parquet, after row \d+, could not be read"):
        lstd.fit_tables(ds.dataset(path), **NAMES)
    fragment = next(ds.dataset(path).get_fragments())
    some = ds.FileSystemDataset([fragment.subset(row_group_ids=range(1, 4))], DATA.schema, fragment.format)
    with pytest.raises(InvalidInputError, match=r"/a\.parquet, after row \d+, could not be read: .*CRC"):
        lstd.fit_tables(some, **NAMES)


def test_values_that_do_not_fit_the_type_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,r\n" + "1,2\n" * 400_000 + "1.5,2\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv could not .*Row #400002: .*'1\.5'\. Give the dataset a sc"):
        lstd.fit_tables(ds.dataset(path, format="csv"), features="x", reward="r", gamma=0.9)
    pq.write_table(pa.table({"x": [1.0, 2.5], "r": [1, 2]}), tmp_path / "b.parquet", row_group_size=1)
    schema = pa.schema({"x": pa.int64(), "r": pa.int64()})
    with pytest.raises(
        InvalidInputError, match=r"b\.parquet, after row 0, .* truncated .*\. Give the dataset a schema"
    ):
        lstd.fit_tables(ds.dataset(tmp_path / "b.parquet", schema=schema), features="x", reward="r", gamma=0.9)


def test_a_dataset_of_nothing(tmp_path):
    nothing = ds.dataset(DATA).filter(ds.field("x") > 100)
    for dataset in (ds.dataset(tmp_path), ds.dataset(DATA.slice(0, 0)), nothing):
        with pytest.raises(
            InvalidInputError, match="`source` must hold at least one file; got a dataset without files"
        ):
            lstd.fit_tables(dataset, **NAMES)
