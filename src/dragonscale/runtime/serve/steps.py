"""One step of the model: a packed batch of decoding rows and of prompts' chunks, in one of a few shapes compiled ahead.

A step computes `N` tokens, packed: first the decoding rows, `queries` tokens each (one, or one and what was drafted),
then the chunks of prompts one after the other. Matmuls see N tokens and nothing of the rest; attention sees rows. Every
row has a table of the pages that hold its keys. Arrays have a leading dim of ranks: the places of the plan's `data`
axis, each with sequences and pages of its own, in lockstep.

Padding: rows beyond the real ones have length 0 and slot `slots`; tokens beyond the real ones have position 0 and are
written to page 0, which belongs to nobody.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy


@dataclass(frozen=True, order=True)
class StepShape:
    """Of a rank: `decodes` rows of `queries` tokens, and `prompts` rows with `tokens` tokens in all. In a `fresh` step
    there is one prompt, computed from its first token: its attention needs no cached key."""

    decodes: int = 0
    queries: int = 1
    prompts: int = 0
    tokens: int = 0
    fresh: bool = False

    @property
    def packed(self) -> int:
        """Tokens of a step."""
        return self.decodes * self.queries + self.tokens

    @property
    def rows(self) -> int:
        return self.decodes + self.prompts

    @property
    def read(self) -> int:
        """Tokens whose logits are wanted: all of the decoding rows, the last of each prompt's chunk."""
        return self.decodes * self.queries + self.prompts


@dataclass(kw_only=True)
class StepArrays:
    """The arrays of a step that the model wants, on the host with ranks R in front; N, D, Q, P as in its shape, W pages
    in a table.

    tokens [R, N], `adapters` [R, N] (the number of each token's LoRA, 0 for none), positions [R, N]: of a decoding row
    whose `from_last` [R, D] is set, the first token is the one that its slot sampled last, which may still be on the
    device. `writes` [R, N] is where a token's keys go: page · page size + place in the page. `tables` [R, D+P, W] are
    pages of rows, `lengths` [R, D+P] their tokens with those of this step, `slots` [R, D+P] their places in the
    sampler's state. `starts` [R, P+1] is where each prompt's chunk begins among the N tokens (the last: where the last
    one ends). `reads` [R, D·Q+P] are the tokens of N whose logits are wanted."""

    tokens: Any
    from_last: Any
    adapters: Any
    positions: Any
    writes: Any
    tables: Any
    lengths: Any
    slots: Any
    starts: Any
    reads: Any


ARRAYS = tuple(field.name for field in fields(StepArrays))


@dataclass(kw_only=True)
class StepBatch(StepArrays):
    """A step in numpy. `drafted` [R, D] are how many of a decoding row's tokens after the first are drafts; the rest of
    its Q is padding."""

    shape: StepShape
    drafted: numpy.ndarray


def empty_batch(shape: StepShape, ranks: int, width: int, slots: int) -> StepBatch:
    """A step of nothing but padding, to be filled in (and to compile with)."""

    def zeros(*size: int) -> numpy.ndarray:
        return numpy.zeros((ranks, *size), numpy.int32)

    n, rows, decoded = shape.packed, shape.rows, shape.decodes * shape.queries
    reads = zeros(shape.read)
    reads[:, :decoded] = numpy.arange(decoded)
    return StepBatch(
        shape=shape,
        **{name: zeros(n) for name in ("tokens", "adapters", "positions", "writes")},
        from_last=zeros(shape.decodes).astype(bool),
        tables=zeros(rows, width),
        lengths=zeros(rows),
        slots=zeros(rows) + numpy.int32(slots),
        starts=zeros(shape.prompts + 1) + numpy.int32(decoded),
        reads=reads,
        drafted=zeros(shape.decodes),
    )


@dataclass(frozen=True)
class EngineLimits:
    """What an engine is built for: `pages` of `page` tokens in each rank (page 0 is padding's), at most `sequences` at
    once in a rank, `tokens` in a step, `length` tokens in a sequence; `draft` tokens are proposed to every sequence in
    a step. `adapters` are served beside the model."""

    pages: int
    page: int = 16
    sequences: int = 64
    tokens: int = 2048
    length: int = 4096
    draft: int = 0
    ranks: int = 1
    adapters: int = 0

    @property
    def width(self) -> int:
        """Pages of the longest sequence and of drafts beyond its end."""
        return -(-(self.length + self.draft) // self.page)


def shapes_for(limits: EngineLimits) -> list[StepShape]:
    """The steps that an engine is compiled for. Decoding rows alone come in powers of two; beside chunks of prompts
    they are none or as many as there may be, since a row that is padding costs next to nothing there. Chunks come in
    powers of two up to the budget (matmuls of many tokens take their time: a chunk in a shape of twice its size costs
    twice), of up to eight prompts, or of one whose keys are all its own.

    >>> [shape.decodes for shape in shapes_for(EngineLimits(pages=64, sequences=6, tokens=64)) if not shape.tokens]
    [1, 2, 4, 6]
    >>> [(s.decodes, s.tokens) for s in shapes_for(EngineLimits(pages=64, sequences=6, tokens=512)) if s.fresh]
    [(0, 128), (0, 256), (0, 512)]
    """
    rows = [*(1 << power for power in range((limits.sequences - 1).bit_length())), limits.sequences]
    chunks = [limits.tokens]
    while chunks[0] > 128:
        chunks.insert(0, -(-chunks[0] // 2))
    prompts = min(8, limits.sequences)
    decodes = [StepShape(n, queries) for queries in sorted({1, 1 + limits.draft}) for n in rows]
    mixed = [StepShape(n, 1 + limits.draft if n else 1, prompts, t) for t in chunks for n in (0, limits.sequences)]
    return [*decodes, *mixed, *(StepShape(0, 1, 1, t, True) for t in chunks)]
