"""FLOPs of an instruction and of all that it runs, by the unit that does them: matmuls, the vector unit, transcendental
functions.

Counted as XLA's own cost analysis does: a matmul 2·m·n·k, an elementwise op one for each element of its result, a
reduction one application of its function for each element that vanishes, a function like `exp` apart from the rest
because a vector unit needs several operations for it. Moving data is no FLOP. Loops count as often as they run, of a
conditional the dearest branch.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import BRANCHES
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, Module, operand_arrays
from dragonscale.evidence.xla.matmul_flops import matmul_flops, may_multiply
from dragonscale.evidence.xla.opcodes import ELEMENTWISE, TRANSCENDENTAL
from dragonscale.evidence.xla.trip_counts import UNKNOWN, trip_count

_APPLIED = ("reduce", "reduce-window", "scatter", "map", "select-and-scatter", "sort")
DEEPEST = 200
"""Computations inside one another that are followed."""


@dataclass(frozen=True)
class Flops:
    """Operations of matmuls, of the vector unit, and evaluations of transcendental functions."""

    matmul: float = 0.0
    vector: float = 0.0
    transcendental: float = 0.0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.matmul + other.matmul, self.vector + other.vector, self.transcendental + other.transcendental)

    def __mul__(self, times: float) -> "Flops":
        return Flops(self.matmul * times, self.vector * times, self.transcendental * times)


def op_flops(module: Module | None, computation: Computation | None, instruction: Instruction, depth: int = 0) -> Flops:
    """FLOPs of one execution of an instruction, with all that it runs."""
    own = _own(module, computation, instruction, depth)
    if own is not None:
        return own
    if module is None or depth > DEEPEST:
        return Flops()
    inside = {name: computation_flops(module, name, depth) for _, name in instruction.callees}
    branches = [inside[name] for role, name in instruction.callees if role in BRANCHES]
    if branches:
        return max(branches, key=lambda each: (each.matmul, each.vector))
    turns = loop_turns(module, computation, instruction)
    found = Flops()
    for role, name in instruction.callees:
        found += inside[name] * (turns + (role == "condition"))
    return found


def loop_turns(module: Module, computation: Computation | None, instruction: Instruction) -> int:
    """How often what an instruction runs is run: one turn of a loop whose end is not known."""
    if instruction.opcode != "while":
        return 1
    trips = trip_count(module, computation.name, instruction) if computation else UNKNOWN
    return 1 if trips == UNKNOWN else trips


def _own(module: Module | None, computation: Computation | None, instruction: Instruction, depth: int) -> Flops | None:
    """What the instruction itself does; None where it only runs others."""
    opcode = instruction.opcode
    if may_multiply(instruction):
        return Flops(matmul=matmul_flops(computation, instruction) or 0.0)
    if opcode in ELEMENTWISE:
        count = float(sum(math.prod(shape.dims) for shape in instruction.shapes[:1]))
        return Flops(transcendental=count) if opcode in TRANSCENDENTAL else Flops(vector=count)
    if opcode in _APPLIED:
        return _function(module, instruction, depth) * _applications(computation, instruction)
    if opcode in ("all-reduce", "all-reduce-start", "reduce-scatter"):
        return Flops(vector=float(sum(math.prod(shape.dims) for shape in instruction.shapes)))
    return None


def _applications(computation: Computation | None, instruction: Instruction) -> float:
    """How often an instruction applies its function."""
    arrays = operand_arrays(computation, instruction)
    results = instruction.shapes
    if not arrays or not results:
        return 0.0
    read, made = (float(math.prod(shape.dims)) for shape in (arrays[0], results[0]))
    if instruction.opcode == "reduce":
        return max(read - made, 0.0)
    if instruction.opcode == "reduce-window":
        sizes = re.search(r"size=([\dx]+)", instruction.attribute("window"))
        window = math.prod(int(size) for size in sizes[1].split("x")) if sizes else 1
        return (window - 1) * made
    if instruction.opcode == "scatter":
        return float(math.prod(arrays[-1].dims))
    if instruction.opcode == "sort":
        return made * math.ceil(math.log2(made)) if made > 1 else 0.0
    return made


def _function(module: Module | None, instruction: Instruction, depth: int) -> Flops:
    """What one application of an instruction's function costs: one operation where it cannot be seen (and for a
    comparison)."""
    names = [name for role, name in instruction.callees if role == "to_apply"]
    if module is None or not names or instruction.opcode == "sort" or names[0] not in module.computations:
        return Flops(vector=1.0)
    return computation_flops(module, names[0], depth)


def computation_flops(module: Module, name: str, depth: int = 0) -> Flops:
    """FLOPs of a computation each time it runs, with all that it calls."""
    known = _known(module)
    if name not in known:
        if depth > DEEPEST:
            raise InputError(f"The computations of the HLO text run each other more than {DEEPEST} deep.")
        known[name] = Flops()  # a computation that runs itself adds nothing to itself
        computation = module.computations[name]
        known[name] = sum(
            (op_flops(module, computation, each, depth + 1) for each in computation.instructions), Flops()
        )
    return known[name]


@lru_cache(maxsize=4)
def _known(module: Module) -> dict[str, Flops]:  # noqa: ARG001 - the cache's key: each module has its own table
    return {}
