"""Data with named columns: tables in files, datasets and data frames, read in chunks; fit, predict, score.

In come tables with a row per step in time order: columns of features, the reward received on leaving the row, the id of
its episode, and flags for episodes that terminated or were cut off. Out come models, predictions and scores.
"""
