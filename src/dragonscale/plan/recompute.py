"""What a backward pass computes again, line by line.

A gradient needs the tensors that its line read. What a remat policy has not kept is made again from what it has, and
nothing else is: a compiler drops lines whose results no gradient reads, such as a block's last matmul. (A framework
that simply runs the block again does not: see `Stack` for those.)

>>> from dragonscale.models import load_model
>>> block = load_model("llama3-8b").program().sections[1]
>>> [op.output.name for op in again(block, "block") if op.function == "einsum"]
['Q', 'K', 'V', 'A', 'U', 'G']
>>> [op.output.name for op in again(block, "matmuls") if op.output is not None]
['X', 'O', 'R', 'X', 'H']
"""

from collections import Counter
from dataclasses import replace

from dragonscale.models.activations import hands_on, saved_tensors
from dragonscale.models.program import Op, Section
from dragonscale.models.recompute_modules import is_modules, module_lines
from dragonscale.plan.reader import Move, Reading, read_forward

_NEEDS_NOTHING = ("add", "bias", "cache", "lookup", "join", "dispatch", "combine")
"""Functions whose gradients read none of their inputs: sums, and moves (their places come from the router's choice)."""

Value = tuple[str, int]
"""A tensor by its name and the line that wrote it (-1: it came from outside)."""


def again(section: Section, policy: str) -> tuple[Op, ...]:
    """The lines of a section that run again in its backward pass, in order."""
    return tuple(op for line, op in enumerate(section.ops) if line in again_lines(section, policy))


def again_lines(section: Section, policy: str) -> frozenset[int]:
    """The places of those lines."""
    key = (section.ops, policy)
    if key not in _AGAIN:
        _room(_AGAIN)
        _AGAIN[key] = _found(section, policy)
    return _AGAIN[key]


MOST_KEPT = 4096
"""Answers that are kept, so that a process that runs for weeks does not grow with every model it is asked about."""
_AGAIN: dict[tuple[object, ...], frozenset[int]] = {}


def _room(kept: dict[tuple[object, ...], frozenset[int]]) -> None:
    while len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]  # the oldest


def _found(section: Section, policy: str) -> frozenset[int]:
    if is_modules(policy):
        return module_lines(section, policy)
    ops = section.ops
    read = _reads(section)
    kept = {array.name for array in saved_tensors(section, policy)} if policy != "block" else set()
    needy = [line for line, op in enumerate(ops) if op.function not in _NEEDS_NOTHING and not hands_on(op)]
    todo = [value for line in needy for value in read[line]]
    for line, op in enumerate(ops):
        if op.function == "dispatch":
            todo += read[line][1:]
        elif op.function == "combine" and ops[read[line][0][1]].function != "einsum":
            # Weighted here, not before the last matmul, whose result something else was added to.
            todo += read[line][:1]
    lines: set[int] = set()
    while todo:
        name, line = todo.pop()
        if line < 0 or line in lines or name in kept:
            continue
        lines.add(line)
        todo += read[line]
    return frozenset(lines)


def again_moves(reading: Reading, policy: str) -> frozenset[int]:
    """The places of a whole reading's forward moves of activations that run again: what the lines that run again ask
    for, unless the backward pass brings it anyway."""
    section = reading.section
    key = (section.name, section.ops, reading.rules, policy)
    if key not in _MOVED:
        wanted = Counter(_form(move) for move in reading.moves if move.phase == "backward")
        rerun = read_forward(replace(section, name=f"{section.name} again", ops=again(section, policy)), reading.rules)
        asked = Counter(_form(move) for move in rerun.moves if move.what != "weight") - wanted
        found: set[int] = set()
        for move in reading.moves:
            if move.phase == "forward" and move.what != "weight" and asked[_form(move)] > 0:
                asked[_form(move)] -= 1
                found.add(move.place)
        _room(_MOVED)
        _MOVED[key] = frozenset(found)
    return _MOVED[key]


def again_places(reading: Reading, policy: str) -> tuple[frozenset[int], frozenset[int]]:
    """Both of a whole reading; they stay with it, since every line of a pass asks."""
    if policy not in reading.rerun:
        reading.rerun[policy] = again_lines(reading.section, policy), again_moves(reading, policy)
    return reading.rerun[policy]


_MOVED: dict[tuple[object, ...], frozenset[int]] = {}


def _form(move: Move) -> tuple[object, ...]:
    return (move.step.kind, move.step.axes, move.step.before, move.step.after)


def _reads(section: Section) -> list[list[Value]]:
    """The values that each line reads."""
    made: dict[str, int] = {}
    found: list[list[Value]] = []
    for line, op in enumerate(section.ops):
        found.append([(array.name, made.get(array.name, -1)) for array in op.inputs])
        if op.output is not None:
            made[op.output.name] = line
    return found
