"""Problems of the chapter on GPUs: the chip, its memories, the switches, collectives, and the rules of parallelism."""

from dragonscale.course.problems.gpus import chip, memory, network, collectives, across, parallelism, runs  # isort: skip

__all__ = ["across", "chip", "collectives", "memory", "network", "parallelism", "runs"]
