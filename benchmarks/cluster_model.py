"""What a fit on many machines costs, on paper: formulas in what is known of one chunk, one merge and the network.

T rows in C chunks of R rows, each in w = R (s + 8n/ρ) seconds: s to sum a row, ρ the bytes per second at which a
worker reads. Statistics take S bytes and t = ℓ + S/β seconds to send, m to merge, v to solve. W workers, each of which
does one thing at a time; D = ⌈log2 C⌉; τ per task in the scheduler or in the process that calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CHUNKS_PER_WORKER = 4  # at least, so that no worker waits long for the last one
IN_TREE = 0.1  # share of the work at which merging and sending are called small


@dataclass(frozen=True)
class Costs:
    """Of n features: seconds on one core, and bytes of statistics."""

    n: int
    row: float
    merge: float
    solve: float
    size: float


@dataclass(frozen=True)
class Network:
    """Of each worker, and what runs the tasks."""

    bandwidth: float  # bytes per second
    latency: float  # seconds per message
    task: float  # seconds per task, in one process for all workers
    reading: float = math.inf  # bytes of data per second

    def sending(self, size: float) -> float:
        """Seconds to send that many bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Job:
    """A fit: the terms of its time in seconds, by formula."""

    cost: Costs
    network: Network
    transitions: float
    workers: int
    rows: float  # per chunk

    @property
    def chunks(self) -> int:
        """C."""
        return math.ceil(self.transitions / self.rows)

    @property
    def depth(self) -> int:
        """D, of the tree of merges."""
        return math.ceil(math.log2(self.chunks))

    @property
    def send(self) -> float:
        """t."""
        return self.network.sending(self.cost.size)

    @property
    def chunk(self) -> float:
        """w."""
        return self.rows * per_row(self.cost, self.network)

    @property
    def rounds(self) -> int:
        """Chunks of the worker that has most."""
        return math.ceil(self.chunks / self.workers)

    def on_cluster(self) -> dict[str, float]:
        """Terms on a Dask cluster, where workers merge: the larger of the first two counts, and all that follow."""
        apart = 1.0 - 1.0 / self.workers
        beside = max(0.0, self.chunks - self.workers) / self.workers
        return {
            "workers": self.rounds * self.chunk + beside * (self.cost.merge + apart * self.send),
            "scheduler": (2 * self.chunks - 1) * self.network.task,
            "tree": self.depth * (self.cost.merge + (self.workers > 1) * self.send + self.network.task) + self.send,
            "solve": self.cost.solve,
        }

    def on_executor(self) -> dict[str, float]:
        """Terms on an executor, where the calling process receives and merges everything; as for `on_cluster`."""
        each = self.send + self.network.task
        return {
            "workers": self.rounds * (self.chunk + each),
            "caller": self.chunk + self.chunks * (each + self.cost.merge),
            "tree": self.depth * self.cost.merge,
            "solve": self.cost.solve,
        }

    @property
    def moved(self) -> float:
        """Bytes between workers of a cluster, of those merges whose parts are on two workers, and to the caller."""
        return ((self.chunks - 1) * (1.0 - 1.0 / self.workers) + 1) * self.cost.size

    @property
    def memory(self) -> float:
        """Bytes of a worker: the chunk, and two statistics, their sum and what it is made of."""
        return 8.0 * self.cost.n * self.rows + 4.0 * self.cost.size


def in_all(terms: dict[str, float]) -> float:
    """Seconds of a fit from its terms."""
    first, second, *others = terms.values()
    return max(first, second) + sum(others)


def per_row(cost: Costs, network: Network) -> float:
    """Seconds to read and sum a row."""
    return cost.row + 8.0 * cost.n / network.reading


def largest_chunk(n: int, n_bytes: float) -> int:
    """Rows of n features that so many bytes hold."""
    return int(n_bytes / (8 * n))


def chosen_rows(transitions: float, workers: int, n: int, n_bytes: float) -> float:
    """Rows per chunk: what memory allows, and no less than `CHUNKS_PER_WORKER` chunks for each worker."""
    return min(largest_chunk(n, n_bytes), transitions / (CHUNKS_PER_WORKER * workers))


def takes_over(cost: Costs, network: Network, transitions: float, n_bytes: float) -> dict[str, float]:
    """Where something else than reading and summing takes over: rows per chunk, and numbers of workers."""
    row, rows, send = per_row(cost, network), largest_chunk(cost.n, n_bytes), network.sending(cost.size)
    step = cost.merge + send + network.task
    depth = math.ceil(math.log2(transitions / rows))
    return {
        "rows": (cost.merge + send) / (IN_TREE * row),
        "scheduler": min(
            rows * row / (2.0 * network.task), math.sqrt(transitions * row / (2.0 * CHUNKS_PER_WORKER * network.task))
        ),
        "tree": transitions * row / (depth * step + send),
        "solve": transitions * row / cost.solve,
    }


def caller_takes_over(cost: Costs, network: Network, transitions: float, n_bytes: float) -> float:
    """Number of workers of an executor from which the calling process takes longer than they do."""
    row, rows = per_row(cost, network), largest_chunk(cost.n, n_bytes)
    each = network.sending(cost.size) + network.task + cost.merge
    return min(rows * row / each, math.sqrt(transitions * row / (CHUNKS_PER_WORKER * each)))
