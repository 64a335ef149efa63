"""Output of the commands that cannot be written."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli_model import COMMAND, FIT, POSIX, table

from lstd import load
from lstd.cli import main
from lstd.cli.app import run
from lstd.cli.console import in_the_shell


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["predict", "model", "data.csv", "--quiet"], "the predictions"),
        (["score", "model", "data.csv", "--quiet"], "the summary"),
        (["inspect", "model"], "the summary"),
    ],
)
def test_closed_stdout_is_exit_code_1(folder, capsys, monkeypatch, words, what):
    assert run([*FIT, "--quiet"]) == 0
    error = f"lstd: {what} could not be written to standard output: it is closed.\n"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)  # as Python starts without one
        assert run(words) == 1
    assert capsys.readouterr().err == error
    if words[0] == "predict" and os.name == "posix":
        done = subprocess.run([*COMMAND, *words], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, error)


@POSIX
def test_output_that_is_cut_off_is_exit_code_1_without_a_buffer_too(folder, capfdbinary):
    """A raw stream writes what there is room for and returns its length."""
    import resource

    words = ["predict", "model", "data.csv", "--quiet"]
    assert run([*FIT, "--quiet"]) == 0
    capfdbinary.readouterr()
    assert run(words) == 0
    whole = capfdbinary.readouterr().out
    room = len(whole) - 1
    with open("out", "wb") as file:
        done = subprocess.run(
            [*COMMAND, *words], stdout=file, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )  # fmt: skip
    assert Path("out").read_bytes() == whole[:room]
    error = "lstd: the predictions could not be written to standard output: File too large.\n"
    assert (done.returncode, done.stderr) == (1, error)


def test_columns_that_differ_between_files(folder, capsys):
    assert run([*FIT, "--quiet"]) == 0
    data = table(200)
    pq.write_table(data.set_column(3, "id", pa.array([f"e{i}" for i in data["id"].to_pylist()])), "text.parquet")
    capsys.readouterr()
    words = ["predict", "model", "data.parquet", "text.parquet", "--id", "id", "--quiet"]
    assert run([*words, "-o", "out.parquet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "lstd: text.parquet: column 'id' is of type string here and of type int64 in the files before, and "
    )
    assert error.count("\n") == 1
    assert not Path("out.parquet").exists()
    assert run([*words, "-o", "out.csv"]) == 0


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="names of files are text there")
@pytest.mark.parametrize("extension", ["csv", "csv.gz", "parquet"])
def test_names_that_are_not_utf_8(folder, capsys, extension):
    data, model, out = (os.fsdecode(b"caf\xe9." + name) for name in (extension.encode(), b"lstd", b"out.csv"))
    for stream in (sys.stdout, sys.stderr):  # as `main` does
        stream.reconfigure(errors="backslashreplace")
    content = Path("data.parquet" if extension == "parquet" else "data.csv").read_bytes()
    Path(data).write_bytes(gzip.compress(content) if extension == "csv.gz" else content)
    assert run([*FIT, "--quiet"]) == run(["fit", data, *FIT[2:-1], model, "--quiet"]) == 0
    assert [*load(model).model_.origin.files] == [data]
    assert load(model).coef_.tolist() == load("model").coef_.tolist()
    for words in (["predict", model, data], ["predict", model, data, "-o", out], ["score", model, data]):
        assert run([*words, "--quiet"]) == 0
    assert run(["inspect", model, "--json"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    Path(data).unlink()
    assert run(["predict", model, data]) == 2
    assert capsys.readouterr().err == f"lstd: caf\\udce9.{extension} could not be read: No such file or directory.\n"


def test_arguments_of_python_are_named_as_options():
    text = 'Use `unobserved="predict"`, `sort=True` or `next_features`; `lmbda` and `x` stay\n as they are'
    expected = "Use `--unobserved predict`, `--sort` or `--next-features`; `--lmbda` and `x` stay as they are"
    assert in_the_shell(text) == expected


@pytest.mark.parametrize("options", [[], ["--horizon=3"]])
def test_names_of_columns_do_not_control_the_terminal(tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    rows = [f"{t % 7},{t % 5},{t // 10},{int(t % 10 == 9)}" for t in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["\x1b[31mred,y\x07,e,end", *rows]))
    names = ["--features=\x1b[31mred", "--reward=y\x07", "--episode=e", "--terminated=end", "--gamma=.9", "--lmbda=.9"]
    assert main(["fit", "a.csv", *names, "--alpha=1", "--out=model", *options]) == 0
    said = capsys.readouterr()
    assert "\\x1b[31mred" in said.out
    assert "\x1b" not in said.out + said.err
    assert "\x07" not in said.out + said.err
