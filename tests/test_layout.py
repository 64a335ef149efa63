"""The rooms of the package and their order: imports point downward only, and `import lstd` is light."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lstd

PACKAGE = Path(lstd.__file__).parent
TESTS = Path(__file__).parent

# The rooms of the package from the ground up: a room imports from the floors below it. A room within a room stands on
# the floor of the outer one; of the rooms of one floor, no two use one another.
FLOORS = (
    {"errors", "types", "version"},
    {"_kernels", "files"},
    {"data"},
    {"statistics", "mrp", "trajectories", "datasets"},
    {"estimators", "online", "metrics"},
    {"distributed", "inference", "ope"},
    {"tables"},
    {"report"},
    {"experiments", "experiments/reproduce"},
    {"cli"},
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS, start=1) for room in rooms}
MODULES = {
    ".".join(("lstd", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
MOST_PARAMETERS = 8  # of a private function
MOST_KERNEL_PARAMETERS = 20


@cache
def nodes(path):
    """The nodes of the syntax tree of a source file, its root first."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def called_name(node):
    """The last name of what a call calls."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def imports(path, package):
    """Full names of the modules that a source file imports; of ``from a import b``, a.b where that is a module."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = origin(node, package)
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else base for name in names}
        elif isinstance(node, ast.Call) and called_name(node) == "import_module":
            name = node.args[0]
            assert isinstance(name, ast.Constant) or package == "lstd", f"{path}: a computed module name"
            found.add(name.value if isinstance(name, ast.Constant) else "lstd")  # lstd imports its own rooms lazily
    return found


def origin(node, package):
    """Full name of the module that ``from … import`` names."""
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, node.module] if node.module else above)


def package_of(name):
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def room_of(module):
    """The folder of a module below the package; of a file at the top of the package, its name."""
    path = MODULES[module].relative_to(PACKAGE)
    return path.parent.as_posix() if path.parent.parts else path.stem


def outermost(room):
    return room.partition("/")[0]


def functions():
    """Every function of the package: module, name, definition."""
    for module, path in MODULES.items():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, node.name, node


ROOMS = {room_of(name) for name in MODULES if name != "lstd"}


@cache
def imports_of_modules():
    return {name: imports(path, package_of(name)) for name, path in MODULES.items()}


def own_imports(module):
    """Other modules of the package that a module imports."""
    return {other for other in imports_of_modules()[module] if other in MODULES and other != module}


def part(module):
    """The outermost room of a module; ``lstd`` for the package itself."""
    return module.split(".")[1] if "." in module else "lstd"


def top_level(names):
    return {name.partition(".")[0] for name in names}


# ---------------------------------------------------------------- rooms and floors


def test_every_room_has_a_floor():
    assert set(FLOOR_OF) == ROOMS, "FLOORS must name every folder and top-level file of the package, and no other"


def test_imports_point_downward():
    wrong = [
        f"{module} (floor {FLOOR_OF[room_of(module)]}) imports {other} (floor {FLOOR_OF[room_of(other)]})"
        for module in MODULES if module != "lstd" for other in own_imports(module)
        if FLOOR_OF[room_of(other)] >= FLOOR_OF[room_of(module)]
        and outermost(room_of(other)) != outermost(room_of(module))
    ]  # fmt: skip
    assert not wrong, "imports must point to a lower floor"


def test_no_import_cycle():
    modules = {module: own_imports(module) for module in MODULES if module != "lstd"}
    rooms = {room: set() for room in ROOMS}
    for module, others in modules.items():
        rooms[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    for graph in (modules, rooms):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(f"an import cycle: {' -> '.join(error.args[1])}")


def test_no_file_name_occurs_twice():
    paths = [path.relative_to(PACKAGE) for path in MODULES.values() if path.name != "__init__.py"]
    counts = Counter(path.name for path in paths)
    twice = {path.as_posix() for path in paths if counts[path.name] > 1}
    assert twice == set(), f"file names that occur more than once: {sorted(twice)}"


def test_no_private_name_crosses_rooms():
    for module, path in MODULES.items():
        for node in nodes(path):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = origin(node, package_of(module))
            if base in MODULES and room_of(base) != room_of(module):
                private = {alias.name for alias in node.names if is_private(alias.name) and alias.name != "_kernels"}
                assert not private, f"{module} imports private names of {base}: {sorted(private)}"


def test_a_room_says_what_it_is_for():
    """In three lines of its docstring: what the room is for, what comes in and what goes out."""
    for room in sorted(room for room in ROOMS if (PACKAGE / room).is_dir()):
        text = ast.get_docstring(nodes(PACKAGE / room / "__init__.py")[0]) or ""
        assert len([line for line in text.splitlines() if line.strip()]) >= 3, room


# ---------------------------------------------------------------- functions


def test_private_functions_and_kernels_have_few_parameters():
    found = {}
    for module, name, node in functions():
        is_kernel = "kernel" in {ast.unparse(decorator) for decorator in node.decorator_list}
        most = MOST_KERNEL_PARAMETERS if is_kernel else MOST_PARAMETERS
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if (is_kernel or is_private(name)) and len(set(names) - {"self", "cls"}) > most:
            found[f"{module}.{name}"] = len(names)
    assert not found, f"functions with too many parameters: {found}"


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


# ---------------------------------------------------------------- what tests use


# Kernels, the plain object that a fitted model holds, and names of other libraries.
PRIVATE_BY_DESIGN = {"_kernels", "_fitted", "_asdict", "_replace", "_repr_html_", "_send", "_dict"}


def private_names(path):
    """Private names of the package that a test file uses: imported, read from an object, or replaced by name."""
    text = path.read_text(encoding="utf-8")
    if not re.search(r"\b_[^\W_]", text):  # most files have no such word, and parsing takes most of the time
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lstd"):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in ("self", "super()", "cls", "os", "lstd", "pyarrow.fs"):
                yield node.attr
        elif isinstance(node, ast.Call) and called_name(node) in ("setattr", "patch", "object"):
            words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            yield from (word for word in words if is_private(word.rpartition(".")[2]))


def test_no_variant_is_known_by_its_name():
    """What a variant does is its share of the boundary term."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                names = {one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)}
                found += [f"{path}:{node.lineno}"] if names & {"boyan", "uncorrected", "mixed"} else []
    assert found == []


def test_tests_use_public_names():
    found = {path.name: set(private_names(path)) - PRIVATE_BY_DESIGN for path in TESTS.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


# ---------------------------------------------------------------- libraries


def test_nothing_but_the_declared_dependencies_is_imported_and_each_where_it_belongs():
    core = {"numpy", "scipy", "sklearn", "threadpoolctl", "joblib"}  # the last two by way of scikit-learn
    extras = {
        "_kernels": {"numba", "llvmlite"},
        "cli": {"typer", "click", "rich"},
        "report": {"jinja2", "markupsafe", "matplotlib", "PIL", "pyarrow"},  # PIL by way of Matplotlib
        "experiments": {"jinja2", "matplotlib", "pyarrow"},
        "data": {"pandas", "pyarrow"},  # pandas for files of its periods
        "datasets": {"pandas"},
        "tables": {"pyarrow"},
        "distributed": {"distributed", "dask", "pyarrow"},
        "trajectories": {"pandas", "polars", "pyarrow", "gymnasium", "minari"},
    }
    for module, found in imports_of_modules().items():
        outside = top_level(found) - set(sys.stdlib_module_names) - {"lstd"}
        allowed = {"numpy"} if part(module) == "_kernels" else core
        assert outside <= allowed | extras.get(part(module), set()), module


def test_the_definitions_do_not_know_the_package():
    found = top_level(imports(TESTS / "naive.py", "naive"))
    assert found - set(sys.stdlib_module_names) == {"numpy"}


def test_the_package_shows_what_it_has_and_nothing_else():
    names = {name for name in dir(lstd) if not name.startswith("__")}
    assert names == {*lstd.__all__, *lstd._MODULES}
    for name in names:
        assert getattr(lstd, name) is not None
    assert {*lstd._HOMES, "load"} == set(lstd.__all__)  # `load` is defined in the package itself


def test_importing_the_package_is_light():
    code = "import json, sys; import lstd; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(json.loads(output))
    assert "lstd" in loaded
    assert loaded.isdisjoint({"numba", "scipy", "sklearn", "matplotlib", "pyarrow", "typer", "rich"})
