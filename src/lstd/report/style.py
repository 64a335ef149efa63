"""How every figure looks, and how it is turned into bytes that depend on the data only."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from lstd.errors import InvalidInputError
from lstd.types import Array

PNG_DPI = 200
WIDE = 8.6  # inches, of a figure about a fit

# Okabe and Ito's palette: distinguishable with any common form of colour blindness; line styles and markers
# differ too, for print in black and white and for curves that coincide.
COLOURS = {
    "uncorrected": "#D55E00",
    "mixed": "#009E73",
    "boyan": "#0072B2",  # the default variant: also the colour of any model's predictions
    "true_online_td": "#CC79A7",
    "td": "#9A4F7C",
    "td_replacing": "#E69F00",
}
LINES = {
    "uncorrected": "-",
    "mixed": (0, (5, 2)),
    "boyan": (0, (1.2, 1.2)),
    "true_online_td": (0, (5, 1.5, 1.2, 1.5)),
}
MARKERS = {"uncorrected": "o", "mixed": "s", "boyan": "^", "true_online_td": "D"}
REFERENCE = "#8A8A8A"
BLUE, PALE, INK = COLOURS["boyan"], "#CFE3F1", "#000000"
POINTS: dict[str, Any] = {"fmt": "o", "color": BLUE, "elinewidth": 0.9, "capsize": 2.2, "zorder": 3}  # with bars

_STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titley": 1.0,  # nothing is above a panel that Matplotlib would have to look for
    "axes.labelsize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "errorbar.capsize": 2.0,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "lstd",
    "svg.fonttype": "path",
    "pdf.fonttype": 3,
}
_NO_DATES = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None, "Creator": None}}


@contextmanager
def figure_style() -> Iterator[None]:
    """Set the style of all figures, on top of Matplotlib's defaults rather than the user's configuration."""
    with mpl_style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        # A letter that the font lacks is a box in the figure; the text of the page has it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def new_figure(width: float, height: float, layout: Any = None) -> Figure:
    """Make an empty figure of `width` × `height` inches, outside pyplot's global state."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def panels(ax: Any, width: float, height: float, n: int = 1, columns: int = 1) -> Iterator[list[Axes]]:
    """Give n axes to draw into, in the style of all figures; by default those of a new figure, `columns` in a line."""
    axes = [] if ax is None else list(np.ravel(np.asarray(ax, dtype=object)))
    wrong = [one for one in axes if not isinstance(one, Axes)]
    if wrong or (ax is not None and len(axes) != n):
        rule = f"{n} Matplotlib axes, one for each reward" if n > 1 else "one Matplotlib axes"
        found = f"an object of type {type(wrong[0]).__name__}" if wrong else f"{len(axes)} axes"
        call = f"figure.subplots({n if n > 1 else ''})"
        raise InvalidInputError(f"`ax` must be {rule}; got {found}. Pass what `{call}` returns.")
    with figure_style():
        if not axes:
            made = new_figure(width, height, "constrained").subplots(-(-n // columns), columns, squeeze=False).ravel()
            axes = list(made[:n])
            for unused in made[n:]:
                unused.set_axis_off()
        yield axes


def mean_and_band(ax: Axes, x: Array, runs: Array, **line: Any) -> Line2D:
    """Draw the mean of runs (n_runs, len(x)), where all are finite, and a band of two standard errors if several."""
    runs = np.where(np.isfinite(runs).all(axis=0), runs, np.nan)
    mean = runs.mean(axis=0)
    (drawn,) = ax.plot(x, mean, **line)
    if len(runs) > 1:
        half = 2.0 * runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
        ax.fill_between(x, mean - half, mean + half, color=drawn.get_color(), alpha=0.2, linewidth=0)
    return drawn


def legend_above(ax: Axes, handles: Sequence[Any], ncols: int = 2) -> None:
    """Put a legend above a panel, on the right: the name of a reward is on the left."""
    ax.legend(
        handles=handles,
        ncols=ncols,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        fontsize=8.5,
        handlelength=1.4,
        columnspacing=1.4,
    )


def rendered(figure: Figure, kind: str = "svg") -> bytes:
    """Render a figure as svg, pdf or png, without dates; png has 256 colours and a quarter of the bytes of all.

    `savefig` would draw a figure twice, the first time for its layout alone.
    """
    buffer = io.BytesIO()
    dpi = figure.get_dpi()
    canvas: Any
    with figure_style():
        if kind == "svg":
            canvas = FigureCanvasSVG(figure)
            canvas.print_svg(buffer, metadata=_NO_DATES["svg"])
            figure.set_dpi(dpi)
            return buffer.getvalue()
        if kind == "pdf":
            canvas = FigureCanvasPdf(figure)
            canvas.print_pdf(buffer, metadata=_NO_DATES["pdf"])
            figure.set_dpi(dpi)
            return buffer.getvalue()
        figure.set_dpi(PNG_DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image = image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(buffer, "png", dpi=(PNG_DPI, PNG_DPI))
    return buffer.getvalue()


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first on top."""
    ax.set_yticks(np.arange(len(names)), [plain(name, 26) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)


def plain(name: str, most: int = 60) -> str:
    """Put a name on one line, shorten it, and keep its dollar signs from starting mathematics.

    >>> plain("price in $"), plain("a very long name", 7)
    ('price in \\\\$', 'a very…')
    """
    name = " ".join(name.split())
    if len(name) > most:
        name = name[: most - 1].rstrip() + "…"
    return name.replace("$", r"\$")
