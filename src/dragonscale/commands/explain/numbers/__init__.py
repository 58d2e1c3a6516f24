"""Where each number of an answer comes from, by the number's id (`step_s`, `term:mlp matmuls`).

`dscale explain` gives the formulas of a whole plan; here is one number of an answer: how it is put together (each part
with an id of its own), the bound beside the expectation, how wrong numbers of its kind have been, its sources, and the
same formulas. The page's drawer shows these records.
"""
