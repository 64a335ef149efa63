"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.doubts import growing_doubt as growing_doubt
from lstd.data.doubts import growing_features as growing_features
