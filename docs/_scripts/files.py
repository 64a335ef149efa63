"""The list of all files of the package, each with the first sentence of its docstring."""

from __future__ import annotations

import ast

from pictures import ROOT, floors

PACKAGE = ROOT / "src" / "lstd"


def write_list(path):
    """Write the list in Markdown: rooms from the top floor down, the files of each in alphabetical order."""
    blocks = []
    for room in (room for rooms in reversed(floors()) for room in sorted(rooms)):
        folder = PACKAGE / room
        if not folder.is_dir():
            blocks.append(f"**{room}.py** {summary(folder.with_suffix('.py'))}")
            continue
        files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        lines = [f"- `{file.name}`: {summary(file)}" for file in files]
        blocks.append("\n".join([f"**{room}/** {summary(folder / '__init__.py')}", "", *lines]))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def summary(file):
    """Return the first paragraph of the docstring of a file."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    return " ".join(docstring.split("\n\n")[0].split())
