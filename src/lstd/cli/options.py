"""Options and checks that several commands share. Errors are InvalidInputError or OutputError."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstd.cli.console import INSTALL
from lstd.cli.progress import QUIET, make_reporter, reporting
from lstd.errors import InvalidInputError

if TYPE_CHECKING:
    from lstd.estimators.choose_settings import OnProgress
    from lstd.estimators.model import Model
    from lstd.tables.column_roles import Roles

NAMES = "NAME[,NAME...]"
_OF_TRANSITION = "of the transition that leaves the row"

ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A file that `lstd fit` wrote.", show_default=False)]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="Tables, .csv, .csv.gz or .parquet; several are read as one, in this order.",
        show_default=False,
    ),
]
Gamma = Annotated[float, typer.Option(metavar="NUMBER", help="Discount per row, in [0, 1].")]
Features = Annotated[list[str] | None, typer.Option(metavar=NAMES, help="Columns of features.")]
AllOthers = Annotated[bool, typer.Option("--all-others", help="Every column that no other option names is a feature.")]
Exclude = Annotated[list[str] | None, typer.Option(metavar=NAMES, help="Columns that --all-others leaves out.")]
Episode = Annotated[str | None, typer.Option(metavar="NAME", help="Id of the row's episode.")]
Terminated = Annotated[
    str | None, typer.Option(metavar="NAME", help="1 on the row where the episode ends for good; else 0.")
]
Truncated = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="1 on the last row of an episode that was cut off, or on the row before; else 0."
    ),
]
Unpenalised = Annotated[
    list[str] | None, typer.Option(metavar=NAMES, help="Features without a ridge penalty; alpha applies to the rest.")
]
Variant = Annotated[str, typer.Option(metavar="NAME", help="boyan, uncorrected or mixed.", show_default=True)]
NoIntercept = Annotated[bool, typer.Option("--no-intercept", help="Fit no intercept.")]
Discount = Annotated[str | None, typer.Option(metavar="NAME", help=f"Discount {_OF_TRANSITION}, in place of --gamma.")]
Ratio = Annotated[str | None, typer.Option(metavar="NAME", help=f"Importance ratio {_OF_TRANSITION}.")]
Coefficient = Annotated[str | None, typer.Option(metavar="NAME", help=f"Trace coefficient {_OF_TRANSITION}.")]
Weight = Annotated[str | None, typer.Option(metavar="NAME", help=f"Weight {_OF_TRANSITION}.")]
Time = Annotated[str | None, typer.Option(metavar="NAME", help="Numbers or dates that increase within each episode.")]
NextFeatures = Annotated[
    list[str] | None,
    typer.Option(metavar=NAMES, help="Features of the successor, in the order of --features, or a pattern: next_*."),
]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the rows by group, episode and --time, in memory.")]
Kept = Annotated[list[str] | None, typer.Option("--id", metavar=NAMES, help="Columns to copy to the output.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help=QUIET)]
_COUNT = re.compile(r"-?[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?([KMGT]B)", re.IGNORECASE)
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_BYTES_PER_SECOND = 5e7  # until the speed of this machine is known


def check_packages(command: str, package: str) -> None:
    """Check that a package is installed."""
    if find_spec(package) is None:
        raise InvalidInputError(f"`lstd {command}` needs the package {package}; install it: {INSTALL}")


def prepare_tables(command: str) -> None:
    """Check that pyarrow is installed, and keep the handlers of `lstd.cli.interruption` while it reads."""
    check_packages(command, "pyarrow")
    from lstd.tables.csv_table import keep_signal_handlers

    keep_signal_handlers()


def names(words: Sequence[str] | None) -> tuple[str, ...]:
    """Split lists of column names at commas; quotes keep commas and leading spaces."""
    return tuple(name for row in csv.reader(words or (), skipinitialspace=True) for name in row if name)


def check_out(out: str, force: bool, inputs: Sequence[str], option: str = "--out") -> Path:
    """Check, before any work is done, that a file may be written; returns its path."""
    from lstd.files import check_replaceable

    if not out:
        raise InvalidInputError(f"`{option}` must name a file; got ''.")
    path = Path(os.path.realpath(out)) if os.path.islink(out) else Path(out)
    for file in inputs:
        with contextlib.suppress(OSError):
            if os.path.samefile(file, path):
                raise InvalidInputError(f"`{option}` must not be a file that is read; got {out!r}; give another.")
    check_replaceable(path, force=force, option=option)
    return path


def jobs_of(text: str | None) -> int | None:
    """Parse a number of threads."""
    from lstd.distributed.bounded_threads import MAX_JOBS

    return None if text is None else count_of("--jobs", text, MAX_JOBS)


def count_of(option: str, text: str, most: int) -> int:
    """Parse a whole number, at least 1."""
    from lstd.data.arguments import check_integer

    return check_integer(option, int(text) if _COUNT.fullmatch(text) else text, 1, most)


def bytes_of(text: str) -> int:
    """Parse a size such as 512MB into bytes."""
    from lstd.distributed.memory_shares import LEAST_MEMORY

    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"`--memory` must be a number and MB or GB, such as 512MB; got {text!r}.")
    n_bytes = int(float(match[1]) * _UNITS[match[2].upper()])
    if n_bytes < LEAST_MEMORY:
        raise InvalidInputError(f"`--memory` must be at least {LEAST_MEMORY >> 20}MB; got {text!r}.")
    return n_bytes


@contextlib.contextmanager
def reading(quiet: bool) -> Iterator[OnProgress]:
    """Show the progress of reading, which is reported in bytes, and warnings."""
    with reporting(make_reporter(quiet)) as reporter:
        yield lambda text, done, total: reporter.show(text, done / _BYTES_PER_SECOND, total / _BYTES_PER_SECOND)


def score_roles(model: Model, rewards: tuple[str, ...], next_features: list[str] | None, **named: str | None) -> Roles:
    """Return the roles of columns: those of the fit unless others are given; '' stands for no column."""
    from lstd.tables.column_roles import Roles

    if rewards and len(rewards) != len(model.reward_names):
        raise InvalidInputError(
            f"`--reward` must name {len(model.reward_names)} columns, one per prediction; got {len(rewards)}."
        )

    fitted = {} if model.origin is None else model.origin.columns

    def chosen(name: str | None, role: str) -> str | None:
        return (fitted.get(role) if name is None else name) or None

    successors = () if model.origin is None else model.origin.next_features
    columns: dict[str, Any] = {role: chosen(name, role) for role, name in named.items()}
    return Roles(
        features=model.feature_names,
        rewards=rewards or model.reward_names,
        next_features=successors if next_features is None else names(next_features),
        **columns,
    )


def sorted_files(data: Sequence[str], roles: Roles, sort: bool, n_bytes: int) -> Sequence[Any]:
    """Return tables, sorted if asked for."""
    from lstd.tables.sorting import sorted_tables

    return sorted_tables([*data], roles, n_bytes) if sort else data
