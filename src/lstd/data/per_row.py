"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.arguments import check_length as check_length
from lstd.data.arguments import check_per_row as check_per_row
