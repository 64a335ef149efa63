"""The command ``lstd reproduce``: arguments in, exit code out."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstd.cli import options
from lstd.cli.console import BAD_INPUT, INSTALL, fail, fail_with, output
from lstd.cli.interruption import advise
from lstd.cli.reproduce_output import outcome_json, outcome_text

if TYPE_CHECKING:
    from lstd.experiments.plan import Plan

PROBLEMS = "small|large|deterministic|all"
NEEDED = ("matplotlib", "pyarrow", "jinja2", "tabulate")


def reproduce(
    problem: Annotated[str, typer.Argument(metavar=PROBLEMS, help="The problems to run.", show_default=True)] = "all",
    runs: Annotated[str, typer.Option(metavar="N", help="Runs per problem; seeds 1 to N.")] = "50",
    out: Annotated[str, typer.Option(metavar="DIR", help="Results folder.")] = "lstd-results",
    jobs: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Threads, and processes that draw figures.  [default: all cores]", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Remove results in DIR and start over.")] = False,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
) -> int:
    """Reproduce the experiments of Osogami (AAAI-20): figures, tables, data and a report.

    Interrupted at any moment, the same command resumes. Exit codes: 0 done, 1 a step failed or output could not be
    written, 2 bad usage or input, 3 DIR has results of another configuration, 130 interrupted (143 by SIGTERM).
    """
    from lstd.errors import LSTDError

    if missing := [name for name in NEEDED if find_spec(name) is None]:
        return fail(f"`lstd reproduce` needs the package {missing[0]}; install it: {INSTALL}", BAD_INPUT)
    try:
        plan, n_jobs = _checked(problem, runs, jobs, out)
        arguments = {"problem": problem, "runs": plan.runs, "jobs": n_jobs, "force": force}
        return _carry_out(plan, out, arguments, as_json, quiet)
    except (LSTDError, OSError) as error:
        return fail_with(error, "What is finished is kept; the same command (without --force) resumes.")


def _checked(problem: str, runs: str, jobs: str | None, out: str) -> tuple[Plan, int | None]:
    from lstd.errors import InvalidInputError
    from lstd.experiments.plan import MAX_RUNS, make_plan

    if not out:
        raise InvalidInputError("`--out` must name a folder; got ''.")
    n_jobs = options.jobs_of(jobs)
    return make_plan(problem, options.count_of("--runs", runs, MAX_RUNS)), n_jobs


def _carry_out(plan: Plan, out: str, arguments: dict[str, Any], as_json: bool, quiet: bool) -> int:
    from lstd.cli.progress import make_reporter, reporting
    from lstd.experiments.reproduce.run import reproduce as reproduce_plan

    again = "the same command without --force resumes" if arguments["force"] else "the same command resumes"
    advise(f"; what is finished is kept, and {again}")
    with reporting(make_reporter(quiet)) as reporter:
        outcome = reproduce_plan(
            plan, out, n_jobs=arguments["jobs"], force=arguments["force"], progress=reporter.show, arguments=arguments
        )
    return output(outcome_json(outcome) if as_json else outcome_text(outcome))
