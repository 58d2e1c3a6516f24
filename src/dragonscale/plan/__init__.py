"""The kernels, moves and memory of a plan: layout rules, the reader of programs, and the ledger.

The data flow: a program of named einsums (`models`) and `rules` (the mesh axes of each dim) go into `reader`, which
lists kernels and moves without sizes; `training` and `serving` put in sizes, a machine and a stack or engine, and get a
`ledger`.
"""
