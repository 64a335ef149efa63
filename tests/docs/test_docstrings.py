"""The examples in docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import numba
import pytest

import lstd

PACKAGE = Path(lstd.__file__).parent
MODULES = [
    ".".join(("lstd", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module, tmp_path, monkeypatch, no_pictures):
    if numba.config.DISABLE_JIT and module == "lstd.experiments.sweep":
        pytest.skip("a sweep of 50 runs takes minutes without compiled kernels")
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(module)).failed == 0
