"""An array with its layout as facts: sizes in memory, padding, tiles, where each element lies. One instruction decoded:
what it is called, makes, reads and runs; its FLOPs and bytes; on a chip, its shortest time."""

import tomllib
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from dragonscale.commands.record import Record, shared
from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.device_groups import GroupShape, group_shape
from dragonscale.evidence.xla.hlo_text import source_line
from dragonscale.evidence.xla.layouts import JOINED, MEMORIES, Placed, Shape, memory_name, offsets, read_arrays
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes
from dragonscale.evidence.xla.op_work import op_bound, op_work
from dragonscale.evidence.xla.shardings import sharding_of
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware import Chip

FEW = 4096
"""Elements up to which the record has the place of each."""


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


class LayoutFacts(Record):
    """One array; `offsets` is nested as its shape is, for small ones: the place of each element in memory, counted in
    elements."""

    array: ArrayFacts
    offsets: Any = None

    def headline(self) -> str:
        return f"{self.array.text}: {self.array.elements:,} elements in {self.array.memory}"


def array_facts(array: Placed, text: str = "") -> ArrayFacts:
    """The facts of one array."""
    shape = array.shape
    orders = list(shape.dims), list(array.minor_to_major), list(array.physical)
    tiles = [["*" if part == JOINED else part for part in tile] for tile in array.tiles]
    sizes = list(array.padded), shape.elements, shape.bytes, array.padded_bytes, array.expansion
    return ArrayFacts(text or written_shape(shape), shape.dtype, *orders, tiles, *sizes, array.space, array.memory)


def written_shape(shape: Shape) -> str:
    """A shape as HLO writes it, without its layout."""
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


def layout_facts(text: str) -> LayoutFacts:
    """The answer about a bare shape."""
    (array,) = read_arrays(text)
    facts = array_facts(array, text.strip())
    return LayoutFacts(facts, offsets(array) if facts.elements <= FEW else None)


class Operand(msgspec.Struct):
    """A value that an instruction reads; its arrays where its type is known."""

    name: str
    arrays: list[ArrayFacts]

    @property
    def told(self) -> str:
        """In words.

        >>> Operand("x", []).told
        'x'
        """
        shown = ", ".join(f"{one.dtype}[{','.join(map(str, one.shape))}] in {one.memory}" for one in self.arrays)
        return f"{self.name}: {shown}" if shown else self.name


class HloOp(Record):
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

    def headline(self) -> str:
        at_best = f", {self.bound_s:.3g} s at best" if self.bound_s else ""
        return f"{self.name}: {self.kind}, {self.matmul_flops + self.vector_flops:.4g} FLOPs{at_best}"


def op_answer(text: str, chip: Chip | None) -> HloOp:
    """The answer about one line."""
    op = PlacedOp.alone(text)
    instruction, work = op.instruction, op_work(op, chip.kind if chip and chip.kind in ("tpu", "gpu") else "")
    named = instruction.operands if instruction.opcode not in ("parameter", "constant", "iota") else ()
    split = sharding_of(instruction)
    whole = split.whole(instruction.shapes[0].dims) if split and len(instruction.shapes) == 1 else None
    bound = op_bound(work, chip) if chip else None
    known = shared(
        HloOp,
        work,
        results=[array_facts(each) for each in read_arrays(instruction.result)],
        operands=[
            Operand(name, [array_facts(array) for array in read_arrays(text)])
            for name, text in zip(named, op.types, strict=False)
        ],
        fusion_kind=instruction.attribute("kind") if instruction.opcode == "fusion" else "",
        calls=[name for _, name in instruction.callees],
        intensity_flops_per_byte=work.flops / work.hbm_bytes if work.hbm_bytes else None,
        group=group_shape(work.groups) if work.groups else None,
        whole_shape=list(whole) if whole else None,
        scope=instruction.op_name,
        source=source_line(instruction.text, {}),
    )
    if chip and bound:
        known |= {"chip": chip.title, "bound_s": bound.seconds, "bound_by": bound.by, "resources_s": bound.parts}
    # lists, as `rows` leaves lists out
    listed: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
    return HloOp(**listed)


_NOTES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("topics.toml").read_text("utf-8"))
TOPICS = tuple(_NOTES)


class NotePoint(msgspec.Struct):
    """A point of a note: its name and what is to say of it."""

    name: str
    about: str = ""


class HloTopic(Record):
    """A note on reading HLO."""

    topic: str
    title: str
    points: list[NotePoint]
    example: str = ""

    def headline(self) -> str:
        return self.title


def topic(name: str) -> HloTopic:
    """One note."""
    scattered = wire_bytes("reduce_scatter", 1.0, 8) / wire_bytes("all_reduce", 1.0, 8)
    words = {f"memory_{space}": memory_name(space) for space in MEMORIES} | {"scattered": f"{scattered:.0%}"}
    points = [NotePoint(title, Template(about).substitute(words)) for title, about in _NOTES[name]["points"]]
    return HloTopic(name, _NOTES[name]["title"], points, _NOTES[name].get("example", ""))
