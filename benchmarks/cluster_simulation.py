"""A fit on many workers, event by event: chunks go to workers as these become free, and statistics merge in the tree.

The tree is :class:`lstd.distributed.reduction.Tree` itself. On a cluster every task passes the scheduler, one at a
time; a worker has one chunk in hand and one waiting, and does one thing at a time: it sums a chunk, or receives
statistics and merges. A merge goes to the one of the two workers that has less to do, before chunks that were given out
later. On an executor a worker hands its statistics to the calling process, which receives and merges one after another.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_model import Job
from lstd.distributed.reduction import Tree

_JITTER = 0.05  # chunks of the same size take times that differ that much
_IN_HAND = 2  # chunks that a worker of a cluster has, the one it is at included
_FEW = 1000  # workers of whom more chunks each are simulated
_ARRIVES, _DONE = 0, 1


@dataclass
class _Plan:
    """Merges in the order in which they are given out; nodes 0 … C − 1 are the chunks."""

    chunks: int
    parent: dict[int, int] = field(default_factory=dict)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)  # the chunk with which a merge is given out
    _place: int = 0

    def __post_init__(self) -> None:
        tree: Tree[int] = Tree(self._merge)
        for place in range(self.chunks):
            self._place = place
            tree.add(place, place)
        tree.result()

    def _merge(self, one: int, two: int) -> int:
        node = self.chunks + len(self.parts)
        self.parts[node] = (one, two)
        self.parent[one] = self.parent[two] = node
        self.after[node] = self._place
        return node


class _Cluster:
    """State of a simulated Dask cluster."""

    def __init__(self, chunks: Sequence[float], workers: int, merge: float, send: float, task: float) -> None:
        self.chunks, self.merge, self.send, self.task = chunks, merge, send, task
        self.plan = _Plan(len(chunks))
        self.events: list[tuple[float, int, int, int, int]] = []
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in range(workers)]
        self.busy = [False] * workers
        self.coming = [0] * workers  # merges on their way to a worker or waiting there
        self.holder: dict[int, int] = {}
        self.scheduler = 0.0  # until when it has something to do
        self.given = self.count = 0

    def run(self) -> float:
        """Seconds until the last merge is done, and sent to the caller."""
        for _ in range(_IN_HAND):
            for worker in range(len(self.busy)):
                self._give_chunk(0.0, worker)
        now = 0.0
        while self.events:
            now, _, kind, worker, node = heapq.heappop(self.events)
            if kind == _ARRIVES:
                heapq.heappush(self.waiting[worker], (self.plan.after.get(node, node), node))
            else:
                self._finish(now, worker, node)
            self._start(now, worker)
        return now + self.send

    def _push(self, time: float, kind: int, worker: int, node: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, kind, worker, node))

    def _give(self, now: float, worker: int, node: int) -> None:
        self.scheduler = max(self.scheduler, now) + self.task
        self._push(self.scheduler, _ARRIVES, worker, node)

    def _give_chunk(self, now: float, worker: int) -> None:
        if self.given < len(self.chunks):
            self._give(now, worker, self.given)
            self.given += 1

    def _start(self, now: float, worker: int) -> None:
        if self.busy[worker] or not self.waiting[worker]:
            return
        self.busy[worker] = True
        _, node = heapq.heappop(self.waiting[worker])
        if node < len(self.chunks):
            seconds = self.chunks[node]
        else:
            self.coming[worker] -= 1
            one, two = self.plan.parts[node]
            seconds = self.merge + (self.holder.pop(one) != self.holder.pop(two)) * self.send
        self._push(now + seconds, _DONE, worker, node)

    def _finish(self, now: float, worker: int, node: int) -> None:
        self.busy[worker] = False
        self.holder[node] = worker
        if node < len(self.chunks):
            self._give_chunk(now, worker)
        parent = self.plan.parent.get(node)
        if parent is None:
            return
        one, two = self.plan.parts[parent]
        if one in self.holder and two in self.holder:
            target = min(self.holder[one], self.holder[two], key=lambda w: (self.coming[w] + self.busy[w], w != worker))
            self.coming[target] += 1
            self._give(now, target, parent)


def cluster_times(chunks: Sequence[float], workers: int, merge: float, send: float, task: float) -> float:
    """Seconds until the caller has the statistics of chunks that take these seconds each, on a Dask cluster."""
    return _Cluster(chunks, workers, merge, send, task).run()


def executor_times(chunks: Sequence[float], workers: int, merge: float, send: float, task: float) -> float:
    """Seconds until the caller has the statistics of chunks that take these seconds each, on an executor."""
    merged = 0

    def together(one: int, two: int) -> int:
        nonlocal merged
        merged += 1
        return one

    tree: Tree[int] = Tree(together)
    first = min(workers, len(chunks))
    done = [(chunks[place], place) for place in range(first)]
    heapq.heapify(done)
    given, caller = first, 0.0
    while done:
        ready, place = heapq.heappop(done)
        free = max(caller, ready) + send + task
        before = merged
        tree.add(place, 0)
        caller = free + (merged - before) * merge
        if given < len(chunks):
            heapq.heappush(done, (free + chunks[given], given))
            given += 1
    before = merged
    tree.result()
    return caller + (merged - before) * merge


def simulated(job: Job, on_cluster: bool, fewest: int = 2000) -> float:
    """Seconds of a job.

    Of many chunks 8 and 16 for each worker are simulated (4 and 8 of more than 1000 workers; no less than `fewest` and
    twice as many in all): the others are taken to add in proportion, and the tree to have its depth.
    """
    times = cluster_times if on_cluster else executor_times
    numbers = (job.workers, job.cost.merge, job.send, job.network.task)
    most = max(fewest, (8 if job.workers <= _FEW else 4) * job.workers)
    some = [job.chunks] if job.chunks <= 2 * most else [most, 2 * most]
    random = np.random.default_rng(0)
    seconds = (job.chunk * random.uniform(1.0 - _JITTER, 1.0 + _JITTER, some[-1])).tolist()
    *shorter, last = [times(seconds[:count], *numbers) for count in some]
    found = last
    if shorter:  # twice as many chunks make the tree one deeper
        step = job.cost.merge + on_cluster * ((job.workers > 1) * job.send + job.network.task)
        found += (job.chunks - some[1]) * (last - step - shorter[0]) / (some[1] - some[0])
        found += (job.depth - math.ceil(math.log2(some[1]))) * step
    return found + job.cost.solve
