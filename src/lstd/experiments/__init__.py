"""The paper's experiments: the protocol as data, sweeps over (λ, α), and the whole of them in one command."""

from lstd.experiments.sweep import run_sweep

__all__ = ["run_sweep"]
