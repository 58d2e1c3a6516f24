"""The collectives of a compiled module: kind, bytes on each device, and who takes part.

A collective is counted where it starts: `all-gather-start` and `all-gather-done` are one, as are an asynchronous start
and the computation it wraps. A combined collective over a tuple is as many as it has operands. What looks like a
collective and cannot be read is an error.

>>> text = '''
... HloModule jit_f
...
... ENTRY %main (p: bf16[8,4]) -> bf16[8,16] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   ROOT %g = bf16[8,16]{1,0} all-gather(%p), replica_groups=[2,4]<=[8], dimensions={1}
... }
... '''
>>> (gather,) = read_collectives(text)
>>> gather.kind, gather.volume, gather.size, gather.wire_bytes
('all_gather', 256.0, 4, 192.0)
"""

import re
from dataclasses import dataclass

from dragonscale.collectives import wire_bytes
from dragonscale.errors import InputError
from dragonscale.evidence.xla.executions import UNKNOWN, called, executions
from dragonscale.evidence.xla.hlo_text import Instruction, Module, Shape, read_module
from dragonscale.evidence.xla.replica_groups import Groups, replica_groups, source_target_pairs

KINDS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
REFUSED = ("collective-broadcast", "ragged-all-to-all", "send", "recv")
_COLLECTIVE = re.compile(rf"(?P<kind>{'|'.join([*KINDS, *REFUSED])})(?P<part>-start|-done)?")
_MENTION = re.compile(rf"(?<= )(?:{'|'.join([*KINDS, *REFUSED])})(?:-start)?\((?=[%\w])")
"""Anything that looks like a collective, however its line is built: as many must have been read."""


@dataclass(frozen=True)
class Collective:
    """One collective on one array; `sent` and `received` are what a device passes in and gets back."""

    kind: str
    sent: Shape
    received: Shape
    groups: Groups
    """The devices of each group; for a permute, the pairs of source and target."""
    times: int
    name: str
    op_name: str

    @property
    def size(self) -> int:
        """Devices in one group (two in a permute's pairs)."""
        return len(self.groups[0])

    @property
    def volume(self) -> float:
        """Bytes of the array as one group sees them: the convention of `dragonscale.collectives.cost`."""
        if self.kind == "all_gather":
            return self.received.bytes
        return self.sent.bytes * self.size if self.kind == "all_to_all" else self.sent.bytes

    @property
    def wire_bytes(self) -> float:
        """Bytes that each device sends, each time."""
        return wire_bytes(self.kind, self.volume, self.size)


def read_collectives(text: str) -> list[Collective]:
    """Every collective of a compiled module, in order of its computations."""
    module = read_module(text)
    counts = executions(module)
    fused = {
        callee
        for computation in module.computations.values()
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        for callee, _ in called(instruction)
    }
    found: list[Collective] = []
    mentions = 0
    for computation in module.computations.values():
        for instruction in computation.instructions:
            match = _COLLECTIVE.fullmatch(instruction.opcode)
            if match is None or match["part"] == "-done":
                continue
            mentions += 1
            if computation.name in fused:
                raise InputError(
                    f"The collective {instruction.name} lies inside a fusion, which only the TPU compiler writes."
                )
            if counts[computation.name]:
                found += _read(module, computation.name, instruction, match["kind"], counts[computation.name])
    if mentions != len(_MENTION.findall(text)):
        raise InputError(f"The module mentions {len(_MENTION.findall(text))} collectives and {mentions} could be read.")
    return found


def _read(module: Module, where: str, instruction: Instruction, opcode: str, times: int) -> list[Collective]:
    if opcode in REFUSED:
        raise InputError(f"The collective {instruction.name} is a {opcode}, which this reader does not know.")
    if times == UNKNOWN:
        raise InputError(
            f"The collective {instruction.name} lies in a loop or branch whose number of executions XLA does not say."
        )
    kind = KINDS[opcode]
    shapes = {each.name: each.shapes for each in module.computations[where].instructions}
    sent = [shape for name in instruction.operands for shape in shapes[name]]
    received = _received(instruction, len(sent))
    if kind == "permute":
        groups: Groups = source_target_pairs(instruction.attribute("source_target_pairs"))
    else:
        groups = replica_groups(instruction.attribute("replica_groups"))
    if not groups or len(set(map(len, groups))) != 1:
        raise InputError(f"The collective {instruction.name} has groups of different sizes, or none.")
    found = [
        Collective(kind, before, after, groups, times, instruction.name, instruction.op_name)
        for before, after in zip(sent, received, strict=True)
    ]
    if opcode == "all-to-all" and not instruction.attribute("dimensions"):
        found = [_whole_all_to_all(found)]
    for each in found:
        _check(each)
    return found


def _received(instruction: Instruction, operands: int) -> tuple[Shape, ...]:
    """What comes back: an asynchronous start returns its operands, its results and sometimes scratch words."""
    shapes = instruction.shapes
    if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start":
        shapes = shapes[operands : 2 * operands]
    if len(shapes) != operands:
        raise InputError(f"The collective {instruction.name} has {operands} operands and {len(shapes)} results.")
    return shapes


def _whole_all_to_all(parts: list[Collective]) -> Collective:
    """An all-to-all written with one operand per peer is one exchange of them all."""
    first = parts[0]
    whole = Shape(first.sent.dtype, (len(parts), *first.sent.dims))
    return Collective(first.kind, whole, whole, first.groups, first.times, first.name, first.op_name)


def _check(each: Collective) -> None:
    """The sizes before and after must be what the kind says; anything else was misread."""
    grows = {"all_gather": each.size, "reduce_scatter": 1 / each.size}.get(each.kind, 1)
    if each.received.bytes != each.sent.bytes * grows:
        raise InputError(
            f"The collective {each.name} turns {each.sent} into {each.received} over groups of {each.size}; a {each.kind} does not."
        )
