"""Steps of an engine that is compiled for a few shapes: how many tokens of prompts one computes.

Chunks of prompts come in powers of two up to the token budget, beside as many decoding rows as there may be, or none.
Of the shapes an engine takes the one that gets most done for what it computes: what it leaves counts as computed in the
smallest shape that holds it, and fewer tokens than `KNEE` are no cheaper than that. So a prompt that would leave most
of a shape empty is cut in two. Our own engine's rule (`runtime/serve/scheduler.py`), which tests hold this one to.
"""

from functools import lru_cache

KNEE = 256
"""Tokens below which a step takes as long as reading the weights: fewer are no cheaper."""
PROMPTS = 8
"""Prompts of a step at most."""


@lru_cache(64)
def chunk_sizes(most: int, least: int = 128) -> tuple[int, ...]:
    """Tokens of the shapes that compute prompts.

    >>> chunk_sizes(2048)
    (128, 256, 512, 1024, 2048)
    """
    sizes = [most]
    while sizes[0] > least:
        sizes.insert(0, -(-sizes[0] // 2))
    return tuple(sizes)


@lru_cache(65536)
def chunk_tokens(sizes: tuple[int, ...], rows: int, todo: int) -> int:
    """Tokens of prompts that a step computes of those that are to do, beside so many rows.

    >>> [chunk_tokens(chunk_sizes(2048), 64, todo) for todo in (100, 298, 500, 600, 5000)]
    [100, 128, 500, 128, 2048]
    """

    def cost(size: int) -> tuple[int, int, int]:
        done = min(size, todo)
        rest = todo - done
        later = next((each for each in sizes if each >= rest), rest)
        return max(rows + size, KNEE) + (max(later, KNEE) if rest else 0), -done, size

    return min(min(sizes, key=cost), todo)
