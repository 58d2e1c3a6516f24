"""A training plan's ledger as formulas: the same evaluation, on letters.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> from dragonscale.training.cost.evaluation import make_job
>>> job = make_job(load_model("llama3-8b"), parse_slice("v5p:4x4x4"), 64, 8192)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=16,tensor=4"))
>>> line = next(one for one in verdict.ledger.lines if one.what == "U+G" and one.phase == "forward")
>>> print(line.flops.expr, "FLOPs,", line.times.expr, "times")
4*D*F*T*mb/tensor FLOPs, B*L/(fsdp*mb) times

Where a plan's wires take as long as its compute: the batch, sequence, degree or number of chips, solved from its own
formulas.

Both sides are sums of the ledger's lines at datasheet rates. The number of microbatches stays as it is, so a larger
batch means larger microbatches, and a larger degree smaller ones: what the book calls the batch of a chip. The mesh
stays laid as it is.

>>> job = make_job(load_model("llama3-70b"), parse_slice("v5p:8x16x16"), 2048, 4096)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=2048,remat=none"))
>>> found = {one.variable: one for one in crossings(verdict, letters, ["batch", "fsdp"], parse_plan("fsdp=2048"))}
>>> round(found["batch"].value / 2048), found["batch"].hides
(1103, 'above')
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from dragonscale.errors import unknown
from dragonscale.models.program import Program
from dragonscale.physics.formula import expression
from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.letters import Letters, lettered_axes, lettered_section, lettered_slice, lettered_wires
from dragonscale.plan.roots import linear_root, root
from dragonscale.training.cost.evaluation import Job, Verdict, as_numbers, judge_setting, make_setting, structures
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.stack import ALIVE, Stack
from dragonscale.training.plan.stages import StageLayers, stage_layers

FITTED = "copies that the compiler keeps at the peak", "fitted on compiled programs (docs/verify.md)"
"""What the constants of XLA's memory are, and where they come from."""

LONGEST = 140
"""Characters of a formula that is still read."""


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
    setting = replace(setting, timer=None, network=None, stack=stack, alive=alive)
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
    origin = rows or "training/plan/stacks.toml, from the trainer's source and published runs"
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


@dataclass(frozen=True)
class Crossing:
    """Where a kind of move takes as long as compute. `hides` says on which side of it the move hides; `formula` is None
    where there is no short closed form, and `value` where there is no such point. `microbatches` of a replica stay."""

    term: str
    variable: str
    value: float | None
    here: float
    hides: str
    formula: Any
    microbatches: float = 1


def variables(verdict: Verdict) -> list[str]:
    """What can be solved for."""
    return ["batch", "seq", "chips", *(name for name, size in verdict.axes.items() if size != 1 and name != "pipe")]


def crossings(verdict: Verdict, letters: Letters, names: Iterable[str], plan: Plan) -> list[Crossing]:
    """Every kind of move against compute, for each of some variables."""
    found: list[Crossing] = []
    for name in names:
        if name not in variables(verdict):
            raise unknown("size to solve for called", name, variables(verdict))
        for term, seconds in verdict.wires_s.items():
            if float(seconds) > 0:
                found.append(_crossing(term, seconds, verdict, letters, name, plan))
    return found


def _crossing(term: str, seconds: Any, verdict: Verdict, letters: Letters, name: str, plan: Plan) -> Crossing:
    import sympy

    symbols = {letter: sympy.Symbol(letter, positive=True) for letter in letters.values}
    values = {symbols[letter]: value for letter, value in letters.values.items()}
    variable, unit, gap = _asked(name, expression(seconds) - expression(verdict.compute_s), symbols, letters, plan)
    start = float(values.get(variable, 1.0) if name != "chips" else plan.chips)
    others = {one: value for one, value in values.items() if one != variable}
    function = sympy.lambdify(variable, gap.subs(others), "numpy")
    found = root(function, start)
    scale = float(unit.subs(values)) if hasattr(unit, "subs") else float(unit)
    many = _microbatches(letters, plan)
    if found is None:
        return Crossing(term, name, None, start * scale, "always" if function(start) <= 0 else "never", None, many)
    formula = linear_root(gap, variable)
    formula = None if formula is None or len(str(formula * unit)) > LONGEST else formula * unit
    hides = "above" if function(found * (1 + 1e-6)) < 0 else "below"
    return Crossing(term, name, found * scale, start * scale, hides, formula, many)


def _microbatches(letters: Letters, plan: Plan) -> float:
    return letters.values["B"] / (plan.replicas * plan.microbatch)


def _asked(name: str, gap: Any, symbols: dict[str, Any], letters: Letters, plan: Plan) -> tuple[Any, Any, Any]:
    """The symbol to solve for, what its value is counted in, and the difference with the number of
    microbatches held."""
    import sympy

    replicas = sympy.Integer(1)
    for axis in ("data", "fsdp", "expert"):
        replicas = replicas * symbols.get(axis, 1)
    many = sympy.nsimplify(_microbatches(letters, plan))
    gap = gap.subs(symbols["mb"], symbols["B"] / (replicas * many))
    if name == "batch":
        return symbols["B"], symbols["T"], gap
    if name == "seq":
        return symbols["T"], 1, gap
    if name == "chips":
        axis = max(("fsdp", "data", "expert", "context", "tensor"), key=lambda one: getattr(plan, one))
        chips = sympy.Symbol("chips", positive=True)
        rest = sympy.Integer(plan.chips // getattr(plan, axis))
        return chips, 1, gap.subs(symbols[axis], chips / rest)
    return symbols[name], 1, gap
