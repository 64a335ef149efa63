"""Work out from costs per chunk, measured here, how long a fit takes on many machines.

    python benchmarks/cluster.py [--repeats 3] [--bandwidth 1.25e9] [--latency 1e-3] [--task 1e-3] [--reading 1e9]
                                 [--chunk 1e9]
    python benchmarks/cluster.py --docs

Measures, with the BLAS at one thread, the sums of LSTD(λ) over a chunk, the merge of two statistics and the solve for
n = 100, 1000 and 10000 features (about 10 GB of memory), sending statistics between processes, and whole fits by one
and two workers; simulates fits of 1e9 and 1e12 transitions. Writes all this into results/cluster-DATE.json, and tables
and figure into the documentation. With --docs nothing is measured: the newest results are simulated again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import cluster_measure
from cluster_page import sections, simulate, write_pages

FEATURES = (100, 1000, 10_000)
HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"


def main() -> None:
    """Measure, simulate, write and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--docs", action="store_true", help="write tables and figure from the newest results, simulated again"
    )
    parser.add_argument("--repeats", type=int, default=3, help="of whole fits")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second of a worker's network")
    parser.add_argument("--latency", type=float, default=1e-3, help="seconds per message")
    parser.add_argument("--task", type=float, default=1e-3, help="seconds per task of the scheduler")
    parser.add_argument("--reading", type=float, default=1e9, help="bytes of data per second that a worker reads")
    parser.add_argument("--chunk", type=float, default=1e9, help="bytes of data in a chunk, at most")
    arguments = vars(parser.parse_args())
    docs, repeats = arguments.pop("docs"), arguments.pop("repeats")
    found = newest() if docs else measured(repeats, arguments)
    found["simulated"] = simulate(found)
    path = HERE / "results" / f"cluster-{found['date']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_pages(newest(), DOCS)
    print("\n\n".join(sections(newest()).values()))


def newest() -> dict[str, Any]:
    """The results of the latest day."""
    paths = sorted((HERE / "results").glob("cluster-*.json"))
    if not paths:
        sys.exit(f"No cluster-*.json in {HERE / 'results'}. Run without --docs.")
    found: dict[str, Any] = json.loads(paths[-1].read_text(encoding="utf-8"))
    return found


def measured(repeats: int, assumed: dict[str, float]) -> dict[str, Any]:
    """All that is measured and assumed."""
    from provenance import describe_machine

    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": describe_machine(),
        "load": os.getloadavg()[0],
        "assumed": assumed,
        "costs": {str(n): cluster_measure.costs(n) for n in FEATURES},
        "messages": cluster_measure.messages(),
        "runs": cluster_measure.runs(repeats),
    }


if __name__ == "__main__":
    main()
