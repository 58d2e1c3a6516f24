"""A calculator with units that knows chips, slices, models and closed forms by name.

`words` cuts a text into words, `reading` makes a tree of them, `evaluate` walks it, `solve` finds the unknown of an
equation. Work is bounded: the length of a text and of a formula, and the seconds of one calculation (`clock`). A value
is a `Measure` (`measure.py`); what a name stands for is in `names.py`, what a function does in `functions.py`.
"""
