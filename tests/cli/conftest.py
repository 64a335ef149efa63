"""Tables in a folder for the commands."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with tables of 200 rows."""
    import pyarrow.parquet as pq
    from test_cli_model import table, write_csv

    monkeypatch.chdir(tmp_path)
    write_csv(table(200), "data.csv")
    pq.write_table(table(200), "data.parquet")
    return tmp_path
