"""A Dask scheduler and workers that are started as commands, and what a worker is given to do."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from chunk_loaders import PROCESSES, preload_forked_processes, process_context

TESTS = str(Path(__file__).parent)


class Commands:
    """A scheduler at `address`, and the processes of workers, of one thread each."""

    def __init__(self, folder: Path) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.workers: list[BaseProcess] = []
        self._folder = folder
        self.scheduler = self._start("scheduler", "--host", self.address)

    def add_worker(self, *words: str, **environment: str) -> BaseProcess:
        """Start one more worker; `words` are further options."""
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder), *words]
        self.workers.append(self._start("worker", self.address, *options, **environment))
        return self.workers[-1]

    def _start(self, *words: str, **environment: str) -> BaseProcess:
        words = (*words, "--no-dashboard", "--dashboard-address", ":0")  # any port, of what serves no dashboard too
        arguments = ([*words], {"PYTHONPATH": TESTS} | environment, self._folder / "log")
        process = process_context().Process(target=_run, args=arguments)
        process.start()
        return process

    def close(self) -> None:
        """Kill them all."""
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.join()


def _run(words: list[str], environment: dict[str, str], log: Path) -> None:
    """The command ``dask``, in a process of its own."""
    os.environ |= environment
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), stream)
    sys.argv = ["dask", *words]
    from dask.__main__ import main

    main()


@contextlib.contextmanager
def commands(folder: Path) -> Iterator[Commands]:
    """A scheduler without workers yet; all processes are killed at the end."""
    started = Commands(folder)
    try:
        yield started
    finally:
        started.close()


@contextlib.contextmanager
def local_client() -> Iterator[Any]:
    """A client of a cluster of two processes of this machine, of one thread each."""
    import dask

    import distributed

    preload_forked_processes()
    patient = {"distributed.comm.timeouts.connect": "120s"}  # on a busy machine a worker that is replaced starts slowly
    with (
        dask.config.set(patient | {"distributed.worker.multiprocessing-method": PROCESSES}),
        # Port 0 is any that is free: the usual one may be another cluster's.
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
