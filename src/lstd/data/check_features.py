"""Names that moved; see the modules below."""

from __future__ import annotations

from lstd.data.arguments import as_real as as_real
from lstd.data.feature_arrays import Features as Features
from lstd.data.feature_arrays import all_finite as all_finite
from lstd.data.feature_arrays import by_name as by_name
from lstd.data.feature_arrays import check_features as check_features
from lstd.data.feature_arrays import check_finite as check_finite
from lstd.data.feature_arrays import column_names as column_names
