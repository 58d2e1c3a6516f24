"""What a serving plan says that one prefill, or one decode step, does on a chip: collectives, FLOPs, memory.

Collectives come from the serving planner's own reading of the forward pass (`serving.reading`). Weights never move. Attention
computes all the keys there is room for and masks those that are not there; experts work on as many rows as they have room
for; after a prompt only its last token goes through the head.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.collectives import wire_bytes
from dragonscale.evidence.verify.planned_moves import PlannedMove
from dragonscale.models.absorbed import absorbed
from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Program, Section
from dragonscale.numbers import product
from dragonscale.runtime.attention import BLOCK
from dragonscale.runtime.decode import cached
from dragonscale.runtime.expert_exchange import capacity_for
from dragonscale.runtime.place import steps
from dragonscale.runtime.serving_place import ServingPlace
from dragonscale.serving.reading import ForwardMove as Move, read_forward
from dragonscale.serving.rules import HEADS
from dragonscale.sharding.mesh import Mesh

WIDTH = 2.0
"""Bytes of a bf16 number: what is served in."""


PADDED = 8
"""XLA fills the rows and columns of half-precision products on GPUs up to multiples of this, for the tensor cores: the query
heads that share a KV head are often fewer."""


@dataclass(frozen=True)
class Serving:
    """One step's sizes: `tokens` new ones of each of `batch` sequences (1 while decoding), room for `length`."""

    program: Program
    place: ServingPlace
    batch: int
    tokens: int
    length: int
    capacity: float = 1.0
    chip: str = "gpu"

    @property
    def decoding(self) -> bool:
        return not self.place.rules.prompt

    @property
    def sections(self) -> list[Section]:
        found = self.program.sections
        return [
            absorbed(section) if self.decoding and section.name in self.program.order else section for section in found
        ]

    def sizes(self, section: Section) -> dict[str, int]:
        tokens = 1 if section.name == "head" else self.tokens
        found = {**section.dims, "b": self.batch, "t": tokens, "s": self.length}
        return {**found, "k": 1} if "k" in found and self.place.copied("k", section.dims) else found

    def filled(self, rows: float) -> float:
        """Rows of a product as the compiler computes them."""
        return PADDED * math.ceil(rows / PADDED) if self.chip == "gpu" else rows

    def rows(self, section: Section) -> int:
        """Rows that one chip routes: of its own sequences, or of all where they are gathered."""
        ways = 1 if self.place.gathered_axes else self.place.ways(("data",))
        return self.batch // ways * self.tokens * section.dims["x"]

    def room(self, section: Section) -> int:
        """Rows of each expert from each sender."""
        return capacity_for(self.rows(section), section.dims["e"], self.capacity)


def serving_moves(what: Serving) -> list[PlannedMove]:
    """Every collective of a step."""
    found: list[PlannedMove] = []
    for section in what.sections:
        for move in read_forward(section, what.place.rules).moves:
            found += _costed(section, move, what)
        found += _choices(section, what)
    return [move for move in found if move.wire_bytes > 0]


def _costed(section: Section, move: Move, what: Serving) -> Iterator[PlannedMove]:
    place, mesh = what.place, Mesh(what.place.sizes)
    if move.step.kind == "all_to_all":
        axes = tuple(axis for axis in move.step.axes if axis in place.sizes)
        if axes:
            ways = place.ways(axes)
            held = what.room(section) * section.dims["e"] * section.dims["d"] * WIDTH
            sent = float(wire_bytes("all_to_all", held * ways, ways))
            yield _move("all_to_all", axes, "activation", move, section, sent)
        return
    before, after = place.fit(move.step.before, section.dims), place.fit(move.step.after, section.dims)
    for step in steps(before, after, tuple(place.sizes)):
        if not step.free:
            volume = float(step.volume(what.sizes(section), mesh)) / 2.0 * WIDTH
            sent = float(wire_bytes(step.kind, volume, mesh.size(*step.axes)))
            yield _move(step.kind, step.axes, "activation", move, section, sent)


def _move(kind: str, axes: tuple[str, ...], what: str, move: Move, section: Section, sent: float) -> PlannedMove:
    return PlannedMove(kind, axes, what, "forward", move.step.before.name, section.name, sent, section.repeat)


def _choices(section: Section, what: Serving) -> Iterator[PlannedMove]:
    """The router's choices and weights, which go where the tokens go."""
    if not any(op.function == "dispatch" for op in section.ops):
        return
    place = what.place
    if axes := place.gathered_axes:
        volume = what.rows(section) * 4.0
        sent = float(wire_bytes("all_gather", volume, place.ways(axes)))
        for name in ("experts", "P"):
            yield PlannedMove("all_gather", axes, "statistic", "forward", name, section.name, sent, section.repeat)
    if axes := place.expert_axes:
        ways = place.ways(axes)
        sent = float(wire_bytes("all_to_all", what.room(section) * section.dims["e"] * 4.0 * ways, ways))
        yield PlannedMove("all_to_all", axes, "statistic", "forward", "P", section.name, sent, section.repeat)


def serving_flops(what: Serving) -> dict[str, float]:
    """FLOPs of a step on one chip, by part; attention's own products stand apart as `scores`."""
    found: dict[str, float] = {}
    for section in what.sections:
        for op in section.ops:
            part, done = op.part, 0.0
            if op.function == "einsum":
                done = _product(section, op, what)
            elif op.function == "attend":
                part, done = "scores", _scores(section, op, what)
            if done:
                found[part] = found.get(part, 0.0) + section.repeat * done
    return found


def _product(section: Section, op: Op, what: Serving) -> float:
    place, sizes = what.place, what.sizes(section)
    laid = [place.fit(place.at_rest(array), section.dims) for array in (*op.inputs, *op.weights)]
    if any(dim.select for dim in op.weights[0].dims):
        weight = laid[-1]
        own = product(section.dims[dim.name] / place.ways(dim.axes) for dim in weight.dims if not dim.select)
        dealt = next(place.ways(dim.axes) for dim in weight.dims if dim.select)
        senders = place.ways(place.expert_axes)
        return 2.0 * section.dims["e"] / dealt * what.room(section) * senders * own
    ways = {dim.name: place.ways(dim.axes) for array in laid for dim in array.dims if dim.axes}
    rows = what.filled(sizes["b"] / ways.get("b", 1) * sizes["t"] / ways.get("t", 1))
    return 2.0 * rows * product(sizes[name] / ways.get(name, 1) for name in op.einsum.indices if name not in ("b", "t"))


def _heads(section: Section, op: Op, what: Serving) -> tuple[float, float, float]:
    """Query heads of one chip, and the channels of a key and of a value."""
    assert op.output is not None
    place = what.place
    query = place.fit(place.rules.attending(op.inputs[0]), section.dims)
    heads = section.dims["n"] / place.ways(query.dim("n").axes)
    if op.inputs[0].name == "Ql":
        return heads, section.dims["c"] + section.dims["r"], section.dims["c"]
    return heads, section.dims[op.inputs[0].names[-1]], section.dims[op.output.names[-1]]


def _scores(section: Section, op: Op, what: Serving) -> float:
    heads, key, value = _heads(section, op, what)
    batch = what.batch / what.place.ways(("data",))
    rows = heads * what.tokens
    if what.decoding and "k" in section.dims:
        kept = max(1.0, section.dims["k"] / what.place.ways(HEADS))
        rows = kept * what.filled(heads / kept)
    return 2.0 * batch * rows * what.length * (key + value)


def few_rows(what: Serving) -> bool:
    """Whether an expert has so few rows that a GPU compiler fills them up, or writes a loop instead of a product."""
    senders = what.place.ways(what.place.expert_axes)
    routed = [section for section in what.sections if "e" in section.dims]
    return what.chip == "gpu" and any(what.room(section) * senders < PADDED for section in routed)


@dataclass(frozen=True)
class ServingAlive:
    """How many of each are alive at the peak: FFN hidden dims, a block of scores (fp32), the residual stream, one layer's cache,
    logits (fp32)."""

    hidden: float
    scores: float
    residual: float
    cache: float
    logits: float


ALIVE = {
    ("gpu", True): ServingAlive(hidden=1.5, scores=0.5, residual=2.9, cache=1.0, logits=1.0),
    ("gpu", False): ServingAlive(hidden=2.0, scores=2.0, residual=6.0, cache=2.0, logits=1.0),
    ("tpu", True): ServingAlive(hidden=1.0, scores=1.0, residual=1.5, cache=1.0, logits=1.0),
    ("tpu", False): ServingAlive(hidden=2.0, scores=2.0, residual=6.0, cache=1.0, logits=1.0),
}
"""By compiler, and whether prompts are computed; on a dozen compiled programs the peak is within 7%."""


def serving_memory(what: Serving) -> dict[str, float]:
    """The peak by part; weights, cache and tokens are the program's arguments."""
    place, alive = what.place, ALIVE[what.chip, not what.decoding]
    weights = cache = hidden = scores = layer = 0.0
    for section in what.sections:
        sizes = what.sizes(section)
        seen: set[str] = set()
        for op in section.ops:
            for array in op.weights:
                if array.name not in seen and not (array.name in section.shared and section.name == "head"):
                    seen.add(array.name)
                    laid = place.fit(place.at_rest(array), section.dims)
                    weights += section.repeat * WIDTH * weight_size(section, array) / place.ways(laid.axes)
            if op.function == "attend":
                heads, _, _ = _heads(section, op, what)
                block = BLOCK if what.tokens > BLOCK and what.tokens % BLOCK == 0 else what.tokens
                scores = max(scores, what.batch / place.ways(("data",)) * heads * block * what.length * 4.0)
            if op.function == "act" and op.output is not None:
                hidden = max(hidden, _activation(section, op, what))
        own = sum(
            float(
                product(sizes[d.name] / place.ways(d.axes) for d in place.fit(place.rules.cached(a), section.dims).dims)
            )
            for a in (cached(section) if section.name in what.program.order else [])
        )
        cache += section.repeat * WIDTH * own
        layer = max(layer, WIDTH * own)
    batch = what.batch / place.ways(("data",))
    width = what.program.sections[0].dims["d"]
    head = what.program.sections[-1]
    logits = head.ops[-1].output
    assert logits is not None
    split = place.ways(place.fit(place.at_rest(logits), head.dims).dim("v").axes)
    return {
        "weights": weights,
        "cache": cache,
        "tokens": 4.0 * batch * (what.tokens + 1),
        "FFN hidden": alive.hidden * hidden,
        "attention block": alive.scores * scores,
        "residuals": alive.residual * batch * what.tokens * width * WIDTH,
        "one layer's cache": alive.cache * layer,
        "logits": alive.logits * batch * head.dims["v"] / split * 4.0,
    }


def _activation(section: Section, op: Op, what: Serving) -> float:
    assert op.output is not None
    place, sizes = what.place, what.sizes(section)
    laid = place.fit(place.at_rest(op.output), section.dims)
    if "x" in op.output.names:
        share = section.dims["e"] / place.ways((*place.expert_axes, *place.picked_axes)) * place.ways(place.expert_axes)
        width = section.dims[op.output.names[-1]] / place.ways(laid.dims[-1].axes)
        return share * what.room(section) * width * WIDTH
    return WIDTH * float(product(sizes[dim.name] / place.ways(dim.axes) for dim in laid.dims))
