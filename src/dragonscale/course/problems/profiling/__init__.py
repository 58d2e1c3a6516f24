"""Problems of the chapter on profiling: shapes and layouts of HLO, the work of an op, what a trace says."""

# ruff: noqa: I001  the order of the imports is the order of the problems

from dragonscale.course.problems.profiling import layouts
from dragonscale.course.problems.profiling import ops
from dragonscale.course.problems.profiling import traces
from dragonscale.course.problems.profiling import groups

__all__ = ["groups", "layouts", "ops", "traces"]
