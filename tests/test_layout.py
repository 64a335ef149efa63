"""Imports point downward only, and `import lstd` is light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lstd

PACKAGE = Path(lstd.__file__).parent
TESTS = Path(__file__).parent

# Rooms of the package from the top down; those of one layer may use one another, but not in a circle.
LAYERS = (
    {"cli"},
    {"experiments"},
    {"report"},
    {"distributed"},
    {"tables"},
    {"estimators", "online", "trajectories", "mrp"},
    {"statistics"},
    {"data"},
    {"io"},
    {"_kernels"},
    {"errors"},
)
LAYER_OF = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
MODULES = {
    ".".join(("lstd", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements(node):
    """All nodes below `node`, inside functions too, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            for other in child.orelse:
                yield other
                yield from statements(other)
        else:
            yield child
            yield from statements(child)


def imports(path, package):
    """Full names of the modules that a source file imports; of ``from a import b``, a.b where that is a module."""
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if name in MODULES else base)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
            name = node.args[0]
            assert isinstance(name, ast.Constant) or package == "lstd", f"{path}: a module name that is worked out"
            found.add(
                name.value if isinstance(name, ast.Constant) else "lstd"
            )  # lstd itself imports its own parts when they are first used
    return found


def package_of(name):
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


IMPORTS = {name: imports(path, package_of(name)) for name, path in MODULES.items()}
OWN = {name: {other for other in found if other in MODULES and other != name} for name, found in IMPORTS.items()}


def part(module):
    """The part of the package that a module belongs to; the package itself for ``lstd``."""
    return module.split(".")[1] if "." in module else "lstd"


def top_level(names):
    return {name.partition(".")[0] for name in names}


def test_every_part_has_its_layer():
    assert {part(name) for name in MODULES} - {"lstd"} <= set(LAYER_OF)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "lstd"])
def test_imports_point_downward(module):
    for other in OWN[module] - {"lstd"}:
        assert LAYER_OF[part(other)] >= LAYER_OF[part(module)], f"{module} imports {other}"


def test_nothing_imports_in_a_circle():
    left = {module: set(others) for module, others in OWN.items() if module != "lstd"}
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    assert not left, f"a circle among {sorted(left)}"


def test_kernels_import_numpy_and_numba_only():
    for module in MODULES:
        if part(module) != "_kernels":
            continue
        outside = top_level(IMPORTS[module]) - set(sys.stdlib_module_names) - {"lstd"}
        allowed = {"numpy", "numba"}
        if module == "lstd._kernels.compilation":
            allowed.add("llvmlite")  # Numba's code generator, for its version
        assert outside <= allowed, module
        assert {other for other in OWN[module] if part(other) not in ("_kernels", "errors")} == set(), module


@pytest.mark.parametrize(
    ("library", "parts"),
    [
        ("matplotlib", {"report", "experiments"}),
        ("jinja2", {"report", "experiments"}),
        ("markupsafe", {"report"}),
        ("numba", {"_kernels"}),
        ("llvmlite", {"_kernels"}),
        ("typer", {"cli"}),
        ("rich", {"cli"}),
        ("pyarrow", {"distributed", "experiments", "report", "tables"}),
        ("distributed", {"distributed"}),
        ("dask", {"distributed"}),
    ],
)
def test_libraries_stay_where_they_belong(library, parts):
    using = {part(module) for module, found in IMPORTS.items() if library in top_level(found)}
    assert using <= parts


def test_nothing_but_the_declared_dependencies_is_imported():
    core = {
        "numpy",
        "scipy",
        "numba",
        "llvmlite",
        "sklearn",
        "threadpoolctl",
        "joblib",
    }  # the last two by way of scikit-learn
    extras = {
        "cli": {"typer", "click", "rich"},
        "report": {"jinja2", "markupsafe", "matplotlib", "pyarrow"},
        "experiments": {"jinja2", "matplotlib", "pyarrow"},
        "tables": {"pyarrow"},
        "distributed": {"distributed", "dask", "pyarrow"},
        "trajectories": {"narwhals", "gymnasium", "minari"},
    }
    for module, found in IMPORTS.items():
        outside = top_level(found) - set(sys.stdlib_module_names) - {"lstd"}
        assert outside <= core | extras.get(part(module), set()), module


def test_the_definitions_do_not_know_the_package():
    found = top_level(imports(TESTS / "naive.py", "naive"))
    assert found - set(sys.stdlib_module_names) == {"numpy"}


def test_the_walk_over_sources_finds_imports_anywhere(tmp_path):
    source = tmp_path / "example.py"
    source.write_text(
        "import a.b as c, d\n"
        "from lstd import mrp\n"
        "from lstd.mrp import MRP\n"
        "from . import nothing\n"
        "from .x import y\n"
        "def f():\n    import inner\n    try:\n        from tried import z\n    except ImportError:\n        pass\n"
        "if TYPE_CHECKING:\n    import unseen\nelse:\n    import seen\n"
        "importlib.import_module('by.name')\n"
    )
    expected = {"a.b", "d", "lstd.mrp", "lstd", "lstd.x", "inner", "tried", "seen", "by.name"}
    assert imports(source, "lstd") == expected


def test_the_package_shows_what_it_has_and_nothing_else():
    names = {name for name in dir(lstd) if not name.startswith("__")}
    assert names == {*lstd.__all__, *lstd._MODULES}
    for name in names:
        assert getattr(lstd, name) is not None
    assert set(lstd._HOMES) == set(lstd.__all__)


def test_importing_the_package_is_light():
    code = "import json, sys; import lstd; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(json.loads(output))
    assert "lstd" in loaded
    assert loaded.isdisjoint({"numba", "scipy", "sklearn", "matplotlib", "pyarrow", "typer", "rich"})
