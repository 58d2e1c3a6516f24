"""Problems on prefill and decode apart: interruptions, ratios, transfers, waits, whole fleets."""

from dragonscale.course.problems.disaggregation import apart, transfers

__all__ = ["apart", "transfers"]
