"""Step times that are linear in what an iteration does: a roofline in four numbers, for tests, benchmarks and first
looks.

An iteration takes `fixed_s` (weights, launches) and so much for every decoding sequence, for every cached token they
read, and for every prompt token. A run of steps has a closed form, since the cache grows by one token a sequence and
step: fixed and cached terms sum to n * (a + c * (cached + decodes * (n - 1) / 2)).

>>> times = LinearTimes(0.02, 1e-5, 1e-8, 5e-5)
>>> round(times.run(64, 64 * 2048, 100), 6), round(sum(times.step(64, 64 * (2048 + i)) for i in range(100)), 6)
(2.19824, 2.19824)
>>> times.steps_within(64, 64 * 2048, times.run(64, 64 * 2048, 100) + 1e-9)
100
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.serving.iteration.step_times import PromptChunk


@dataclass(frozen=True)
class LinearTimes:
    """Seconds per iteration, decoding sequence, cached token, prompt token; of a draft token; of a token sent."""

    fixed_s: float
    decode_s: float = 0.0
    cached_s: float = 0.0
    prompt_s: float = 0.0
    draft_s: float = 0.0
    send_s: float = 0.0

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration."""
        prompt = sum(new for new, _ in chunks)
        return self.fixed_s + self.decode_s * decodes * queries + self.cached_s * cached + self.prompt_s * prompt

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """Several iterations of pure decoding."""
        first = self.fixed_s + self.decode_s * decodes * queries + self.cached_s * cached
        return steps * first + self.cached_s * decodes * (steps * (steps - 1) // 2)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most iterations that end within a time: the root of a parabola, set right by a step if
        rounding wants it."""
        first = self.fixed_s + self.decode_s * decodes * queries + self.cached_s * cached
        grow = self.cached_s * decodes
        line = first - grow / 2
        root = seconds / line if grow == 0 else (math.sqrt(line * line + 2 * grow * seconds) - line) / grow
        steps = max(int(root), 0)
        while self.run(decodes, cached, steps + 1, queries) <= seconds:
            steps += 1
        while steps and self.run(decodes, cached, steps, queries) > seconds:
            steps -= 1
        return steps

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Drafting so many tokens for every sequence, one after the other."""
        del decodes, cached
        return self.draft_s * tokens

    def transfer(self, tokens: int) -> float:
        """Sending the cache of so many tokens."""
        return self.send_s * tokens
