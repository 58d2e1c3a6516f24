"""Problems on inference: batches, caches, decode steps, splits, drafts."""

from dragonscale.course.problems.inference import batches, caches, drafts, slices, splits, steps

__all__ = ["batches", "caches", "drafts", "slices", "splits", "steps"]
