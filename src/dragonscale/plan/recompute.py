"""Rematerialisation: the ops and moves of a section that its backward pass runs again.

A gradient needs the tensors that its op read. Those that a remat policy does not save are recomputed from those that it
saves, and nothing else is: a compiler drops ops whose results no gradient reads, such as a block's last matmul. (A
framework that simply runs the block again does not: see `Stack` for those.)

>>> from dragonscale.models import load_model
>>> block = load_model("llama3-8b").program().sections[1]
>>> [op.output.name for op in recomputed_ops(block, "block") if op.function == "einsum"]
['Q', 'K', 'V', 'A', 'U', 'G']
>>> [op.output.name for op in recomputed_ops(block, "matmuls") if op.output is not None]
['X', 'O', 'R', 'X', 'H']
"""

from collections import Counter
from dataclasses import replace

from dragonscale.models.activations import hands_on, saved_tensors
from dragonscale.models.program import Op, Section
from dragonscale.models.recompute_modules import is_modules, module_lines
from dragonscale.plan.reader import Move, Reading, read_forward

# Functions whose gradients read none of their inputs: sums, and moves (tokens go where the router chose).
_NEEDS_NO_INPUTS = ("add", "bias", "cache", "lookup", "join", "dispatch", "combine")

Value = tuple[str, int]
"""A tensor by its name and the index of the op that wrote it (-1: it comes from outside the section)."""


def recomputed_ops(section: Section, policy: str) -> tuple[Op, ...]:
    """The ops of a section that run again in its backward pass, in order."""
    lines = recomputed_lines(section, policy)
    return tuple(op for line, op in enumerate(section.ops) if line in lines)


def recomputed_lines(section: Section, policy: str) -> frozenset[int]:
    """The indices of the ops of a section that run again in its backward pass."""
    key = (section.ops, policy)
    if key not in _LINES:
        _drop_oldest(_LINES)
        _LINES[key] = _lines_to_recompute(section, policy)
    return _LINES[key]


# Caches, bounded so that a process that runs for weeks does not grow with every model.
MAX_CACHED = 4096
_LINES: dict[tuple[object, ...], frozenset[int]] = {}
_MOVES: dict[tuple[object, ...], frozenset[int]] = {}


def _drop_oldest(cache: dict[tuple[object, ...], frozenset[int]]) -> None:
    while len(cache) >= MAX_CACHED:
        del cache[next(iter(cache))]


def _lines_to_recompute(section: Section, policy: str) -> frozenset[int]:
    if is_modules(policy):
        return module_lines(section, policy)
    ops = section.ops
    reads = _reads(section)
    saved: set[str] = set()  # remat by block saves the section's input only
    if policy != "block":
        saved = {array.name for array in saved_tensors(section, policy)}
    # the values that gradients read
    needed: list[Value] = []
    for line, op in enumerate(ops):
        if op.function not in _NEEDS_NO_INPUTS and not hands_on(op):
            needed += reads[line]
        elif op.function == "dispatch":
            needed += reads[line][1:]  # the router's choice
        elif op.function == "combine" and ops[reads[line][0][1]].function != "einsum":
            # experts' results are weighted here, not before their last matmul, as something else was added to them
            needed += reads[line][:1]
    # and those that they are computed from, back to saved ones
    lines: set[int] = set()
    while needed:
        name, line = needed.pop()
        if line < 0 or line in lines or name in saved:
            continue
        lines.add(line)
        needed += reads[line]
    return frozenset(lines)


def recomputed_moves(reading: Reading, policy: str) -> frozenset[int]:
    """The indices of a reading's forward moves of activations that run again: those that the recomputed ops need,
    unless the backward pass does them anyway."""
    section = reading.section
    key = (section.name, section.ops, reading.rules, policy)
    if key in _MOVES:
        return _MOVES[key]
    # a tensor that the backward pass gathers for itself is there for the recomputed ops too
    backward = Counter(_identity(move) for move in reading.moves if move.phase == "backward")
    rerun = replace(section, name=f"{section.name} again", ops=recomputed_ops(section, policy))
    activations = [move for move in read_forward(rerun, reading.rules).moves if move.what != "weight"]
    needed = Counter(map(_identity, activations)) - backward
    moves: set[int] = set()
    for move in reading.moves:
        if move.phase == "forward" and move.what != "weight" and needed[_identity(move)] > 0:
            needed[_identity(move)] -= 1
            moves.add(move.index)
    _drop_oldest(_MOVES)
    _MOVES[key] = frozenset(moves)
    return _MOVES[key]


def recomputed(reading: Reading, policy: str) -> tuple[frozenset[int], frozenset[int]]:
    """The indices of a reading's ops and of its forward moves that run again; cached with the reading, as every line of
    a pass needs them."""
    if policy not in reading.rerun:
        reading.rerun[policy] = recomputed_lines(reading.section, policy), recomputed_moves(reading, policy)
    return reading.rerun[policy]


def _identity(move: Move) -> tuple[object, ...]:
    return (move.step.kind, move.step.axes, move.step.before, move.step.after)


def _reads(section: Section) -> list[list[Value]]:
    """The values that each op reads."""
    written_by: dict[str, int] = {}
    reads: list[list[Value]] = []
    for line, op in enumerate(section.ops):
        reads.append([(array.name, written_by.get(array.name, -1)) for array in op.inputs])
        if op.output is not None:
            written_by[op.output.name] = line
    return reads
