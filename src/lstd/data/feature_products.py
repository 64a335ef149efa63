"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.feature_arrays import check_not_overflowed as check_not_overflowed
from lstd.data.feature_arrays import dense as dense
from lstd.data.feature_arrays import product as product
from lstd.data.feature_arrays import rows_of as rows_of
