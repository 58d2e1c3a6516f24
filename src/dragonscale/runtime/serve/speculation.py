"""Drafts: tokens guessed cheaply that the model then checks in one step, several at once.

Two ways to guess. `NgramIndex` looks on the host for the longest piece of text (up to 4 tokens) that the sequence ends
with and has had before, and proposes what followed; it costs nothing and helps where output repeats the prompt.
`DraftModel` runs a smaller model of the same vocabulary ahead, a token at a time, on the device: its keys are in a
cache of its own under the same page numbers, so that the prefix cache, the tables and the freeing of pages are the
target's.

The target's step has Q = k + 1 tokens in a decoding row, the last sampled one and k drafts; the sampler says how many
to keep (`Sampled.counts`). Keys of rejected drafts lie beyond the sequence's length and are written over by the next
step. Rows may have fewer drafts (`StepBatch.drafted`), none where a grammar holds them.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.runtime.serve import filters
from dragonscale.runtime.serve.filters import SlotState
from dragonscale.runtime.serve.sampling import FILTERED, GREEDY, PLAIN, Sampler
from dragonscale.runtime.serve.steps import StepBatch, StepShape, empty_batch

LONGEST = 4
RECENT = 8192
"""Tokens of a long prompt, the last ones, that are looked through."""
MIX, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


class NgramIndex:
    """The n-grams of one sequence, by hash (a collision is a bad guess, not an error), and where the text after the
    latest of each begins."""

    def __init__(self, tokens: Sequence[int] | numpy.ndarray) -> None:
        text = numpy.asarray(tokens[-RECENT:], numpy.uint64)
        self._tokens: list[int] = text.tolist()
        self._after: dict[int, int] = {}
        hashes = numpy.zeros(len(text), numpy.uint64)  # as in `_ends`, of all places at once
        for n in range(min(LONGEST, len(text) - 1)):
            hashes = hashes[min(n, 1) :] * numpy.uint64(MIX) + text[: len(text) - n] + numpy.uint64(1)
            self._after.update(zip(hashes[:-1].tolist(), range(n + 1, len(text)), strict=True))

    def _ends(self) -> list[int]:
        """Hashes of the n-grams that the text ends with, the longest first."""
        hashes = [0]
        for token in reversed(self._tokens[-LONGEST:]):
            hashes.append((hashes[-1] * MIX + token + 1) & MASK)
        return hashes[:0:-1]

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens. The n-grams that end before each are entered now that something follows them."""
        for token in tokens:
            self._after.update(dict.fromkeys(self._ends(), len(self._tokens)))
            self._tokens.append(token)

    def propose(self, count: int) -> list[int]:
        """`count` tokens that may follow; none if not even the last token was there before."""
        place = next((self._after[each] for each in self._ends() if each in self._after), None)
        if place is None:
            return []
        # Where the earlier text runs into the end it repeats, so the guess goes round.
        return [self._tokens[place + i % (len(self._tokens) - place)] for i in range(count)]


def _draft(level: int, held: Any, last: Any, logits: Any, words: Any) -> Any:
    """One rank: a token for each row, what it was drawn from, and `last` with it."""
    slots, positions = words
    token, probs = jnp.argmax(logits, axis=-1), None
    if level > GREEDY:
        state = SlotState.unpacked(held[slots])
        probs = filters.distribution(filters.tempered(logits, state, level > PLAIN), state)
        token = jnp.argmax(jnp.log(probs) + state.noise(positions, filters.DRAFT, logits.shape[1]), axis=-1)
    return token, probs, last.at[slots].set(token)


class DraftModel:
    """A smaller model that drafts. `runner` is its ModelRunner, with the target's limits; `sampler` is the target's
    (its settings and seeds are read). After the target, `runner` runs each of its steps too, to see prompts and the
    last draft, after which nothing was drafted; nobody waits for that."""

    def __init__(self, runner: Any, sampler: Sampler) -> None:
        self.runner, self.sampler = runner, sampler

    def compile(self, shapes: list[StepShape]) -> None:
        """Build what goes with a target's steps of these shapes: the same steps, and the decoding rows alone with one
        token each."""
        decodes = sorted({shape.decodes for shape in shapes} - {0})
        self.runner.compile([*shapes, *map(StepShape, decodes)])
        for rows, level in product(decodes, (GREEDY, PLAIN, FILTERED)):
            self._program(rows, level)

    def propose(self, batch: StepBatch) -> tuple[Any, ...]:
        """Write Q - 1 drafts for every decoding row into a batch's tokens. Returns what each was drawn from, [R, D, v]
        on the device (nothing where no row is random). The tokens go from step to step on the device and are fetched
        once."""
        d, q = batch.shape.decodes, batch.shape.queries
        level, last, drafted = min(self.sampler.level(batch), FILTERED), self.sampler.last, []
        for ahead in range(q - 1 if d else 0):
            single = single_batch(batch, ahead)
            logits = jax.device_put(self.runner.run(single, last), self.sampler.sharding)
            words = numpy.stack([single.slots, single.positions], 1)
            token, probs, last = self._program(d, level)(self.sampler.state(), last, logits, words)
            drafted.append((token, probs))
        for ahead, token in enumerate(jax.device_get([token for token, _ in drafted]), 1):
            batch.tokens[:, ahead : d * q : q] = token
        return tuple(probs for _, probs in drafted) if level > GREEDY else ()

    def _program(self, rows: int, level: int) -> Any:
        s, key = self.sampler, ("draft", rows, level)
        if key not in s.programs:
            arrays = s.array(jnp.float32, rows, s.vocab), s.array(jnp.int32, 2, rows)
            s.programs[key] = s.over_ranks(partial(_draft, level)).lower(s.state(), s.last, *arrays).compile()
        return s.programs[key]


def single_batch(batch: StepBatch, ahead: int) -> StepBatch:
    """The decoding rows of a step alone, each with the token that is `ahead` of its first; later ones were sampled just
    now."""
    d, at = batch.shape.decodes, slice(ahead, batch.shape.decodes * batch.shape.queries, batch.shape.queries)
    single = empty_batch(StepShape(d), len(batch.tokens), 0, 0)
    single.tokens, single.positions, single.writes = batch.tokens[:, at], batch.positions[:, at], batch.writes[:, at]
    single.adapters = batch.adapters[:, at]
    single.from_last = numpy.ones_like(batch.from_last) if ahead else batch.from_last
    single.tables, single.slots = batch.tables[:, :d], batch.slots[:, :d]
    single.lengths = numpy.where(batch.lengths[:, :d] > 0, single.positions + 1, 0)
    return single
