"""Fit models to Parquet files several times larger than the memory that `lstd.fit_files` may use.

    python benchmarks/out_of_core.py [--megabytes 400] [--memory 64] [--repeats 3]

Makes data of independent normal features in a temporary folder, eight files for each number of features, in row groups
of 16 MB. Fits them in fresh processes, with one job and with two in turn, after a fit to one small file, which loads
all code. Prints a Markdown table: medians of the seconds and the seconds of processor time of the fit; peak resident
memory of the process, before and in all; how often as fast two jobs are, the median of the ratios of neighbouring
fits, with their range; and whether all models have the same bits.
"""

from __future__ import annotations

import argparse
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

FEATURES = (100, 1000)
N_FILES = 8
GROUP_BYTES = 2**24
EPISODE_ROWS = 200


def main() -> None:
    """Print one table row per number of features and jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--memory", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fit", nargs=3, metavar=("FOLDER", "JOBS", "BYTES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        print(json.dumps(fit(Path(arguments.fit[0]), int(arguments.fit[1]), int(arguments.fit[2]))))
        return
    print(f"Bound {arguments.memory} MB; {arguments.repeats} fits each.\n")
    print(
        "| features | data, MB | jobs | seconds | processor seconds | peak before, MB | peak, MB | faster | same bits |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | :--- |")
    for n in FEATURES:
        with tempfile.TemporaryDirectory() as folder:
            size = make_files(Path(folder), n, arguments.megabytes * 2**20)
            found = [
                [measure(folder, n_jobs, arguments.memory * 2**20) for n_jobs in (1, 2)]
                for _ in range(arguments.repeats)
            ]
        show(n, size, found)


def make_files(folder: Path, n: int, n_bytes: int) -> int:
    """Files of about so many bytes in all, and a small one; returns the bytes of the former."""
    random = np.random.default_rng(n)
    group_rows = GROUP_BYTES // (8 * n)
    n_groups = max(1, round(n_bytes / N_FILES / GROUP_BYTES))
    for i in range(N_FILES):
        write(folder / f"part{i}.parquet", random, (n_groups, group_rows, n), i * n_groups * group_rows)
    write(folder / "small.parquet", random, (1, 64, n), 0)
    return sum(path.stat().st_size for path in folder.glob("part*.parquet"))


def write(path: Path, random: np.random.Generator, shape: tuple[int, int, int], first: int) -> None:
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
    """What a fit takes, in a fresh process."""
    words = [sys.executable, __file__, "--fit", folder, str(n_jobs), str(memory)]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def fit(folder: Path, n_jobs: int, memory: int) -> dict[str, Any]:
    """Seconds, peaks in MB, and a digest of the weights."""
    roles: dict[str, Any] = {"features": None, "reward": "reward", "episode": "episode", "terminated": "terminated"}
    lstd.fit_files(folder / "small.parquet", **roles, gamma=0.99, n_jobs=n_jobs, memory=memory)
    before, start, busy = peak(), time.perf_counter(), time.process_time()
    model = lstd.fit_files(sorted(folder.glob("part*")), **roles, gamma=0.99, n_jobs=n_jobs, memory=memory)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    digest = hashlib.sha256(model.coef.tobytes() + model.statistics.A.tobytes()).hexdigest()
    return {"seconds": seconds, "busy": busy, "before": before, "peak": peak(), "digest": digest}


def peak() -> float:
    """Most resident memory of this process so far, MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def show(n: int, size: int, found: list[list[dict[str, Any]]]) -> None:
    """Print the rows of one number of features."""
    ratios = sorted(one["seconds"] / two["seconds"] for one, two in found)
    same = "yes" if len({each["digest"] for pair in found for each in pair}) == 1 else "no"
    for i, n_jobs in enumerate((1, 2)):
        runs = [pair[i] for pair in found]
        seconds, busy = (statistics.median(run[name] for run in runs) for name in ("seconds", "busy"))
        before, most = (max(run[name] for run in runs) for name in ("before", "peak"))
        faster = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if i else ""
        cells = (n, f"{size / 2**20:.0f}", n_jobs, f"{seconds:.2f}", f"{busy:.2f}", f"{before:.0f}", f"{most:.0f}")
        print("|", " | ".join(map(str, (*cells, faster, same))), "|", flush=True)


if __name__ == "__main__":
    main()
