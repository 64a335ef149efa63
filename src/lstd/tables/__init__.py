"""Models for tables in files, CSV or Parquet, which are read in chunks: fit, predict, score.

A table holds a row per step in time order: columns of features, the reward received on leaving the row, the id of the
episode, and flags that say that the row's successor is terminal, or that the episode was cut off at the row.
"""
