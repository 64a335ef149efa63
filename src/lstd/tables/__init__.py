"""Data with named columns: tables in files, datasets and data frames, read in chunks; fit, predict, score.

In come tables with a row per step in time order: columns of features, the reward received on leaving the row, the id of
its episode, and flags for episodes that terminated or were cut off. Out come models, predictions and scores.

The way of a row of a CSV file into a model, by the names of files here unless another room is named::

    fit_tables     checks arguments: data/roles, distributed/runner
    reader         opens the table: data/open_table, which knows data/csv_table and data/table (Parquet, datasets,
                   frames); sort_and_impute, if asked to
    table_fit      chooses settings from the first rows, if asked to; first_rows keeps them
    distributed    runs on threads or a Dask cluster; each sums whole tables
    sum_tables     sums a table: draws chunks, and cuts them at the starts of blocks
    reader         makes chunks: data/csv_table parses text, data/parse_columns numbers, flags, ids and times,
                   data/episodes follows rows, by the rules of data/follow
    statistics     sums the rows of a chunk and merges the sums of tables, whose ends it checks
    table_fit      solves for the weights: estimators/model
"""
