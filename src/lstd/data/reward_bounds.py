"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.doubts import FEWEST as FEWEST
from lstd.data.doubts import MOST as MOST
from lstd.data.doubts import bounds_of as bounds_of
from lstd.data.doubts import distance as distance
from lstd.data.doubts import percent as percent
from lstd.data.doubts import sides as sides
