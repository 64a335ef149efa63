"""Time the start of `lstd`, to a fitted model too, beside that of scikit-learn.

python benchmarks/startup.py [--quick]
"""

from __future__ import annotations

import compileall
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import lstd
from ratios import Ratio, in_turn, run_alone

HOW = """\
Fresh processes, from start to end, files in the system's cache, kernels compiled before and modules to bytecode, as
after an installation: `import lstd`, and `lstd --help` by the function that the command calls, beside the import of
scikit-learn's linear models; `LSTD` fitted to 1000 rows of 10 features, and the mere import of `sklearn.base` and
`numba`, which it needs, beside `Ridge` fitted to the same; `lstd fit` of a small table, by the function that the
command calls, beside the same `Ridge`."""
FIT = """
import numpy as np
from {0} import {1}
random = np.random.default_rng(0)
{1}().fit(random.normal(size=(1000, 10)), random.normal(size=1000))
"""
COMMAND = """
from lstd.cli import main
main("fit {0}.csv --features x --reward r --gamma 0.9 --force --quiet --out {0}.lstd".split())
"""
STARTS = {
    "`import lstd`": "import lstd",
    "`lstd --help`": "import sys; sys.argv = ['lstd', '--help']; from lstd.cli import main; main()",
}
BESIDE = "import sklearn.linear_model"


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time each start beside the import."""
    compileall.compile_dir(Path(lstd.__file__).parent, quiet=1)
    for name, code in STARTS.items():
        seconds = in_turn(partial(_python, code), partial(_python, BESIDE), 1 if quick else 9)
        yield Ratio(f"{name} beside `{BESIDE}`", *seconds)
    ridge = partial(_python, FIT.format("sklearn.linear_model", "Ridge"))
    seconds = in_turn(partial(_python, FIT.format("lstd", "LSTD")), ridge, 1 if quick else 9)
    yield Ratio("start to a fitted `LSTD` beside `Ridge`", *seconds, cost=True, goal=0.9, seconds_goal=1.5)
    seconds = in_turn(partial(_python, "import sklearn.base, numba"), ridge, 1 if quick else 9)
    yield Ratio("`import sklearn.base, numba` beside the start to a fitted `Ridge`", *seconds, cost=True)
    with TemporaryDirectory() as folder:
        table = Path(folder, "table")
        table.with_suffix(".csv").write_text("x,r\n" + "1,2\n" * 1000)
        seconds = in_turn(partial(_python, COMMAND.format(table)), ridge, 1 if quick else 9)
    yield Ratio("`lstd fit` of 1000 rows beside the start to a fitted `Ridge`", *seconds, cost=True)


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
