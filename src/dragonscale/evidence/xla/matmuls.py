"""The matmuls of a compiled module: where each stands in the user's program, its FLOPs and how often it runs.

A matmul is a `dot`, a `convolution`, or a call of a library that multiplies (cuBLAS, cuDNN); it may stand inside a
fusion. Of a conditional's branches the dearest is counted, each time. A custom call that is not known, and a matmul
whose number of executions is not known, are listed as `Unknown`: work that is there and has no number is never counted
as none.

>>> text = '''
... HloModule jit_f
...
... ENTRY %main (p: bf16[8,4], q: bf16[4,2]) -> bf16[8,2] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   %q = bf16[4,2]{1,0} parameter(1)
...   ROOT %d = bf16[8,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/x"}
... }
... '''
>>> from dragonscale.evidence.xla.hlo_text import read_module
>>> (matmul,), unknown = read_matmuls(read_module(text))
>>> matmul.op_name, matmul.flops_each, matmul.times, unknown
('f/x', 128.0, 1, [])
"""

from functools import lru_cache

import msgspec

from dragonscale.evidence.xla.call_graph import BRANCHES, callers_first
from dragonscale.evidence.xla.hlo_text import Instruction, Module, frame_lines, source_line
from dragonscale.evidence.xla.matmul_flops import flops_of, may_multiply
from dragonscale.evidence.xla.op_flops import computation_flops
from dragonscale.evidence.xla.opcodes import HARMLESS
from dragonscale.evidence.xla.trip_counts import UNKNOWN, executions


class CompiledMatmul(msgspec.Struct, frozen=True):
    """One matmul; `what` is its opcode, or the library's function."""

    name: str
    what: str
    op_name: str
    source: str
    flops_each: float
    times: int

    @property
    def flops(self) -> float:
        """FLOPs of all its executions."""
        return self.flops_each * self.times


class Unknown(msgspec.Struct, frozen=True):
    """Work that has no number: a custom call of this target, or a matmul run an unknown number of times.

    `shapes` are the operands' and the result's, in HLO's words.
    """

    name: str
    what: str
    op_name: str
    source: str
    times: int
    shapes: str


@lru_cache(maxsize=1)
def upper_executions(module: Module) -> dict[str, int]:
    """How often each computation runs where every conditional takes its dearest branch, the one with the most FLOPs."""
    dearest: dict[str, str] = {}
    for name in callers_first(module):
        for each in module.computations[name].instructions:
            if branches := [callee for role, callee in each.callees if role in BRANCHES]:
                dearest[each.name] = max(branches, key=lambda callee: computation_flops(module, callee).matmul)
    return executions(module, dearest)


def read_matmuls(module: Module) -> tuple[list[CompiledMatmul], list[Unknown]]:
    """Every matmul that runs, in order of its computations, and the work that has no number."""
    frames = frame_lines(module.tables)
    counts = upper_executions(module)
    matmuls: list[CompiledMatmul] = []
    unknown: list[Unknown] = []
    for computation in module.computations.values():
        times = counts[computation.name]
        for each in computation.instructions if times else ():
            flops = flops_of(computation, each) if may_multiply(each) else None
            if flops is None and not _is_hidden(each):
                continue
            what = each.attribute("custom_call_target").strip('"') or each.opcode
            source = source_line(each.text, frames)
            if flops is not None and times != UNKNOWN:
                matmuls.append(CompiledMatmul(each.name, what, each.op_name, source, flops, times))
            else:
                shapes = f"{', '.join(computation.named[name].result for name in each.operands)} -> {each.result}"
                unknown.append(Unknown(each.name, what, each.op_name, source, times, shapes))
    return matmuls, unknown


def _is_hidden(instruction: Instruction) -> bool:
    """Whether an instruction may do work that cannot be read from its line."""
    if instruction.opcode != "custom-call":
        return instruction.opcode == "ragged-dot"
    return instruction.attribute("custom_call_target").strip('"') not in HARMLESS
