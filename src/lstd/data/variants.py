"""The variants of LSTD(λ): each is a share of the boundary term, and nothing else tells them apart.

Nothing here imports NumPy, so that the help of the shell lists the variants at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

SHARES: Mapping[str, Callable[[float], float]] = {
    "boyan": lambda lmbda: 1.0,
    "uncorrected": lambda lmbda: 0.0,
    "mixed": lambda lmbda: 1.0 - lmbda,
}
"""Share of the boundary term γ z_{T−1} φ_Tᵀ that a variant subtracts from A where the data end, from λ."""

VARIANTS = tuple(SHARES)
VARIANT = "boyan"  # by default
