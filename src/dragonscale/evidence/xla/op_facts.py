"""An array with its layout as facts: sizes in memory, padding, tiles. One instruction decoded: what it is called, what
it makes, reads and runs; its FLOPs and bytes; on a chip, its shortest time."""

import msgspec

from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.device_groups import GroupShape, group_shape
from dragonscale.evidence.xla.hlo_text import source_line
from dragonscale.evidence.xla.layouts import JOINED, Placed, Shape, read_arrays
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes
from dragonscale.evidence.xla.op_work import op_bound, op_work
from dragonscale.evidence.xla.shardings import sharding_of
from dragonscale.physics.hardware import Chip

# Instructions whose operands are no values: a parameter's number, a constant's literal.
_WITHOUT_OPERANDS = ("parameter", "constant", "iota")


class ArrayFacts(msgspec.Struct):
    """`physical` are the sizes in the order of memory, major first; `padded` the same in whole tiles. `*` in a tile
    joins a dim with the next minor one. `expansion` is how much more memory it takes than its elements."""

    text: str
    dtype: str
    shape: list[int]
    minor_to_major: list[int]
    physical: list[int]
    tiles: list[list[int | str]]
    padded: list[int]
    elements: int
    bytes: float
    padded_bytes: int
    expansion: float
    memory_space: int
    memory: str


def array_facts(array: Placed, text: str = "") -> ArrayFacts:
    """The facts of one array; `text` is how it was written, where that is known."""
    shape = array.shape
    return ArrayFacts(
        text=text or written_shape(shape),
        dtype=shape.dtype,
        shape=list(shape.dims),
        minor_to_major=list(array.minor_to_major),
        physical=list(array.physical),
        tiles=[["*" if size == JOINED else size for size in tile] for tile in array.tiles],
        padded=list(array.padded),
        elements=shape.elements,
        bytes=shape.bytes,
        padded_bytes=array.padded_bytes,
        expansion=array.expansion,
        memory_space=array.space,
        memory=array.memory,
    )


def written_shape(shape: Shape) -> str:
    """A shape as HLO writes it, without its layout."""
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


class Operand(msgspec.Struct):
    """A value that an instruction reads; its arrays where its type is known."""

    name: str
    arrays: list[ArrayFacts]


class OpFacts(msgspec.Struct):
    """An instruction. `bytes` of each memory are those of the elements; padding is apart."""

    name: str
    opcode: str
    kind: str
    detail: str
    results: list[ArrayFacts]
    operands: list[Operand]
    fusion_kind: str
    calls: list[str]
    matmuls: list[MatmulSizes]
    matmul_flops: float
    vector_flops: float
    transcendentals: float
    read_bytes: dict[str, float]
    written_bytes: dict[str, float]
    padding_bytes: dict[str, float]
    hbm_bytes: float
    intensity_flops_per_byte: float | None
    wire_bytes: float
    group: GroupShape | None
    half: str
    trips: int | None
    whole_shape: list[int] | None
    """The global sizes, where the line has a sharding."""
    scope: str
    source: str
    unknown: list[str]
    chip: str | None = None
    bound_s: float | None = None
    bound_by: str | None = None
    resources_s: dict[str, float] = {}


def op_facts(text: str, chip: Chip | None) -> OpFacts:
    """One line of HLO decoded, with its shortest time on a chip where one is given."""
    op = PlacedOp.alone(text)
    instruction = op.instruction
    work = op_work(op, chip.kind if chip and chip.kind in ("tpu", "gpu") else "")
    names = () if instruction.opcode in _WITHOUT_OPERANDS else instruction.operands
    split = sharding_of(instruction)
    whole = split.whole(instruction.shapes[0].dims) if split and len(instruction.shapes) == 1 else None
    facts = OpFacts(
        name=work.name,
        opcode=work.opcode,
        kind=work.kind,
        detail=work.detail,
        results=[array_facts(array) for array in read_arrays(instruction.result)],
        operands=[
            Operand(name, list(map(array_facts, read_arrays(type_text))))
            for name, type_text in zip(names, op.types, strict=False)
        ],
        fusion_kind=instruction.attribute("kind") if instruction.opcode == "fusion" else "",
        calls=[name for _, name in instruction.callees],
        matmuls=list(work.matmuls),
        matmul_flops=work.matmul_flops,
        vector_flops=work.vector_flops,
        transcendentals=work.transcendentals,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
        padding_bytes=work.padding_bytes,
        hbm_bytes=work.hbm_bytes,
        intensity_flops_per_byte=work.flops / work.hbm_bytes if work.hbm_bytes else None,
        wire_bytes=work.wire_bytes,
        group=group_shape(work.groups) if work.groups else None,
        half=work.half,
        trips=work.trips,
        whole_shape=list(whole) if whole else None,
        scope=instruction.op_name,
        source=source_line(instruction.text, {}),
        unknown=list(work.unknown),
    )
    if chip is not None:
        bound = op_bound(work, chip)
        facts.chip, facts.bound_s, facts.bound_by = chip.title, bound.seconds, bound.by
        facts.resources_s = bound.parts
    return facts
