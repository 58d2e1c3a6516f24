"""A training plan's ledger as formulas: the same evaluation, on letters.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("v5p:4x4x4"), 64, 8192)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=16,tensor=4"))
>>> line = next(one for one in verdict.ledger.lines if one.what == "U+G" and one.phase == "forward")
>>> print(line.flops.expr, "FLOPs,", line.times.expr, "times")
4*D*F*T*mb/tensor FLOPs, B*L/(fsdp*mb) times
"""

from dataclasses import replace
from typing import Any

from msgspec import structs

from dragonscale.models.program import Program
from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.letters import Letters, lettered_axes, lettered_section, lettered_slice, lettered_wires
from dragonscale.training.evaluation import Job, Verdict, as_numbers, judge_setting, make_job, make_setting, structures
from dragonscale.training.plan import AXES, Plan
from dragonscale.training.stack import ALIVE, Stack
from dragonscale.training.stages import StageLayers, stage_layers
from dragonscale.training.travel import Network

FITTED = "copies that the compiler keeps at the peak", "fitted on compiled programs (docs/verify.md)"
"""What the constants of XLA's memory are, and where they come from."""
__all__ = ["formula_verdict", "make_job"]


def formula_verdict(job: Job, plan: Plan) -> tuple[Verdict, Letters]:
    """The bounds, bytes, FLOPs and memory of one plan as formulas, and what their letters stand for."""
    numbers = as_numbers([plan])
    ((folded, undivided),), _ = structures(job, numbers, plan.etp)
    concrete = make_setting(job, plan, folded, dict(undivided))
    wires = lay_wires(numbers, job.slice, AXES)
    letters = Letters()
    piece = lettered_slice(job.slice, letters)
    program = _lettered_program(concrete.program, letters)
    batch, sequence = letters.new("B", job.batch), letters.new("T", job.sequence)
    stack = _lettered_stack(concrete.stack, letters)
    alive = letters.constants(ALIVE[job.slice.chip.kind], "alive", *FITTED)
    setting = replace(concrete, program=program, slice=piece, batch=batch, sequence=sequence)
    setting = replace(setting, timer=None, network=Network(), stack=stack, alive=alive)
    axes = lettered_axes(wires.axes, letters)
    named: dict[str, Any] = {**axes, "microbatch": letters.new("mb", plan.microbatch), "virtual": 1}
    if plan.virtual > 1:
        named["virtual"] = letters.new("virtual", plan.virtual)
    layers = _lettered_layers(program, plan, axes["pipe"], letters)
    verdict = judge_setting(setting, named, lettered_wires(wires, piece, axes), layers)
    lines = [line for line in verdict.ledger.lines if line.times != 0 and (line.moves or line.flops or line.bound_s)]
    lines = [replace(line, axes=tuple(axis for axis in line.axes if axes.get(axis, 1) != 1)) for line in lines]
    kept = [line for line in lines if not line.moves or line.axes]
    held = [line for line in verdict.ledger.held if line.bytes]
    return Verdict(Ledger(kept, held), verdict.possible, axes), letters


def _lettered_stack(stack: Stack, letters: Letters) -> Stack:
    """A stack with letters for the constants of its memory and state that were fitted."""
    what = f"a constant of the stack {stack.name}"
    rows = "; ".join(one.text for one in stack.measured if one.what == "training")
    origin = rows or "training/stacks.toml, from the trainer's source and published runs"
    groups = {name: letters.constants(getattr(stack, name), name, what, origin) for name in ("memory", "state")}
    return structs.replace(stack, **groups)


def _lettered_program(program: Program, letters: Letters) -> Program:
    sections = tuple(lettered_section(section, letters) for section in program.sections)
    return replace(program, sections=sections, extras=tuple(lettered_section(one, letters) for one in program.extras))


def _lettered_layers(program: Program, plan: Plan, pipe: Any, letters: Letters) -> StageLayers:
    """Layers of each kind on the ranks that matter: L of the model over the stages where these divide them evenly."""
    found = stage_layers(program.order, [plan.pipe], [plan.virtual], plan.layout)
    kinds = sorted(set(program.order))

    def counts(some: dict[str, Any]) -> dict[str, Any]:
        result = {}
        for kind, number in some.items():
            total = program.order.count(kind)
            name = "L" if len(kinds) == 1 else f"L_{kind.removeprefix('block')}"
            even = int(number[0]) * plan.pipe == total
            result[kind] = letters.new(name, total) / pipe if even else int(number[0])
        return result

    return StageLayers(counts(found.first), counts(found.last), counts(found.fullest))
