"""The environment of another user's process, on which no page and no figure may depend."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import matplotlib


def other_user(folder: Path) -> dict[str, str]:
    """Variables of a process with other hashes and another configuration of Matplotlib, which is put in `folder`."""
    (folder / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\nsvg.fonttype: none\n")
    for path in Path(matplotlib.get_cachedir()).glob("fontlist*"):  # finding the fonts again would take seconds
        shutil.copy(path, folder)
    variables = {"PYTHONHASHSEED": "7", "MPLCONFIGDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    return os.environ | variables
