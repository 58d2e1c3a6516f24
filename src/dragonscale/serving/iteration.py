"""What one iteration of an engine computes: decoding sequences, chunks of prompts, or both."""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.physics.numbers import Number, maximum, minimum, where


@dataclass(frozen=True)
class Iteration:
    """What one iteration computes: numbers, arrays of one length, or formulas.

    `decodes` sequences that hold `keys` tokens each get `queries` new ones (one, or drafts to verify and one);
    `prompts` chunks of `tokens` new tokens each are prefilled, with `past` tokens of theirs cached already.
    """

    decodes: Number = 0
    keys: Number = 0
    queries: Number = 1
    prompts: Number = 0
    tokens: Number = 0
    past: Number = 0

    def values(self, wide: bool = True) -> dict[str, Any]:
        """Every field: as arrays of one length, or as they are."""
        given = vars(self)
        if not wide:
            return dict(given)
        arrays = numpy.broadcast_arrays(*(numpy.atleast_1d(numpy.asarray(value, float)) for value in given.values()))
        return dict(zip(given, arrays, strict=True))

    def one_part(self, stages: Number, budget: Number, wide: bool = True) -> dict[str, Any]:
        """One of the parts that a pipeline's batch is cut into, one for each stage. With fewer sequences or prompts
        than stages some stages idle: an engine cuts a prompt where it is longer than the `budget` of an iteration, not
        for the stages' sake."""
        known = self.values(wide)
        decodes, pieces = (
            where(known[name] > 0, maximum(known[name] / stages, 1.0), 0.0) for name in ("decodes", "prompts")
        )
        shared = known["tokens"] * known["prompts"] / maximum(pieces, 1) / stages
        tokens = maximum(shared, minimum(known["tokens"], budget))
        past = known["past"] + (known["tokens"] - tokens) / 2
        streamed = (
            known["decodes"] * known["queries"] + known["prompts"]
        )  # one process hands out the tokens of all parts
        return known | {"decodes": decodes, "tokens": tokens, "past": past, "prompts": pieces, "streamed": streamed}


def decode(batch: Number, keys: Number, queries: Number = 1) -> Iteration:
    """A step in which `batch` sequences that hold `keys` tokens each get their next one."""
    return Iteration(decodes=batch, keys=keys, queries=queries)


def prefill(tokens: Number, prompts: Number = 1, past: Number = 0) -> Iteration:
    """A step that prefills `prompts` chunks of `tokens` tokens after `past` cached ones."""
    return Iteration(prompts=prompts, tokens=tokens, past=past)
