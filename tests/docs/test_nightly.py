"""The recipe for nightly files runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from lstd import load

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "nightly.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_recipe_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(SNIPPETS) == 6
    for snippet in SNIPPETS:
        exec(compile(snippet, "nightly.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[0]) for line in lines[:2]] == [30000, 7000]
    assert float(re.findall(r"[\d.]+", lines[0])[-1]) < float(re.findall(r"[\d.]+", lines[1])[-1])
    assert lines[2:4] == ["30000 30", "99 98"]
    assert [int(line.split()[0]) for line in lines[4:6]] == [200 * 60, 200 * 7]
    assert "both have the label '2026-11-07'" in lines[6]
    assert len(load("total.lstd").labels) == 30
    assert len([*Path("nights").iterdir()]) == 30
