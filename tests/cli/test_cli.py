"""The command: exit codes, one line per error, signals, output."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lstd
from lstd.cli.app import run
from lstd.cli.options import OPTIONS
from lstd.experiments import protocol

DRIVER = [sys.executable, str(Path(__file__).parents[1] / "support" / "fake_experiments.py")]
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.fixture
def small(tmp_path, monkeypatch, fakes):
    """Runs `lstd reproduce small --runs 2` with more words in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: run(["reproduce", "small", "--runs", "2", *words])


def start(*words, program=DRIVER, seconds="0.3", **options):
    """Start the command with stand-ins, SIGINT not ignored as it is in a background job."""
    before = (lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if os.name == "posix" else None
    words = [*program, *([seconds] if program is DRIVER else []), *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(words, preexec_fn=before, **pipes)


def finish(process):
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def wait_for(condition):
    deadline = time.monotonic() + 300
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


# Help, version, usage


def test_help_imports_nothing_slow():
    program = (
        "import sys; from lstd.cli import main\n"
        "for command in ('fit', 'predict', 'score', 'inspect', 'reproduce'):\n"
        "    assert main([command, '--help']) == 0\n"
        "slow = {'numpy', 'scipy', 'numba', 'matplotlib', 'pyarrow', 'sklearn', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    code, output, errors = finish(start(program=[sys.executable, "-c", program]))
    assert (code, errors) == (0, "")
    assert "--force" in output


def test_version_and_bare_command(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"lstd {lstd.__version__}\n"
    assert run([]) == 0
    assert "reproduce" in capsys.readouterr().out


def test_problems_are_those_of_the_protocol():
    assert OPTIONS["problem"].metavar.split("|") == [*protocol.PROBLEMS, "all"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "tiny"], "`problem` must be one of 'small', 'large', 'deterministic', 'all'; got 'tiny'."),
        (["reproduce", "small", "large"], "unexpected extra argument"),
        (["reproduce", "--runs", "0"], "`--runs` must be in [1, 100000]; got 0."),
        (["reproduce", "--runs", "many"], "`--runs` must be an integer; got 'many'."),
        (["reproduce", "--out", ""], "`--out` must name a folder; got ''."),
        (["reproduce", "--swift"], "--swift; see `lstd --help`."),
        (["report", "m.csv"], "'report'; `lstd fit --report` writes a report; see `lstd --help`."),
        (["produce"], "produce"),
        (
            ["reproduce", "--out", "file"],
            "`--out` must be a folder that can be written; got 'file' (Not a directory); give another.",
        ),
        (["reproduce", "--out", 300 * "a"], "(File name too long); give another."),
        (["reproduce", "--out", "file/below"], "got 'file/below' (Not a directory); give another."),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lstd: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_missing_typer_is_named():
    program = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class Hide(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from lstd.cli import main; sys.exit(main(['--help']))"
    )
    code, output, errors = finish(start(program=[sys.executable, "-c", program]))
    assert (code, output) == (2, "")
    assert errors == 'lstd: the command needs the package typer; install it: pip install "lstd[cli]"\n'


@pytest.mark.parametrize(
    ("words", "package"),
    [(["fit", "d", "--reward=r", "--gamma=0", "--out=m"], "pyarrow"), (["reproduce"], "matplotlib")],
)
def test_missing_packages_are_named(words, package, monkeypatch, capsys):
    monkeypatch.setattr("lstd.cli.commands.find_spec", lambda name: None)
    assert run(words) == 2
    message = f'`lstd {words[0]}` needs the package {package}; install it: pip install "lstd[cli]"'
    assert capsys.readouterr().err == f"lstd: {message}\n"


# What is written where


def test_summary_on_stdout_progress_on_stderr(small, capsys):
    assert small() == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("lstd-results: 6 cells done (6 computed, 0 stored before), ")
    assert "results.parquet" in captured.out
    assert captured.err.startswith("lstd: 0 %, ")
    assert small("--quiet") == 0
    captured = capsys.readouterr()
    assert "(0 computed, 6 stored before), nothing left to do" in captured.out
    assert captured.err == ""


def test_json_is_one_document(small, capsys):
    assert small("--json", "--quiet", "--out", "results") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "done"
    assert document["folder"] == "results"
    assert document["cells"] == {"computed": 6, "reused": 0}
    written = {file.relative_to("results").as_posix() for file in Path("results").rglob("*") if file.is_file()}
    assert set(document["files"]) == written


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are no text")
def test_folder_whose_name_is_no_text(small, capsys):
    for _ in range(2):
        assert small("--quiet", "--json", "--out", os.fsdecode(b"bad\xff")) == 0
        assert os.fsencode(json.loads(capsys.readouterr().out)["folder"]) == b"bad\xff"


def test_failed_cell_is_exit_code_1(small, fakes, capsys):
    def fail(problem, features, algorithm, seeds):
        if features == "normal":
            raise ValueError("it broke")

    fakes.on_cell = fail
    assert small("--quiet") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    failure = "lstd: small normal, three LSTD(λ), runs 1 to 2: ValueError: it broke."
    assert captured.err == f"{failure} What is finished is kept; the same command (without --force) resumes.\n"


def test_other_configuration_is_exit_code_3(small, capsys):
    assert small("--quiet") == 0
    capsys.readouterr()
    assert small("--runs", "3") == 3
    errors = capsys.readouterr().err
    assert "runs was 2, now 3" in errors
    assert errors.count("\n") == 1
    assert small("--runs", "3", "--force", "--quiet") == 0
    assert "6 computed" in capsys.readouterr().out


# Interruption and company


@POSIX
@pytest.mark.parametrize(("number", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
def test_signal_ends_at_once_and_the_same_command_resumes(tmp_path, fakes, capsys, number, code, word):
    words = ["reproduce", "small", "--runs", "2", "--out", tmp_path]
    process = start(*words, "--quiet", seconds="0,1")  # the second cell never ends
    wait_for(lambda: len(list(tmp_path.glob("cells/*.npz"))) == 1)
    process.send_signal(getattr(signal, number))
    found, output, errors = finish(process)
    assert (found, output) == (code, "")
    assert errors == f"lstd: {word}; what is finished is kept, and the same command resumes.\n"
    assert not [file for file in tmp_path.rglob("*") if file.name.startswith(".")]
    assert run([*map(str, words)]) == 0
    assert "6 cells done (5 computed, 1 stored before)" in capsys.readouterr().out


@POSIX
def test_terminal_gets_a_bar_and_its_cursor_back(tmp_path):
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = start("reproduce", "small", "--out", tmp_path, seconds="0.3,1", stderr=slave, env=environment)
    os.close(slave)
    wait_for(lambda: list(tmp_path.glob("cells/*.npz")))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    process.stdout.close()
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # how Linux reports that the other end is closed
        pass
    os.close(master)
    text = shown.decode()
    assert "small tabular" in text
    assert " s left" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert text.endswith("lstd: interrupted; what is finished is kept, and the same command resumes.\r\n")
