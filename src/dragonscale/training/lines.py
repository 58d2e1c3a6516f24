"""A section's kernels and moves in one microbatch, with FLOPs, bytes and seconds: numbers put into a reading.

Sizes are the dims of the section with b (sequences of one microbatch over the whole mesh), t and s; mesh axes are numbers, arrays
of equal length, or formulas. How long a kernel takes is asked of a `Timer`; at datasheet rates it is its FLOPs over the peak. Matmuls
that read the same tensor run as one: queries, keys and values; the two halves of a gated MLP. Gathers of a layer's weights, and
reductions of its gradients, travel in one message each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.collectives import wire_bytes
from dragonscale.hardware import Chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.flops import Workload, op_flops
from dragonscale.numbers import Number, ceil, floor, maximum, product
from dragonscale.plan.ledger import LedgerLine
from dragonscale.plan.reader import Kernel, Move, Reading
from dragonscale.sharding.layout import local_bytes
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_elements, local_sizes, matmul_dims
from dragonscale.sharding.placement import Wires
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack
from dragonscale.training.timers import AttentionShape, Timer
from dragonscale.training.travel import Network, bound_time, sent_once, travel_time

NARROW_PARTS = ("attention", "mlp", "experts", "shared")
"""Parts whose matmuls run in the plan's dtype; the head, the router and an indexer stay in bf16."""
LAUNCHES = {"route": 12.0, "dispatch": 8.0, "combine": 8.0, "attend": 2.0}
"""Kernels that a line stands for, where it is more than one: choosing experts, counting and sorting tokens."""
ATTENTION_BLOCK = 512
"""Queries that our own program's attention takes at once where it has no flash kernel."""
STATISTIC_BYTES = 4.0
"""Sums, maxima and the router's weights travel in fp32, in the same messages as what they belong to."""


@dataclass(frozen=True)
class PassLine(LedgerLine):
    """A line in one microbatch. `ops` are the places of the ops it computes, with their FLOPs; `launches` counts kernels, `experts`
    those of a grouped matmul."""

    ops: tuple[tuple[int, Number], ...] = ()
    launches: float = 0.0
    experts: Number = 0.0


@dataclass(frozen=True)
class Costing:
    """What lines are costed with. Without a `timer` nothing is expected; `detail` asks for FLOPs, bytes and bounds too, `statistics` for the
    small things that travel along."""

    plan: Plan
    stack: Stack
    chip: Chip
    timer: Timer | None
    network: Network
    detail: bool = True
    statistics: bool = True

    def peak(self, part: str) -> Number:
        """FLOP/s of a part's matmuls at best."""
        return self.chip.peak(self.plan.dtype if part in NARROW_PARTS else "bf16")


def section_lines(reading: Reading, sizes: dict[str, Number], wires: Wires, costing: Costing) -> list[PassLine]:
    """Every kernel and move of a pass through a section, forward and backward, once."""
    mesh = Mesh(wires.axes)
    room = expert_room(reading, sizes, mesh, costing.stack)
    lines = list(_kernel_lines(reading, sizes, mesh, costing, room))
    lines += _move_lines(reading, sizes, wires, costing, room)
    if costing.detail and costing.statistics:
        lines += _statistics(reading, sizes, mesh, room)
    return lines


def expert_room(reading: Reading, sizes: dict[str, Number], mesh: Mesh, stack: Stack) -> Number:
    """What experts compute over what is routed to them: where they have room for their share, that is a whole number of rows."""
    routed = next((op.output for op in reading.section.ops if op.function == "dispatch"), None)
    if routed is None or not stack.experts.capacity:
        return 1.0
    rows = local_elements(reading.rules.activation(routed), sizes, mesh, without=("d",))
    return maximum(1, ceil(floor(rows * stack.experts.capacity) / sizes["e"])) * sizes["e"] / rows


@dataclass
class _Matmul:
    """Matmuls that read the same tensor, as one: sizes on one chip."""

    kernel: Kernel
    m: Number
    n: Number
    k: Number
    batch: Number
    groups: Number | None
    ops: list[tuple[int, Number]]
    names: list[str]

    def join(self, other: "_Matmul") -> None:
        """Side by side: more columns, or for the gradient of what they read, a longer sum."""
        if self.kernel.phase == "dgrad":
            self.k = self.k + other.k
        else:
            self.n = self.n + other.n
        self.ops += other.ops
        self.names += other.names


def _matmul_of(kernel: Kernel, sizes: dict[str, Number], mesh: Mesh, room: Number) -> _Matmul:
    local = local_sizes(kernel.arrays, sizes, mesh)
    rows, columns, summed, batch, experts = matmul_dims(kernel.arrays)
    m, n, k = (product(local[name] for name in names) for names in (rows, columns, summed))
    many = product(local[name] for name in batch)
    groups = product(local[name] for name in experts) if experts else None
    if groups is not None and kernel.phase == "wgrad":
        k = k * room
    elif groups is not None:
        m = m * room
    name = (kernel.op.output or kernel.arrays[-1]).name if kernel.phase == "forward" else kernel.arrays[-1].name
    if kernel.phase == "wgrad":
        name = f"d{name}"
    return _Matmul(kernel, m, n, k, many, groups, [(kernel.line, 2 * m * n * k * many)], [name])


def _kernel_lines(
    reading: Reading, sizes: dict[str, Number], mesh: Mesh, costing: Costing, room: Number
) -> Iterator[PassLine]:
    matmuls: dict[tuple[object, ...], _Matmul] = {}
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            one = _matmul_of(kernel, sizes, mesh, room)
            key = (kernel.phase, kernel.part, *(array.name for array in kernel.op.inputs))
            matmuls[key].join(one) if key in matmuls else matmuls.setdefault(key, one)
        elif kernel.function in ("attend", "score"):
            yield _attention_line(kernel, reading, sizes, mesh, costing)
        else:
            yield _elementwise_line(kernel, reading, sizes, mesh, costing)
    for one in matmuls.values():
        yield _matmul_line(one, reading.section.name, costing)
    if reading.section.name == "head" and reading.kernels:
        yield from _loss_lines(reading, sizes, mesh, costing)


def _matmul_line(one: _Matmul, section: str, costing: Costing) -> PassLine:
    kernel, timer = one.kernel, costing.timer
    narrow = kernel.part in NARROW_PARTS
    seconds: Number = 0.0
    if timer is not None:
        cast = timer.cast(one.m * one.k * one.batch, narrow) if kernel.phase != "wgrad" else 0.0
        if one.groups is None:
            seconds = timer.matmul(one.m, one.n, one.k, one.batch, narrow) + cast
        else:
            wide = kernel.phase == "wgrad"
            rows, other, inner = (one.k, one.m, one.n) if wide else (one.m, one.n, one.k)
            seconds = timer.grouped(rows, other, inner, one.groups, narrow) + cast
    flops, held = 0.0, 0.0
    if costing.detail:
        flops = sum(done for _, done in one.ops)
        weights = one.n * one.k if one.groups is None else one.n * one.k * one.groups
        held = 2.0 * one.batch * (one.m * one.k + weights + one.m * one.n)
    return PassLine(
        section, kernel.phase, "+".join(one.names), "matmul" if one.groups is None else "grouped matmul",
        part=kernel.part, flops=flops, hbm_bytes=held, bound_s=flops / costing.peak(kernel.part) if costing.detail else 0.0,
        expected_s=seconds, ops=tuple(one.ops), launches=1.0, experts=0.0 if one.groups is None else one.groups,
    )  # fmt: skip


def _attention_line(
    kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, costing: Costing
) -> PassLine:
    section, query = reading.section, kernel.arrays[0]
    local = local_sizes(kernel.arrays, sizes, mesh)
    heads = local.get("n", local.get("i", 1))
    pieces = sizes["t"] / section.chunk if section.chunk is not None and section.chunk < sizes["t"] else 1
    shape = AttentionShape(
        batch=local["b"] * pieces,
        tokens=sizes["t"] / pieces,
        heads=heads,
        kv_heads=local.get("k", heads),
        head_dim=sizes.get("h", sizes.get("j", 128)),
        v_head_dim=sizes.get("g", sizes.get("h", 128)),
        context=mesh.size("context"),
        window=section.span,
    )
    backward = kernel.phase == "dgrad"
    flops = attention_flops(kernel, reading, sizes, mesh, costing.stack) if costing.detail else 0.0
    seconds = costing.timer.attention(shape, backward) if costing.timer is not None else 0.0
    read = 2.0 * sum(local_elements(array, sizes, mesh) for array in kernel.arrays) if costing.detail else 0.0
    return PassLine(
        section.name, kernel.phase, query.name if not backward else f"d{query.name}", "attention", part="scores",
        flops=flops, hbm_bytes=read, bound_s=flops / costing.chip.peak("bf16"), expected_s=seconds,
        ops=((kernel.line, flops),), launches=LAUNCHES.get(kernel.function, 1.0),
    )  # fmt: skip


def attention_flops(kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, stack: Stack) -> Number:
    """FLOPs of one pass of attention on a chip: of the pairs that are not masked, backward twice forward; or of the whole square,
    whose backward pass finds the scores again."""
    backward, query = kernel.phase == "dgrad", kernel.arrays[0]
    ways = mesh.size(*query.axes)
    if not stack.kernels.masked_square or kernel.function != "attend":
        section = replace(reading.section, dims=reading.section.dims | sizes)
        return (
            op_flops(section, kernel.op, Workload(sizes["b"], sizes["t"], sizes["s"])) / ways * (2 if backward else 1)
        )
    key, value = attention_sizes(kernel, sizes)
    heads = product(sizes[name] for name in query.names[2:-1])
    pairs = 2.0 * sizes["b"] * sizes["t"] * sizes["s"] * heads / ways
    return pairs * (3 * key + 2 * value if backward else key + value)


def attention_sizes(kernel: Kernel, sizes: dict[str, Number]) -> tuple[Number, Number]:
    """Elements of a key and of a value of one head."""
    assert kernel.op.output is not None
    return sizes[kernel.op.inputs[0].names[-1]], sizes[kernel.op.output.names[-1]]


def _elementwise_line(
    kernel: Kernel, reading: Reading, sizes: dict[str, Number], mesh: Mesh, costing: Costing
) -> PassLine:
    arrays = tuple(array for array in kernel.arrays if "b" in array.names)
    local = local_sizes(arrays, sizes, mesh)
    moved = sum(
        product(local[dim.name] for dim in array.dims if dim.name in local) * dtype_bytes(array.dtype or "bf16")
        for array in arrays
    )
    backward = kernel.phase == "dgrad"
    routing = kernel.function in ("dispatch", "combine")
    moved = moved * (1.5 if backward and not routing else 1)
    seconds: Number = 0.0
    if costing.timer is not None:
        seconds = costing.timer.route(moved) if routing else costing.timer.memory(moved)
    name = kernel.op.output.name if kernel.op.output is not None else kernel.function
    return PassLine(
        reading.section.name, kernel.phase, f"d{name}" if backward else name, "elementwise", part="elementwise",
        hbm_bytes=moved, expected_s=seconds, ops=((kernel.line, 0.0),), launches=LAUNCHES.get(kernel.function, 1.0),
    )  # fmt: skip


def _loss_lines(reading: Reading, sizes: dict[str, Number], mesh: Mesh, costing: Costing) -> Iterator[PassLine]:
    """The cross-entropy over this chip's logits, forward and backward."""
    logits = reading.section.ops[-1].output
    assert logits is not None
    count = local_elements(reading.rules.activation(logits), sizes, mesh)
    both = costing.timer.loss(count) if costing.timer is not None else 0.0
    moved = count * costing.stack.kernels.loss_bytes / 2
    for phase in ("forward", "dgrad"):
        yield PassLine(
            reading.section.name, phase, "loss", "elementwise", part="elementwise", hbm_bytes=moved, expected_s=both / 2,
            launches=4.0,
        )  # fmt: skip


def _move_lines(
    reading: Reading, sizes: dict[str, Number], wires: Wires, costing: Costing, room: Number
) -> Iterator[PassLine]:
    bundles: dict[tuple[object, ...], list[tuple[Move, Number, Number]]] = {}
    mesh = Mesh(wires.axes)
    for move in reading.moves:
        if _still_there(move, reading, costing.stack):
            continue
        if move.ring:
            yield from _ring_lines(move, reading, sizes, wires, costing)
            continue
        volume = move.step.volume(sizes, mesh) * _width(move, costing)
        if move.step.kind == "all_to_all":
            volume = volume * room * (sent_once(sizes, wires, move.step.axes) if costing.stack.experts.dedup else 1.0)
        sent = wire_bytes(move.step.kind, volume, mesh.size(*move.step.axes)) if costing.detail else 0.0
        if move.what in ("activation", "expert"):
            yield _move_line(move, reading, volume, sent, wires, costing)
        else:
            key = (move.phase, move.what, move.step.axes, move.step.kind)
            bundles.setdefault(key, []).append((move, volume, sent))
    for several in bundles.values():
        yield from _bundle_lines(several, reading, wires, costing)


def _still_there(move: Move, reading: Reading, stack: Stack) -> bool:
    """Whether a program that keeps what it gathered for the head and the embedding does not move this again; a head that shares the
    embedding's weight only scatters its own part of the gradient."""
    section, name = reading.section, move.step.before.name
    if "block" in section.name or stack.recompute.whole:
        return False
    tied = section.name == "head" and name.removeprefix("d") in section.shared
    scattered = reading.rules.zero == 3 and move.step.kind == "reduce_scatter"
    return (move.phase == "backward" and not name.startswith("d")) or (tied and not scattered)


def _width(move: Move, costing: Costing) -> float:
    """Bytes of an element on the wire over those of bf16."""
    state = costing.stack.state
    if move.what == "weight":
        return (min(2.0, dtype_bytes(costing.plan.dtype)) if state.narrow_gathers else 2.0) / 2
    if move.what == "gradient":
        scattered = costing.plan.zero == 3 and move.step.kind == "reduce_scatter"
        return (state.scatter_bytes if scattered else state.reduce_bytes) / 2
    return 1.0


def _move_line(
    move: Move, reading: Reading, volume: Number, sent: Number, wires: Wires, costing: Costing, times: Number = 1
) -> PassLine:
    kind, axes = move.step.kind, move.step.axes
    return PassLine(
        reading.section.name, move.phase, move.step.before.name, kind, axes, times, part=move.part,
        carries="activation" if move.what == "expert" else move.what, wire_bytes=sent,
        bound_s=bound_time(kind, volume, axes, wires) if costing.detail else 0.0,
        expected_s=travel_time(kind, volume, axes, wires, costing.network), ops=((move.place, 0.0),),
    )  # fmt: skip


def _bundle_lines(
    several: list[tuple[Move, Number, Number]], reading: Reading, wires: Wires, costing: Costing
) -> Iterator[PassLine]:
    """Moves that travel as one message: its seconds are shared out by bytes, or given to the first where only sums are kept."""
    volume = sum(one for _, one, _ in several)
    whole = _move_line(several[0][0], reading, volume, sum(sent for _, _, sent in several), wires, costing)
    if not costing.detail:
        yield whole
        return
    for move, own, sent in several:
        part = own / maximum(volume, 1e-300)
        yield replace(
            whole, what=move.step.before.name, part=move.part, wire_bytes=sent,
            bound_s=whole.bound_s * part, expected_s=whole.expected_s * part, ops=((move.place, 0.0),),
        )  # fmt: skip


def _ring_lines(
    move: Move, reading: Reading, sizes: dict[str, Number], wires: Wires, costing: Costing
) -> Iterator[PassLine]:
    """Keys and values round a ring instead of a gather: all but one of the pieces pass each chip; their gradients go all the way
    home. The positions of the keys travel along."""
    mesh, step = Mesh(wires.axes), move.step
    gradient = step.kind == "reduce_scatter"
    ring = mesh.size(*step.axes)
    hops = (ring if gradient else ring - 1) * (ring > 1)
    piece = local_bytes(step.after if gradient else step.before, sizes, mesh)
    piece = piece * (costing.stack.state.ring_gradient_bytes / 2 if gradient else 1.0)
    hop = replace(move, step=replace(step, kind="permute"))
    line = _move_line(hop, reading, piece, piece, wires, costing, hops)
    yield line
    keys = step.before.name == next((op.inputs[1].name for op in reading.section.ops if op.function == "attend"), "")
    if keys and not gradient and costing.detail:
        tokens = sizes["b"] / mesh.size(*reading.rules.batch) * sizes["t"] / ring
        yield replace(line, what="positions", carries="statistic", wire_bytes=tokens * 4, bound_s=0.0, expected_s=0.0)


def _statistics(reading: Reading, sizes: dict[str, Number], mesh: Mesh, room: Number) -> Iterator[PassLine]:
    """Small things that go with the tokens: the router's weights of the rows sent to experts, and the sums of a softmax over a
    split vocabulary (each token's maximum and two sums forward, one sum of their gradients backward)."""
    rules, section = reading.rules, reading.section
    sends = next((line for line, op in enumerate(section.ops) if op.function == "dispatch"), None)
    if sends is not None and rules.exchange:
        routed = section.ops[sends].output
        assert routed is not None
        ways = mesh.size(*rules.exchange)
        rows = local_elements(rules.activation(routed), sizes, mesh, without=("d",)) * room
        sent = wire_bytes("all_to_all", rows * STATISTIC_BYTES * ways, ways)
        for phase in ("forward", "backward"):
            yield PassLine(
                section.name, phase, "P", "all_to_all", rules.exchange, part="experts", carries="statistic", wire_bytes=sent,
                ops=((sends, 0.0),),
            )  # fmt: skip
    logits = section.ops[-1].output
    if section.name == "head" and logits is not None:
        split = rules.activation(logits).dim("v").axes
        tokens = sizes["b"] / mesh.size(*rules.batch) * sizes["t"] / mesh.size(*rules.tokens)
        sent = wire_bytes("all_reduce", tokens * STATISTIC_BYTES, mesh.size(*split))
        for phase, times in (("forward", 3), ("backward", 1)):
            yield PassLine(
                section.name,
                phase,
                "loss",
                "all_reduce",
                split,
                times,
                part="head",
                carries="statistic",
                wire_bytes=sent,
            )
