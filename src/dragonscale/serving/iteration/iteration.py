"""What one iteration of an engine computes (decoding sequences, chunks of prompts, or both), and its cost as lines.

Everything shown of an iteration (terms, wires, bounds, the expectation) is a grouping of its lines.

At best (`lower`) the busiest resource decides: the FLOPs of all kernels at the peak, the bytes of weights and caches at
the memory's bandwidth, or the bytes of one set of wires. `roofline` is the book's bound: for each kernel the slower of
compute and memory. The expectation adds what profiles and engines say, one kernel after the other, and is never below
`lower`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.ledger import HeldLine, Ledger, LedgerLine


@dataclass(frozen=True)
class Iteration:
    """What one iteration computes: numbers, arrays of one length, or formulas.

    `decodes` sequences with `keys` cached tokens each get `queries` new ones (one, or drafts to verify and one);
    `prompts` chunks of `tokens` new tokens each are prefilled after `past` tokens of the same prompt that are cached.
    """

    decodes: Number = 0
    keys: Number = 0
    queries: Number = 1
    prompts: Number = 0
    tokens: Number = 0
    past: Number = 0

    def broadcast(self) -> "Iteration":
        """The iteration with each field as an array of one length, (iterations,)."""
        columns = (numpy.atleast_1d(numpy.asarray(value, float)) for value in vars(self).values())
        return Iteration(*numpy.broadcast_arrays(*columns))

    def one_part(self, stages: Number, budget: Number, wide: bool = True) -> "PipelinePart":
        """One of the equal parts that a pipeline cuts the batch into, one for each stage.

        With fewer sequences or prompts than stages some stages idle. An engine cuts a prompt only if it exceeds the
        token `budget` of an iteration, never to keep stages busy. `wide` makes every field an array.
        """
        whole = self.broadcast() if wide else self
        decodes = where(whole.decodes > 0, maximum(whole.decodes / stages, 1.0), 0.0)
        prompts = where(whole.prompts > 0, maximum(whole.prompts / stages, 1.0), 0.0)
        # tokens of each prompt: an even share of all of them, but a prompt within the budget stays whole
        even_share = whole.tokens * whole.prompts / maximum(prompts, 1) / stages
        tokens = maximum(even_share, minimum(whole.tokens, budget))
        return PipelinePart(
            decodes=decodes,
            keys=whole.keys,
            queries=whole.queries,
            prompts=prompts,
            tokens=tokens,
            past=whole.past + (whole.tokens - tokens) / 2,  # the mean over the chunks of a prompt
            streamed=whole.decodes * whole.queries + whole.prompts,
        )


@dataclass(frozen=True)
class PipelinePart(Iteration):
    """The part of an iteration that one pipeline stage works on; a whole iteration without a pipeline.

    `streamed` are the tokens that all parts together hand out, by one process.
    """

    streamed: Number = 0

    @property
    def new_tokens(self) -> Number:
        """Tokens that go through the layers."""
        return self.decodes * self.queries + self.prompts * self.tokens

    @property
    def sampled(self) -> Number:
        """Tokens that go through the head: all of decoding sequences, and the last of each prompt."""
        return self.decodes * self.queries + self.prompts

    def masked(self, mask: NDArray[numpy.bool_]) -> "PipelinePart":
        """Only those of many iterations where a mask of shape (iterations,) is true."""
        return PipelinePart(*(column[mask] for column in vars(self).values()))


def decode(batch: Number, keys: Number, queries: Number = 1) -> Iteration:
    """An iteration in which `batch` sequences with `keys` cached tokens each get their next token."""
    return Iteration(decodes=batch, keys=keys, queries=queries)


def prefill(tokens: Number, prompts: Number = 1, past: Number = 0) -> Iteration:
    """An iteration that prefills `prompts` chunks of `tokens` tokens after `past` cached ones each."""
    return Iteration(prompts=prompts, tokens=tokens, past=past)


@dataclass(frozen=True)
class ServingLine(LedgerLine):
    """A kernel, a move or a wait of an iteration.

    `compute_s` are its FLOPs at the peak of its format, `memory_s` its bytes at the memory's bandwidth: only bytes that
    no fusion can save, weights and cached keys once each (activations may stay on the chip, so bounds leave them out).
    `issued` are the kernels that it launches, `volume` the bytes of a move's array as one group sees it.
    """

    compute_s: Number = 0.0
    memory_s: Number = 0.0
    issued: Number = 0.0
    volume: Number = 0.0


def _sum_of(name: str) -> cached_property[Number]:
    """A property: the sum of a line's field over the lines of a group, each times the number of its runs."""
    return cached_property(lambda group: sum(getattr(line, name) * line.times for line in group.lines))


@dataclass(frozen=True)
class LineGroup:
    """Some lines of an iteration together: all kernels of a part of the model, or all moves over some axes.

    `exposed` is what the step waits for: expected seconds less what overlaps with other kernels. `lower` and `roofline`
    are seconds at datasheet rates, line by line; `moved` are bytes of HBM.
    """

    lines: list[ServingLine] = field(default_factory=list)

    expected = _sum_of("expected_s")
    exposed = _sum_of("exposed_s")
    compute = _sum_of("compute_s")
    memory = _sum_of("memory_s")
    lower = _sum_of("bound_s")
    roofline = _sum_of("bound_s")
    flops = _sum_of("flops")
    moved = _sum_of("hbm_bytes")
    volume = _sum_of("volume")


@dataclass
class IterationCost:
    """An iteration's seconds: its lines, and bounds and expectation as sums of them.

    `sampling` includes the gaps between kernels. The host needs `issuing` to launch the kernels and `streaming` to hand
    out tokens, whatever the chip does; `host` is host time that overlaps with nothing.
    """

    lines: list[ServingLine] = field(default_factory=list)
    host: Number = 0.0
    sampling: Number = 0.0
    issuing: Number = 0.0
    streaming: Number = 0.0

    @cached_property
    def terms(self) -> dict[str, LineGroup]:
        """Kernels by the term of the breakdown that they count under."""
        return _grouped((line for line in self.lines if not line.moves), lambda line: line.term)

    @cached_property
    def wires(self) -> dict[tuple[str, ...], LineGroup]:
        """Moves by the mesh axes that they cross."""
        return _grouped((line for line in self.lines if line.moves), lambda line: line.axes)

    @cached_property
    def compute(self) -> Number:
        """Seconds of all FLOPs at the peak of their formats."""
        return _total(self.terms, "compute")

    @cached_property
    def memory(self) -> Number:
        """Seconds of all bytes of weights and caches at the memory's bandwidth."""
        return _total(self.terms, "memory")

    @property
    def issued(self) -> Number:
        """Kernels that are launched."""
        return sum(line.issued * line.times for line in self.lines)

    @property
    def floor(self) -> Number:
        """Seconds that the host needs at least: issuing kernels one by one, streaming tokens out."""
        return maximum(self.issuing, self.streaming)

    @cached_property
    def lower(self) -> Number:
        """The busiest resource, with everything else overlapped."""
        return maximum(self.compute, self.memory, *(wire.lower for wire in self.wires.values()))

    @property
    def roofline(self) -> Number:
        """The book's bound: for each kernel the slower of its compute and its memory."""
        return _total(self.terms, "roofline")

    @property
    def upper(self) -> Number:
        """Everything at datasheet rates, without any overlap."""
        return self.compute + self.memory + _total(self.wires, "lower")

    @cached_property
    def device(self) -> Number:
        """Expected seconds of the chip itself."""
        return _total(self.terms, "expected") + _total(self.wires, "exposed") + self.sampling

    @cached_property
    def expected(self) -> Number:
        """The expectation: the chip's kernels and exposed moves, or the host if it cannot issue them as fast, plus the
        host's own exposed time."""
        return maximum(maximum(self.device, self.floor) + self.host, self.lower)

    def ledger(self, phase: str, held: Iterable[HeldLine] = ()) -> Ledger:
        """All lines and waits as a ledger: `exposed_s` adds up to the expectation."""
        without_host = maximum(self.device, self.floor)
        waits = (
            ("sampling", "sampling", self.sampling),
            ("host", "host", self.host),
            ("waiting for the host", "host", maximum(self.floor - self.device, 0.0)),
            # rounding up to the lower bound, where profiles promise less
            ("at its bound", "wait", maximum(self.lower - (without_host + self.host), 0.0)),
        )
        lines = [
            ServingLine("step", phase, name, kind, term=name, expected_s=seconds, exposed_s=seconds)
            for name, kind, seconds in waits
        ]
        return Ledger([*self.lines, *lines], list(held))


def _total(groups: Mapping[Any, LineGroup], name: str) -> Number:
    """The sum of a quantity over groups of lines."""
    return sum(getattr(group, name) for group in groups.values())


def _grouped(lines: Iterable[ServingLine], key: Callable[[ServingLine], object]) -> dict:
    """Lines in groups by a key, in order of first appearance."""
    groups: dict[object, LineGroup] = {}
    for line in lines:
        groups.setdefault(key(line), LineGroup()).lines.append(line)
    return groups
