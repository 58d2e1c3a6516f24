"""Solutions of the chapter on training."""

from tests.book import solve_training_mixed, solve_training_questions, solve_training_rules

__all__ = ["solve_training_mixed", "solve_training_questions", "solve_training_rules"]
