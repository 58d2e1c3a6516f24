"""What a plan does, line by line: layout rules, the reader of programs, and the ledger.

The way of the data: a program of named einsums (`models`) and `rules` (which mesh axis splits which dim) go into
`reader`, which lists kernels and moves without sizes; `training` and `serving` put in sizes, a machine and a stack or
engine, and get a `ledger`.
"""
