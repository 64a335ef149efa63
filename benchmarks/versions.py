"""Time this version of `lstd` beside an earlier one, in turns of two processes: the ratio of processor times.

    python benchmarks/versions.py OLD [--only WORD …] [--turns 9] [--docs]

OLD is a checkout of the earlier version, such as `git worktree add ../old 9414d7d` makes. Each version runs in its own
process, which stays alive; the two take turns, after one warm-up each, with the BLAS at one thread. A case that one
version cannot run is reported, not left out. `--docs` writes the newest stored results into docs/results/versions.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "versions.md"
GAMMA = 0.99
LMBDA = 0.9
Task = Callable[[], Any]
CASES: dict[str, tuple[float, Callable[[], Task]]] = {}  # goal, and what prepares the task of one turn


def case(name: str, goal: float) -> Callable[[Callable[[], Task]], Callable[[], Task]]:
    """Register a case: the function prepares data, and returns what is timed."""

    def register(prepare: Callable[[], Task]) -> Callable[[], Task]:
        CASES[name] = goal, prepare
        return prepare

    return register


# ------------------------------------------------------------ batches


def _dense(n_rows: int, n: int, dtype: str = "float64", **columns: Any) -> Task:
    import numpy as np

    from lstd import LSTD

    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, n)).astype(dtype)
    y = random.standard_normal(n_rows)
    return lambda: LSTD(GAMMA, LMBDA).fit(X, y, **columns)


for _n, _rows, _goal in (
    (4, 200_000, 1.05),
    (10, 100_000, 1.05),
    (50, 40_000, 1.05),
    (100, 20_000, 1.05),
    (400, 4000, 1.05),
):
    case(f"`LSTD.fit`, {_n} features", _goal)(lambda n=_n, rows=_rows: _dense(rows, n))  # type: ignore[misc]
case("`LSTD.fit`, 50 features of float32", 1.05)(lambda: _dense(40_000, 50, "float32"))


def _episodes(length: int, terminated: bool) -> Task:
    import numpy as np

    n_rows = 200_000
    episode = np.arange(n_rows) // length
    last = np.append(episode[1:] != episode[:-1], True)
    return _dense(n_rows, 10, episode=episode, terminated=last & terminated)


case("`LSTD.fit`, 20 000 episodes", 1.05)(lambda: _episodes(10, True))
case("`LSTD.fit`, 20 000 cut episodes", 1.05)(lambda: _episodes(10, False))


def _intervals(n_episodes: int, n_rows: int = 100_000) -> Task:
    import numpy as np

    from lstd import LSTD

    random = np.random.default_rng(0)
    X, y = random.standard_normal((n_rows, 10)), random.standard_normal(n_rows)
    columns: dict[str, Any] = {}
    if n_episodes > 1:
        episode = np.arange(n_rows) * n_episodes // n_rows
        columns = {"episode": episode, "terminated": np.append(episode[1:] != episode[:-1], True)}
    return lambda: LSTD(GAMMA, LMBDA).fit(X, y, **columns).predict_interval(X[:10])


case("`LSTD.fit` and `predict_interval`, one stream", 1.05)(lambda: _intervals(1))
case("`LSTD.fit` and `predict_interval`, 5000 episodes", 1.05)(lambda: _intervals(5000))


def _few_rows(n_rows: int) -> Task:
    import numpy as np

    from lstd import LSTD

    random = np.random.default_rng(0)
    X, y = random.standard_normal((n_rows, 10)), random.standard_normal(n_rows)
    return lambda: [LSTD(GAMMA, LMBDA).fit(X, y) for _ in range(50)]


for _rows in (100, 1000):
    case(f"50 × `LSTD.fit`, {_rows} rows of 10 features", 1.05)(lambda rows=_rows: _few_rows(rows))  # type: ignore[misc]


def _sparse(lmbda: float) -> Task:
    import numpy as np
    from scipy import sparse

    from lstd import LSTD

    random = np.random.default_rng(0)
    X = sparse.random_array((100_000, 200), density=0.02, format="csr", random_state=0)
    y = random.standard_normal(100_000)
    return lambda: LSTD(GAMMA, lmbda).fit(X, y)


case("`LSTD.fit`, sparse rows, λ = 0", 1.05)(lambda: _sparse(0.0))
case("`LSTD.fit`, sparse rows, λ = 0.9", 1.05)(lambda: _sparse(0.9))


def _chunks(n: int, predicts: bool) -> Task:
    import numpy as np

    from lstd import LSTD

    random = np.random.default_rng(0)
    X = random.standard_normal((2000, n))
    y = random.standard_normal(2000)

    def run() -> None:
        model = LSTD(GAMMA, LMBDA)
        for first in range(0, 2000, 10):
            model.partial_fit(X[first : first + 10], y[first : first + 10])
            if predicts:
                model.predict(X[:1])

    return run


for _n in (10, 100):
    case(f"`partial_fit` of 10 rows of {_n} features, with `predict`", 1.05)(lambda n=_n: _chunks(n, True))  # type: ignore[misc]
    case(f"`partial_fit` of 10 rows of {_n} features", 2.75)(lambda n=_n: _chunks(n, False))  # type: ignore[misc]


@case("`predict` of one row", 1.05)
def _predict() -> Task:
    import numpy as np

    from lstd import LSTD

    random = np.random.default_rng(0)
    X = random.standard_normal((1000, 10))
    model = LSTD().fit(X, X[:, 0])
    row = X[:1]
    return lambda: [model.predict(row) for _ in range(2000)]


# ------------------------------------------------------------ tables


def _file(ending: str, jobs: int = 1) -> Task:
    import numpy as np
    import pandas as pd

    from lstd import fit_tables

    n_rows = 100_000
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((n_rows, 10)), columns=[f"x{i}" for i in range(10)])
    frame = frame.assign(
        id=np.arange(n_rows) // 20, done=np.arange(n_rows) % 20 == 19, r=random.standard_normal(n_rows)
    )
    folder = Path(tempfile.mkdtemp(prefix="versions-"))
    paths = [folder / f"{part}.{ending}" for part in range(2)]
    for part, path in enumerate(paths):
        rows = frame[frame["id"] % 2 == part]
        rows.to_parquet(path, index=False) if ending == "parquet" else rows.to_csv(path, index=False)
    features = [f"x{i}" for i in range(10)]
    roles: dict[str, Any] = {"features": features, "reward": "r", "episode": "id", "terminated": "done"}
    return lambda: fit_tables([*map(str, paths)], gamma=GAMMA, n_jobs=jobs, **roles)


case("`fit_tables` of CSV", 1.05)(lambda: _file("csv"))
case("`fit_tables` of Parquet", 1.05)(lambda: _file("parquet"))


def _fit_chunks(n_chunks: int, n_rows: int, n: int) -> Task:
    import numpy as np

    from lstd import fit_chunks

    random = np.random.default_rng(0)
    chunks = [(random.standard_normal((n_rows, n)), random.standard_normal(n_rows)) for _ in range(n_chunks)]
    return lambda: fit_chunks(chunks, gamma=GAMMA, lmbda=LMBDA, n_jobs=1)


case("`fit_chunks`, 8 chunks of 20 000 rows of 50 features", 1.05)(lambda: _fit_chunks(8, 20_000, 50))
case("`fit_chunks`, 100 chunks of 500 rows of 10 features", 1.05)(lambda: _fit_chunks(100, 500, 10))


# ------------------------------------------------------------ streams


def _updates(n: int, count: int, predicts: bool = False, density: float = 1.0) -> Task:
    import numpy as np

    from lstd import RecursiveLSTD

    random = np.random.default_rng(0)
    X = random.standard_normal((count + 1, n)) * (random.random((count + 1, n)) < density)
    rows = [*X]
    rewards = random.standard_normal(count).tolist()

    def run() -> None:
        model = RecursiveLSTD(n, GAMMA, LMBDA)
        for t in range(count):
            if predicts:
                model.predict(rows[t])
            model.update(rows[t], rewards[t], rows[t + 1])

    return run


for _n, _rows in ((10, 10_000), (100, 4000), (1000, 300)):
    case(f"`RecursiveLSTD.update`, {_n} features", 1.05)(lambda n=_n, rows=_rows: _updates(n, rows))  # type: ignore[misc]
for _n, _rows in ((10, 10_000), (100, 4000)):
    case(f"`update` and `predict`, {_n} features", 1.05)(lambda n=_n, rows=_rows: _updates(n, rows, True))  # type: ignore[misc]
case("`RecursiveLSTD.update`, 1000 features, 1 % of them not zero", 1.05)(lambda: _updates(1000, 300, density=0.01))


def _recorded(name: str, n: int, **settings: Any) -> Task:
    import numpy as np

    import lstd

    random = np.random.default_rng(0)
    X = random.standard_normal((20_000, n)) / n
    y = random.standard_normal(20_000)
    return lambda: getattr(lstd, name)(n, GAMMA, LMBDA, **settings).partial_fit(X, y)


case("`RecursiveLSTD.partial_fit`, 20 000 rows of 10 features", 1.05)(lambda: _recorded("RecursiveLSTD", 10))
case("`TrueOnlineTD.partial_fit`, 20 000 rows of 10 features", 1.05)(
    lambda: _recorded("TrueOnlineTD", 10, step_size=0.01)
)


# ------------------------------------------------------------ processes


def _process(code: str, cold: bool = False) -> Task:
    """Return a task that runs code in a new process, with an empty cache of kernels if it is to be `cold`."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | ({"LSTD_CACHE_DIR": cache} if cold else {})
            subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)

    return run


_FIT = "import numpy as np; from lstd import LSTD; LSTD().fit(np.eye(3), np.ones(3))"
_ONLINE = "import numpy as np; from lstd import RecursiveLSTD; RecursiveLSTD(2).update(np.ones(2), 1.0, np.ones(2))"
case("`import lstd` in a new process", 1.05)(lambda: _process("import lstd"))
case("a first `LSTD.fit` in a new process", 1.05)(lambda: _process(_FIT))
case("a first `RecursiveLSTD`, kernels compiled", 1.05)(lambda: _process(_ONLINE, cold=True))


# ------------------------------------------------------------ turns


def serve() -> None:
    """Time the cases whose names come in, one turn for each line."""
    warnings.simplefilter("ignore")
    tasks: dict[str, Task] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            task = tasks.setdefault(name, CASES[name][1]()) if name not in tasks else tasks[name]
            start = _processor_seconds()
            task()
            answer = json.dumps(_processor_seconds() - start)
        except Exception as error:  # reported beside the other version's time
            answer = json.dumps(f"{type(error).__name__}: {error}")
        print(answer, flush=True)


def _processor_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


class Version:
    """A process that runs one version."""

    def __init__(self, root: Path) -> None:
        cache = tempfile.mkdtemp(prefix="kernels-")
        environment = os.environ | {
            "PYTHONPATH": str(root / "src"),
            "OPENBLAS_NUM_THREADS": "1",
            "LSTD_CACHE_DIR": cache,
        }
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def turn(self, name: str) -> float | str:
        """Run one turn of a case, and return its seconds, or why it failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        answer: float | str = json.loads(self.process.stdout.readline())
        return answer


def measure(old: Path, turns: int, only: list[str]) -> Iterator[dict[str, Any]]:
    """Time each case in turn with both versions, and yield its ratios."""
    versions = Version(ROOT), Version(old)
    for name, (goal, _) in CASES.items():
        if only and not any(word in name for word in only):
            continue
        pairs = [[version.turn(name) for version in versions] for _ in range(turns + 1)][1:]
        failed = next((answer for pair in pairs for answer in pair if isinstance(answer, str)), None)
        row: dict[str, Any] = {"case": name, "goal": goal, "failed": failed}
        if failed is None:
            ratios = [ours / theirs for ours, theirs in pairs]  # type: ignore[operator]
            row |= {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}
            row["seconds"] = statistics.median(float(ours) for ours, _ in pairs)
        yield row


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of results."""
    yield f"Measured on {found['date']}: {found['turns']} turns; {found['machine']}. Ratio to version {found['old']}."
    yield ""
    yield "| case | ratio of processor times | range | goal | |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        if row["failed"]:
            yield f"| {row['case']} | {row['failed']:.80} | | {row['goal']:g} | missed |"
        else:
            met = "" if row["ratio"] <= row["goal"] else "missed"
            found_range = f"{row['low']:.2f}–{row['high']:.2f}"
            yield f"| {row['case']} | {row['ratio']:.2f} | {found_range} | {row['goal']:g} | {met} |"


def main() -> None:
    """Measure and store, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("old", type=Path, nargs="?", help="checkout of the earlier version")
    parser.add_argument("--only", nargs="*", default=[], help="cases with one of these words; not stored")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--docs", action="store_true", help="write the newest stored results into the page")
    arguments = parser.parse_args()
    from pages import newest, store, write_between

    if arguments.old is None:
        write_between(PAGE, "benchmarks/versions.py", "\n".join(table(newest("versions"))))
        return
    from provenance import printed_by

    rows = []
    for row in measure(arguments.old.resolve(), arguments.turns, arguments.only):
        rows.append(row)
        result = row["failed"] or f"{row['ratio']:.2f} ({row['low']:.2f}–{row['high']:.2f})"
        print(f"{row['case']}: {result}, goal {row['goal']:g}", flush=True)
    commit = subprocess.run(
        ["git", "-C", arguments.old, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    machine = printed_by("").partition(": ")[2].rstrip(".")
    found = {
        "date": str(datetime.date.today()),
        "turns": arguments.turns,
        "old": commit.stdout.strip(),
        "machine": machine,
    }
    if not arguments.only:
        store("versions", found | {"rows": rows})
    if arguments.docs and not arguments.only:
        write_between(PAGE, "benchmarks/versions.py", "\n".join(table(newest("versions"))))


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
