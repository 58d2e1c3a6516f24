"""What a collective sends: its groups and bytes, from its own line or from the instruction inside the fusion or start
around it.

What one instruction does: its kind, FLOPs, bytes by memory, and what it sends to other devices.

`work_of` reads an instruction in its module; `work_of_text` one line on its own, as a profile has it, where shapes must
be in the line and what is inside a fusion can only be guessed from names and sizes. Numbers are those of one execution
on one device, and whatever could not be known is said in `unknown`, never counted as nothing without a word.

>>> work = work_of_text(
...     "%dot.4 = bf16[64,512]{1,0} dot(bf16[64,256]{1,0} %x, bf16[256,512]{1,0} %w), "
...     "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
... )
>>> work.kind, work.matmul_flops == 2 * 64 * 256 * 512, work.hbm_bytes == 2 * (64 * 256 + 256 * 512 + 64 * 512)
('matmul', True, True)
>>> work_of_text(
...     "%g = bf16[8,16]{1,0} all-gather(bf16[8,4]{1,0} %p), replica_groups=[2,4]<=[8], dimensions={1}"
... ).wire_bytes
192.0

The shortest time an op can take on a chip: its busiest resource at datasheet rates.

Matmuls go at the matrix unit's rate for their type, the rest of the arithmetic at the vector unit's where that is known
(a transcendental function counts as one operation, so this is a bound from below), attention with a causal mask
computes half of its scores, bytes of the main memory at its bandwidth with the padding that moves along, and a
collective's bytes at everything a chip can send at once.

>>> from dragonscale.evidence.xla.op_work import work_of_text
>>> from dragonscale.physics.hardware import load_chip
>>> work = work_of_text(
...     "%d = bf16[8192,8192] dot(bf16[8192,8192] %x, bf16[8192,8192] %w), "
...     "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
... )
>>> bound = op_bound(work, load_chip("v5e"))
>>> bound.by, round(bound.seconds * 1e3, 2)
('compute', 5.58)

The work of a whole program on one device: every op that runs, how often, and the sums.

A fusion is one op, what an asynchronous start wraps belongs to the start, a loop's body counts as often as the loop
runs (once, and said so, where nothing tells). FLOPs of matmuls are those of `read_matmuls`; a conditional counts its
dearest branch.
"""

import re
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla import device_groups
from dragonscale.evidence.xla.call_graph import UNKNOWN, PlacedOp, trip_count
from dragonscale.evidence.xla.device_groups import Groups
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, source_line
from dragonscale.evidence.xla.layouts import MEMORIES
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes, matmul_sizes, suspected_matmul
from dragonscale.evidence.xla.op_costs import op_bytes, op_flops, upper_executions
from dragonscale.evidence.xla.op_kinds import kind_of
from dragonscale.evidence.xla.opcodes import COLLECTIVES, DTYPES
from dragonscale.evidence.xla.patterns import scheduled_computations
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware.chip import Chip, Torus

_COLLECTIVE = re.compile(
    r"(all-gather|all-reduce|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast|send)(-start)?"
)
_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")


def op_wire(op: PlacedOp, kind: str) -> dict[str, Any]:
    """What one execution sends, as fields of `OpWork`: bytes, the size of a group (two in a permute), the groups, and
    what could not be known. The line of a fusion does not show its groups; then only their absence can be said."""
    inner = _collective(op)
    if inner is None:
        size = _grown(op, kind)
        return {"wire_bytes": _sent(op, kind, size) if size else 0.0, "group_size": size, "unknown": (GROUP,)}
    try:
        groups = _groups(inner)
    except InputError as error:
        return {"unknown": (f"its groups ({error})",)}
    if not groups:
        return {"unknown": (GROUP,)}
    size = len(groups[0])
    return {"wire_bytes": _sent(inner, kind, size), "group_size": size, "groups": groups}


def _collective(op: PlacedOp) -> PlacedOp | None:
    """The collective itself: the instruction, or the one in what it calls."""
    waiting, seen = [op], set[str]()
    while waiting:
        each = waiting.pop(0)
        if _COLLECTIVE.fullmatch(each.instruction.opcode):
            return each
        waiting += [inner for inner in each.inside if inner.where.name not in seen]
        seen |= {body.name for body in each.bodies}
    return None


def _groups(op: PlacedOp) -> Groups:
    instruction = op.instruction
    if instruction.opcode in device_groups.TRANSFERS:
        transfer = device_groups.read_transfer(instruction)
        return transfer.groups if transfer else ()
    if instruction.opcode.startswith("collective-permute"):
        return device_groups.source_target_pairs(instruction.attribute("source_target_pairs"))
    text = instruction.attribute("replica_groups")
    if text and text != "{}":
        return device_groups.replica_groups(text)
    count = max((int(count) for count in _DEVICES.findall(op.module.header)), default=0)
    return (tuple(range(count)),) if 1 < count <= 1 << 20 else ()


def _sizes(op: PlacedOp) -> tuple[float, float]:
    """Bytes of the operands and of the results."""
    return sum(shape.bytes for shape in op.arrays), sum(shape.bytes for shape in op.instruction.shapes)


def _sent(op: PlacedOp, kind: str, size: int) -> float:
    """Bytes that each device sends: a gather's volume is its result, the others' their operands."""
    (before, after), opcode = _sizes(op), op.instruction.opcode
    if opcode.endswith("-start") and opcode != "all-reduce-start" and after > before:
        after -= before  # the result names its operands too
    if not before:  # a line without its operands' shapes
        before = {"all_gather": after / size, "reduce_scatter": after * size}.get(kind, after)
    if kind == "broadcast":
        return before
    volume = {"all_gather": before * size, "all_to_all": before * size}.get(kind, before)
    return float(wire_bytes(kind, volume, size))


def _grown(op: PlacedOp, kind: str) -> int | None:
    """The size of the group of a gather or scatter, from how much larger one side is."""
    before, after = _sizes(op)
    large, small = (after, before) if kind == "all_gather" else (before, after)
    if kind not in ("all_gather", "reduce_scatter") or not small or large <= small or large % small:
        return None
    return int(large // small)


_MAIN = MEMORIES[0]
OPERANDS, INSIDE, FLOPS = "the shapes of its operands", "what it runs inside", "the FLOPs"
GROUP = "the devices of its group"
"""What may not be known of an instruction."""


class OpWork(msgspec.Struct, frozen=True):
    """The work of one execution of an instruction on one device, a loop's in all its turns. Bytes are those of the
    elements; `padding_bytes` are apart."""

    name: str
    opcode: str
    kind: str
    """`matmul`, `attention`, `elementwise`, `reduce`, `sort`, `gather`, `scatter`, a collective, `host`; `copy` moves
    data and computes nothing, `control` runs other instructions, `nothing` is only a name for a value; or `unknown`."""
    detail: str = ""
    """A word more about the kind: what a copy is for, a library's name, or `from its name` where the kind is a guess.
    """
    matmul_flops: float = 0.0
    vector_flops: float = 0.0
    transcendentals: float = 0.0
    read_bytes: dict[str, float] = {}
    """By memory: `HBM`, `VMEM`, `host` …"""
    written_bytes: dict[str, float] = {}
    padding_bytes: dict[str, float] = {}
    wire_bytes: float = 0.0
    """Bytes that a collective makes each device send, with the best algorithm."""
    group_size: int | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    """A collective's groups, or a permute's pairs."""
    half: str = ""
    """`start` or `done` of an asynchronous op: the work is the start's, the waiting is the done's."""
    trips: int | None = None
    """How often a loop's body runs each time."""
    matmuls: tuple[MatmulSizes, ...] = ()
    dtype: str = ""
    """Element type of the first matmul's operands, else of the result."""
    unknown: tuple[str, ...] = ()
    causal: bool = False
    """Whether it is attention with a causal mask: of its FLOPs, which count all scores as XLA does, half are computed.
    """

    @property
    def flops(self) -> float:
        """Matmul and vector FLOPs together."""
        return self.matmul_flops + self.vector_flops

    @property
    def computed_flops(self) -> float:
        """Matmul FLOPs that are computed."""
        return (0.5 if self.causal else 1.0) * self.matmul_flops

    @property
    def hbm_bytes(self) -> float:
        """Bytes read from and written to main memory, without padding."""
        return self.read_bytes.get(_MAIN, 0.0) + self.written_bytes.get(_MAIN, 0.0)

    @property
    def moved_bytes(self) -> float:
        """The same with padding, which is moved too."""
        return self.hbm_bytes + self.padding_bytes.get(_MAIN, 0.0)

    @property
    def is_collective(self) -> bool:
        """Whether it moves data between devices."""
        return self.kind in COLLECTIVES


def work_of_text(text: str, on: str = "") -> OpWork:
    """The work of one instruction by its line alone; `on` is `tpu`, `gpu`, `cpu` or not known. A line that is none is
    an `InputError`."""
    return op_work(PlacedOp.alone(text), on)


def work_of(module: Module, computation: Computation | str, instruction: Instruction | str, on: str = "") -> OpWork:
    """The work of one instruction of a module, with what it calls."""
    where = module.computations[computation] if isinstance(computation, str) else computation
    return op_work(
        PlacedOp(module, where, where.named[instruction] if isinstance(instruction, str) else instruction), on
    )


def op_work(op: PlacedOp, on: str = "") -> OpWork:
    """The work of an instruction where it stands."""
    try:
        return _work(op, on)
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, ArithmeticError, RecursionError) as error:
        name = shorten(op.instruction.name)
        raise InputError(f"The HLO instruction {name} cannot be read: {error!r:.120}.") from None


def _work(op: PlacedOp, on: str) -> OpWork:
    instruction, (kind, detail) = op.instruction, kind_of(op)
    half = next((word for word in ("start", "done", "update") if instruction.opcode.endswith(f"-{word}")), "")
    over = half in ("done", "update")
    unknown = _unseen(op) if kind != "nothing" and not over else []
    flops, sizes = op_flops(op), matmul_sizes(op)
    matmul = flops.matmul
    if kind in ("matmul", "attention") and not matmul and not over:
        suspected = suspected_matmul(instruction, op.types) if kind == "matmul" else None
        if stated := _stated_flops(instruction):
            matmul = stated
        elif suspected:
            matmul, sizes = suspected.flops, (suspected,)
            unknown.append("the matmul's sizes, which are worked out from the shapes around it")
        else:
            unknown.append(FLOPS)
    moved = op_bytes(op, on)
    wire = op_wire(op, kind) if kind in COLLECTIVES and not over else {}
    loop = instruction.opcode == "while" and not op.is_alone
    trips = trip_count(op.module, op.where.name, instruction) if loop else None
    if trips == UNKNOWN:
        trips = None
        unknown.append("how often the loop runs")
    known = {"half": half, "trips": trips, "matmuls": sizes, "unknown": (*unknown, *wire.pop("unknown", ()))}
    known |= {"matmul_flops": matmul, "vector_flops": flops.vector, "transcendentals": flops.transcendental}
    for what in ("read", "written", "padding"):
        known[f"{what}_bytes"] = {memory: size for (moves, memory), size in moved.items() if moves == what}
    dtype = sizes[0].dtype if sizes else instruction.shapes[0].dtype if instruction.shapes else ""
    causal = kind == "attention" and '"CAUSAL"' in instruction.text
    return OpWork(instruction.name, instruction.opcode, kind, detail, **known, **wire, dtype=dtype, causal=causal)


def _unseen(op: PlacedOp) -> list[str]:
    """What a line on its own, or a module with pieces missing, does not show."""
    unseen = [OPERANDS] if not all(op.types) and op.instruction.opcode not in ("parameter", "constant", "iota") else []
    names = [name for role, name in op.instruction.callees if role != "to_apply"]
    return unseen + [INSIDE] * any(not op.module.computations[name].instructions for name in names)


def _stated_flops(instruction: Instruction) -> float | None:
    """FLOPs that the author of a kernel stated beside it (Pallas's `cost_estimate`)."""
    config = instruction.config.get("custom_call_config")
    estimate = (config if isinstance(config, dict) else instruction.config).get("cost_estimate")
    try:
        return float(estimate["flops"]) if isinstance(estimate, dict) else None
    except (KeyError, TypeError, ValueError):
        return None


class OpBound(msgspec.Struct, frozen=True):
    """Seconds of the busiest resource, which it is, and the seconds of each."""

    seconds: float
    by: str
    parts: dict[str, float] = {}


def op_bound(work: OpWork, chip: Chip) -> OpBound:
    """The bound of one execution."""
    parts = {
        "compute": work.computed_flops / matmul_rate(chip, work.dtype),
        "vector unit": (work.vector_flops + work.transcendentals) / chip.vector.get("fp32", float("inf")),
        "HBM": work.moved_bytes / chip.bandwidth("hbm"),
        "host link": _hosted(work) / (chip.pcie or float("inf")),
        "network": work.wire_bytes / sending_rate(chip),
    }
    parts = {name: seconds for name, seconds in parts.items() if seconds > 0}
    by = max(parts, key=parts.__getitem__, default="nothing")
    return OpBound(parts.get(by, 0.0), by, parts)


def matmul_rate(chip: Chip, dtype: str) -> float:
    """FLOP/s of matmuls in an element type; a chip without a rate for it (float32 on a TPU) has that of bf16."""
    named = "fp8" if dtype.startswith("f8") else DTYPES.get(dtype, "bf16")
    try:
        return chip.peak(named)
    except InputError:
        return chip.peak("bf16")


def sending_rate(chip: Chip) -> float:
    """Bytes per second that a chip can send over all its links at once: both ways along every axis of a torus, or to
    its switch."""
    network = chip.network
    return 2 * network.axes * network.link if isinstance(network, Torus) else network.levels[0].bandwidth


def _hosted(work: OpWork) -> float:
    return max(work.read_bytes.get("host", 0.0), work.written_bytes.get("host", 0.0))


class RunningOp(msgspec.Struct, frozen=True):
    """An op of the program: where it stands, the work of one execution, and how often it runs."""

    where: str
    work: OpWork
    times: int
    scope: str
    source: str
    counted_once: bool = False
    """Whether it stands in a loop or branch that runs nobody knows how often."""


def running_ops(module: Module, on: str = "") -> list[RunningOp]:
    """Every op that does something, in order of its computations; loops and calls are there through what they run."""
    counts = upper_executions(module)
    ops: list[RunningOp] = []
    for name in scheduled_computations(module):
        times, once = (1, True) if counts[name] == UNKNOWN else (counts[name], False)
        for each in module.computations[name].instructions if times else ():
            work = work_of(module, name, each, on)
            if work.kind not in ("nothing", "control"):
                ops.append(RunningOp(name, work, times, each.op_name, source_line(each.text, module.frames), once))
    return ops
