"""Problems of the chapter on TPUs: parts of a chip, its memories, slices, the torus, transfers.

The order of a page is the order of these files.
"""

from dragonscale.course.problems.tpus import chip_parts, memories, slices, torus, transfers

__all__ = ["chip_parts", "memories", "slices", "torus", "transfers"]
