"""Step times of special runs: multi-token prediction, and prompts that the cache holds already.

Multi-token prediction means fewer iterations, each of which verifies what was guessed. Whether a
guess is accepted is drawn anew in every step of every sequence, so over a whole answer the mean is
what counts: an answer of n tokens takes n / `tokens` iterations, and the simulator is given these
as its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.serving.table import Piece, StepTable


@dataclass(frozen=True)
class Reused:
    """Step times where a `part` of every prompt is found in the cache; all else is as in the table
    (see `StepTimes`)."""

    table: StepTable
    part: float = 0.0

    def step(self, decodes: int, cached: float, pieces: Sequence[Piece] = (), queries: int = 1) -> float:
        """One iteration, with the found part of its prompts in the past."""
        fewer = [(max(round(new * (1 - self.part)), 1), past + round(new * self.part)) for new, past in pieces]
        return self.table.step(decodes, cached, fewer, queries)

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """Iterations of pure decoding."""
        return self.table.run(decodes, cached, steps, queries)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """Iterations of pure decoding that end in time."""
        return self.table.steps_within(decodes, cached, seconds, queries)

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Seconds to guess."""
        return self.table.draft(decodes, cached, tokens)

    def transfer(self, tokens: int) -> float:
        """Seconds to send a cache."""
        return self.table.transfer(tokens)


@dataclass(frozen=True)
class Drafted(Reused):
    """Step times with `drafts` guesses for every sequence in every iteration, of which each is
    right with probability `acceptance`, given those before it."""

    drafts: int = 1
    acceptance: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens that an iteration brings a sequence: the one that is sure, and guesses up to the
        first that is wrong.

        >>> Drafted(None, drafts=3, acceptance=0.5).tokens
        1.875
        """
        return sum(self.acceptance**place for place in range(self.drafts + 1))

    def step(self, decodes: int, cached: float, pieces: Sequence[Piece] = (), queries: int = 1) -> float:
        """One iteration that guesses and verifies."""
        del queries
        if not decodes:
            return self.table.step(0, 0.0, pieces)
        guessing = self.table.draft(decodes, cached, self.drafts)
        return self.table.step(decodes, cached, pieces, self.drafts + 1) + guessing

    def run(self, decodes: int, cached: float, steps: int, queries: int = 1) -> float:
        """`steps` iterations one after the other, at their mean cache."""
        del queries
        if steps < 1 or decodes < 1:
            return 0.0
        return steps * self.step(decodes, cached + decodes * self.tokens * (steps - 1) / 2)

    def steps_within(self, decodes: int, cached: float, seconds: float, queries: int = 1) -> int:
        """The most whole iterations within `seconds`: from a first guess, up or down."""
        del queries
        first = self.step(decodes, cached)
        if first > seconds:
            return 0
        count = max(int(seconds / first), 1)
        count = max(int(seconds / (self.run(decodes, cached, count) / count)), 1)
        while count > 0 and self.run(decodes, cached, count) > seconds:
            count -= 1
        while self.run(decodes, cached, count + 1) <= seconds:
            count += 1
        return count

    def draft(self, decodes: int, cached: float, tokens: int) -> float:
        """Counted in every step already."""
        del decodes, cached, tokens
        return 0.0
