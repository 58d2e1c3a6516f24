"""Captured graphs: a decode batch is filled up to the next size that was captured, and beyond the largest there is
none.

Sizes are pairs (up to, multiples of): vLLM's 1, 2, 4, 8, 16, 24 … 256, 272 … 512 are (2, 1), (4, 2), (8, 4), (256, 8),
(512, 16).

>>> vllm = ((2, 1), (4, 2), (8, 4), (256, 8), (512, 16))
>>> [float(filled(batch, vllm)) for batch in (1, 3, 5, 9, 256, 257, 600)]
[1.0, 4.0, 8.0, 16.0, 256.0, 272.0, 600.0]
"""

from typing import Any

from dragonscale.physics.numbers import Number, ceil_to, where

Sizes = tuple[tuple[int, int], ...]


def filled(batch: Number, sizes: Sizes) -> Number:
    """Rows that a decode step of one rank computes."""
    rows: Number = batch
    for limit, step in reversed(sizes):
        rows = where(batch <= limit, ceil_to(batch, step), rows)
    return rows


def captured(batch: Number, sizes: Sizes) -> Any:
    """Whether there is a graph for so many rows; without sizes there is one for all."""
    return batch <= sizes[-1][0] if sizes else batch >= 0
