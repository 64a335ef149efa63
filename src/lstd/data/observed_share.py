"""Share of the discounted weight of returns that was observed, from sums that merge exactly.

Row t of weight w_t puts w_t Π γ behind the cut, with the discounts from row t to the cut, and nothing where its episode
terminated. So u, which enters row t, leaves a full transition as γ_t (c_t u + w_t), and all of it lies behind a cut;
a trace coefficient c_t < 1 takes (1 − c_t) u from the return, which counts as not observed
(:func:`lstd.data.returns.unobserved_shares` has the same of each row). Both are linear in the u that enters a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lstd._kernels.traces import behind_cuts
from lstd.data.rows import Rows, uniform

_NONE = np.empty(0)


class BehindCuts(NamedTuple):
    """Discounted weight of the returns of a chunk's rows that lies behind cuts, and what merging needs."""

    behind: float = 0.0  # behind the cuts in the chunk
    leaving: float = 0.0  # u that leaves the last transition
    behind_share: float = 0.0  # of a u that enters the chunk
    decay: float = 1.0  # share of it that leaves

    @classmethod
    def of(cls, rows: Rows, part: slice) -> BehindCuts:
        """Return the sums of some rows, none of them pending, and without successors."""
        coefficients, weights = (
            _NONE if uniform(column) else column[part] for column in (rows.trace_coefficient, rows.weight)
        )
        return cls(
            *behind_cuts(np.ascontiguousarray(rows.discount[part]), rows.full_among(part), coefficients, weights)
        )

    def with_transition(self, discount: float, coefficient: float, weight: float) -> BehindCuts:
        """Return the sums with one more full transition."""
        kept = min(coefficient, 1.0)
        return self.then(BehindCuts(0.0, discount * weight, 1.0 - kept, discount * kept))

    def then(self, later: BehindCuts) -> BehindCuts:
        """Return the sums of this chunk and the next one."""
        return BehindCuts(
            self.behind + later.behind + self.leaving * later.behind_share,
            later.leaving + later.decay * self.leaving,
            self.behind_share + self.decay * later.behind_share,
            self.decay * later.decay,
        )

    def closed(self) -> BehindCuts:
        """Return the sums with a cut at the end of the chunk."""
        return self.then(BehindCuts(behind_share=1.0, decay=0.0))

    def scaled(self, factor: float) -> BehindCuts:
        """Return the sums with all weights times `factor`."""
        return self._replace(behind=factor * self.behind, leaving=factor * self.leaving)


NOTHING_BEHIND = BehindCuts()
