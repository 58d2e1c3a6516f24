"""Where a plan's wires take as long as its compute: the batch, sequence, degree or number of chips, solved from its own
formulas.

Both sides are sums of the ledger's lines at datasheet rates. The number of microbatches stays as it is, so a larger
batch means larger microbatches, and a larger degree smaller ones: what the book calls the batch of a chip. The mesh
stays laid as it is.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.cost.formulas import formula_verdict
>>> job = make_job(load_model("llama3-70b"), parse_slice("v5p:8x16x16"), 2048, 4096)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=2048,remat=none"))
>>> rows = crossings(verdict, letters, ["batch", "fsdp"], parse_plan("fsdp=2048"))
>>> [(row.variable, round(row.value / 2048), row.hides) for row in rows if row.variable == "batch"]
[('batch', 1103, 'above')]
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import unknown
from dragonscale.physics.formula import expression
from dragonscale.plan.letters import Letters
from dragonscale.plan.roots import linear_root, root
from dragonscale.training.cost.evaluation import Verdict
from dragonscale.training.plan.plan import Plan

# Characters of a formula that is still read.
MAX_FORMULA_LENGTH = 140


@dataclass(frozen=True)
class Crossing:
    """Where a kind of move takes as long as compute. `hides` says on which side of it the move hides; `formula` is None
    where there is no short closed form, and `value` where there is no such point. `microbatches` of a replica are held
    constant."""

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


@dataclass(frozen=True)
class _Equation:
    """An equation gap = 0 in a SymPy symbol; `unit` times the symbol is what the value is counted in."""

    variable: Any
    unit: Any
    gap: Any


def _crossing(term: str, seconds: Any, verdict: Verdict, letters: Letters, name: str, plan: Plan) -> Crossing:
    import sympy

    symbols = {letter: sympy.Symbol(letter, positive=True) for letter in letters.values}
    values = {symbols[letter]: value for letter, value in letters.values.items()}
    equation = _equation(name, expression(seconds) - expression(verdict.compute_s), symbols, letters, plan)
    variable, unit = equation.variable, equation.unit
    start = float(plan.chips)
    if name != "chips":
        start = float(values.get(variable, 1.0))
    others = {symbol: value for symbol, value in values.items() if symbol != variable}
    gap = sympy.lambdify(variable, equation.gap.subs(others), "numpy")
    solution = root(gap, start)
    scale = float(unit.subs(values)) if hasattr(unit, "subs") else float(unit)
    microbatches = _microbatches(letters, plan)
    if solution is None:
        hides = "always" if gap(start) <= 0 else "never"
        return Crossing(term, name, None, start * scale, hides, None, microbatches)
    formula = linear_root(equation.gap, variable)
    if formula is not None:
        formula = formula * unit
        if len(str(formula)) > MAX_FORMULA_LENGTH:
            formula = None
    hides = "above" if gap(solution * (1 + 1e-6)) < 0 else "below"
    return Crossing(term, name, solution * scale, start * scale, hides, formula, microbatches)


def _microbatches(letters: Letters, plan: Plan) -> float:
    return letters.values["B"] / (plan.replicas * plan.microbatch)


def _equation(name: str, gap: Any, symbols: dict[str, Any], letters: Letters, plan: Plan) -> _Equation:
    """The equation to solve for a variable, the number of microbatches held constant."""
    import sympy

    replicas = sympy.Integer(1)
    for axis in ("data", "fsdp", "expert"):
        replicas = replicas * symbols.get(axis, 1)
    microbatches = sympy.nsimplify(_microbatches(letters, plan))
    gap = gap.subs(symbols["mb"], symbols["B"] / (replicas * microbatches))
    if name == "batch":
        return _Equation(symbols["B"], symbols["T"], gap)  # in tokens
    if name == "seq":
        return _Equation(symbols["T"], 1, gap)
    if name == "chips":
        # More chips widen the plan's largest axis, the others stay.
        axis = max(("fsdp", "data", "expert", "context", "tensor"), key=lambda axis: plan[axis])
        chips = sympy.Symbol("chips", positive=True)
        rest = sympy.Integer(plan.chips // plan[axis])
        return _Equation(chips, 1, gap.subs(symbols[axis], chips / rest))
    return _Equation(symbols[name], 1, gap)
