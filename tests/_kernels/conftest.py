"""A server of processes that have imported Numba and not yet `lstd`."""

import json
import os

import pytest

from kernel_processes import SERVER, checked, finish, start


@pytest.fixture(scope="module")
def run_code(tmp_path_factory):
    """A function that runs code with further variables, as `finish` and `start` do, but without importing Numba."""
    if not hasattr(os, "fork"):
        yield lambda code, **variables: finish(start(code, **variables))
        return
    folder = tmp_path_factory.mktemp("output")
    with start(SERVER) as server:

        def run(code, **variables):
            paths = [folder / f"{len(list(folder.iterdir()))}-{name}" for name in ("output", "log")]
            variables = {name: str(value) for name, value in variables.items()}
            server.stdin.write(json.dumps([code, variables, *map(str, paths)]) + "\n")
            server.stdin.flush()
            return checked(int(server.stdout.readline()), *(path.read_text() for path in paths))

        yield run
        server.stdin.close()
