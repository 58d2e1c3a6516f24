"""How to read HLO: short notes that `dscale hlo TOPIC` shows, each with a line to try.

What a note says of memories and of the cost of a pattern is taken from the code that reads them, so that the two cannot
drift apart.
"""

import msgspec

from dragonscale.app.record import Record
from dragonscale.evidence.xla.layouts import MEMORIES, memory_name
from dragonscale.physics.collectives import wire_bytes
from dragonscale.sheets.sheet import Sheet


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

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.hlo.sheet import topic_sheet

        return topic_sheet(self)


_PIPELINE = (
    ("JAX/Python", "traced into a jaxpr: `jax.make_jaxpr(f)(x)`"),
    ("StableHLO", "what JAX hands to the compiler: `jax.jit(f).lower(x).as_text()`"),
    (
        "HLO (XLA, fused/laid out)",
        "partitioned, fused, with layouts and a schedule: `.compile().as_text()`, or the files of --xla_dump_to",
    ),
    ("LLO", "a TPU's own instructions: vector and matrix units, copies between memories (on a GPU: LLVM and PTX)"),
    ("TPU machine code", "bundles of instructions for each core"),
)
_GRAMMAR = (
    ("%fusion.3 =", "the name, unique in its computation"),
    (
        "bf16[32,32,4096]",
        "element type and sizes of the result, as one device holds it; in parentheses where there are several",
    ),
    ("{2,1,0:T(8,128)(2,1)S(1)}", "dims from minor to major, then tiles (T), then the memory (S)"),
    ("fusion(bf16[…] %x, …)", "the opcode and its operands, with or without their types"),
    (
        "kind=kLoop",
        (
            "of a fusion: kLoop elementwise, kInput around a reduction, kOutput around a matmul, kCustom the "
            "compiler's own kernel"
        ),
    ),
    ("calls=%fused_computation", "what it runs inside; loops have condition= and body=, reductions to_apply="),
    (
        "replica_groups={{0,16},…}",
        "of a collective, which devices exchange with which; also [8,2]<=[16] and mesh forms",
    ),
    ("metadata={op_name=…}", "the line of the user's program, with named scopes"),
)
_TILES = (
    ("order", "{1,0} is row-major, {0,1} column-major: the most minor dim is written first"),
    ("T(8,128)", "the two minor dims are rounded up to whole tiles of 8 by 128; tiles follow each other row by row"),
    ("(2,1)", "inside a tile, two rows are interleaved: bf16 in pairs makes words of 4 bytes"),
    ("T(*,128)", "* joins a dim with the next minor one before it is cut"),
    ("E(4)", "an element takes this many bits"),
)
_FUSIONS = (
    (
        "1 matmul at most",
        "a fusion of XLA's TPU compiler holds one matmul (dot or convolution), and elementwise work around it",
    ),
    (
        "pointwise VPU ops",
        "what is fused with it costs no trip to HBM: bytes are those of the operands and results of the fusion",
    ),
    (
        "count",
        "`dscale hlo FILE --json` has most_matmuls_in_a_fusion of any program; Triton kernels for attention hold two",
    ),
)


def _memories() -> list[NotePoint]:
    """Memory spaces as the reader names them; those without a name of their own are others."""
    about = {
        0: "the chip's main memory; S(0) may be omitted",
        1: "the fast vector memory of a TPU core (on a GPU: main memory, registered for collectives)",
        2: "words that asynchronous copies wait on",
        5: "memory of the host: offloaded arrays",
        6: "scalars: indices, loop counters",
    }
    named = [NotePoint(f"S({space})", f"{memory_name(space)}: {about[space]}") for space in MEMORIES]
    return [*named, NotePoint("S(3), S(4) …", "other memory spaces of the chip, without a name here")]


def _scatter() -> list[NotePoint]:
    ratio = wire_bytes("all_reduce", 1.0, 8) / wire_bytes("reduce_scatter", 1.0, 8)
    return [
        NotePoint("all-reduce", "every device gets the whole sum"),
        NotePoint("dynamic-slice by partition-id", "and keeps only its own piece of it"),
        NotePoint(
            "reduce-scatter",
            (
                f"is the same for {1 / ratio:.0%} of the bytes; XLA makes one fusion of the two: kind=kCustom, "
                "calls=%all-reduce-scatter"
            ),
        ),
    ]


def _points(rows: tuple[tuple[str, str], ...]) -> list[NotePoint]:
    return [NotePoint(*row) for row in rows]


TOPICS = ("pipeline", "grammar", "memories", "tiles", "fusions", "scatter")


def topic(name: str) -> HloTopic:
    """One note."""
    made = {
        "pipeline": lambda: ("From Python to the machine", _points(_PIPELINE), ""),
        "grammar": lambda: (
            "How an instruction is written",
            _points(_GRAMMAR),
            "dscale hlo '%copy.1 = f32[8,4]{0,1} copy(f32[8,4]{1,0} %x)'",
        ),
        "memories": lambda: (
            "Where an array lies: S(…)",
            _memories(),
            "dscale hlo 'bf16[8,128]{1,0:T(8,128)(2,1)S(1)}'",
        ),
        "tiles": lambda: ("How an array lies in memory", _points(_TILES), "dscale hlo 'bf16[4,8]{1,0:T(2,4)(2,1)}'"),
        "fusions": lambda: ("What is in a fusion", _points(_FUSIONS), ""),
        "scatter": lambda: ("An all-reduce that is a reduce-scatter", _scatter(), ""),
    }
    title, points, example = made[name]()
    return HloTopic(name, title, points, example)
