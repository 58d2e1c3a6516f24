"""One iteration of an engine: what it computes, how long it takes at best, and how long to expect.

An iteration prefills pieces of prompts, advances decoding sequences by a token, or both. All new tokens go through the
products together; attention is apart for prompts and for single tokens; the head only sees the last token of each. At
best (`lower`) the busiest resource rules: the FLOPs of all kernels at the peak, the bytes of weights and caches at the
memory's bandwidth, or the bytes of one set of wires. `roofline` is the book's bound: kernel by kernel, the slower of
compute and memory. The expectation adds what profiles and engines say, one kernel after the other, and is never below
`lower`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from dragonscale.collectives import Options, collective_time
from dragonscale.collectives.group import Group, Switches
from dragonscale.collectives.profile import expected_time, shared_profile
from dragonscale.kernels import memory_seconds
from dragonscale.models.program import Section
from dragonscale.numbers import Number, maximum
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.exchange import sent_share
from dragonscale.serving.reading import Kernel, Move, read_forward
from dragonscale.serving.work import (
    EXPERT_KERNELS,
    Attended,
    Bench,
    Work,
    decode_work,
    expert_work,
    pointwise_work,
    product_work,
    prompt_work,
    recurrent_work,
)
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_size

EXACT = Options(exact=True)


@dataclass(frozen=True)
class Iteration:
    """What one iteration computes; numbers or arrays of one length.

    `decodes` sequences that hold `keys` tokens each get `queries` new ones (one, or drafts to verify and one); `prompts`
    pieces of `tokens` new tokens each are prefilled, with `past` tokens of theirs cached already.
    """

    decodes: Number = 0
    keys: Number = 0
    queries: Number = 1
    prompts: Number = 0
    tokens: Number = 0
    past: Number = 0

    def arrays(self) -> dict[str, Any]:
        """Every field as an array, all of one length."""
        values = [numpy.atleast_1d(numpy.asarray(getattr(self, name), float)) for name in self.__dataclass_fields__]
        wide = numpy.broadcast_arrays(*values)
        return dict(zip(self.__dataclass_fields__, wide, strict=True))


def decode(batch: Number, keys: Number, queries: Number = 1) -> Iteration:
    """A step in which `batch` sequences that hold `keys` tokens each get their next one."""
    return Iteration(decodes=batch, keys=keys, queries=queries)


def prefill(tokens: Number, prompts: Number = 1, past: Number = 0) -> Iteration:
    """A step that prefills `prompts` pieces of `tokens` tokens after `past` cached ones."""
    return Iteration(prompts=prompts, tokens=tokens, past=past)


@dataclass
class Term:
    """One kind of work in an iteration, over all layers."""

    expected: Number = 0.0
    compute: Number = 0.0
    memory: Number = 0.0
    roofline: Number = 0.0
    flops: Number = 0.0
    moved: Number = 0.0
    kernels: float = 0.0

    def add(self, work: Work, bandwidth: float, times: float) -> None:
        least = maximum(work.compute, work.moved / bandwidth)
        self.expected = self.expected + maximum(work.seconds, least) * times
        self.compute = self.compute + work.compute * times
        self.memory = self.memory + work.moved / bandwidth * times
        self.roofline = self.roofline + least * times
        self.flops = self.flops + work.flops * times
        self.moved = self.moved + work.moved * times
        self.kernels += work.issued * times


@dataclass
class Wire:
    """The moves over one set of axes: bandwidth bound, expectation, bytes that cross."""

    lower: Number = 0.0
    expected: Number = 0.0
    volume: Number = 0.0
    count: Number = 0.0


@dataclass
class Cost:
    """An iteration's seconds: bounds, expectation, and the terms they are made of."""

    terms: dict[str, Term] = field(default_factory=dict)
    wires: dict[tuple[str, ...], Wire] = field(default_factory=dict)
    host: Number = 0.0
    sampling: Number = 0.0
    issuing: Number = 0.0
    streaming: Number = 0.0

    @property
    def compute(self) -> Number:
        return sum(term.compute for term in self.terms.values())

    @property
    def memory(self) -> Number:
        return sum(term.memory for term in self.terms.values())

    @property
    def floor(self) -> Number:
        """Seconds below which the host does not go: issuing kernels one by one, streaming tokens out."""
        return maximum(self.issuing, self.streaming)

    @property
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

    @property
    def device(self) -> Number:
        """Expected seconds of the chip itself."""
        return (
            sum(term.expected for term in self.terms.values())
            + sum(wire.expected for wire in self.wires.values())
            + self.sampling
        )

    @property
    def expected(self) -> Number:
        """The expectation: the chip's kernels and wires, or the host where it cannot issue them as fast; and what of the host
        is not hidden."""
        return maximum(maximum(self.device, self.floor) + self.host, self.lower)


def iteration_cost(deployment: Deployment, iteration: Iteration, whole: bool = False) -> Cost:
    """The cost of an iteration (or of many: arrays) on one copy of the model.

    With a pipeline the batch is cut into as many parts as there are stages, which follow each other through them; the
    iteration takes as long as one part's way through all layers. With `whole` it is one such part already.
    """
    arrays = iteration.arrays()
    stages = 1 if whole else deployment.plan.pipe
    arrays["decodes"] = _part(arrays["decodes"], stages)
    pieces = _part(arrays["prompts"], stages)
    cut = arrays["prompts"] / numpy.maximum(pieces, 1.0) / stages
    arrays |= {
        "tokens": arrays["tokens"] * cut,
        "past": arrays["past"] + arrays["tokens"] * (1 - cut),
        "prompts": pieces,
    }
    decodes = arrays["decodes"] > 0
    if decodes.all() or not decodes.any():
        return _cost(deployment, arrays, prompt=not decodes.any())
    if len(numpy.atleast_1d(deployment.plan.tensor)) > 1:
        raise AssertionError("one structure of iteration at a time for many plans")
    return _merged(deployment, arrays, decodes)


def _part(count: Any, stages: Number) -> Any:
    """How many of some sequences are in one of the parts that a pipeline's batch is cut into."""
    return numpy.where(count > 0, numpy.maximum(count / stages, 1.0), 0.0)


def _merged(deployment: Deployment, arrays: dict[str, Any], decodes: Any) -> Cost:
    """Iterations with and without decoding sequences, each read in its own form."""
    whole = Cost()
    for mask, prompt in ((decodes, False), (~decodes, True)):
        part = _cost(deployment, {name: array[mask] for name, array in arrays.items()}, prompt)
        _scatter(whole, part, mask)
    return whole


def _scatter(whole: Cost, part: Cost, mask: Any) -> None:
    def put(record: Any, values: Any) -> None:
        for name in record.__dataclass_fields__:
            value = getattr(values, name)
            if name == "kernels":
                setattr(record, name, max(getattr(record, name), value))
            elif name not in ("terms", "wires"):
                old = getattr(record, name)
                full = old if isinstance(old, numpy.ndarray) else numpy.zeros(len(mask))
                full[mask] = value
                setattr(record, name, full)

    put(whole, part)
    for name, term in part.terms.items():
        put(whole.terms.setdefault(name, Term()), term)
    for axes, wire in part.wires.items():
        put(whole.wires.setdefault(axes, Wire()), wire)


def _cost(deployment: Deployment, arrays: dict[str, Any], prompt: bool) -> Cost:
    engine = deployment.engine
    bench = Bench(deployment.kernels, engine, deployment.plan, Mesh(deployment.axes))
    cost = Cost()
    new = arrays["decodes"] * arrays["queries"] + arrays["prompts"] * arrays["tokens"]
    last = arrays["decodes"] * arrays["queries"] + arrays["prompts"]
    for section in deployment.sections if prompt else deployment.decoding:
        tokens = last if section.name == "head" else new
        sizes: dict[str, Number] = {**section.dims, "b": tokens, "t": 1.0, "s": 1.0, "m": 1.0}
        if prompt and section.name != "head":
            sizes |= {"b": arrays["prompts"], "t": arrays["tokens"], "s": arrays["tokens"] + arrays["past"]}
            sizes["m"] = sizes["s"] / (section.compress or 1)
        _add_section(cost, deployment, section, sizes, arrays, tokens, bench, prompt)
    if not prompt and numpy.any(arrays["prompts"] > 0):
        _add_prompts(cost, deployment, arrays, bench)
    _add_host(cost, deployment, arrays, last, bench)
    return cost


def _add_section(
    cost: Cost, deployment: Deployment, section: Section, sizes: dict[str, Number], arrays: dict[str, Any],
    tokens: Number, bench: Bench, prompt: bool,
) -> None:  # fmt: skip
    reading = read_forward(section, deployment.rules(prompt))
    bandwidth = bench.profile.bandwidth
    products: dict[tuple[object, ...], list[Kernel]] = {}

    def add(work: Work) -> None:
        cost.terms.setdefault(work.part, Term()).add(work, bandwidth, section.repeat)

    sequences = arrays["prompts"] if prompt else arrays["decodes"] * arrays["queries"]  # guesses keep a state each
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            routed = any(dim.select for weight in kernel.op.weights for dim in weight.dims)
            alone = () if bench.engine.kernels.joined else (len(products),)
            key = ("experts",) if routed else (kernel.part, *(array.name for array in kernel.op.inputs), *alone)
            products.setdefault(key, []).append(kernel)
        elif kernel.function in ("attend", "score"):
            if prompt:
                seen = Attended(arrays["prompts"], arrays["tokens"], arrays["tokens"] + arrays["past"])
                add(prompt_work(kernel, section, seen, sizes, bench))
            else:
                seen = Attended(arrays["decodes"], arrays["queries"], arrays["keys"] + arrays["queries"])
                add(decode_work(kernel, section, seen, sizes, bench))
        elif kernel.function in ("scan", "delta"):
            add(recurrent_work(kernel, section, tokens, sequences, sizes, bench))
        else:
            add(pointwise_work(kernel, sizes, bench))
    for key, kernels in products.items():
        add(expert_work(kernels, tokens, sizes, bench) if key == ("experts",) else product_work(kernels, sizes, bench))
    _add_moves(cost, deployment, reading.moves, sizes, section.repeat, prompt)


def _add_prompts(cost: Cost, deployment: Deployment, arrays: dict[str, Any], bench: Bench) -> None:
    """Attention of prompts that share an iteration with decoding sequences."""
    bandwidth = bench.profile.bandwidth
    seen = Attended(arrays["prompts"], arrays["tokens"], arrays["tokens"] + arrays["past"])
    some = arrays["prompts"] > 0
    for section in deployment.sections:
        sizes: dict[str, Number] = {
            **section.dims,
            "b": arrays["prompts"],
            "t": arrays["tokens"],
            "s": seen.keys,
            "m": 1.0,
        }
        for kernel in read_forward(section, deployment.rules(prompt=True)).kernels:
            if kernel.function in ("attend", "score"):
                work = prompt_work(kernel, section, seen, sizes, bench)
                masked = {
                    name: numpy.where(some, getattr(work, name), 0.0)
                    for name in ("flops", "compute", "moved", "seconds")
                }
                cost.terms.setdefault("scores", Term()).add(replace(work, **masked), bandwidth, section.repeat)


def _add_moves(
    cost: Cost, deployment: Deployment, moves: tuple[Move, ...], sizes: dict[str, Number], times: float, prompt: bool
) -> None:
    """Moves of one kind that partial products over the same width leave behind travel as one message."""
    mesh = Mesh(deployment.axes)
    bundles: dict[tuple[object, ...], tuple[Move, Number]] = {}
    for number, move in enumerate(moves):
        width = move.step.axes == ("width",)
        key = (move.part, move.step.kind, move.step.axes) if width else (number,)
        volume = _volume(move, sizes, mesh)
        known = bundles.get(key)
        bundles[key] = (move, volume + (known[1] if known else 0.0))
    for move, volume in bundles.values():
        step = move.step
        size = mesh.size(*step.axes)
        if numpy.all(size == 1):
            continue
        group = deployment.wires.group(step.axes)
        profile = deployment.exchange_network if move.what == "expert" else deployment.network
        if move.what == "expert":
            volume = volume * sent_share(step, group, sizes.get("x", 1), deployment.engine, prompt)
        wire = cost.wires.setdefault(step.axes, Wire())
        lower = collective_time(step.kind, volume, group, EXACT).bandwidth
        taken = expected_time(step.kind, volume, group, shared_profile(profile, group), EXACT)
        alone = numpy.asarray(size) <= 1
        wire.lower = wire.lower + numpy.where(alone, 0.0, lower) * times
        slow = deployment.engine.collectives.slowdown if _within_node(group) else 1.0
        wire.expected = wire.expected + numpy.where(alone, 0.0, taken) * times * slow
        wire.volume = wire.volume + numpy.where(alone, 0.0, volume) * times
        wire.count = wire.count + numpy.where(alone, 0.0, 1.0) * times


def _within_node(group: Group) -> bool:
    """Whether messages stay under the lowest switches, where engines have collectives of their own."""
    return not isinstance(group, Switches) or bool(numpy.all(group.size * group.stride <= group.levels[0].degree))


def _volume(move: Move, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Bytes of a move's array as one group sees it, dims never split below one element."""
    step = move.step
    array = step.after if step.kind in ("all_gather", "permute") else step.before
    held: Number = 2.0
    for dim in array.dims:
        held = held * local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes))
    return held * mesh.size(*step.axes) if step.kind == "all_to_all" else held


def _add_host(cost: Cost, deployment: Deployment, arrays: dict[str, Any], last: Any, bench: Bench) -> None:
    """Sampling, what of the host is exposed, and the host's pace where kernels are issued one by one."""
    engine = deployment.engine
    vocab = deployment.model.vocab
    ways = bench.mesh.size("data")
    cost.sampling = engine.host.sample_s + memory_seconds(last / ways * vocab * engine.host.sample_bytes, bench.profile)
    own = (
        engine.host.sequence_s * arrays["decodes"]
        + engine.host.prompt_s * arrays["prompts"]
        + engine.host.token_s * arrays["prompts"] * arrays["tokens"]
    )
    cost.host = engine.host.step_s + own / ways
    issued = sum(term.kernels for term in cost.terms.values()) + sum(wire.count for wire in cost.wires.values())
    gaps = engine.kernels.gap_s * issued
    replayed = numpy.where(arrays["prompts"] > 0, engine.host.prompt_graphs, engine.host.graphs)
    cost.sampling = cost.sampling + gaps
    routed = cost.terms["experts"].kernels / EXPERT_KERNELS if "experts" in cost.terms else 0.0
    pace = (
        issued * engine.host.kernel_s
        + routed * engine.host.expert_layer_s
        + deployment.latent * engine.host.latent_layer_s
    )
    cost.issuing = numpy.where(replayed, 0.0, pace)
    cost.streaming = engine.host.stream_s * last
