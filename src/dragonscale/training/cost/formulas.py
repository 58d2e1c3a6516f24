"""A training plan's ledger as formulas: the same evaluation, on letters.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> from dragonscale.training.cost.evaluation import make_job
>>> job = make_job(load_model("llama3-8b"), parse_slice("v5p:4x4x4"), 64, 8192)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=16,tensor=4"))
>>> line = next(line for line in verdict.ledger.lines if line.what == "U+G" and line.phase == "forward")
>>> print(line.flops.expr, "FLOPs,", line.times.expr, "times")
4*D*F*T*mb/tensor FLOPs, B*L/(fsdp*mb) times
"""

from dataclasses import replace
from typing import Any

from msgspec import structs

from dragonscale.models.program import Program
from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.letters import Letters, lettered_axes, lettered_section, lettered_slice, lettered_wires
from dragonscale.training.cost.evaluation import (
    Job,
    Verdict,
    degrees_of,
    judge_setting,
    make_setting,
    only_structure,
)
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.stack import ALIVE, Stack
from dragonscale.training.plan.stages import StageLayers, stage_layers

# What the constants of XLA's memory are, and where they come from.
XLA_CONSTANTS = "copies that the compiler keeps at the peak"
XLA_ORIGIN = "fitted on compiled programs (docs/verify.md)"


def formula_verdict(job: Job, plan: Plan) -> tuple[Verdict, Letters]:
    """The bounds, bytes, FLOPs and memory of one plan as formulas, and what their letters stand for."""
    degrees = degrees_of([plan])
    folded, undivided = only_structure(job, degrees, plan.etp)
    numeric = make_setting(job, plan, folded, dict(undivided))
    wires = lay_wires(degrees, job.slice, AXES)
    # The order in which letters are made is the order in which they are listed, and decides who gets a plain name.
    letters = Letters()
    slice_ = lettered_slice(job.slice, letters)
    program = _lettered_program(numeric.program, letters)
    batch, sequence = letters.new("B", job.batch), letters.new("T", job.sequence)
    setting = replace(
        numeric,
        program=program,
        slice=slice_,
        batch=batch,
        sequence=sequence,
        timer=None,
        network=None,
        stack=_lettered_stack(numeric.stack, letters),
        alive=letters.constants(ALIVE[job.slice.chip.kind], "alive", XLA_CONSTANTS, XLA_ORIGIN),
    )
    axes = lettered_axes(wires.axes, letters)
    lettered_degrees: dict[str, Any] = {**axes, "microbatch": letters.new("mb", plan.microbatch), "virtual": 1}
    if plan.virtual > 1:
        lettered_degrees["virtual"] = letters.new("virtual", plan.virtual)
    layers = _lettered_layers(program, plan, axes["pipe"], letters)
    verdict = judge_setting(setting, lettered_degrees, lettered_wires(wires, slice_, axes), layers)
    lines: list[LedgerLine] = []
    for line in verdict.ledger.lines:
        if line.times == 0 or not (line.moves or line.flops or line.bound_s):
            continue
        line = replace(line, axes=tuple(axis for axis in line.axes if axes.get(axis, 1) != 1))
        if line.axes or not line.moves:  # over axes of size 1 nothing travels
            lines.append(line)
    tensors = [line for line in verdict.ledger.held if line.bytes]
    return Verdict(Ledger(lines, tensors), verdict.possible, axes), letters


def _lettered_stack(stack: Stack, letters: Letters) -> Stack:
    """A stack with letters for the constants of its memory and state that were fitted."""
    what = f"a constant of the stack {stack.name}"
    origin = "; ".join(row.text for row in stack.measured if row.what == "training")
    origin = origin or "training/plan/stacks.toml, from the trainer's source and published runs"
    return structs.replace(
        stack,
        memory=letters.constants(stack.memory, "memory", what, origin),
        state=letters.constants(stack.state, "state", what, origin),
    )


def _lettered_program(program: Program, letters: Letters) -> Program:
    sections = tuple(lettered_section(section, letters) for section in program.sections)
    extras = tuple(lettered_section(section, letters) for section in program.extras)
    return replace(program, sections=sections, extras=extras)


def _lettered_layers(program: Program, plan: Plan, pipe: Any, letters: Letters) -> StageLayers:
    """Layers of each kind on the ranks that matter: L of the model over the stages where these divide them evenly."""
    layers = stage_layers(program.order, [plan.pipe], [plan.virtual], plan.layout)
    kinds = set(program.order)

    def lettered(counts: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for kind, (count,) in counts.items():
            total = program.order.count(kind)
            name = "L" if len(kinds) == 1 else f"L_{kind.removeprefix('block')}"
            result[kind] = int(count)
            if result[kind] * plan.pipe == total:
                result[kind] = letters.new(name, total) / pipe
        return result

    return StageLayers(lettered(layers.first), lettered(layers.last), lettered(layers.fullest))
