"""What one iteration of an engine computes: decoding sequences, chunks of prompts, or both; and its lines.

What is shown of an iteration (terms, wires, bounds and the expectation) are groupings of its lines.

At best (`lower`) the busiest resource rules: the FLOPs of all kernels at the peak, the bytes of weights and caches at
the memory's bandwidth, or the bytes of one set of wires. `roofline` is the book's bound: kernel by kernel, the slower
of compute and memory. The expectation adds what profiles and engines say, one kernel after the other, and is never
below `lower`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy

from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.ledger import HeldLine, Ledger, LedgerLine


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
        # one process hands out the tokens of all parts
        streamed = known["decodes"] * known["queries"] + known["prompts"]
        return known | {"decodes": decodes, "tokens": tokens, "past": past, "prompts": pieces, "streamed": streamed}


def decode(batch: Number, keys: Number, queries: Number = 1) -> Iteration:
    """A step in which `batch` sequences that hold `keys` tokens each get their next one."""
    return Iteration(decodes=batch, keys=keys, queries=queries)


def prefill(tokens: Number, prompts: Number = 1, past: Number = 0) -> Iteration:
    """A step that prefills `prompts` chunks of `tokens` tokens after `past` cached ones."""
    return Iteration(prompts=prompts, tokens=tokens, past=past)


@dataclass(frozen=True)
class ServingLine(LedgerLine):
    """A kernel, a move or a wait of an iteration. `compute_s` and `memory_s` are the seconds of its FLOPs at the peak
    of its format and of its bytes at the memory's bandwidth: the bytes that no fusion can save, weights and cached
    keys, once each (activations may stay on the chip, so a bound leaves them out). `issued` are the kernels that it
    launches, `volume` the bytes of a move's array as one group sees it."""

    compute_s: Number = 0.0
    memory_s: Number = 0.0
    issued: Number = 0.0
    volume: Number = 0.0


def _sum_of(name: str) -> cached_property[Number]:
    """A quantity of a group's lines over all the times they run."""
    return cached_property(lambda group: sum(getattr(line, name) * line.times for line in group.lines))


@dataclass(frozen=True)
class LineGroup:
    """Some lines of an iteration as one: all kernels of a part of the model, or all moves over some axes. `exposed` is
    what the step waits for: expected seconds less those that hide under other kernels; `lower` and `roofline` are those
    at datasheet rates, line by line; `moved` are bytes of HBM."""

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
    """An iteration's seconds: its lines, and bounds and expectation as their sums. `sampling` has the gaps between
    kernels with it; the host needs `issuing` to launch the kernels and `streaming` to hand tokens out, whatever the
    chip does."""

    lines: list[ServingLine] = field(default_factory=list)
    host: Number = 0.0
    sampling: Number = 0.0
    issuing: Number = 0.0
    streaming: Number = 0.0

    @cached_property
    def terms(self) -> dict[str, LineGroup]:
        """Kernels by the term of the bill they are counted under."""
        return _grouped((line for line in self.lines if not line.moves), lambda line: line.term)

    @cached_property
    def wires(self) -> dict[tuple[str, ...], LineGroup]:
        """Moves by the mesh axes they go over."""
        return _grouped((line for line in self.lines if line.moves), lambda line: line.axes)

    @cached_property
    def compute(self) -> Number:
        return sum(term.compute for term in self.terms.values())

    @cached_property
    def memory(self) -> Number:
        return sum(term.memory for term in self.terms.values())

    @property
    def floor(self) -> Number:
        """Seconds below which the host does not go: issuing kernels one by one, streaming tokens out."""
        return maximum(self.issuing, self.streaming)

    @cached_property
    def lower(self) -> Number:
        """The busiest resource, everything else hidden under it."""
        return maximum(self.compute, self.memory, *(wire.lower for wire in self.wires.values()))

    @property
    def roofline(self) -> Number:
        """The book's bound: each kernel at the slower of its compute and its memory."""
        return sum(term.roofline for term in self.terms.values())

    @property
    def upper(self) -> Number:
        """Everything at datasheet rates, one after the other."""
        return self.compute + self.memory + sum(wire.lower for wire in self.wires.values())

    @cached_property
    def device(self) -> Number:
        """Expected seconds of the chip itself."""
        kernels = sum(term.expected for term in self.terms.values())
        return kernels + sum(wire.exposed for wire in self.wires.values()) + self.sampling

    @cached_property
    def expected(self) -> Number:
        """The expectation: the chip's kernels and wires, or the host where it cannot issue them as fast; and what of
        the host is not hidden."""
        return maximum(maximum(self.device, self.floor) + self.host, self.lower)

    def ledger(self, phase: str, held: Iterable[HeldLine] = ()) -> Ledger:
        """All lines, those that are only waited for too: `exposed_s` adds up to the expectation."""
        behind = maximum(self.floor - self.device, 0.0)
        rest = maximum(self.lower - (maximum(self.device, self.floor) + self.host), 0.0)
        waits = (("sampling", self.sampling), ("host", self.host), ("waiting for the host", behind))
        lines = [_wait(phase, name, seconds) for name, seconds in (*waits, ("at its bound", rest))]
        return Ledger([*self.lines, *lines], list(held))


def _wait(phase: str, name: str, seconds: Number) -> ServingLine:
    kind = name if name == "sampling" else "wait" if name == "at its bound" else "host"
    return ServingLine("step", phase, name, kind, term=name, expected_s=seconds, exposed_s=seconds)


def _grouped(lines: Iterable[ServingLine], key: Callable[[ServingLine], object]) -> dict:
    found: dict[object, LineGroup] = {}
    for line in lines:
        found.setdefault(key(line), LineGroup()).lines.append(line)
    return found
