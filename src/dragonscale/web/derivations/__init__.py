"""Where each number of the page comes from.

A derivation has two halves. The *facts* are there at once: what the number is, how it is put together (each part with a
derivation of its own), the bound beside the expectation, how wrong numbers of its kind have been, and the sources. The
*formulas* take a moment the first time: the plan's own ledger over letters, the numbers put in, what each letter stands
for and where it comes from, and the size at which the answer changes. Nothing is worked out here that the planner has
not worked out already: `reports/explain` has the formulas, `bands` the errors, chips and profiles their sources.
"""
