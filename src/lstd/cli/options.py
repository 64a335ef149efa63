"""The options of all commands in one table, and how their values are read. Errors are InvalidInputError."""

from __future__ import annotations

import contextlib
import csv
import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from lstd.data.variants import VARIANT, VARIANTS
from lstd.errors import InvalidInputError

Given = TypeVar("Given")  # the values of the options of a command
_COUNT = re.compile(r"-?[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?([KMGT]B)", re.IGNORECASE)
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
AUTO = "auto"  # as in `lstd.data.settings`, which imports NumPy


# ------------------------------------------------------------ values


def names(words: Sequence[str] | None, option: str = "") -> tuple[str, ...]:
    """Split lists of column names at commas; quotes keep commas, leading spaces and line breaks."""
    try:
        rows = list(csv.reader(words or (), skipinitialspace=True))
    except csv.Error as error:
        raise InvalidInputError(
            f"`{option}` must have a name with a line break in quotes, such as '\"two\\nlines\"'; got {words!r}."
        ) from error
    return tuple(name for row in rows for name in row if name)


def number(text: str, option: str, other: str = "") -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"`{option}` must be a number{other}; got {text!r}.") from error


def _number_or_text(text: str, option: str) -> float | str:
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _moments(text: str, option: str) -> list[float | str]:
    """Read times, separated by commas."""
    return [_number_or_text(part.strip(), option) for part in text.split(",")]


def _number_or_auto(text: str, option: str) -> float | str:
    return text if text == AUTO else number(text, option, f" or {AUTO}")


def _level(text: str, option: str) -> float:
    from lstd.statistics.intervals import check_level

    return check_level(number(text, option), option)


def _jobs(text: str, option: str) -> int:
    from lstd.statistics.threads import MAX_JOBS

    return count_of(text, option, MAX_JOBS)


def _n_steps(text: str, option: str) -> int:
    return count_of(text, option, 10_000)


def horizons(text: str, option: str) -> list[int]:
    """Read numbers of steps, separated by commas, each once."""
    return [*dict.fromkeys(_n_steps(part.strip(), option) for part in text.split(","))]


def windows(text: str, option: str) -> list[int | tuple[int, int]]:
    """Read numbers of steps, or two of them with a hyphen for the steps between, separated by commas, each once."""
    given: list[int | tuple[int, int]] = []
    for part in (part.strip() for part in text.split(",")):
        first, hyphen, second = part.partition("-")
        if not (hyphen and first):
            given.append(_n_steps(part, option))
            continue
        start = 0 if first.strip() == "0" else _n_steps(first.strip(), option)
        given.append((start, _n_steps(second.strip(), option)))
    return [*dict.fromkeys(given)]


def count_of(text: str, option: str, most: int) -> int:
    """Read a whole number, at least 1."""
    from lstd.data.arguments import check_integer

    return check_integer(option, int(text) if _COUNT.fullmatch(text) else text, 1, most)


def _bytes(text: str, option: str) -> int:
    from lstd.distributed.chunk_sums import LEAST_MEMORY

    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"`{option}` must be a number and MB or GB, such as 512MB; got {text!r}.")
    n_bytes = int(float(match[1]) * _UNITS[match[2].upper()])
    if n_bytes < LEAST_MEMORY:
        raise InvalidInputError(f"`{option}` must be at least {LEAST_MEMORY >> 20}MB; got {text!r}.")
    return n_bytes


def check_out(out: str, force: bool, inputs: Sequence[str], option: str = "--out") -> Path:
    """Check, before any work is done, that a file may be written; returns its path."""
    from lstd.files import check_replaceable

    if not out:
        raise InvalidInputError(f"`{option}` must name a file; got ''.")
    path = Path(out)
    if os.path.islink(out):
        path = Path(os.path.realpath(out))
    for file in inputs:
        with contextlib.suppress(OSError):
            if os.path.samefile(file, path):
                raise InvalidInputError(f"`{option}` must not be a file that is read; got {out!r}; give another.")
    check_replaceable(path, force=force, option=option)
    return path


# ------------------------------------------------------------ the table


class Option(NamedTuple):
    """An option or an argument of a command."""

    help: str
    metavar: str = ""  # none: a flag
    read: Callable[[Any, str], Any] | None = None  # makes a value of the text, and is given the name for messages
    default: str | None = None
    many: bool = False  # may be repeated
    place: bool = False  # an argument without a name
    short: str = ""  # another name

    def parameter(self, name: str, required: bool) -> Parameter:
        """Return the parameter of a function from which Typer makes the option."""
        words: dict[str, Any] = {"help": self.help}
        default: Any
        kind: Any
        if not self.metavar:
            kind = bool
            default = False
        else:
            kind = list[str] if self.many else str
            default = Parameter.empty if required else self.default
            if default is None:
                kind = kind | None
            words |= {"metavar": self.metavar, "show_default": self.default is not None}
        info = typer.Argument(**words) if self.place else typer.Option(option_name(name), *self.short.split(), **words)
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])

    def value(self, name: str, given: Any) -> Any:
        """Return the value of what was given; of an option that was not, None or no names."""
        if self.read is None or (given is None and not self.many):
            return given
        return self.read(given, option_name(name))


def option_name(name: str) -> str:
    """Return an argument of Python as an option is named."""
    return f"--{name.replace('_', '-')}"


NAMES = "NAME[,NAME...]"
_OTHER_VARIANTS = ", ".join(VARIANTS[:-1])
_OF_TRANSITION = "of the transition that leaves the row"
QUIET = "Hide progress and warnings, except those of the cache of kernels."
OPTIONS = {
    "model": Option("A file that `lstd fit` wrote.", "MODEL", place=True),
    "data": Option(
        "Tables, .csv, .csv.gz or .parquet; several are read as one, in this order.", "DATA", many=True, place=True
    ),
    "reward": Option("Reward received on leaving the row.", NAMES, names, many=True),
    "gamma": Option("Discount per row, in [0, 1].", "NUMBER", number),
    "out": Option("File to write the model to.", "FILE", short="-o"),
    "features": Option("Columns of features.", NAMES, names, many=True),
    "all_others": Option("Every column that no other option names is a feature."),
    "exclude": Option("Columns that --all-others leaves out.", NAMES, names, many=True),
    "episode": Option("Id of the row's episode.", "NAME"),
    "terminated": Option("1 on the row where the episode ends for good; else 0.", "NAME"),
    "no_terminated": Option("No end was seen: no episode ended for good. In place of --terminated."),
    "truncated": Option(
        "1 on the last row of an episode that was cut off, or on the row before; else 0.", "NAME"
    ),
    "groups": Option("Id of the group of the episode, such as a patient.", "NAME"),
    "discount": Option(f"Discount {_OF_TRANSITION}, in place of --gamma.", "NAME"),
    "importance_ratio": Option(f"Importance ratio {_OF_TRANSITION}.", "NAME"),
    "trace_coefficient": Option(f"Trace coefficient {_OF_TRANSITION}.", "NAME"),
    "weight": Option(f"Weight {_OF_TRANSITION}.", "NAME"),
    "next_features": Option(
        "Features of the successor, in the order of --features, or a pattern: next_*.", NAMES, names, many=True
    ),
    "categories": Option("Features that hold words; each word becomes a column of 0 and 1.", NAMES, names, many=True),
    "impute": Option("Fill missing values of features with the mean; a column of 0 and 1 says where."),
    "time": Option("Numbers or dates that increase within each episode.", "NAME"),
    "sort": Option("Sort the rows by group, episode and --time, in memory."),
    "id": Option("Columns to copy to the output.", NAMES, names, many=True),
    "amount": Option("Columns to sum as rewards, in place of the number of events.", NAMES, names, many=True),
    "step": Option(
        "Length of a step: day, week, month, '2 weeks'; a number if times are numbers.", "LENGTH", _number_or_text
    ),
    "until": Option("When observation ended; later events are not used.", "DATE", _number_or_text),
    "observed_until": Option(
        "When observation of the id ended; empty while it goes on.  [default: --until]", "NAME"
    ),
    "ended": Option("With --observed-until: 1 if the id ended for good then, such as by death; else 0.", "NAME"),
    "start": Option("Rows begin here; earlier events count in features only.", "DATE", _number_or_text),
    "first": Option(
        "Whether features have the first events of an id apart, or count them with the others.",
        "apart|counted",
        default="apart",
    ),
    "window": Option("Steps that count as recent: features are rates in place of totals.", "N", _n_steps),
    "mean_at": Option(
        "With --window: when the mean rate of all ids is taken.  [default: half-way]", "DATE", _number_or_text
    ),
    "backtest": Option(
        "Fit anew to what was known at these values of --time, and compare with the steps that followed each.",
        "DATE,…", _moments,
    ),
    "horizon": Option("Fit the rewards of the next steps, up to this number.", "N", _n_steps),
    "low": Option("Least prediction of a model of the next steps.", "NUMBER", number),
    "high": Option("Largest prediction, such as 1 for the probability of an event.", "NUMBER", number),
    "penalty": Option(
        "Unit of alpha in a model of the next steps: the squared spread of each feature, or 1.  [default: spread]",
        "spread|raw",
    ),
    "no_check": Option("Do not check a model of the next steps for misfit and bias."),
    "age": Option("The feature that is the age, in steps since first seen, of a model of the next steps.", "NAME"),
    "lmbda": Option("Trace decay, in [0, 1]; auto: chosen by cross-validation.", "NUMBER|auto", _number_or_auto, "0.9"),
    "alpha": Option("Ridge coefficient; auto: chosen by cross-validation.", "NUMBER|auto", _number_or_auto, "1"),
    "unpenalised": Option("Features without a ridge penalty; alpha applies to the rest.", NAMES, names, many=True),
    "variant": Option(f"{_OTHER_VARIANTS} or {VARIANTS[-1]}.", "NAME", default=VARIANT),
    "no_intercept": Option("Fit no intercept."),
    "independent": Option("Each file begins a new episode; files may reuse ids."),
    "jobs": Option("Threads.  [default: all cores]", "N", _jobs),
    "memory": Option("Most memory for data and sums, such as 512MB or 2GB.", "SIZE", _bytes, "512MB"),
    "report": Option("HTML file for a report with figures.", "FILE"),
    "interval": Option("Add intervals of this level, such as 0.95.", "LEVEL", _level),
    "of": Option("What intervals are for: the mean of such rows, or what one brings.", "mean|return", default="mean"),
    "contributions": Option("Add what each feature contributes to the prediction."),
    "unobserved": Option(
        "predict, ipcw or drop: what to do with returns that were cut off.", "NAME", default="predict"
    ),
    "tolerance": Option("A return is complete after h rows if gamma^h is below this.", "NUMBER", number, "0.01"),
    "problem": Option("The problems to run.", "small|large|deterministic|all", default="all", place=True),
    "runs": Option("Runs per problem; seeds 1 to N.", "N", default="50"),
    "force": Option("Replace existing files."),
    "json": Option("Print the summary as JSON."),
    "quiet": Option(QUIET),
}  # fmt: skip


def command(
    kind: Callable[..., Given], needed: str, **own: Option
) -> Callable[[Callable[[Given], int]], Callable[..., int]]:
    """Make a command of a function of the options' values.

    Parameters
    ----------
    kind : dataclass
        The values that the function takes, in the order of the help. Each has the name of an option in the table.
    needed : str
        Names of the options that must be given.
    **own : Option
        Options that differ from those of the table.
    """
    known = OPTIONS | own
    options = {}
    parameters = []
    for name in signature(kind).parameters:
        option = known[name]
        options[name] = option
        parameters.append(option.parameter(name, required=name in needed.split()))

    def decorate(body: Callable[[Given], int]) -> Callable[..., int]:
        @wraps(body)
        def run(**texts: Any) -> int:
            values = {name: options[name].value(name, text) for name, text in texts.items()}
            return body(kind(**values))

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate
