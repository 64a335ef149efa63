"""Code blocks of a Markdown page: run in their order, with what they print beside what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- setup\n(?P<setup>.*?)-->|^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)

# The command `lstd` of this interpreter comes first.
ENVIRONMENT = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def is_run(page):
    """Whether a page has blocks that are run."""
    return any(match["setup"] or match["language"] in ("python", "console") for match in blocks(page))


def blocks(page):
    return [*BLOCK.finditer(page.read_text(encoding="utf-8"))]


def run(page, folder):
    """Yield the code, the output and the output shown of every block of a page; `folder` is the current one."""
    names = {"__name__": page.stem}
    matches = blocks(page)
    for match, after in zip(matches, [*matches[1:], None], strict=True):
        code = match["setup"] or match["code"]
        if match["setup"] or match["language"] == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, f"{page.name}: {code.splitlines()[0]}", "exec"), names)
            between = match.string[match.end() : after.start()] if after else "the end"
            shown = after["code"] if not between.strip() and after["language"] == "text" else ""
            yield code, printed.getvalue(), shown
        elif match["language"] == "console":
            for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
                command, shown = re.match(r"((?:.*\\\n)*.*\n)([\s\S]*)", part).groups()
                done = subprocess.run(
                    command, shell=True, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
                )
                yield command, done.stdout if done.returncode == 0 else done.stderr, shown
