"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.arguments import check_array as check_array
from lstd.data.arguments import check_choice as check_choice
from lstd.data.arguments import check_flag as check_flag
from lstd.data.arguments import check_grid as check_grid
from lstd.data.arguments import check_integer as check_integer
from lstd.data.arguments import check_real as check_real
from lstd.data.arguments import check_real_dtype as check_real_dtype
from lstd.data.arguments import check_values_known as check_values_known
from lstd.data.arguments import is_lazy as is_lazy
from lstd.data.arguments import is_single as is_single
from lstd.data.arguments import shown as shown
from lstd.data.arguments import shown_id as shown_id
from lstd.data.arguments import to_real_array as to_real_array
