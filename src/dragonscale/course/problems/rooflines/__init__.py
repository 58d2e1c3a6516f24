"""Problems of the chapter on rooflines: times and bounds, matmuls, narrow formats, other operations, two chips.

The order of a page is the order of these files.
"""

from dragonscale.course.problems.rooflines import bounds, matmuls, narrow_matmuls, operations, two_chips

__all__ = ["bounds", "matmuls", "narrow_matmuls", "operations", "two_chips"]
