"""What several instructions are together: a matmul whose collective is cut into permutes, an all-reduce that is a
reduce-scatter.

A **windowed einsum** (a collective matmul) is a loop that multiplies one shard while a collective-permute brings the
next, or the same unrolled. An **all-reduce** of which every device keeps only the slice that its `partition-id` picks
is a reduce-scatter, and where the compiler sees that, it makes one fusion of the two (`kind=kCustom,
calls=%all-reduce-scatter`).
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from dragonscale.evidence.xla.call_graph import UNKNOWN, PlacedOp, callers, callers_first, trip_count
from dragonscale.evidence.xla.collective_sites import WINDOWED, is_ring
from dragonscale.evidence.xla.device_groups import source_target_pairs
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module
from dragonscale.evidence.xla.op_costs import needed_elements, op_flops
from dragonscale.evidence.xla.opcodes import CONTROL, PASSES, WHOLE

_NEAR, _FAR = 4, 12


class WindowedEinsum(msgspec.Struct, frozen=True):
    """A matmul done in turns while its operand or result goes round a ring."""

    name: str
    where: str
    form: str
    """`loop` or `unrolled`."""
    trips: int | None
    """Turns of the loop; None where nothing says, 1 of what is unrolled."""
    permutes: int
    """Collective-permutes in each turn, or in all that is unrolled."""
    matmuls: int
    matmul_flops: float
    """Of all turns."""


class HiddenScatter(msgspec.Struct, frozen=True):
    """An all-reduce of which each device keeps its slice: a reduce-scatter that sends twice as much as it needs."""

    all_reduce: str
    slice: str
    where: str


def windowed_einsums(module: Module) -> list[WindowedEinsum]:
    """Every windowed einsum of a module, loops first."""
    loops = list(_loops(module))
    inside = {body for _, body in loops}
    outside = [module.computations[name] for name in _scheduled(module) if name not in inside]
    return [loop for loop, _ in loops] + [found for body in outside for found in _unrolled(module, body)]


def _loops(module: Module) -> Iterator[tuple[WindowedEinsum, str]]:
    for name in _scheduled(module):
        computation = module.computations[name]
        for each in computation.instructions:
            body = next((callee for role, callee in each.callees if role == "body"), None)
            if each.opcode != "while" or body is None:
                continue
            inside = module.computations[body]
            permutes = sum(map(_is_permute, inside.instructions))
            if not permutes or not (WINDOWED in body or _carries(inside)):
                continue
            products = [one for one in inside.instructions if one.opcode != "while" and _flops(module, inside, one)]
            if products:
                trips = trip_count(module, name, each)
                flops = sum(_flops(module, inside, one) for one in products) * (1 if trips == UNKNOWN else trips)
                known = None if trips == UNKNOWN else trips
                yield WindowedEinsum(each.name, name, "loop", known, permutes, len(products), flops), body


def _carries(body: Computation) -> bool:
    """Whether a loop hands a permuted value from turn to turn: comes from its state, or goes into it, with nothing
    computed between."""
    for each in filter(_is_permute, body.instructions):
        source = body.named.get(each.operands[0]) if each.operands else None
        for _ in range(_FAR):
            if source is None or (source.opcode not in PASSES and not _is_permute(source)) or not source.operands:
                break
            source = body.named.get(source.operands[0])
        if source is not None and source.opcode == "parameter":
            return True
        if any(near.name == body.root for near in _near(body, each, after=True)):
            return True
    return False


def _unrolled(module: Module, computation: Computation) -> Iterator[WindowedEinsum]:
    """Permutes round one ring with matmuls right beside them, in one computation."""
    rings: dict[str, list[Instruction]] = {}
    for each in computation.instructions:
        if _is_permute(each) and is_ring(source_target_pairs(each.attribute("source_target_pairs"))):
            rings.setdefault(f"{each.attribute('source_target_pairs')} {each.op_name}", []).append(each)
    for permutes in rings.values():
        beside: dict[str, float] = {}
        for each in permutes:
            for near in _near(computation, each):
                if flops := _flops(module, computation, near):
                    beside[near.name] = flops
        if beside and (len(permutes) > 1 or len(beside) > 1):
            total = sum(beside.values())
            yield WindowedEinsum(permutes[0].name, computation.name, "unrolled", 1, len(permutes), len(beside), total)


def _near(computation: Computation, permute: Instruction, after: bool = False) -> Iterator[Instruction]:
    """What a permute's value is computed from and used by (only `after`: used by), through instructions that only hand
    it on."""
    waiting, seen = [(permute, 0)], {permute.name}
    while waiting:
        each, steps = waiting.pop(0)
        before = [computation.named[name] for name in each.operands if name in computation.named and not after]
        for other in (*before, *computation.users[each.name]):
            if other.name in seen:
                continue
            seen.add(other.name)
            yield other
            if other.opcode in PASSES and steps < _NEAR:
                waiting.append((other, steps + 1))


def _is_permute(instruction: Instruction) -> bool:
    return instruction.opcode in ("collective-permute", "collective-permute-start")


def _flops(module: Module, computation: Computation, instruction: Instruction) -> float:
    return op_flops(PlacedOp(module, computation, instruction)).matmul


@lru_cache(maxsize=4)
def _scheduled(module: Module) -> tuple[str, ...]:
    """Computations that run, instruction by instruction: not the bodies of fusions and of reductions."""
    calls, reached = callers(module), set(callers_first(module))

    def runs(name: str) -> bool:
        alone = any(call.instruction.opcode.removesuffix("-start") not in WHOLE for call in calls[name])
        return name in reached and (name == module.entry.name or alone)

    return tuple(filter(runs, module.computations))


def scheduled_computations(module: Module) -> tuple[str, ...]:
    """The same, for those who list what runs: what an asynchronous start wraps belongs to the start."""
    calls = callers(module)
    return tuple(
        name
        for name in _scheduled(module)
        if name == module.entry.name or any(call.instruction.opcode in CONTROL for call in calls[name])
    )


def hidden_scatters(module: Module) -> list[HiddenScatter]:
    """All-reduces whose only use is a slice picked by the device's own number, outside the fusions that do both at
    once."""
    found: list[HiddenScatter] = []
    scheduled = set(_scheduled(module))
    for computation, each in module.placed:
        if computation.name not in scheduled or each.opcode not in ("all-reduce", "all-reduce-start"):
            continue
        uses = list(_uses(computation, each))
        slices = [use for use, value in uses if _slices(module, computation, use, value)]
        if slices and len(slices) == len(uses):
            found.append(HiddenScatter(each.name, slices[0].name, computation.name))
    return found


def _uses(computation: Computation, instruction: Instruction) -> Iterator[tuple[Instruction, str]]:
    """What really uses a value, and under which name."""
    waiting, seen = [instruction.name], {instruction.name}
    while waiting:
        value = waiting.pop(0)
        for user in computation.users[value]:
            if user.opcode in PASSES:
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append(user.name)
            else:
                yield user, value


def _slices(module: Module, computation: Computation, user: Instruction, value: str) -> bool:
    """Whether an instruction keeps a part of a value that depends on the device."""
    if not _by_device(module, computation, user):
        return False
    if user.opcode == "dynamic-slice":
        return user.operands[0] == value
    if user.opcode != "fusion" or not user.callees:
        return False
    body = module.computations[user.callees[0][1]]
    parameter = body.parameters.get(user.operands.index(value))
    if parameter is None or not parameter.shapes:
        return False
    return needed_elements(body)[parameter.name] * 2 <= parameter.shapes[0].elements


def _by_device(module: Module, computation: Computation, instruction: Instruction) -> bool:
    """Whether an instruction's operands, or what it runs, are computed from the device's number."""
    waiting, seen = [instruction], {instruction.name}
    while waiting and len(seen) < 200:
        each = waiting.pop(0)
        if each.opcode in ("partition-id", "replica-id"):
            return True
        bodies = [module.computations[name] for _, name in each.callees] if each.opcode == "fusion" else []
        if any(one.opcode in ("partition-id", "replica-id") for body in bodies for one in body.instructions):
            return True
        for name in each.operands:
            other = computation.named.get(name)
            if other is not None and name not in seen and other.opcode not in ("all-reduce", "all-reduce-start"):
                seen.add(name)
                waiting.append(other)
    return False
