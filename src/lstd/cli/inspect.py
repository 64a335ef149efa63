"""The command ``lstd inspect``: arguments in, exit code out."""

from __future__ import annotations

from lstd.cli import options
from lstd.cli.console import output


def inspect(model: options.ModelFile, as_json: options.Json = False) -> int:
    """Show a model: its data, condition and coefficients.

    Exit codes: 0 done, 1 output could not be written, 2 bad usage or input.
    """
    from lstd.cli.describe import model_json, model_text
    from lstd.estimators.saving import read_model

    return output((model_json if as_json else model_text)(read_model(model), model))
