"""LSTD and LSTDCV as scikit-learn regressors, with their cross-validation, intervals, bias check, metrics and files.

In: rows of features and rewards, or sums over them, and settings.
Out: fitted estimators that predict, give intervals, score, and are saved and loaded.
"""
