"""Measure how far `RecursiveLSTD` is from the sums of `LSTD` after a stream of 10⁸ transitions.

    python benchmarks/long_stream.py [--rows 1e8]
    python benchmarks/long_stream.py --docs

Both learn the same stream in chunks: ten independent normal features, rewards of the first one and noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lstd import LSTD, RecursiveLSTD
from pages import measure_or_write
from provenance import printed_by

CHUNK = 200_000
LOOKS = 50
N_FEATURES = 10
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "accuracy.md"


def measured(n_rows: int) -> dict[str, Any]:
    """Learn the stream, and compare the weights after equal numbers of chunks."""
    random = np.random.default_rng(0)
    errors = []
    start = time.process_time()
    online = RecursiveLSTD(N_FEATURES)
    sums = LSTD(fit_intercept=False, n_blocks=0)
    n_chunks = n_rows // CHUNK
    for chunk in range(1, n_chunks + 1):
        X = random.normal(size=(CHUNK, N_FEATURES))
        y = X[:, 0] + random.normal(size=CHUNK)
        online.partial_fit(X, y)
        sums.partial_fit(X, y)
        if chunk % max(1, n_chunks // LOOKS) == 0:
            errors.append(float(np.abs(online.weights - sums.coef_).max() / np.abs(sums.coef_).max()))
    printed = printed_by(f"python benchmarks/long_stream.py --rows {n_rows:.0e}")
    found = {"date": time.strftime("%Y-%m-%d"), "printed": printed, "rows": online.n_updates}
    return found | {"errors": errors, "seconds": time.process_time() - start}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield f"{found['printed']} {found['seconds']:.0f} s of processor time."
    yield ""
    yield (
        f"After {found['rows']:.0e} transitions, the weights of `RecursiveLSTD` differ from those of the sums by "
        f"{found['errors'][-1]:.0e} of the largest weight; the most at {len(found['errors'])} looks on the way is "
        f"{max(found['errors']):.0e}."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--docs", action="store_true", help="write the newest stored results into the page")
    given = parser.parse_args()
    measure_or_write(
        "long-stream", "benchmarks/long_stream.py", PAGE, lambda: measured(int(given.rows)), table, docs=given.docs
    )
