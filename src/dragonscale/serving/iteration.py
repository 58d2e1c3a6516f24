"""What one iteration of an engine computes: decoding sequences, chunks of prompts, or both."""

from dataclasses import dataclass, fields
from typing import Any

import numpy

from dragonscale.numbers import Number, is_symbolic, maximum, where


@dataclass(frozen=True)
class Iteration:
    """What one iteration computes: numbers, arrays of one length, or symbols.

    `decodes` sequences that hold `keys` tokens each get `queries` new ones (one, or drafts to verify and one); `prompts`
    chunks of `tokens` new tokens each are prefilled, with `past` tokens of theirs cached already.
    """

    decodes: Number = 0
    keys: Number = 0
    queries: Number = 1
    prompts: Number = 0
    tokens: Number = 0
    past: Number = 0

    def values(self, symbolic: bool = False) -> dict[str, Any]:
        """Every field: as arrays of one length, or as they are where there are symbols."""
        names = [field.name for field in fields(self)]
        given = [getattr(self, name) for name in names]
        if symbolic or is_symbolic(*given):
            return dict(zip(names, given, strict=True))
        wide = numpy.broadcast_arrays(*(numpy.atleast_1d(numpy.asarray(value, float)) for value in given))
        return dict(zip(names, wide, strict=True))

    def one_part(self, stages: Number, symbolic: bool = False) -> dict[str, Any]:
        """One of the parts that a pipeline's batch is cut into, one for each stage; prompts too few for that are cut."""
        known = self.values(symbolic)
        pieces = _part(known["prompts"], stages)
        cut = known["prompts"] / maximum(pieces, 1) / stages
        if is_symbolic(pieces) and stages == 1:
            cut = 1  # more than one prompt, so none is cut
        return known | {
            "decodes": _part(known["decodes"], stages),
            "tokens": known["tokens"] * cut,
            "past": known["past"] + known["tokens"] * (1 - cut),
            "prompts": pieces,
        }


def _part(count: Number, stages: Number) -> Number:
    if not is_symbolic(count, stages):
        return where(count > 0, maximum(count / stages, 1.0), 0.0)
    if stages == 1 or count == 0:
        return count
    return maximum(count / stages, 1)


def decode(batch: Number, keys: Number, queries: Number = 1) -> Iteration:
    """A step in which `batch` sequences that hold `keys` tokens each get their next one."""
    return Iteration(decodes=batch, keys=keys, queries=queries)


def prefill(tokens: Number, prompts: Number = 1, past: Number = 0) -> Iteration:
    """A step that prefills `prompts` chunks of `tokens` tokens after `past` cached ones."""
    return Iteration(prompts=prompts, tokens=tokens, past=past)
