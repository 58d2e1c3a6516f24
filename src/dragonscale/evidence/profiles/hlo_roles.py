"""What an op is by its HLO: the instruction in the recording's program, or the line that the profile wrote beside the
op.

Kind, FLOPs and bytes are read by `evidence/xla/op_work.py`, the part of the model by `hlo_parts.py`. In a program that
is differentiated, what stands outside of both passes is the update.

Attention without a kernel of its own is matmuls of queries with keys, and of their scores with values, around a
softmax. A plan has one line for them, `attention`, whatever computes it, so such matmuls are of the kind `attention`
here too. A projection multiplies with a weight, which has no index that is in the other operand and in the result as
well; attention has the sequence and the head there.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.profiles import sections
from dragonscale.evidence.profiles.hlo_parts import HloProgram, PartSaid
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import PROGRAM, SCOPE, OpRole
from dragonscale.evidence.xla.hlo_text import Computation, Instruction
from dragonscale.evidence.xla.op_kinds import BY_NAME
from dragonscale.evidence.xla.op_work import FLOPS, INSIDE, OPERANDS, OpWork, work_of, work_of_text
from dragonscale.plan.ledger import COLLECTIVES

_KINDS = {"reduce": "reduction", "broadcast": "all_gather", "nothing": "control", "unknown": ""}
_KINDS |= dict.fromkeys(("sort", "scatter"), "gather")
_CASTS = frozenset(("parameter", "convert", "bitcast", "copy", "transpose", "reshape", "tuple", "get-tuple-element"))
_GROUPED = re.compile(r"ragged[_-]dot|gmm|megablox")
_CALLS = re.compile(r"\bcalls=%?([\w.\-]+)")
SCORES = "scores"
_EINSUM = re.compile(r"(?:^|/)([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)(?:/|$)")
_CORE = frozenset(table("scopes.toml")["core"])
"""Scopes in which attention stands without its projections."""
_AROUND = ("elementwise", "reduction", "copy", "memory", "gather")
_BATCHED = ("aten::bmm", "aten::baddbmm")
_READ = (InputError, KeyError, ValueError, IndexError, TypeError, RecursionError)
"""What a line of a foreign or damaged file may raise; such an op is then known by its names alone."""


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
        """The instruction of an op, where the recording holds its program; a GPU's kernel names it as
        what launched it."""
        program = self.program(op.module)
        place = program and (program.places.get(op.caller) or program.places.get(op.name))
        if program and not place and (called := _CALLS.search(op.text)):
            place = program.wrappers.get(called[1])  # XLA prints an asynchronous start without the fusion inside
        return (program, place) if program and place else None

    def operands(self, op: OpText) -> list[tuple[int, ...]]:
        """The sizes of what an op reads, where its program says them."""
        found = self.found(op)
        if found is None:
            return []
        _, (where, instruction) = found
        read = (where.named[name] for name in instruction.operands if name in where.named)
        try:
            return [shape.dims for each in read for shape in each.shapes]
        except _READ:
            return []

    def role(self, op: OpText, on: str = "") -> OpRole | None:
        """The role of an op by its HLO; None where there is none, or none that can be read."""
        try:
            return self._role(op, on)
        except _READ:
            return None

    def _role(self, op: OpText, on: str) -> OpRole | None:
        work = self.work(op, on)
        if work is None:
            return None
        said, how = self._part(op)
        kind = self._kind(op, work)
        phase = said.phase or sections.phase_of_module(op.module)
        section = said.words.section
        program = self.program(op.module)
        phase = "update" if section == "optimizer" and phase in ("", "forward") else phase
        reduces = kind in ("reduce_scatter", "all_reduce") and phase in ("backward", "update", "")
        if program and program.trains and reduces and self._is_gradient(program, op):
            phase = "gradient"
        seen = OPERANDS not in work.unknown
        over = work.half in ("done", "update")
        counted = work.matmul_flops if kind in ("matmul", "grouped matmul", "attention") else work.flops
        hidden = FLOPS in work.unknown or (INSIDE in work.unknown and not work.matmul_flops) or kind == "control"
        flops = None if hidden else counted
        return OpRole(
            kind,
            section,
            phase,
            said.words.what or ("norm" if said.words.norm else "") or _detail(work),
            work.dtype,
            op.flops if flops is None and op.flops else 0.0 if over else flops,
            None if kind == "control" else op.bytes if not seen else 0.0 if over else work.hbm_bytes,
            (0.0 if over else work.wire_bytes or op.wire_bytes) if kind in COLLECTIVES else None,
            work.groups[0] if work.groups and kind != "permute" else op.group,
            (PROGRAM, how) if how else (PROGRAM,),
        )

    def _kind(self, op: OpText, work: OpWork) -> str:
        kind = _KINDS.get(work.kind, work.kind)
        if kind in ("elementwise", "control") and work.opcode == "fusion" and self._only_casts(op):
            return "copy"
        grouped = kind in ("matmul", "") and _GROUPED.search(f"{op.name} {op.scope}")
        return "grouped matmul" if grouped or work.opcode == "ragged-dot" else kind

    def _only_casts(self, op: OpText) -> bool:
        """Whether a fusion changes nothing but types and layouts."""
        found = self.found(op)
        if found is None:
            return False
        computations, fusion = found[0].module.computations, found[1][1]
        bodies = [computations[name] for _, name in fusion.callees if name in computations]
        opcodes = {each.opcode for body in bodies for each in body.instructions}
        return bool(opcodes) and opcodes <= _CASTS

    def _part(self, op: OpText) -> tuple[PartSaid, str]:
        found = self.found(op)
        if found:
            said, how = found[0].part(*found[1])
            if said.words.section or not op.scope:
                return said, how
        words = sections.section_of(op.scope)
        if not words.section and op.source:
            words = sections.SectionWords(sections.section_of_source(op.source))
        return PartSaid(words, sections.phase_of_scope(op.scope), op.scope), SCOPE if words.section else ""

    def _is_gradient(self, program: HloProgram, op: OpText) -> bool:
        """Whether a reduction returns something of a weight's size."""
        found = self.found(op)
        return found is not None and any(shape.dims in program.weights for shape in found[1][1].shapes)


def _detail(work: OpWork) -> str:
    return work.detail if work.kind in ("copy", "host") and work.detail != BY_NAME else ""


# Attention without a kernel of its own


def with_scores(op: OpText, role: OpRole, reader: HloReader) -> OpRole:
    """The role of a matmul of attention's scores as one of attention; any other as it is."""
    if role.kind != "matmul" or role.section != "attention" or role.what in ("QKV", "Wo") or not _is_scores(op, reader):
        return role
    return msgspec.structs.replace(role, kind="attention", what=SCORES)


def around_scores(ops: Sequence[OpText], roles: list[OpRole], reader: HloReader) -> list[OpRole]:
    """Softmaxes, masks and copies in the same scope as scores, told as theirs: a plan's line of
    attention has them too."""
    pairs = list(zip(ops, roles, strict=True))
    programs = {op.module for op, role in pairs if (role.kind, role.what) == ("attention", SCORES)}
    found = list(roles)
    for number, (op, role) in enumerate(pairs):
        vague = role.kind in _AROUND and role.what in ("", "softmax")
        if vague and role.section == "attention" and op.module in programs:
            place = reader.found(op)
            scope = (place[0].part(*place[1])[0].scope if place else "") or op.scope
            if _CORE.intersection(sections.components(scope)):
                found[number] = msgspec.structs.replace(role, what=SCORES)
    return found


def _is_scores(op: OpText, reader: HloReader) -> bool:
    found = reader.found(op)
    scope = (found[0].said(found[1][1]).scope if found else "") or op.scope
    if (einsum := _EINSUM.search(scope)) is not None:
        return is_batched(einsum[1], einsum[2], einsum[3])
    if op.shapes:
        return op.caller.endswith(_BATCHED)
    if _CORE.intersection(sections.components(scope)):
        return True
    work = reader.work(op)
    matmuls = work.matmuls if work else ()
    return bool(matmuls) and all(each.batch > 1 for each in matmuls) and not _has_weight(op, reader)


def is_batched(left: str, right: str, out: str) -> bool:
    """Whether an einsum has an index in both operands and in the result.

    >>> is_batched("btkgh", "bskh", "bkgts"), is_batched("abc", "cde", "abde")
    (True, False)
    """
    return bool(set(left) & set(right) & set(out))


def _has_weight(op: OpText, reader: HloReader) -> bool:
    """Whether a matmul reads or makes as many numbers as a weight has; True where the program does not say what it is
    given."""
    found = reader.found(op)
    if found is None or not found[0].weights:
        return True
    sizes = {math.prod(dims) for dims in found[0].weights}
    made = [shape.dims for shape in found[1][1].shapes]
    return any(math.prod(dims) in sizes for dims in (*reader.operands(op), *made))
