"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.returns import Cuts as Cuts
from lstd.data.returns import ipcw_weights as ipcw_weights
from lstd.data.returns import steps_to_complete as steps_to_complete
