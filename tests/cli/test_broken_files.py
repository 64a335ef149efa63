"""Commands read files alike: a table of broken files and commands."""

import gzip
import re

import pytest

from lstd.cli import main

LOG = "id,t,v\na,0,1\na,8,2\nb,2,3\nb,9,4\n"
COMMANDS = {
    "fit": ["--features", "t", "--reward", "v", "--episode", "id", "--gamma", "0.9"],
    "steps": ["--episode", "id", "--time", "t", "--amount", "v", "--step", "7", "--until", "14"],
}
# The bytes of a file, its name, and what each command says of it.
FILES = {
    "compressed": (gzip.compress(LOG.encode()), "a.csv", "a.csv is compressed by gzip; rename it to end in .csv.gz"),
    "UTF-16": (LOG.encode("utf-16"), "a.csv", "a.csv is UTF-16 text; save the file as UTF-8"),
    "Latin": (LOG.replace("a,", "é,").encode("latin-1"), "a.csv", "column 'id', row 1 .* is not UTF-8 text"),
    "a workbook": (b"PK\x03\x04zz", "a.csv", "is a workbook or a zip archive"),
    "another name": (LOG.encode(), "a.txt", "'.*a.txt' must end in one of .csv, .csv.gz, .parquet"),
    "a name twice": (LOG.replace("id,t,v", "id,v,v").encode(), "a.csv", "column '[tv]' (is missing|appears 2 times)"),
    "a long row": (f"{LOG}b,11,5,6\n".encode(), "a.csv", "row 5 .* has 4 values where the header names 3 columns"),
    "a short row": (f"{LOG}b,11\n".encode(), "a.csv", "row 5 .* has 2 values where the header names 3 columns"),
    "an open quote": (f'{LOG}b,"11,5\n'.encode(), "a.csv", "row 5 .* a quote is not closed"),
    "nothing": (b"", "a.csv", "a.csv is empty; its first line must name the columns"),
    "semicolons": (
        LOG.replace(",", ";").encode(),
        "a.csv",
        "the file has 'id;t;v'. Separate values by commas",
    ),
    "words": (LOG.replace(",2\n", ",two\n").encode(), "a.csv", "column 'v', row 2 .* has 'two', which is not a number"),
    "no id": (
        LOG.replace("b,2", ",2").encode(),
        "a.csv",
        "column 'id', row 3 .* has no value .*; every row needs",
    ),
    "damaged": (b"PAR1 and no more", "a.parquet", "a.parquet could not be read"),
    "no file": (None, "a.csv", "a.csv could not be read: No such file"),
}


@pytest.mark.filterwarnings("ignore:Were ends seen")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_commands_say_the_same_of_a_broken_file(tmp_path, capsys, name, command):
    content, file, message = FILES[name]
    path = tmp_path / file
    if content is not None:
        path.write_bytes(content)
    out = tmp_path / ("model" if command == "fit" else "steps.csv")
    assert main([command, str(path), *COMMANDS[command], "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert not out.exists()
