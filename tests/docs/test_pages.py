"""Pages of the site: code blocks print what is shown, links lead somewhere, and the reference is complete."""

import contextlib
import importlib
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import lstd
from lstd.cli.app import run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if not {"_build", "gallery", "tutorial"} & {*path.relative_to(DOCS).parts}
)
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*/*.py"))
REFERENCE = (DOCS / "reference" / "index.rst").read_text(encoding="utf-8")
LISTED = re.findall(r"^(?:   |\.\. py:data:: )((?:\w+\.)?\w+)$", REFERENCE, re.MULTILINE)

BLOCK = re.compile(r"<!-- setup\n(?P<setup>.*?)-->|^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)

# The command `lstd` of this interpreter comes first.
ENVIRONMENT = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def name_of(page):
    return page.relative_to(DOCS).as_posix()


def is_run(page):
    """Whether a page has blocks that are run."""
    return any(match["setup"] or match["language"] in ("python", "console") for match in blocks(page))


def blocks(page):
    return [*BLOCK.finditer(page.read_text(encoding="utf-8"))]


def printed_by(command, folder):
    """What a command prints. `lstd` and Python run in this process, which has imported all; others in a shell."""
    words = shlex.split(command.replace("\\\n", " "))
    if words[:2] == ["python", "-c"]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(words[2], {})
        return out.getvalue()
    if words[0] == "lstd" and not {"|", "&&"} & {*words}:
        words, file = (words[:-2], words[-1]) if words[-2] == ">" else (words, os.devnull)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
            status = run(words[1:])
        (folder / file).write_text(out.getvalue(), encoding="utf-8")
        return error.getvalue() if status else out.getvalue() if file == os.devnull else ""
    done = subprocess.run(command, shell=True, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    return done.stderr if done.returncode else done.stdout


def run_blocks(page, folder):
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
                yield command, printed_by(command, folder), shown


@pytest.mark.parametrize("page", [*filter(is_run, PAGES)], ids=name_of)
def test_code_prints_what_the_page_shows(page, tmp_path, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    for code, printed, shown in run_blocks(page, tmp_path):
        assert printed == shown, code


LIST_MARKER = re.compile(r"\s*([-+*]|\d+[.)]) ")


def test_no_line_within_a_paragraph_begins_as_a_list_would():
    for page in (*PAGES, *ROOT.glob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for before, line in pairwise(text.split("\n")):
            within = before[:1] not in ("", " ", "#", "|", "<", ":", "!") and not LIST_MARKER.match(before)
            assert not (within and LIST_MARKER.match(line)), f"{page.name}: {line}"


# ---------------------------------------------------------------- links


def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_and_anchors_lead_somewhere(page):
    text = re.sub(r"^```\w*\n.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        path = (page.parent / target).resolve() if target else page
        if made_by_the_build(path):
            script = ROOT / "examples" / path.relative_to(DOCS).with_suffix(".py")
            assert script.is_file() or path.stem == "index", target
            continue
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


# Every address outside of the project, in the one form that is used; the tests do not open them.
ADDRESSES = {
    "https://arxiv.org/abs/1911.06057",
    "https://github.com/MushroomRL/mushroom-rl",
    "https://github.com/khurramjaved96/SwiftTD",
    "https://github.com/shengzhang37/SAVE",
}


def test_addresses_outside_of_the_project_have_one_form():
    folders = [ROOT / name for name in ("docs", "src", "examples", "benchmarks", "conformance")]
    files = [path for folder in folders for path in folder.rglob("*")] + [*ROOT.glob("*.*")]
    texts = (
        path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in {".md", ".rst", ".py", ".html", ".cff", ".toml", ".mjs"} and "_build" not in path.parts
    )
    found = {address for text in texts for address in re.findall(r"\bhttps?:[^\s\"'`)<>\]]*", text)}
    assert found == ADDRESSES


def made_by_the_build(path):
    return bool({"gallery", "tutorial"} & {*path.parts}) and path.suffix == ".rst"


@pytest.mark.parametrize("page", sorted((DOCS / "theory").glob("*.md")), ids=name_of)
def test_functions_that_compute_a_formula_exist(page):
    for name in re.findall(r"`(lstd(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
        assert pkgutil.resolve_name(name) is not None


def test_files_of_code_that_pages_name_exist():
    for page in [*PAGES, *ROOT.glob("*.md")]:
        for name in re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file() or any((ROOT / "src").rglob(name)), f"{page.name}: {name}"


# ---------------------------------------------------------------- reference and gallery


def public():
    """Every public name with the object behind it."""
    for name in lstd.__all__:
        yield name, getattr(lstd, name)
    for module in sorted(set(lstd._MODULES) - {"errors"}):
        names = importlib.import_module(f"lstd.{module}").__all__
        yield from ((f"{module}.{name}", getattr(getattr(lstd, module), name)) for name in names)


def test_every_public_name_is_in_the_reference_with_an_example():
    for name, item in public():
        assert name in LISTED, f"docs/reference/index.rst lacks {name}"
        assert item.__doc__
        assert ">>>" in item.__doc__, f"the docstring of {name} has no example"


def test_every_figure_has_its_picture_in_the_reference():
    script = (DOCS / "_scripts" / "pictures.py").read_text(encoding="utf-8")
    drawn = set(re.findall(r'"(plot_\w+)": report\.\1\(', script))
    assert drawn == {name for name in lstd.report.__all__ if name.startswith("plot_")}


def test_the_reference_names_nothing_else():
    assert sorted({*LISTED} - {"errors", "conformance", "datasets"}) == sorted(name for name, _ in public())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_of_the_gallery_is_short_and_draws(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert "plt." in text
    assert "baseline" in text


def test_the_guide_says_of_the_first_choice_what_was_measured():
    page, guide = (
        (DOCS / path).read_text(encoding="utf-8") for path in ("results/policy-evaluation.md", "guide/which-policy.md")
    )
    median = re.search(
        r"^\| error beside that of the best single method, median \|.*?\| ([\d.]+) \|", page, re.MULTILINE
    )
    safe = re.search(r"^\| truth in the interval, or a warning, all \|.*?\| ([\d.]+) \|", page, re.MULTILINE)
    assert f"{median[1]} times" in guide
    assert f"in {round(100 * float(safe[1]))} %" in guide
