"""Settings of the documentation: ``python -m sphinx -W -b html docs docs/_build/html`` builds it without network."""

from __future__ import annotations

import pickle
import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx_gallery.scrapers import figure_rst
from sphinx_gallery.sorting import ExplicitOrder

import lstd
from lstd.report.style import COLOURS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_scripts"))

project = "lstd"
author = copyright = "The lstd developers"
release = version = lstd.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings give types and shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "lstd"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": [],  # one sidebar leaves room for lines of code of 120 columns
    "footer_start": ["copyright"],
    "footer_end": [],
}
# The page comes first: the list of all names of the reference is long.
html_sidebars = {"index": [], "development/index": ["page-toc"], "**": ["page-toc", "sidebar-nav-bs"]}
html_math_renderer = "mathml"
numfig, numfig_secnum_depth = True, 0  # one count of equations over all pages, as pages refer to those of others


def returned_figure(block, block_vars, gallery_conf):
    """Save the figure outside of pyplot that an example calls `figure`."""
    figure = block_vars["example_globals"].pop("figure", None)
    if figure is None:
        return ""
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=120)
    return figure_rst([path], gallery_conf["src_dir"])


WORDS_OF_A_COLUMN = 36  # letters of a name in a legend of two columns, in a thumbnail


def first_panel(block, block_vars, gallery_conf):
    """Save the first panel of an example's first figure in the size of a thumbnail, so that its words can be read."""
    target = Path(block_vars["target_file"])
    path = target.parent / "images" / "thumb" / f"{target.stem}.small.png"
    if plt.get_fignums() and not path.exists():
        small = pickle.loads(pickle.dumps(plt.figure(plt.get_fignums()[0])))
        panel, legend = small.axes[0], next(filter(None, (ax.get_legend() for ax in small.axes)), None)
        if legend:  # below the panel, where it covers nothing
            names = [text.get_text() for text in legend.get_texts()]
            labelled = dict(zip(*reversed(legend.axes.get_legend_handles_labels()), strict=True))
            handles = [labelled.get(name, one) for name, one in zip(names, legend.legend_handles, strict=True)]
            columns = 2 if max(map(len, names)) <= WORDS_OF_A_COLUMN else 1
            legend.remove()
            small.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
        for ax in small.axes[1:]:
            ax.remove()
        for text in small.texts:  # labels of all panels
            text.set_text("")
        panel.set_subplotspec(small.add_gridspec(1, 1)[0])
        panel.set_anchor("C")
        panel.set_ylabel(textwrap.fill(panel.get_ylabel(), 24))
        panel.tick_params(labelsize=7.5)
        for text in (panel.title, panel.xaxis.label, panel.yaxis.label):
            text.set_fontsize(8.5)
        small.set_layout_engine("constrained")
        small.set_size_inches(4.5, 2.8)
        path.parent.mkdir(parents=True, exist_ok=True)
        small.savefig(path, dpi=125)
        plt.close(small)
    return ""


def take_first_panels(app):
    """Put the saved panels in the place of thumbnails of whole figures."""
    for path in HERE.glob("gallery/*/images/thumb/*.small.png"):
        path.replace(path.with_name(f"sphx_glr_{path.name.removesuffix('.small.png')}_thumb.png"))


def palette(gallery_conf, script):
    """Give all figures of the gallery the colours of `lstd.report`: Boyan's, Uncorrected, Mixed, true online TD, TD."""
    names = ("boyan", "uncorrected", "mixed", "true_online_td", "td")
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=[COLOURS[name] for name in names])
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})


SECTIONS = ("values", "policies", "streams", "algorithms")
sphinx_gallery_conf = {
    "reset_modules": ("matplotlib", palette),
    "capture_repr": ("_repr_html_",),
    "image_scrapers": (first_panel, "matplotlib", returned_figure),
    "examples_dirs": ["../examples/tutorial", "../examples/gallery"],
    "gallery_dirs": ["tutorial", "gallery"],
    "filename_pattern": r"\.py$",
    "subsection_order": ExplicitOrder([f"../examples/gallery/{name}" for name in SECTIONS]),
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (560, 350),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10**6,
    "write_computation_times": False,
    "remove_config_comments": True,
    "backreferences_dir": None,
}


def math_renderer(block):
    """Return a Sphinx visitor that writes formulas as MathML, which browsers draw without scripts or network."""

    def visit(translator, node):
        numbered = block and node.get("number")
        number = f'<span class="eqno">({get_node_equation_number(translator, node)})</span>' if numbered else ""
        identity = f' id="{node["ids"][0]}"' if block and node.get("ids") else ""
        formula = latex2mathml.tex2mathml(node.astext(), as_block=block)
        if block:
            translator.body.append(f'<div class="math"{identity}><div class="formula">{formula}</div>{number}</div>')
        else:
            translator.body.append(f'<span class="math">{formula}</span>')
        raise nodes.SkipNode

    return visit


def check_dollars(app, doctree, docname):
    """Warn about a dollar sign in built text: a formula that was not read as one."""
    for text in doctree.findall(nodes.Text):
        code = isinstance(text.parent, nodes.literal | nodes.literal_block | nodes.math | nodes.math_block | nodes.raw)
        if "$" in text and not code and not isinstance(text.parent.parent, nodes.literal):
            logging.getLogger(__name__).warning("a dollar sign in the text: %s", text, location=docname)


def generate(app):
    """Draw the pictures that follow from the code or from a few numbers, in light and dark; list the files."""
    import files
    import pictures

    pictures.draw_all(HERE / "_static" / "generated")
    files.write_list(HERE / "_static" / "generated" / "files.md")


def setup(app):
    """Register the renderer of formulas, the pictures and the list of files."""
    app.add_html_math_renderer("mathml", (math_renderer(False), None), (math_renderer(True), None))
    app.connect("builder-inited", generate)
    app.connect("builder-inited", take_first_panels, priority=900)  # after the gallery
    app.connect("doctree-resolved", check_dollars)
