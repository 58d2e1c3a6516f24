"""What the simulator asks of the planner: how long an iteration takes.

Decoding sequences are summed up: how many there are and how many tokens their caches hold together, since an
iteration's time depends on nothing else. Prompts come as the chunks of them that the iteration prefills.
"""

from collections.abc import Sequence
from typing import Protocol

PromptChunk = tuple[int, int]
"""New tokens of a prompt that one iteration prefills, and tokens of it that the cache already holds (a shared prefix,
earlier chunks)."""


class StepTimes(Protocol):
    """Seconds of an engine's iterations on one replica."""

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration: `decodes` sequences with `cached` tokens in all get `queries` tokens each (one, or the drafts
        to verify and one), and `chunks` of prompts are prefilled beside them."""
        ...

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations of pure decoding in a row; every sequence grows by one token a step."""
        ...

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations of pure decoding that end within `seconds`: the inverse of `run`."""
        ...

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to draft so many tokens for every sequence before they are verified; 0 without a draft."""
        ...

    def transfer(self, tokens: int) -> float:
        """Seconds to send the cache of so many tokens to another replica (disaggregation)."""
        ...
