"""Kinds of events, in the order in which those of one moment are handled.

What comes from outside is handled before an iteration that ends at the same moment decides on its successor, and an idle
replica wakes after everything else of the moment, so that requests that arrive together are batched together.
"""

FAIL, RETURN, ARRIVE, DELIVER, END, WAKE, SCALE = range(7)
