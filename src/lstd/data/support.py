"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.doubts import support_doubt as support_doubt
