"""Step times of replicas whose requests have LoRA adapters.

Beside every adapted matmul an iteration runs two thin ones for all its adapters at once, and reads the weights of those
that its requests have. How many different ones that are is not followed request by request: of `n` requests that draw
adapters by their popularity it is the sum of 1 - (1 - p)^n, and no more than there are places in memory.

>>> from dragonscale.simulation.linear import LinearTimes
>>> many = AdapterTimes(LinearTimes(0.02), (0.25,) * 4, 8, step_s=0.002, read_s=0.0001)
>>> round(many.different(1), 6), round(many.different(100), 6), round(many.run(1, 1000, 10), 6)
(1.0, 4.0, 0.221)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dragonscale.serving.iteration.step_times import PromptChunk, StepTimes


@dataclass(frozen=True)
class AdapterTimes:
    """`times` with adapters of these chances to be a request's, `slots` of them in memory: `step_s` more for an
    iteration, and `read_s` for each different one in it."""

    times: StepTimes
    chances: tuple[float, ...]
    slots: int
    step_s: float
    read_s: float
    _known: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    def different(self, requests: int) -> float:
        """Different adapters of so many requests."""
        return min(sum(1 - (1 - chance) ** requests for chance in self.chances), self.slots)

    def more(self, requests: int) -> float:
        """Seconds more of an iteration."""
        found = self._known.get(requests)
        if found is None:
            found = self._known[requests] = self.step_s + self.read_s * self.different(requests)
        return found

    def step(self, decodes: int, cached: float, chunks: Sequence[PromptChunk] = (), queries: int = 1) -> float:
        """One iteration."""
        return self.times.step(decodes, cached, chunks, queries) + self.more(decodes + len(chunks))

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """Several iterations of pure decoding."""
        return self.times.run(decodes, cached, steps, queries) + (self.more(decodes) * steps if decodes else 0.0)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most iterations that end within a time: no more than without adapters."""
        low, high = 0, self.times.steps_within(decodes, cached, seconds, queries)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.run(decodes, cached, middle, queries) <= seconds else (low, middle - 1)
        return low

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Drafts have no adapters."""
        return self.times.draft(decodes, cached, tokens)

    def transfer(self, tokens: int) -> float:
        """A cache is as large with them."""
        return self.times.transfer(tokens)
