"""Problems on inference: batches, caches, decode steps, prefills, slices, splits, drafts."""

from dragonscale.course.problems.inference import batches, caches, drafts, prefills, slices, splits, steps

__all__ = ["batches", "caches", "drafts", "prefills", "slices", "splits", "steps"]
