"""What a collective sends: its groups and bytes, from its own line or from the instruction inside the fusion or start
around it."""

import re
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_arrays
from dragonscale.evidence.xla.replica_groups import Groups, replica_groups, source_target_pairs
from dragonscale.evidence.xla.transfers import TRANSFERS, read_transfer
from dragonscale.physics.collectives import wire_bytes

_COLLECTIVE = re.compile(
    r"(all-gather|all-reduce|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast|send)(-start)?"
)
_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")


@dataclass(frozen=True)
class Wire:
    """Bytes that each device sends, the size of a group (two in a permute), the groups, and what could not be known."""

    bytes: float = 0.0
    size: int | None = None
    groups: Groups = ()
    unknown: tuple[str, ...] = ()


def op_wire(module: Module | None, where: Computation | None, instruction: Instruction, kind: str) -> Wire:
    """What one execution sends. The line of a fusion does not show its groups; then only their absence can be said."""
    inner = _inside(module, where, instruction)
    if inner is None:
        size = _grown(where, instruction, kind)
        return Wire(_sent(where, instruction, kind, size) if size else 0.0, size, (), ("the devices of its group",))
    where, found = inner
    try:
        groups = _groups(module, found)
    except InputError as error:
        return Wire(unknown=(f"its groups ({error})",))
    if not groups:
        return Wire(unknown=("the devices of its group",))
    return Wire(_sent(where, found, kind, len(groups[0])), len(groups[0]), groups)


def _inside(
    module: Module | None, where: Computation | None, instruction: Instruction
) -> tuple[Computation | None, Instruction] | None:
    """The collective itself: the instruction, or the one in what it calls."""
    waiting: list[tuple[Computation | None, Instruction]] = [(where, instruction)]
    seen: set[str] = set()
    while waiting:
        place, found = waiting.pop(0)
        if _COLLECTIVE.fullmatch(found.opcode):
            return place, found
        for _, name in found.callees if module else ():
            if module and name in module.computations and name not in seen:
                seen.add(name)
                waiting += [(module.computations[name], each) for each in module.computations[name].instructions]
    return None


def _groups(module: Module | None, found: Instruction) -> Groups:
    if found.opcode in TRANSFERS:
        transfer = read_transfer(found)
        return transfer.groups if transfer else ()
    if found.opcode.startswith("collective-permute"):
        return source_target_pairs(found.attribute("source_target_pairs"))
    text = found.attribute("replica_groups")
    if text and text != "{}":
        return replica_groups(text)
    counts = [int(count) for count in _DEVICES.findall(module.header)] if module else []
    return (tuple(range(max(counts))),) if counts and 1 < max(counts) <= 1 << 20 else ()


def _sent(where: Computation | None, found: Instruction, kind: str, size: int) -> float:
    """Bytes that each device sends: a gather's volume is its result, the others' their operands."""
    before = sum(shape.bytes for shape in operand_arrays(where, found))
    after = sum(shape.bytes for shape in found.shapes)
    if found.opcode.endswith("-start") and found.opcode != "all-reduce-start" and after > before:
        after -= before  # the result names its operands too
    if not before:  # a line without its operands' shapes
        before = {"all_gather": after / size, "reduce_scatter": after * size}.get(kind, after)
    if kind == "broadcast":
        return before
    volume = {"all_gather": before * size, "all_to_all": before * size}.get(kind, before)
    return float(wire_bytes(kind, volume, size))


def _grown(where: Computation | None, instruction: Instruction, kind: str) -> int | None:
    """The size of the group of a gather or scatter, from how much larger one side is."""
    before = sum(shape.bytes for shape in operand_arrays(where, instruction))
    after = sum(shape.bytes for shape in instruction.shapes)
    large, small = (after, before) if kind == "all_gather" else (before, after)
    if kind not in ("all_gather", "reduce_scatter") or not small or large <= small or large % small:
        return None
    return int(large // small)
