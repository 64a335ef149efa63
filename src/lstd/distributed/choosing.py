"""Settings chosen from the first rows of large data, and the estimator of its sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import Blocks

if TYPE_CHECKING:
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV
    from lstd.estimators.model import Model, Selection

ENTRIES = 2**25  # features of the rows to choose from, 256 MiB
_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does
OnProgress = Callable[[str, float, float], None]  # what is being done, bytes done and in all


def choose(rows: Rows, settings: Settings, on_progress: OnProgress | None = None) -> tuple[Settings, Selection]:
    """Choose the settings in `settings.choose` by cross-validation.

    Raises InvalidInputError when there are too few rows, or no pair has a well-conditioned system.
    """
    from lstd.estimators.cross_validation import select

    n = rows.n_features
    work = (len(rows) * n**2 + 200.0 * n**3) / _OPERATIONS_PER_BYTE

    def report(text: str, done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(text, done * work, total * work)

    selection = select(
        rows,
        lmbdas=None if "lmbda" in settings.choose else [settings.lmbda],
        alphas=None if "alpha" in settings.choose else [settings.alpha],
        variant=settings.variant, fit_intercept=settings.fit_intercept, on_progress=report,
    )  # fmt: skip
    return replace(settings, lmbda=selection.lmbda, alpha=selection.alpha), selection


def model_of(blocks: Blocks, settings: Settings, selection: Selection | None, n_blocks: Any, **about: Any) -> Model:
    """Return the solved model of sums; `about` has further fields of the model, such as names.

    Raises InvalidInputError when no row is a full transition.
    """
    from lstd.estimators.model import Model

    if not blocks.total.n_transitions:
        origin = about.get("origin")
        where = "`source`" if origin is None else ", ".join(origin.files) or "`source`"
        raise InvalidInputError(
            f"{where}: of {blocks.total.n_rows} rows none is followed by a row of its episode or terminates; there is "
            "nothing to fit."
        )
    options = {"n_blocks": n_blocks}
    if selection is not None:
        grids = {"lmbda": "lmbdas", "alpha": "alphas"}
        options |= {
            grid: None if name in settings.choose else [getattr(settings, name)] for name, grid in grids.items()
        }
    model = Model(blocks, replace(settings, choose=()), selection=selection, options=options, **about)
    _ = model.solution  # so that its warning is given here
    return model


def estimator_of(model: Model) -> LSTD | LSTDCV:
    """Return the estimator of a model."""
    from lstd.estimators import loading  # scikit-learn takes two seconds to import: workers need not wait for it

    return loading.estimator_of(model)
