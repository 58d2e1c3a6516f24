"""Chunked prefill of an engine that is compiled for a few shapes: how many prompt tokens one step computes.

Chunk sizes are powers of two up to the token budget; each is compiled with and without decoding rows beside it.
The engine picks the shape that computes the fewest rows for the prompt in total: what a shape leaves over is charged at
the smallest shape that holds it, and no step is cheaper than one of `KNEE` tokens. A prompt that would leave most of a
shape empty is therefore cut in two. This is the rule of our own engine (`runtime/serve/scheduler.py`); tests compare
the two.
"""

from functools import lru_cache

KNEE = 256
"""Tokens below which a step takes as long as reading the weights: fewer are no cheaper."""
PROMPTS = 8
"""Most prompts that one step computes."""


@lru_cache(64)
def chunk_sizes(largest: int, smallest: int = 128) -> tuple[int, ...]:
    """Token counts of the compiled prefill shapes, ascending.

    >>> chunk_sizes(2048)
    (128, 256, 512, 1024, 2048)
    """
    sizes = [largest]
    while sizes[0] > smallest:
        sizes.insert(0, -(-sizes[0] // 2))  # half, rounded up
    return tuple(sizes)


@lru_cache(65536)
def chunk_tokens(sizes: tuple[int, ...], rows: int, todo: int) -> int:
    """Prompt tokens that the next step computes of `todo` uncomputed ones, with `rows` decoding rows beside them.

    >>> [chunk_tokens(chunk_sizes(2048), 64, todo) for todo in (100, 298, 500, 600, 5000)]
    [100, 128, 500, 128, 2048]
    """

    def cost(size: int) -> tuple[int, int, int]:
        done = min(size, todo)
        rest = todo - done
        rows_computed = max(rows + size, KNEE)
        if rest:
            # the rest runs later in the smallest shape that holds it
            later = next((shape for shape in sizes if shape >= rest), rest)
            rows_computed += max(later, KNEE)
        # ties: the shape that finishes more of the prompt, then the smaller one
        return rows_computed, -done, size

    return min(min(sizes, key=cost), todo)
