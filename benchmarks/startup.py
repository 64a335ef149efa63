"""Time the start of `lstd` beside the import of scikit-learn, which neither `import lstd` nor `lstd --help` waits for.

python benchmarks/startup.py [--quick]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from ratios import Ratio, in_turn, run_alone

HOW = """\
Fresh processes, from start to end, files in the system's cache: `import lstd`, and `lstd --help` by the function that
the command calls, beside the import of scikit-learn's linear models, which estimators are made with."""
PAGE = ""
STARTS = {
    "`import lstd`": "import lstd",
    "`lstd --help`": "import sys; sys.argv = ['lstd', '--help']; from lstd.cli import main; main()",
}
BESIDE = "import sklearn.linear_model"


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time each start beside the import."""
    for name, code in STARTS.items():
        seconds = in_turn(partial(_python, code), partial(_python, BESIDE), 1 if quick else 9)
        yield Ratio(f"{name} beside `{BESIDE}`", *seconds, page=PAGE)


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
