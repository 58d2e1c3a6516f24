"""A plan, run: data in, steps out, checkpoints on the way.

`settings` reads what is to be run, `tokens` finds the sequences of a step, `step` is one optimizer step compiled for
the plan's mesh, `checkpoints` keeps the state, `loop` puts them together. `hosts` joins several processes into one run.
"""
