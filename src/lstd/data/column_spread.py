"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.feature_arrays import ENTRIES as ENTRIES
from lstd.data.feature_arrays import column_spread as column_spread
