"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.rows import ReadOnly as ReadOnly
from lstd.data.rows import Record as Record
