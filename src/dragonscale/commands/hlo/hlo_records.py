"""What `dscale hlo` answers: an array with its layout, an instruction, a program, or a note on reading HLO."""

import tomllib
from pathlib import Path
from string import Template
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.evidence.xla.layouts import MEMORIES, memory_name, offsets, read_arrays
from dragonscale.evidence.xla.op_facts import ArrayFacts, OpFacts, array_facts
from dragonscale.evidence.xla.program_facts import ProgramFacts
from dragonscale.physics.collectives import wire_bytes

# Elements of an array up to which the position of each is listed.
MAX_OFFSETS = 4096


class LayoutFacts(Record):
    """One array; `offsets` is nested as its shape is, for small ones: the position of each element in memory, counted
    in elements."""

    array: ArrayFacts
    offsets: Any = None

    def headline(self) -> str:
        return f"{self.array.text}: {self.array.elements:,} elements in {self.array.memory}"


def layout_facts(text: str) -> LayoutFacts:
    """The answer about a bare shape."""
    (array,) = read_arrays(text)
    facts = array_facts(array, text.strip())
    return LayoutFacts(facts, offsets(array) if facts.elements <= MAX_OFFSETS else None)


class HloOp(OpFacts, Record):
    """An instruction decoded. `bytes` of each memory are those of the elements; padding is apart."""

    def headline(self) -> str:
        at_best = ""
        if self.bound_s:
            at_best = f", {self.bound_s:.3g} s at best"
        return f"{self.name}: {self.kind}, {self.matmul_flops + self.vector_flops:.4g} FLOPs{at_best}"


class HloModuleReport(ProgramFacts, Record):
    """A program on one device. Sums count what runs as often as it runs, and once where nobody knows how often."""

    ROWS: ClassVar[str] = "ops"

    listed: int = 12
    """Ops that the text lists."""

    def headline(self) -> str:
        at_best = ""
        if self.bound_s:
            at_best = f", {self.bound_s:.3g} s at best"
        name = self.name or "a program"
        return f"{name}: {self.matmul_flops:.4g} matmul FLOPs, {self.hbm_bytes:.4g} HBM bytes{at_best}"


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
    """A note by its name, with the numbers that its text leaves open."""
    # bytes of a reduce-scatter over those of an all-reduce, on 8 devices: the text says "half"
    scattered = wire_bytes("reduce_scatter", 1.0, 8) / wire_bytes("all_reduce", 1.0, 8)
    fields = {f"memory_{space}": memory_name(space) for space in MEMORIES} | {"scattered": f"{scattered:.0%}"}
    note = _NOTES[name]
    points = [NotePoint(title, Template(about).substitute(fields)) for title, about in note["points"]]
    return HloTopic(name, note["title"], points, note.get("example", ""))
