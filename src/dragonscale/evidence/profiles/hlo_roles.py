"""What an op is by its HLO: the instruction in the recording's program, or the line that the profile wrote beside the op.

Kind, FLOPs and bytes are read by `evidence/xla/op_work.py`. The part of the model comes from the scopes that JAX writes into `op_name`: a fusion takes that
of its dearest inner op, and an instruction that says nothing takes it from what it feeds, else from what it is computed from (a slice of a layer's weights
belongs to the matmul that reads it). In a program that is differentiated, what stands outside of both passes is the update.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.phases import phase_of_module, phase_of_scope
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.sections import SectionWords, section_of, section_of_source
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.op_work import OpWork, work_of, work_of_text
from dragonscale.evidence.xla.source_lines import frame_lines, source_line
from dragonscale.plan.ledger import COLLECTIVES

_KINDS = {
    "reduce": "reduction",
    "sort": "gather",
    "scatter": "gather",
    "broadcast": "all_gather",
    "nothing": "control",
    "unknown": "",
}
_CALLS = re.compile(r"\bcalls=%?([\w.\-]+)")
_DEEP, _WIDE = 8, 64
_HEAVY = {
    "dot": 8,
    "convolution": 8,
    "ragged-dot": 8,
    "custom-call": 7,
    "scatter": 4,
    "gather": 4,
    "reduce": 3,
    "dynamic-update-slice": 0,
    "dynamic-slice": 0,
}
_READ = (InputError, KeyError, ValueError, IndexError, TypeError, RecursionError)
"""What a line of a foreign or damaged file may raise; such an op is then known by its names alone."""


@dataclass(frozen=True)
class _Said:
    """The part and phase that an instruction's own names say."""

    words: SectionWords
    phase: str
    scope: str


class HloProgram:
    """A program with its instructions by name."""

    def __init__(self, name: str, module: Module) -> None:
        self.name, self.module = name, module
        self._said: dict[str, _Said] = {}
        self._frames = frame_lines(module.tables)

    @cached_property
    def places(self) -> dict[str, tuple[Computation, Instruction]]:
        """The computation and instruction of each name."""
        return {each.name: (where, each) for where in self.module.computations.values() for each in where.instructions}

    @cached_property
    def wrappers(self) -> dict[str, tuple[Computation, Instruction]]:
        """The fusion, call or start that runs a computation, with where it stands."""
        return {
            name: place
            for place in self.places.values()
            for role, name in place[1].callees
            if role in ("calls", "to_apply", "called_computations")
        }

    @cached_property
    def trains(self) -> bool:
        """Whether the program has a backward pass."""
        return any("transpose(" in each.op_name for _, each in self.places.values())

    @cached_property
    def weights(self) -> frozenset[tuple[int, ...]]:
        """Sizes of what the program is given, as one device holds it, also of one layer of a stack."""
        given = [
            shape.dims for each in self.module.entry.instructions if each.opcode == "parameter" for shape in each.shapes
        ]
        return frozenset(dims for whole in given for dims in (whole, whole[1:]) if len(dims) > 1)

    def said(self, instruction: Instruction) -> _Said:
        """What an instruction says of itself; a fusion what its dearest inner op says."""
        if instruction.name not in self._said:
            self._said[instruction.name] = self._read(instruction)
        return self._said[instruction.name]

    def _read(self, instruction: Instruction) -> _Said:
        best, most = _Said(SectionWords(), "", ""), (-1, -1, 0.0)
        for each in self._inner(instruction):
            scope = each.op_name
            words = section_of(scope)
            if not words.section and (source := source_line(each.text, self._frames)):
                words = SectionWords(section_of_source(source))
            weight = (
                _HEAVY.get(each.opcode, 1),
                bool(words.section) + (words.section != "norm"),
                sum(shape.bytes for shape in each.shapes),
            )
            heavy = weight[0] >= 7
            if scope and (heavy or words.section or not best.scope) and weight > most:
                best, most = _Said(words, phase_of_scope(scope), scope), weight
        return best

    def _inner(self, instruction: Instruction, depth: int = 0) -> Iterator[Instruction]:
        yield instruction
        if depth < _DEEP and instruction.opcode in ("fusion", "async-start", "call-start"):
            for _, name in instruction.callees:
                if name in self.module.computations:
                    for each in self.module.computations[name].instructions:
                        if each.opcode not in ("parameter", "constant"):
                            yield from self._inner(each, depth + 1)

    def part(self, where: Computation, instruction: Instruction) -> tuple[_Said, str]:
        """The part and phase of an instruction, and how they are known."""
        own = self.said(instruction)
        back = own.phase == "backward"
        if own.words.section and own.words.section != "norm":
            return own, "scope"
        for forward in (False, True) if back else (True, False):
            found = self._around(where, instruction, forward)
            if found:
                words = SectionWords(found.words.section, "", own.words.norm)
                return _Said(
                    words, own.phase or found.phase, own.scope or found.scope
                ), "scope" if own.words.section else "what it feeds"
        return own, "scope" if own.words.section else ""

    def _around(self, where: Computation, instruction: Instruction, forward: bool) -> _Said | None:
        """What its neighbours say; of an instruction in a wrapper, also those of the wrapper."""
        for _ in range(_DEEP):
            found = self._near(where, instruction, forward)
            wrapper = None if found else self.wrappers.get(where.name)
            if wrapper is None:
                return found
            where, instruction = wrapper
        return None

    def _near(self, where: Computation, instruction: Instruction, forward: bool) -> _Said | None:
        """What the nearest instructions say that use it (`forward`), or that it uses."""
        waiting, seen = [(instruction, 0)], {instruction.name}
        while waiting and len(seen) < _WIDE:
            each, depth = waiting.pop(0)
            following = (
                where.users.get(each.name, [])
                if forward
                else [where.named[name] for name in each.operands if name in where.named]
            )
            for other in following:
                if other.name in seen or depth >= _DEEP:
                    continue
                seen.add(other.name)
                said = self.said(other) if other.opcode != "while" else _Said(SectionWords(), "", "")
                if said.words.section and said.words.section != "norm":
                    return said
                if other.opcode not in ("tuple", "while", "parameter"):
                    waiting.append((other, depth + 1))
        return None


class HloReader:
    """Roles of ops by the programs of a recording, or by the ops' own lines."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._programs: dict[str, HloProgram | None] = {}
        self._on = next((device.kind for device in recording.devices if device.kind), "")

    def program(self, module: str) -> HloProgram | None:
        """The program of a name, where the recording holds it."""
        if module not in self._programs:
            try:
                found = self._recording.programs.get(module) or self._recording.programs.get(module.split("(", 1)[0])
            except _READ:
                found = None
            self._programs[module] = HloProgram(module, found) if found is not None else None
        return self._programs[module]

    def work(self, op: OpText, on: str = "") -> OpWork | None:
        """What `op_work` reads of an op; None where there is no HLO of it."""
        found = self.found(op)
        try:
            if found:
                return work_of(found[0].module, *found[1], on or self._on)
            return work_of_text(op.text, on or self._on) if op.text else None
        except _READ:
            return None

    def found(self, op: OpText) -> tuple[HloProgram, tuple[Computation, Instruction]] | None:
        """The instruction of an op, where the recording holds its program; a GPU's kernel names it as what launched it."""
        program = self.program(op.module)
        place = program and (program.places.get(op.caller) or program.places.get(op.name))
        if program and not place and (called := _CALLS.search(op.text)):
            place = program.wrappers.get(called[1])  # XLA prints an asynchronous start without the fusion inside
        return (program, place) if program and place else None

    def role(self, op: OpText, on: str = "") -> OpRole | None:
        """The role of an op by its HLO; None where there is none."""
        work = self.work(op, on)
        if work is None:
            return None
        said, how = self._part(op)
        kind = self._kind(op, work)
        phase = said.phase or phase_of_module(op.module)
        section = said.words.section
        program = self.program(op.module)
        if program and program.trains and not section and said.scope and not said.phase:
            section, phase, how = "optimizer", "update", "outside of both passes"
        phase = "update" if section == "optimizer" and phase in ("", "forward") else phase
        if (
            program
            and program.trains
            and kind in ("reduce_scatter", "all_reduce")
            and phase in ("backward", "update", "")
            and self._is_gradient(program, op)
        ):
            phase = "gradient"
        unknown = " ".join(work.unknown)
        seen = "operands" not in unknown
        over = work.half in ("done", "update")
        counted = work.matmul_flops if kind in ("matmul", "grouped matmul", "attention") else work.flops
        hidden = "FLOPs" in unknown or ("inside" in unknown and not work.matmul_flops) or kind == "control"
        flops = None if hidden else counted
        return OpRole(
            kind, section, phase, said.words.what or ("norm" if said.words.norm else "") or _detail(work), work.dtype,
            op.flops if flops is None and op.flops else 0.0 if over else flops,
            None if kind == "control" else op.bytes if not seen else 0.0 if over else work.hbm_bytes,
            (0.0 if over else work.wire_bytes or op.wire_bytes) if kind in COLLECTIVES else None,
            work.groups[0] if work.groups and kind != "permute" else op.group,
            f"program, {how}" if how else "program", "sure" if kind and "name" not in work.detail else "likely",
        )  # fmt: skip

    def _kind(self, op: OpText, work: OpWork) -> str:
        kind = _KINDS.get(work.kind, work.kind)
        if kind in ("matmul", "") and any(
            word in f"{op.name} {op.scope}" for word in ("ragged_dot", "ragged-dot", "gmm", "megablox")
        ):
            return "grouped matmul"
        return "grouped matmul" if work.opcode == "ragged-dot" else kind

    def _part(self, op: OpText) -> tuple[_Said, str]:
        found = self.found(op)
        if found:
            said, how = found[0].part(*found[1])
            if said.words.section or not op.scope:
                return said, how
        words = section_of(op.scope)
        if not words.section and op.source:
            words = SectionWords(section_of_source(op.source))
        return _Said(words, phase_of_scope(op.scope), op.scope), "scope" if words.section else ""

    def _is_gradient(self, program: HloProgram, op: OpText) -> bool:
        """Whether a reduction returns something of a weight's size."""
        found = self.found(op)
        return found is not None and any(shape.dims in program.weights for shape in found[1][1].shapes)


def _detail(work: OpWork) -> str:
    return work.detail if work.kind in ("copy", "host") and "name" not in work.detail else ""
