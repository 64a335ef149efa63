"""LSTD and LSTDCV as scikit-learn regressors, with their cross-validation, intervals, bias check, metrics and files.

In: rows of features and rewards, or sums over them, and settings.
Out: fitted estimators that predict, give intervals, score, and are saved and loaded.

A row of `LSTD.fit` goes through lstd.py, validate_data.py (the checks of `lstd.data`), the blocks of sums in
`lstd.statistics`, and model.py, which solves for the weights. To choose λ or α, choose_settings.py comes first:
it divides the rows by folds.py, searches a grid by pair_search.py and ends with bias_check.py.
"""
