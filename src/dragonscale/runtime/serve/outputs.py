"""What comes of a step: the arrays on their way from the device, the seconds that shapes took, and log probabilities as
they are told."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy

from dragonscale.runtime.serve.packing import ScheduledStep
from dragonscale.runtime.serve.requests import TokenLogprob
from dragonscale.runtime.serve.sampling import Sampled


@dataclass
class InFlight:
    """A step on the device: what was planned and the arrays that will come of it. `extra` are hidden states where a row
    is to be embedded, log probabilities of a prompt's own tokens where they are asked for."""

    step: ScheduledStep
    sampled: Sampled
    extra: Any

    def copy(self) -> None:
        """Has the arrays sent to the host as soon as they are there."""
        more = vars(self.extra).values() if isinstance(self.extra, Sampled) else (self.extra,)
        for array in (*vars(self.sampled).values(), *more):
            if isinstance(array, jax.Array):
                array.copy_to_host_async()

    def fetch(self) -> tuple[Sampled, Any]:
        """Both in numpy; waits for the device."""
        extra = self.extra.fetch() if isinstance(self.extra, Sampled) else jax.device_get(self.extra)
        return self.sampled.fetch(), extra


@dataclass
class ShapeTime:
    """How long steps of a shape took, and the tokens that were not padding."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0

    def add(self, seconds: float, tokens: int) -> None:
        self.steps, self.seconds, self.tokens = self.steps + 1, self.seconds + seconds, self.tokens + tokens


def told(tokens: list[int], found: Sampled, at: tuple[int, int], count: int) -> list[TokenLogprob]:
    """Log probabilities of tokens that a step chose from a place of its reads on."""
    rank, rows = at[0], slice(at[1], at[1] + len(tokens))
    columns = (found.logprobs[rank, rows], found.top[rank, rows, :count], found.top_logprobs[rank, rows, :count])
    each = zip(tokens, *(column.tolist() for column in columns), strict=True)
    return [TokenLogprob(token, own, list(zip(top, logs, strict=True))) for token, own, top, logs in each]


def following(step: ScheduledStep) -> numpy.ndarray:
    """For each row of a step that scores a prompt, the token that comes next in it (after the last: anything)."""
    sequence, (ranks, count) = step.chunks[0], step.batch.tokens.shape
    tokens = numpy.zeros((ranks, count), numpy.int32)
    after = sequence.tokens[step.scored + 1 : step.scored + 1 + step.computed]
    tokens[sequence.rank, : len(after)] = after
    return tokens


def score(step: ScheduledStep, found: Sampled) -> None:
    """Log probabilities of a prompt's own tokens, each from the logits of the one before it."""
    sequence, first = step.chunks[0], step.scored + 1
    prompt, count = sequence.request.prompt, sequence.request.prompt_logprobs or 0
    sequence.scores = sequence.scores or [None] * len(prompt)
    after = prompt[first : first + step.computed]
    sequence.scores[first : first + len(after)] = told(after, found, (sequence.rank, 0), count)
