"""Where serving changes its nature: degrees, batches and contexts at which two resources take equally long, solved from
the ledger.

Every crossover is an equation between sums of an iteration's lines. The number is a root of the costs themselves, over
arrays of the variable, with every maximum, minimum and rounding in them; the formula is that of the case which holds at
the root.

>>> from dragonscale.serving.iteration.deployment import deploy
>>> for limit in find_limits(deploy("llama3-70b", "v5e:4x4", "weights=int8,compute=int8,kv=int8"), 64, 8192):
...     print(f"{limit.name}: {limit.text} = {limit.value:.4g}")
critical batch: C_int8/(2*W_hbm) = 240.2
max TP hidden in decode: (8*B*W_hbm + 3*F*W_ici + 2*H*N*W_ici)/(2*(4*B*W_hbm - H*W_ici)) = 24.28
context where KV reads dominate: D*W_hbm*(3*C*F*L + 2*C*H*L*N + 2*C*H*L*tensor + C_int8*V)/(C*C_int8*H*L*tensor) = 913.3
context where KV reads pass weights: D*(3*F*L + 2*H*L*N + 2*H*L*tensor + 2*V)/(2*B*H*L*tensor) = 3428
max tok/s/chip: where the roofline grows with the batch = 274.8
largest batch: (HBM*m - r - w)/(S*c) = 42.8
max TP hidden in prefill: (4*C_int8 + 3*F*W_ici + 2*H*K*W_ici + 2*H*N*W_ici)/(4*C_int8) = 6.965
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy

from dragonscale.physics.formula import expression
from dragonscale.physics.numbers import Number, product
from dragonscale.physics.rooflines import symbol
from dragonscale.plan.letters import Letters
from dragonscale.plan.roots import linear_root, root, tidied
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.formulas import lettered_iteration
from dragonscale.serving.iteration.iteration import Iteration, IterationCost, LineGroup, ServingLine, decode, prefill
from dragonscale.serving.iteration.phases import iteration_cost

LONGEST = 110
"""Characters of a formula that is still read."""
MOST = 1e9
"""The largest value of a variable that is looked at."""
MATMULS = ("matmul", "grouped matmul")

Resources = dict[str, Number]
"""Seconds at datasheet rates, by what takes them."""


@dataclass(frozen=True)
class ServingLimit:
    """A number that a resource or a target sets: its name, what it counts, the equation in words, what gives its
    formula, and what the formula's letters stand for."""

    name: str
    counts: str
    equation: str
    variable: str
    closed: Callable[[], Any]
    value: float
    letters: dict[str, float]

    @cached_property
    def formula(self) -> Any:
        """The formula, solved when it is asked for; None where there is no closed form."""
        return self.closed()

    @property
    def text(self) -> str:
        """The formula as people write it."""
        text = "" if self.formula is None else str(self.formula).replace("**", "^")
        return text if 0 < len(text) <= LONGEST else f"where {self.equation}"


@dataclass(frozen=True)
class SolvedIteration:
    """An iteration of a deployment, and its costs with other numbers for its letters."""

    deployment: Deployment
    step: Iteration

    @cached_property
    def letters(self) -> Letters:
        """What the letters of its formulas stand for."""
        return Letters(plain=True)

    @cached_property
    def here(self) -> IterationCost:
        """Its lines as numbers, bounds only."""
        return iteration_cost(*lettered_iteration(self.deployment, self.step, self.letters))

    def cost(self, variable: str, value: Any, plain: bool) -> IterationCost:
        """The lines with one letter given another number (or an array of them), as numbers or as formulas."""
        return iteration_cost(*lettered_iteration(self.deployment, self.step, Letters({}, {variable: value}, plain)))

    def solve(
        self,
        chosen: Callable[[IterationCost], Resources],
        variable: str,
        pairs: Iterable[tuple[str, str]] | None = None,
    ) -> Iterator[tuple[str, Callable[[], Any], float]]:
        """Where two resources are equal, at the smallest value of a variable from 1 on: the equation, what gives its
        formula, and the value."""
        known = chosen(self.here)
        for one, other in itertools.combinations(known, 2) if pairs is None else pairs:
            if one in known and other in known:

                def gap(value: Any, plain: bool = True, one: str = one, other: str = other) -> Any:
                    found = chosen(self.cost(variable, value, plain))
                    return found[one] - found[other]

                value = root(gap, 1.0, self._least(variable), MOST) or root(gap, 1.0, 1.0, MOST)
                if value is not None:
                    yield f"{one} = {other}", partial(self._closed, gap, variable, value), value

    def _least(self, variable: str) -> float:
        """The smallest value that leaves the wires of a mesh axis as they are: its first ring keeps
        more than one chip."""
        wires = self.deployment.wires
        sizes = [float(numpy.ravel(ring.size)[0]) for ring in wires.rings.get(variable, ())][1:]
        pods = float(numpy.ravel(wires.pods.get(variable, 1))[0])
        return max(1.0, product(sizes) * pods * (1 + 1e-9))

    def _closed(self, gap: Callable[[Any, bool], Any], variable: str, value: float) -> Any:
        """The formula of a root, in the case that holds there, where it gives the value."""
        formula = linear_root(expression(gap(value, False)), symbol(variable))
        fits = formula is not None and math.isclose(number_of(formula, self.letters.values), value, rel_tol=1e-6)
        return formula if fits else None


def number_of(formula: Any, values: dict[str, float]) -> float:
    """A formula with numbers for its letters."""
    letters, function = _function(formula)
    return float(function(*map(values.get, letters)))


@lru_cache(maxsize=256)
def _function(formula: Any) -> tuple[list[str], Callable[..., Any]]:
    """The letters of a formula, and the function of their numbers that it is: as a batch changes its formulas mostly do
    not."""
    import sympy

    letters = sorted(map(str, formula.free_symbols))
    return letters, sympy.lambdify([symbol(name) for name in letters], formula, "math")


def resources(cost: IterationCost, sizes: dict[str, int]) -> Resources:
    """Seconds of an iteration at datasheet rates, by what takes them."""
    matmuls = LineGroup([line for line in cost.lines if line.kind in MATMULS])
    found = {"matmul FLOPs": matmuls.compute, "weight reads": matmuls.memory}
    if "scores" in cost.terms:
        found |= {"attention FLOPs": cost.terms["scores"].compute, "KV cache reads": cost.terms["scores"].memory}
    for axes, wire in cost.wires.items():
        name = "+".join(axis for axis in axes if axis in sizes) + " collectives"
        found[name] = found.get(name, 0) + wire.lower
    return found


def crossings(deployment: Deployment, step: Iteration, variable: str, phase: str) -> Iterator[ServingLimit]:
    """Where any two resources of an iteration take equally long, by the value of a variable."""
    solved = SolvedIteration(deployment, step)

    def taken(cost: IterationCost) -> Resources:
        return {name: one for name, one in resources(cost, deployment.axis_sizes).items() if numpy.any(one != 0)}

    for equation, closed, value in solved.solve(taken, variable):
        name = f"{phase}: {equation} at {variable}"
        yield ServingLimit(name, "", equation, variable, closed, value, solved.letters.values)


def find_limits(deployment: Deployment, batch: float, context: float, prompt: float = 2048) -> Iterator[ServingLimit]:
    """The limits of a deployment whose decode steps have `batch` sequences of `context` tokens, the critical batch
    first, each solved when it is taken."""
    even = replace(deployment, launched_engine=adjust(deployment.engine, experts={"routing": "balanced"}))
    axis = "expert" if even.axis_sizes.get("expert", 1) > 1 else "tensor"
    ranks = even.axis_sizes.get("data", 1)
    decoding = SolvedIteration(even, decode(batch, context - 1))
    prompting = SolvedIteration(even, prefill(prompt, ranks))
    # In this order: the letters of a phase are known once its limits are solved.
    yield from _limits(decoding, axis, "decode")
    yield from _plateau(decoding)
    yield _largest_batch(decoding)
    yield from _limits(prompting, axis, "prefill")


def heaviest(solved: SolvedIteration) -> ServingLine:
    """The matmuls that read most of the weights."""
    matmuls = (line for line in solved.here.lines if line.kind in MATMULS)
    return max(matmuls, key=lambda line: float(line.total("hbm_bytes")))


def _over_axis(section: str, axis: str) -> Callable[[IterationCost], Resources]:
    """Resources of one layer, with all collectives over an axis as one."""

    def found(cost: IterationCost) -> Resources:
        layer = IterationCost([replace(line, times=1) for line in cost.lines if line.section == section])
        wires = sum(wire.lower for axes, wire in layer.wires.items() if axis in axes)
        return resources(layer, {}) | {f"{axis} collectives": wires}

    return found


def _limits(solved: SolvedIteration, axis: str, phase: str) -> Iterator[ServingLimit]:
    """The limits of a phase that `limits.toml` lists."""
    line = heaviest(solved)

    def largest(cost: IterationCost) -> Resources:
        same = next(other for other in cost.lines if (other.section, other.what) == (line.section, line.what))
        return {"FLOPs": same.compute_s, "weight reads": same.memory_s}

    def whole(cost: IterationCost) -> Resources:
        return resources(cost, {})

    parts = {"line": largest, "layer": _over_axis(line.section, axis), "whole": whole}
    words = {"axis": axis, "short": "TP" if axis == "tensor" else axis, "what": line.what}
    for row in shipped_table("serving.advice", "limits.toml")[phase]:
        texts = {key: text.format(**words) for key, text in row.items()}
        name, counts, variable, *pair = (texts[key] for key in ("name", "counts", "variable", "one", "other"))
        for equation, closed, value in solved.solve(parts[row["of"]], variable, [(pair[0], pair[1])]):
            yield ServingLimit(name, counts, equation, variable, closed, value, solved.letters.values)


def _plateau(solved: SolvedIteration) -> Iterator[ServingLimit]:
    """Where compute bounds the matmuls a step grows with its batch as fast as its tokens do."""
    import sympy

    letters = Letters({}, {"B": MOST})
    found, step = lettered_iteration(solved.deployment, solved.step, letters)
    slope = sympy.diff(expression(iteration_cost(found, step).roofline), symbol("B"))
    formula = tidied(1 / (slope * product(expression(size) for size in found.axes.values())))
    if not formula.has(symbol("B")):
        value = number_of(formula, letters.values)
        counts = "tokens per second and chip that no batch exceeds at this context"
        words = ("max tok/s/chip", counts, "the roofline grows with the batch", "B")
        yield ServingLimit(*words, lambda: formula, value, letters.values)


def _largest_batch(solved: SolvedIteration) -> ServingLimit:
    room, deployment, context = capacity(solved.deployment), solved.deployment, solved.step.keys + 1
    filling = float(numpy.ravel(context * (room.early - room.per_token) + room.state - room.fixed)[0]) < 0
    known = {
        "m": deployment.engine.memory.share * room.hbm / deployment.chip.visible,
        "w": room.weights,
        "r": room.working + room.reserve,
        "c": room.early if filling else room.per_token,
        "f": room.state if filling else room.fixed,
    }
    letters = {name: float(numpy.ravel(value)[0]) for name, value in known.items()}
    m, w, r, c, f = (symbol(name) for name in letters)
    formula = (m * symbol("HBM") - w - r) / (symbol("S") * c + (f if letters["f"] else 0))
    value = float(numpy.ravel(room.cache / room.sequence(context))[0])
    counts = "sequences of this context beside w bytes of weights and r of workspace and reserve; c a token of cache"
    values = solved.letters.values | letters
    return ServingLimit("largest batch", counts, "memory is full", "B", lambda: formula, value, values)
