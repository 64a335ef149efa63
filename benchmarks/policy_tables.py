"""The tables and the figure of the page on values of policies, from stored estimates.

`policies-DATE.json` has all sizes and many logs; `policies-again-DATE.json` fewer of them, measured after a change:

    python benchmarks/policy_evaluation.py --repeats 8 --results benchmarks/results/policies-again-DATE.json
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pages import newest, write_between

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "results" / "policy-evaluation.md"
GUIDE = DOCS / "guide" / "which-policy.md"
SOURCE = "benchmarks/policy_evaluation.py"
KINDS = ("fine", "coarse")
CHOICE = "first choice"
REFERENCE = "state values"
OLD = "LSTD(0), ratios, α = 1"
RIGHT = ("lake", "cliff", "taxi", *(f"random process {i}" for i in range(1, 6)), "long", "queue", "wind")
UNSEEN = ("queue", "wind", "random process 4", "random process 5", "drift")  # did not make the first choice
MISSES = 0.6  # of the intervals, from which features count as too coarse
ENOUGH = 8  # repeats of a row that goals are judged on: with fewer, the best of many methods is the luckiest


class Cell(NamedTuple):
    """The estimates of all methods for one target policy, log, size and kind of features."""

    name: tuple[str, str, str, str]  # problem, log, target, kind of features
    size: int
    truth: float
    bound: float  # sd of the return / √episodes
    methods: dict[str, list[list[Any]]]

    @property
    def right(self) -> bool:
        """Whether the features are unit vectors of states."""
        return self.name[0] in RIGHT and self.name[3] == "fine"

    def error(self, method: str) -> float:
        """Root mean squared error in units of the bound; infinite if an estimate is missing."""
        values = np.array([one[0] for one in self.methods[method]], dtype=float)
        error = float(np.sqrt(np.mean((values - self.truth) ** 2))) / self.bound
        if np.isfinite(error):
            return error
        return float("inf")

    def held(self, method: str) -> NDArray[np.bool_]:
        low, high = np.array([one[1:3] for one in self.methods[method]], dtype=float).T
        return np.asarray((low <= self.truth) & (self.truth <= high))

    def warned(self, letters: str = "", method: str = CHOICE) -> NDArray[np.bool_]:
        """Whether each repeat gave a warning of these letters, or any one."""
        said = [one[3] for one in self.methods[method]]
        if letters:
            said = [set(one) & set(letters) for one in said]
        return np.array([bool(one) for one in said])

    @property
    def safe(self) -> float:
        """Share of repeats with the truth in the interval, or a warning."""
        return float(np.mean(self.held(CHOICE) | self.warned()))

    @property
    def enough(self) -> bool:
        """Whether there are enough repeats to judge."""
        return len(self.methods[CHOICE]) >= ENOUGH

    @property
    def best(self) -> tuple[float, str]:
        """The least error of a single method."""
        return min((self.error(name), name) for name in self.methods if not name.startswith(CHOICE))

    @property
    def ratio(self) -> float:
        """Error of the first choice beside that of the best single method, both at least half the bound."""
        return max(self.error(CHOICE), 0.5) / max(self.best[0], 0.5)


def cells(found: dict[str, Any], others: dict[str, Any]) -> Iterator[Cell]:
    """Yield what was measured, with the repeats that both files have."""
    for name, cell in found["cells"].items():
        problem, log, target, size = name.split(" | ")
        methods = cell["methods"]
        n = len(cell["repeats"])
        beside = others["cells"].get(name)
        if beside:
            methods = methods | beside["methods"]
            n = min(n, len(beside["repeats"]))
            assert cell["repeats"][:n] == beside["repeats"][:n]
        for kind in KINDS:
            if f"{CHOICE}, {kind}" not in methods:
                continue
            other = tuple(f", {k}" for k in KINDS if k != kind)
            own = {}
            for method, estimates in methods.items():
                if not method.endswith(other) and len(estimates) >= n:
                    own[method.removesuffix(f", {kind}")] = estimates[:n]
            bound = cell["deviation"] / np.sqrt(int(size))
            yield Cell((problem, log, target, kind), int(size), cell["truth"], bound, own)


# ---------------------------------------------------------------- tables


def measured(every: list[Cell]) -> dict[tuple[str, str, float], float]:
    """Return what was asked of the first choice: text, sign and goal, with what was found."""
    ratios = np.array([cell.ratio for cell in every])
    repeats = [len(cell.methods[CHOICE]) for cell in every]
    right = [cell for cell in every if cell.right]
    missing = [cell for cell in every if REFERENCE in cell.methods and 1.0 - cell.held(REFERENCE).mean() >= MISSES]
    found = {
        ("error beside that of the best single method, median", "≤", 1.3): np.median(ratios),
        ("error beside that of the best single method, largest", "≤", 2.5): ratios.max(),
        ("truth in the interval, or a warning, all", "≥", 0.9): np.average(
            [cell.safe for cell in every], weights=repeats
        ),
        ("truth in the interval, or a warning, least of a row", "≥", 0.8): min(cell.safe for cell in every),
        ("truth in the interval, all", "≥", 0.9): np.concatenate([cell.held(CHOICE) for cell in every]).mean(),
    }
    if right:
        found |= {
            ("warnings of features or support where both are right, all", "≤", 0.05): np.concatenate(
                [cell.warned("SM") for cell in right]
            ).mean(),
            ("warnings of features where they are right, most of a row", "≤", 0.1): max(
                cell.warned("M").mean() for cell in right
            ),
        }
    if missing:
        noticed = [cell.warned("M").mean() for cell in missing]
        found["features noticed where state values miss in 60 % or more, least of a row", "≥", 0.5] = min(noticed)
        found["features noticed where state values miss in 60 % or more, all", "≥", 0.5] = float(np.mean(noticed))
    return found


def goals(every: list[Cell]) -> list[str]:
    """Return what was asked and what was found, on the processes that did not make the rule and on the others."""
    of_new, of_rule = judged(every)
    new = measured(of_new) if of_new else {}
    old = measured(of_rule) if of_rule else {}
    lines = [
        f"| | goal | new processes, {len(of_new)} rows | processes of the rule, {len(of_rule)} rows |",
        "|---|---|---|---|",
    ]

    def met(found: dict[tuple[str, str, float], float], what: tuple[str, str, float]) -> bool:
        _, sign, goal = what
        if what not in found:
            return True
        if sign == "≤":
            return found[what] <= goal
        return found[what] >= goal

    for what in sorted({**new, **old}, key=lambda what: (met(new, what), met(old, what))):
        numbers = [f"{found[what]:.2f}" if what in found else "—" for found in (new, old)]
        cells = [
            number if met(found, what) else f"**{number}**, missed"
            for number, found in zip(numbers, (new, old), strict=True)
        ]
        lines.append(f"| {what[0]} | {what[1]} {what[2]:g} | {' | '.join(cells)} |")
    return lines


def judged(every: list[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Return the rows that goals are judged on: of processes that did not make the rule, and of the others."""
    enough = [cell for cell in every if cell.enough]
    new = [cell for cell in enough if cell.name[0] in UNSEEN]
    return new, [cell for cell in enough if cell.name[0] not in UNSEEN]


def misses(every: list[Cell]) -> list[str]:
    """Return the rows in which the truth is neither in the interval nor a warning given often enough."""
    rows = sorted((cell for cell in every if cell.enough and cell.safe < 0.8), key=lambda cell: cell.safe)
    if not rows:
        return ["No row has the truth in the interval, or a warning, in less than 80 % of its repeats."]
    lines = [
        "Rows with the truth in the interval, or a warning, in less than 80 % of their repeats:",
        "",
        "| process, log, target, features | episodes | repeats | held or warned | first choice | state values |",
        "|" + "---|" * 6,
    ]
    lines += [_miss(cell) for cell in rows]
    return lines


def _miss(cell: Cell) -> str:
    """Return the line of a row that misses its goal."""
    repeats = len(cell.methods[CHOICE])
    errors = f"{cell.error(CHOICE):.2g} | {cell.error(REFERENCE):.2g}"
    return f"| {', '.join(cell.name)} | {cell.size} | {repeats} | {cell.safe:.2f} | {errors} |"


def in_short(every: list[Cell]) -> str:
    """Return the sentences of the guide."""
    lines = []
    for own, which in zip(judged(every), ("did not make the rule", "made the rule, with other logs"), strict=True):
        if own:
            found = {what[0]: value for what, value in measured(own).items()}
            low = sum(cell.safe < 0.8 for cell in own)
            lines.append(
                f"On {len({cell.name[0] for cell in own})} processes that {which}, the error of the first choice is "
                f"{found['error beside that of the best single method, median']:.2f} times that of the method that "
                f"turned out best there, in the median of {len(own)} rows, and at most "
                f"{max(cell.ratio for cell in own):.1f} times. The truth is in its interval, or a warning comes, in "
                f"{100 * found['truth in the interval, or a warning, all']:.0f} % of the logs; in {low or 'none'} of "
                "the rows, it does in less than 80 %."
            )
    return "\n\n".join(lines)


def by_process(every: list[Cell]) -> list[str]:
    """Return a row for each process and number of episodes, the largest ratio first."""
    lines = [
        "| process, episodes | repeats | error beside the best: median | largest | truth held | held or warned "
        "| state values: largest |",
        "|" + "---|" * 7,
    ]
    for place in worst_first(every, lambda cell: (cell.name[0], cell.size)):
        own = [cell for cell in every if (cell.name[0], cell.size) == place]
        ratios = [cell.ratio for cell in own]
        repeats = min(len(cell.methods[CHOICE]) for cell in own)
        beside = max(max(cell.error(REFERENCE), 0.5) / max(cell.best[0], 0.5) for cell in own)
        lines.append(
            f"| {place[0]}, {place[1]} | {repeats} | {np.median(ratios):.2f} | {max(ratios):.2f} "
            f"| {np.mean([cell.held(CHOICE).mean() for cell in own]):.2f} | {np.mean([cell.safe for cell in own]):.2f} "
            f"| {beside:.1f} |"
        )
    return lines


def worst_first(every: list[Cell], part: Callable[[Cell], Any]) -> list[Any]:
    """Return the parts that cells are in, the one with the largest ratio first."""
    return list(dict.fromkeys(part(cell) for cell in sorted(every, key=lambda cell: -cell.ratio)))


def by_target(every: list[Cell]) -> list[str]:
    """Return a table for each process, which the reader opens; the largest ratio first."""
    lines = []
    for process in worst_first(every, lambda cell: cell.name[0]):
        own = sorted((cell for cell in every if cell.name[0] == process), key=lambda cell: -cell.ratio)
        lines += [
            f"<details><summary>{process}: {len(own)} rows</summary>",
            "",
            "| log, target, features | episodes | repeats | first choice | truth held | warned "
            "| best single method | its error | state values | α = 1 | WDR | fitted Q, boosting |",
            "|" + "---|" * 12,
        ]
        for cell in own:
            beside = (REFERENCE, OLD, "WDR", "fitted Q, boosting")
            other = [f"{cell.error(name):.2g}" if name in cell.methods else "—" for name in beside]
            lines.append(
                f"| {', '.join(cell.name[1:])} | {cell.size} | {len(cell.methods[CHOICE])} | {cell.error(CHOICE):.2g} "
                f"| {cell.held(CHOICE).mean():.2f} | {cell.warned().mean():.2f} | {cell.best[1]} | {cell.best[0]:.2g} "
                f"| {' | '.join(other)} |"
            )
        lines += ["", "</details>", ""]
    return lines[:-1]


def by_method(every: list[Cell]) -> list[str]:
    """Return a row for each method: its errors over all targets, and how often its intervals hold the truth."""
    rows = []
    for name in {name for cell in every for name in cell.methods}:
        own = [cell for cell in every if name in cell.methods]
        least = [max(min(cell.best[0], cell.error(CHOICE)), 0.5) for cell in own]
        errors = np.array([max(cell.error(name), 0.5) for cell in own]) / least
        has = [cell.held(name).mean() for cell in own if cell.methods[name][0][1] is not None]
        cells = f"{np.median(errors):.2f} | {np.quantile(errors, 0.9):.3g} | {errors.max():.3g}"
        rows.append((errors.mean(), f"| {name} | {len(own)} | {cells} | {f'{np.mean(has):.2f}' if has else '—'} |"))
    head = ["| method | rows | median | nine of ten below | largest | truth held |", "|---|---|---|---|---|---|"]
    return [*head, *(line for _, line in sorted(rows))]


def weighted_pairs(found: dict[str, Any]) -> list[str]:
    """Compare action values of rows as they are with those of rows that count by the ratios of their actions."""
    lines = [
        f"Least-squares action values, `LSTDQ(0)`, with rows as they are and weighted by π/μ, on {found['date']}:",
        "",
        "| features | rows | repeats | error | weighted | truth held | weighted | much better | much worse |",
        "|" + "---|" * 9,
    ]
    for kind in KINDS:
        own = []
        for name, cell in found["cells"].items():
            methods = {way: cell["methods"].get(f"{way}, {kind}") for way in ("none", "ratio")}
            if all(methods.values()):
                problem, log, target, size = name.split(" | ")
                bound = cell["deviation"] / np.sqrt(int(size))
                own.append(Cell((problem, log, target, kind), int(size), cell["truth"], bound, methods))
        errors = np.array([[max(cell.error(way), 0.5) for way in ("none", "ratio")] for cell in own])
        mean = " | ".join(f"{error:.2f}" for error in np.exp(np.log(errors).mean(axis=0)))
        held = " | ".join(f"{np.mean([cell.held(way).mean() for cell in own]):.2f}" for way in ("none", "ratio"))
        better, worse = ((errors[:, i] * 1.5 < errors[:, 1 - i]).sum() for i in (1, 0))
        repeats = min(len(cell.methods["none"]) for cell in own)
        lines.append(f"| {kind} | {len(own)} | {repeats} | {mean} | {held} | {better} | {worse} |")
    return lines


def again(found: dict[str, Any], before: dict[str, Any]) -> str:
    """Return a table of the first choice measured again, beside what it was on the same logs."""
    pairs = list(same_logs(found, before))
    lines = [
        f"The first choice measured again on {found['date']}, with the first logs of each row of the smaller sizes, "
        f"beside what it was on {before['date']}. Errors are geometric means over "
        "rows, those below half a bound as half.",
        "",
        "| process | rows | logs of each | error | before | truth held | before | held or warned | before |",
        "|" + "---|" * 9,
    ]
    processes = dict.fromkeys(new.name[0] for new, _ in pairs)
    for process in processes:
        own = [(new, old) for new, old in pairs if new.name[0] == process]
        lines.append(_compared(process, own))
    lines.append(_compared("all", pairs))
    right = [new for new, _ in pairs if new.right]
    held = np.concatenate([cell.held(CHOICE) for cell in right])
    warned = np.concatenate([cell.warned() for cell in right])
    share = f"{warned[held].mean():.2f}"
    lines += ["", f"Where features are right, {share} of the logs whose interval holds the truth give a warning."]
    return "\n".join(lines)


def same_logs(found: dict[str, Any], before: dict[str, Any]) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cells of new results, with those of earlier ones cut to the same logs."""
    earlier = {}
    for cell in cells(before, {"cells": {}}):
        earlier[cell.name, cell.size] = cell
    for cell in cells(found, {"cells": {}}):
        n = len(cell.methods[CHOICE])
        old = earlier[cell.name, cell.size]
        yield cell, old._replace(methods={name: each[:n] for name, each in old.methods.items()})


def _compared(name: str, pairs: list[tuple[Cell, Cell]]) -> str:
    """Return the line of a process, of cells and what they were."""
    numbers = []
    for own in zip(*pairs, strict=True):
        error = np.exp(np.mean([np.log(max(cell.error(CHOICE), 0.5)) for cell in own]))
        held = np.mean([cell.held(CHOICE).mean() for cell in own])
        safe = np.mean([cell.safe for cell in own])
        numbers.append((error, held, safe))
    both = " | ".join(f"{new:.2f} | {old:.2f}" for new, old in zip(*numbers, strict=True))
    logs = sorted({len(new.methods[CHOICE]) for new, _ in pairs})
    repeats = " to ".join(map(str, sorted({logs[0], logs[-1]})))
    return f"| {name} | {len(pairs)} | {repeats} | {both} |"


def text(found: dict[str, Any], others: dict[str, Any], pairs: dict[str, Any]) -> str:
    """Return the tables of the page as Markdown."""
    every = list(cells(found, others))
    counts = sorted(len(cell.methods[CHOICE]) for cell in every)
    machine = found["machine"]
    repeats = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    lines = [
        f"Measured by `python {SOURCE}` on {found['date']}: {machine['cores']} cores, Python {machine['python']}; "
        f"seeds from {found['seed']}; {len(every)} rows, {repeats} repeats of each.",
        f"Goals are judged on rows with at least {ENOUGH} repeats.",
        "",
        *goals(every),
        "",
        *misses(every),
        "",
        "The error of the first choice beside that of the best single method of the same row, how often its interval "
        "held the truth, and how often that or a warning came. State values are beside it. The fewer the repeats, the "
        "luckier the best of many methods.",
        "",
        *by_process(every),
        "",
        "![Errors in units of the bound](figures/policy-evaluation.png)",
        "",
        "Errors of each method beside the least one of the same row, both at least half the bound, in the rows that "
        "goals are judged on, as in the figure:",
        "",
        *by_method([cell for cell in every if cell.enough]),
        "",
        *weighted_pairs(pairs),
        "",
        "Each row, with errors as multiples of the bound, the worst of the first choice first:",
        "",
        *by_target(every),
    ]
    return "\n".join(lines)


def draw(every: list[Cell], path: Path) -> None:
    """Draw the errors of all methods in units of the bound, a line for each process; the first choice stands out."""
    from lstd.report.style import BLUE, INK, REFERENCE, panels

    ordered = sorted(every, key=lambda cell: -cell.error(CHOICE))
    lines = list(dict.fromkeys((cell.name[0], cell.size) for cell in ordered))[::-1]
    at = np.array([lines.index((cell.name[0], cell.size)) for cell in every])
    singles = [
        (place, cell.error(name))
        for place, cell in zip(at, every, strict=True)
        for name in cell.methods.keys() - {CHOICE, OLD}
    ]
    with panels(None, 8.0, 0.8 + 0.27 * len(lines)) as (axes,):
        for label, color, marker, above, points in (
            ("every other method", "0.8", ".", -0.2, singles),
            ("state values, α = 1", REFERENCE, "x", 0.0, zip(at, (cell.error(OLD) for cell in every), strict=True)),
            ("first choice", BLUE, "o", 0.2, zip(at, (cell.error(CHOICE) for cell in every), strict=True)),
        ):
            place, error = np.array(list(points)).T
            axes.plot(np.clip(error, 0.1, 300), place + above, marker, color=color, label=label)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        axes.set(xscale="log", xlim=(0.09, 320), ylim=(-0.7, len(lines) - 0.3))
        axes.set_xlabel("root mean squared error / (standard deviation of the return / √episodes)")
        axes.set_yticks(range(len(lines)), [f"{name}, {size} episodes" for name, size in lines], fontsize=9.5)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
        figure: Any = axes.figure
        figure.savefig(path, dpi=130, metadata={"Software": None})


def write() -> None:
    """Write the tables and the figure from the newest results."""
    found = newest("policies")
    others = newest("policy-baselines")
    pairs = newest("policy-pairs")
    every = list(cells(found, others))
    draw([cell for cell in every if cell.enough], PAGE.parent / "figures" / "policy-evaluation.png")
    write_between(GUIDE, SOURCE, in_short(every))
    write_between(PAGE, SOURCE, text(found, others, pairs))
    write_between(PAGE, "benchmarks/policy_tables.py", again(newest("policies-again"), found))
