"""Fit models to Parquet files several times larger than the memory that `lstd.fit_tables` may use.

    python benchmarks/out_of_core.py [--megabytes 2700] [--memory 512] [--repeats 3]
    python benchmarks/out_of_core.py --docs

Makes data of independent normal features in a temporary folder, eight files for each number of features, in row groups
of 16 MB. Fits them in fresh processes, in turn with one job and with two, after a fit to one small file, which loads
all code. Prints a table: medians of the seconds and of the seconds of processor time of the fit; most resident memory,
before and above it; how often as fast as one job, the median of the ratios of neighbouring fits, with their range; and
whether the models of all jobs have the same bits. The numbers go to results/out-of-core-DATE.json; with `--docs` the
documentation's table is made from the newest of these.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lstd
from pages import newest, store, write_between
from provenance import describe_machine

FEATURES = (100, 1000)
N_FILES = 8
GROUP_BYTES = 2**24
EPISODE_ROWS = 200
KINDS = {1: "one job", 2: "two jobs"}
ROLES: dict[str, Any] = {"features": None, "reward": "reward", "episode": "episode", "terminated": "terminated"}
SOURCE = "benchmarks/out_of_core.py"
HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "out-of-core.md"
HEAD = ("features", "data, MB", "with", "s", "processor s", "peak above start, MB", "as fast as one job", "same bits")


def main() -> None:
    """Measure, print and write; or write the documentation's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--megabytes", type=int, default=2700)
    parser.add_argument("--memory", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--docs", action="store_true", help="write the documentation's table; measure nothing")
    parser.add_argument("--fit", nargs=3, metavar=("FOLDER", "JOBS", "BYTES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(fit(Path(arguments.fit[0]), int(arguments.fit[1]), int(arguments.fit[2]))))
    elif arguments.docs:
        write_between(PAGE, SOURCE, page_text(newest("out-of-core")))
    else:
        found = run(arguments.megabytes, arguments.memory, arguments.repeats)
        print(page_text(found))
        store("out-of-core", found)


def run(megabytes: int, memory: int, repeats: int) -> dict[str, Any]:
    """All numbers, as plain JSON values."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": describe_machine(),
        "memory": memory,
        "fits": {},
    }
    for n in FEATURES:
        with tempfile.TemporaryDirectory() as folder:
            size = make_files(Path(folder), n, megabytes * 2**20)
            turns = [[measure(folder, kind, memory * 2**20) for kind in KINDS] for _ in range(repeats)]
        found["fits"][str(n)] = {"bytes": size, "turns": turns}
    return found


def make_files(folder: Path, n: int, n_bytes: int) -> int:
    """Files of about so many bytes in all, and a small one; returns the bytes of the former."""
    random = np.random.default_rng(n)
    group_rows = GROUP_BYTES // (8 * n)
    n_groups = max(1, round(n_bytes / N_FILES / GROUP_BYTES))
    for i in range(N_FILES):
        write_rows(folder / f"part{i}.parquet", random, (n_groups, group_rows, n), i * n_groups * group_rows)
    write_rows(folder / "small.parquet", random, (1, 64, n), 0)
    return sum(path.stat().st_size for path in folder.glob("part*.parquet"))


def write_rows(path: Path, random: np.random.Generator, shape: tuple[int, int, int], first: int) -> None:
    """Row groups of rows with numbers from `first` on, of episodes that end for good."""
    n_groups, n_rows, n = shape
    writer = None
    for i in range(n_groups):
        row = first + i * n_rows + np.arange(n_rows)
        columns: dict[str, Any] = {f"x{j}": random.normal(size=n_rows) for j in range(n)}
        columns |= {"reward": random.normal(size=n_rows), "episode": row // EPISODE_ROWS}
        table = pa.table(columns | {"terminated": row % EPISODE_ROWS == EPISODE_ROWS - 1})
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def measure(folder: str, n_jobs: int, memory: int) -> dict[str, Any]:
    """What a fit takes, in a fresh process; `n_jobs` is one of `KINDS`."""
    words = [sys.executable, __file__, "--fit", folder, str(n_jobs), str(memory)]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def fit(folder: Path, n_jobs: int, memory: int) -> dict[str, Any]:
    """Seconds, peaks in MB, and a digest of the sums."""
    small = [folder / "small.parquet"]
    files = sorted(folder.glob("part*"))

    def fitted(paths: list[Path]) -> Any:
        model = lstd.fit_tables(paths, **ROLES, gamma=0.99, fit_intercept=False, memory=memory, n_jobs=n_jobs)
        return model.statistics_

    fitted(small)
    before = peak()
    start = time.perf_counter()
    busy = time.process_time()
    sums = fitted(files)
    seconds = time.perf_counter() - start
    busy = time.process_time() - busy
    digest = hashlib.sha256(sums.A.tobytes() + sums.b.tobytes()).hexdigest()
    numbers = {"seconds": seconds, "busy": busy, "before": before, "peak": peak()}
    return numbers | {"digest": digest}


def peak() -> float:
    """Most resident memory of this process so far, MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def page_text(found: dict[str, Any]) -> str:
    """What stands between the page's markers."""
    machine = found["machine"]
    packages = found["machine"]["packages"]
    lines = [
        f"Measured by `python {SOURCE}` on {found['date']}: {machine['cpu']}, {machine['cores']} cores; Python "
        f"{machine['python']}, {', '.join(f'{name} {version}' for name, version in packages.items())}. Bound "
        f"{found['memory']} MB.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|" + "---|" * len(HEAD),
    ]
    for n, fits in found["fits"].items():
        lines += [f"| {n} | {fits['bytes'] / 2**20:.0f} | {' | '.join(cells)} |" for cells in rows(fits["turns"])]
    return "\n".join(lines)


def rows(turns: list[list[dict[str, Any]]]) -> list[list[str]]:
    """Cells of each way to fit; `turns` has fits by all ways, one after another, several times."""
    table = []
    same = len({turn[i]["digest"] for turn in turns for i in (0, 1)}) == 1
    for i, name in enumerate(KINDS.values()):
        ratios = sorted(turn[0]["seconds"] / turn[i]["seconds"] for turn in turns)
        fast = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if i else "—"
        seconds, busy = (statistics.median(turn[i][key] for turn in turns) for key in ("seconds", "busy"))
        above = max(turn[i]["peak"] - turn[i]["before"] for turn in turns)
        alike = "—"
        if i:
            alike = "yes" if same else "NO"
        table.append([name, f"{seconds:.2f}", f"{busy:.2f}", f"{above:.0f}", fast, alike])
    return table


if __name__ == "__main__":
    main()
