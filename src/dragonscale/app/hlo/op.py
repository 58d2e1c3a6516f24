"""One instruction decoded: what it is called, makes, reads and runs; its FLOPs and bytes; on a chip,
its shortest time."""

from typing import Any

import msgspec

from dragonscale.app.hlo.arrays import ArrayFacts, array_facts
from dragonscale.app.record import Record
from dragonscale.evidence.xla.device_groups import GroupShape, group_shape
from dragonscale.evidence.xla.hlo_text import Instruction, Module, operand_types, read_instruction, source_line
from dragonscale.evidence.xla.layouts import read_arrays
from dragonscale.evidence.xla.matmul_sizes import MatmulSizes
from dragonscale.evidence.xla.op_bounds import op_bound
from dragonscale.evidence.xla.op_work import OpWork, work_of_text
from dragonscale.evidence.xla.shardings import sharding_of
from dragonscale.physics.hardware import Chip


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
    instruction = read_instruction(text)
    return decoded(None, instruction, work_of_text(text, on=_platform(chip)), chip)


def decoded(place: tuple[Module, str] | None, instruction: Instruction, work: OpWork, chip: Chip | None) -> HloOp:
    """Everything about an instruction as a record."""
    computation = place[0].computations[place[1]] if place else None
    types = operand_types(computation, instruction)
    named = instruction.opcode not in ("parameter", "constant", "iota")
    operands = [
        Operand(name, [array_facts(array) for array in read_arrays(text)])
        for name, text in zip(instruction.operands if named else (), types, strict=False)
    ]
    split = sharding_of(instruction)
    whole = split.whole(instruction.shapes[0].dims) if split and len(instruction.shapes) == 1 else None
    # lists, as `rows` leaves lists out
    both = set(work.__struct_fields__) & set(HloOp.__struct_fields__)
    known = {name: list(value) if isinstance(value := getattr(work, name), tuple) else value for name in both}
    return HloOp(
        **known,
        results=[array_facts(each) for each in read_arrays(instruction.result)],
        operands=operands,
        fusion_kind=instruction.attribute("kind") if instruction.opcode == "fusion" else "",
        calls=[name for _, name in instruction.callees],
        hbm_bytes=work.hbm_bytes,
        intensity_flops_per_byte=work.flops / work.hbm_bytes if work.hbm_bytes else None,
        group=group_shape(work.groups) if work.groups else None,
        whole_shape=list(whole) if whole else None,
        scope=instruction.op_name,
        source=source_line(instruction.text, {}),
        **_bounded(work, chip),
    )


def _bounded(work: OpWork, chip: Chip | None) -> dict[str, Any]:
    if chip is None:
        return {}
    bound = op_bound(work, chip)
    return {"chip": chip.title, "bound_s": bound.seconds, "bound_by": bound.by, "resources_s": bound.parts}


def _platform(chip: Chip | None) -> str:
    return chip.kind if chip and chip.kind in ("tpu", "gpu") else ""
