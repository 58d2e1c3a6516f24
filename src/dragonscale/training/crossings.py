"""Where a plan's wires take as long as its compute: the batch, sequence, degree or number of chips, solved from its own
formulas.

Both sides are sums of the ledger's lines at datasheet rates. The number of microbatches stays as it is, so a larger
batch means larger microbatches, and a larger degree smaller ones: what the book calls the batch of a chip. The mesh
stays laid as it is.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.evaluation import make_job
>>> from dragonscale.training.plan_file import parse_plan
>>> job = make_job(load_model("llama3-70b"), parse_slice("v5p:8x16x16"), 2048, 4096)
>>> verdict, letters = formula_verdict(job, parse_plan("fsdp=2048,remat=none"))
>>> found = {one.variable: one for one in crossings(verdict, letters, ["batch", "fsdp"], parse_plan("fsdp=2048"))}
>>> round(found["batch"].value / 2048), found["batch"].hides
(1103, 'above')
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import unknown
from dragonscale.physics.formula import expression
from dragonscale.plan.letters import Letters
from dragonscale.plan.roots import linear_root, root
from dragonscale.training.evaluation import Verdict
from dragonscale.training.formulas import formula_verdict
from dragonscale.training.plan import Plan

__all__ = ["Crossing", "crossings", "formula_verdict"]

LONGEST = 140
"""Characters of a formula that is still read."""


@dataclass(frozen=True)
class Crossing:
    """Where a kind of move takes as long as compute. `hides` says on which side of it the move hides; `formula` is None
    where there is no short closed form, and `value` where there is no such point."""

    term: str
    variable: str
    value: float | None
    here: float
    hides: str
    formula: Any


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
    if found is None:
        return Crossing(term, name, None, start * scale, "always" if function(start) <= 0 else "never", None)
    formula = linear_root(gap, variable)
    formula = None if formula is None or len(str(formula * unit)) > LONGEST else formula * unit
    hides = "above" if function(found * (1 + 1e-6)) < 0 else "below"
    return Crossing(term, name, found * scale, start * scale, hides, formula)


def _asked(name: str, gap: Any, symbols: dict[str, Any], letters: Letters, plan: Plan) -> tuple[Any, Any, Any]:
    """The symbol to solve for, what its value is counted in, and the difference with the number of
    microbatches held."""
    import sympy

    replicas = sympy.Integer(1)
    for axis in ("data", "fsdp", "expert"):
        replicas = replicas * symbols.get(axis, 1)
    many = letters.values["B"] / (plan.replicas * plan.microbatch)
    gap = gap.subs(symbols["mb"], symbols["B"] / (replicas * sympy.nsimplify(many)))
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
