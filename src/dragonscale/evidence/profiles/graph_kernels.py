"""Kernels of CUDA graphs, each with the HLO instruction that it comes from.

XLA records stretches of a program into CUDA graphs and launches a graph as one: the profile then names the graph (`command_buffer_13`) beside each of its
kernels, and no longer the instruction. But a graph runs its kernels in the order of the program's schedule, and kernels of fusions are named after
them. So the kernels of a launch are aligned with the instructions of each computation that is scheduled (the longest common subsequence of
the two), and the computation that explains most of them is taken. A kernel that has no instruction of its own (the sum of a split matmul, a memset)
goes with the one before it.
"""

import re
from dataclasses import replace

import msgspec
import numpy as np

from dragonscale.evidence.profiles.hlo_roles import HloProgram, HloReader
from dragonscale.evidence.profiles.names import known_kernel
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.xla.hlo_text import Computation, Instruction

_GRAPH = re.compile(r"command_buffer|cuda_?graph|CommandBuffer", re.IGNORECASE)
_NUMBERS = re.compile(r"(?:[._]\d+)+$")
_SILENT = frozenset(
    "parameter constant tuple get-tuple-element bitcast while conditional call after-all partition-id replica-id opt-barrier"
    " async-done copy-done all-gather-done all-reduce-done collective-permute-done".split()
)
"""Opcodes that launch nothing."""
_MOST = 30_000_000
"""Cells of an alignment; longer stretches are left as they are."""
_ENOUGH = 0.6
"""The part of a graph's kernels that an alignment has to explain."""


def with_instructions(recording: Recording, reader: HloReader) -> Recording:
    """The recording with each kernel of a graph saying its instruction, where the program is at hand."""
    wanted = [bool(_GRAPH.search(op.caller)) and reader.program(op.module) is not None for op in recording.ops]
    if not any(wanted):
        return recording
    events = recording.events
    which = np.flatnonzero(np.array([*wanted, False])[events.op] & recording.on("ops"))
    ops, numbers = list(recording.ops), dict[OpText, int]()
    column = events.op.copy()
    known: dict[tuple[str, str, tuple[int, ...]], list[Instruction | None]] = {}
    for launch in _launches(recording, which):
        first = recording.ops[int(events.op[launch[0]])]
        key = (first.module, first.caller, tuple(int(op) for op in events.op[launch]))
        if key not in known:
            program = reader.program(first.module)
            known[key] = (
                aligned(program, [recording.ops[op].name for op in key[2]]) if program else [None] * len(launch)
            )
        for event, instruction in zip(launch, known[key], strict=True):
            if instruction is None:
                continue
            text = msgspec.structs.replace(
                ops[int(events.op[event])], caller=instruction.name, scope=instruction.op_name
            )
            if text not in numbers:
                numbers[text] = len(ops)
                ops.append(text)
            column[event] = numbers[text]
    return replace(recording, ops=tuple(ops), events=replace(events, op=column))


def _launches(recording: Recording, which: np.ndarray) -> list[list[int]]:
    """Events of graphs, by launch: those that one graph was asked for at one moment, in order of their starts."""
    events = recording.events
    found: dict[tuple[int, str, int], list[int]] = {}
    runs: dict[tuple[int, str], tuple[int, int]] = {}
    for event in which:
        track, caller, launched = (
            int(events.track[event]),
            recording.ops[int(events.op[event])].caller,
            int(events.launched[event]),
        )
        if launched < 0:  # without a moment, kernels of one graph that follow each other are one launch
            before, number = runs.get((track, ""), (-2, 0))
            runs[track, ""] = (int(event), number if before + 1 == int(event) else number + 1)
            launched = -1 - runs[track, ""][1]
        found.setdefault((track, caller, launched), []).append(int(event))
    return list(found.values())


def aligned(program: HloProgram, kernels: list[str]) -> list[Instruction | None]:
    """For each kernel of a launch its instruction, or None where no computation explains the launch."""
    tokens = [_kernel_token(name) for name in kernels]
    best: list[Instruction | None] = [None] * len(kernels)
    most = _ENOUGH * sum(token not in ("memset", "memcpy") for token in tokens)
    for computation in scheduled(program):
        found = _subsequence(kernels, tokens, [each for each in computation.instructions if each.opcode not in _SILENT])
        explained = sum(each is not None and token != "memcpy" for each, token in zip(found, tokens, strict=True))
        if explained > most:
            best, most = found, explained
    following: Instruction | None = None
    for place in reversed(range(len(kernels))):  # memory is set for what comes next
        following = best[place] or following
        if best[place] is None and tokens[place] == "memset":
            best[place] = following
    last: Instruction | None = None
    for place, instruction in enumerate(best):
        last = instruction or last
        if instruction is None and tokens[place] in ("split-K sum", "reduction"):
            best[place] = last
    return best


def scheduled(program: HloProgram) -> list[Computation]:
    """Computations that are run instruction by instruction: the entry, bodies of loops, branches, calls."""
    module = program.module
    names = {module.entry.name}
    for _, each in program.places.values():
        if each.opcode in ("while", "conditional", "call"):
            names.update(name for role, name in each.callees if role != "condition")
    return [module.computations[name] for name in sorted(names) if name in module.computations]


def _kernel_token(name: str) -> str:
    """What a kernel's name can be compared by: a fusion's name without numbers, else the kind of a library's kernel."""
    if match := re.match(r"(?i)(memcpy|memset)", name):
        return match[1].lower()
    rule = known_kernel(name)
    plain = _NUMBERS.sub("", name)
    if rule and rule.kind in ("matmul", "attention") and not plain.endswith(("fusion", "dot", "dot_general")):
        return rule.what if rule.what == "split-K sum" else rule.kind
    if rule and "XLA" not in rule.software and "fusion" not in plain and rule.kind in ("reduction", "gather"):
        return rule.kind
    return plain


def _tokens(instruction: Instruction) -> dict[str, int]:
    """The tokens of kernels that an instruction may launch, each with how much it says."""
    plain = _NUMBERS.sub("", instruction.name).replace("-", "_")
    found = {plain: 4}
    if instruction.opcode == "custom-call":
        target = instruction.attribute("custom_call_target").strip('"')
        kinds = (
            ("attention",)
            if "fmha" in target
            else ("matmul",)
            if target.startswith("__cu")
            else ("gather", "reduction")
        )
        found |= dict.fromkeys(kinds, 4)
    elif instruction.opcode == "sort":
        found["gather"] = 4
    elif instruction.opcode == "async-start" or any(word in plain for word in ("copy", "slice", "broadcast")):
        found |= dict.fromkeys(("memcpy", "copy", "loop_copy_fusion", "wrapped_copy"), 1)
    return found


def _subsequence(names: list[str], kernels: list[str], instructions: list[Instruction]) -> list[Instruction | None]:
    """The weightiest common subsequence of kernels and instructions: the instruction of each kernel that is in it."""
    rows, columns = len(kernels), len(instructions)
    if rows == 0 or columns == 0 or rows * columns > _MOST:
        return [None] * rows
    tokens = [_tokens(each) for each in instructions]
    weights = {token: np.array([some.get(token, 0) for some in tokens], np.int32) for token in set(kernels)}
    exact = {re.sub(r"[.\-]", "_", each.name): place for place, each in enumerate(instructions)}
    fits: list[np.ndarray] = []
    table = np.zeros((rows + 1, columns + 1), np.int32)
    for row, (name, token) in enumerate(zip(names, kernels, strict=True)):
        weight = weights[token]
        if name in exact and weight[exact[name]]:
            weight = weight.copy()
            weight[exact[name]] += 1
        fits.append(weight)
        taken = np.where(weight > 0, table[row, :-1] + weight, 0)
        table[row + 1, 1:] = np.maximum.accumulate(np.maximum(table[row, 1:], taken))
    found: list[Instruction | None] = [None] * rows
    row, column = rows, columns
    while row and column:
        weight = int(fits[row - 1][column - 1])
        if weight and table[row, column] == table[row - 1, column - 1] + weight:
            found[row - 1] = instructions[column - 1]
            row, column = row - 1, column - 1
        elif table[row, column] == table[row, column - 1]:
            column -= 1
        else:
            row -= 1
    return found
