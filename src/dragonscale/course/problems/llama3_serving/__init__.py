"""Problems on serving LLaMA-3: steps and dollars, slices and formats, latency against throughput, other sizes."""

from dragonscale.course.problems.llama3_serving import fleets, frontiers, sizes, steps

__all__ = ["fleets", "frontiers", "sizes", "steps"]
