"""The data contract: what rows, columns, parameters and settings must be; discounted returns, and cuts in them.

In: arrays, columns of tables, and parameters as a user passes them.
Out: float64 arrays in one form, or an error that names the argument, the rule, the value and the remedy.
"""
