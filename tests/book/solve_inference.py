"""Solutions of the chapter on inference."""

from tests.book import (
    solve_inference_cache,
    solve_inference_rooflines,
    solve_inference_sharding,
    solve_inference_speculation,
)
from tests.book.casebook import NOT_COMPUTED

__all__ = [
    "solve_inference_cache",
    "solve_inference_rooflines",
    "solve_inference_sharding",
    "solve_inference_speculation",
]

NOT_COMPUTED |= {
    "inference.engine_batched": "What is wrong with the simplest engine is described; the simulator shows it.",
    "inference.jetstream_api": "The names of another project's methods and threads are no result of a calculation.",
}
