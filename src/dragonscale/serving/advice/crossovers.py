"""Where serving changes its regime: degrees, batches and contexts at which two resources take equally long, solved from
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
from dragonscale.physics.numbers import Number, first_number, product
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

MAX_FORMULA_LENGTH = 110
"""Characters of the longest formula that is printed."""
MAX_VALUE = 1e9
"""The largest value of a variable that is searched for roots."""
MATMULS = ("matmul", "grouped matmul")

Resources = dict[str, Number]
"""Seconds at datasheet rates, by what takes them."""


@dataclass(frozen=True)
class ServingLimit:
    """A number that a resource or a target sets.

    Its name, what it counts, the equation in words and the variable that it was solved for, a function that returns its
    formula, and the values of the formula's letters.
    """

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
        if self.formula is not None:
            text = str(self.formula).replace("**", "^")
            if len(text) <= MAX_FORMULA_LENGTH:
                return text
        return f"where {self.equation}"


@dataclass(frozen=True)
class ServingCrossing:
    """Where two resources take equally long: the equation in words, a function that returns the formula, the value."""

    equation: str
    closed: Callable[[], Any]
    value: float

    def limit(self, name: str, counts: str, variable: str, letters: dict[str, float]) -> ServingLimit:
        """The crossing as a limit on a variable."""
        return ServingLimit(name, counts, self.equation, variable, self.closed, self.value, letters)


@dataclass(frozen=True)
class SolvedIteration:
    """An iteration of a deployment, whose costs can be computed with other numbers for its letters."""

    deployment: Deployment
    step: Iteration

    @cached_property
    def letters(self) -> Letters:
        """The letters of its formulas with their values."""
        return Letters(plain=True)

    @cached_property
    def here(self) -> IterationCost:
        """The cost with the actual numbers, bounds only."""
        return iteration_cost(*lettered_iteration(self.deployment, self.step, self.letters))

    def cost(self, variable: str, value: Any, plain: bool) -> IterationCost:
        """The cost with one letter given another number (or an array of them), as numbers or as formulas."""
        return iteration_cost(*lettered_iteration(self.deployment, self.step, Letters({}, {variable: value}, plain)))

    def solve(
        self,
        seconds_of: Callable[[IterationCost], Resources],
        variable: str,
        pairs: Iterable[tuple[str, str]] | None = None,
    ) -> Iterator[ServingCrossing]:
        """Where two resources take equally long, at the smallest value of a variable from 1 on.

        `pairs` are the resources to compare; None compares any two.
        """
        here = seconds_of(self.here)
        if pairs is None:
            pairs = itertools.combinations(here, 2)
        for first, second in pairs:
            if first not in here or second not in here:
                continue

            def gap(value: Any, plain: bool = True, first: str = first, second: str = second) -> Any:
                seconds = seconds_of(self.cost(variable, value, plain))
                return seconds[first] - seconds[second]

            # prefer a root on the same wiring; a smaller one may lie on fewer rings
            value = root(gap, 1.0, self._least(variable), MAX_VALUE) or root(gap, 1.0, 1.0, MAX_VALUE)
            if value is not None:
                yield ServingCrossing(f"{first} = {second}", partial(self._closed, gap, variable, value), value)

    def _least(self, variable: str) -> float:
        """The smallest value at which the links of a mesh axis stay as they are: its first ring keeps more than one
        chip."""
        wires = self.deployment.wires
        sizes = [first_number(ring.size) for ring in wires.rings.get(variable, ())][1:]
        pods = first_number(wires.pods.get(variable, 1))
        return max(1.0, product(sizes) * pods * (1 + 1e-9))

    def _closed(self, gap: Callable[[Any, bool], Any], variable: str, value: float) -> Any:
        """The formula of a root in the case that holds there; None if it does not give the value."""
        formula = linear_root(expression(gap(value, False)), symbol(variable))
        if formula is None or not math.isclose(number_of(formula, self.letters.values), value, rel_tol=1e-6):
            return None
        return formula


def number_of(formula: Any, values: dict[str, float]) -> float:
    """The value of a formula with numbers for its letters."""
    letters, function = _function(formula)
    return float(function(*map(values.get, letters)))


@lru_cache(maxsize=256)
def _function(formula: Any) -> tuple[list[str], Callable[..., Any]]:
    """The letters of a formula, and the formula as a function of their values.

    Cached, since formulas rarely change from batch to batch.
    """
    import sympy

    letters = sorted(map(str, formula.free_symbols))
    return letters, sympy.lambdify([symbol(name) for name in letters], formula, "math")


def resources(cost: IterationCost, sizes: dict[str, int]) -> Resources:
    """Seconds of an iteration at datasheet rates, by resource; `sizes` are the mesh axes to name collectives by."""
    matmuls = LineGroup([line for line in cost.lines if line.kind in MATMULS])
    seconds = {"matmul FLOPs": matmuls.compute, "weight reads": matmuls.memory}
    if "scores" in cost.terms:
        seconds |= {"attention FLOPs": cost.terms["scores"].compute, "KV cache reads": cost.terms["scores"].memory}
    for axes, wire in cost.wires.items():
        name = "+".join(axis for axis in axes if axis in sizes) + " collectives"
        seconds[name] = seconds.get(name, 0) + wire.lower
    return seconds


def crossings(deployment: Deployment, step: Iteration, variable: str, phase: str) -> Iterator[ServingLimit]:
    """Where any two resources of an iteration take equally long, by the value of a variable."""
    solved = SolvedIteration(deployment, step)

    def used_resources(cost: IterationCost) -> Resources:
        by_name = resources(cost, deployment.axis_sizes)
        return {name: seconds for name, seconds in by_name.items() if numpy.any(seconds != 0)}

    for crossing in solved.solve(used_resources, variable):
        name = f"{phase}: {crossing.equation} at {variable}"
        yield crossing.limit(name, "", variable, solved.letters.values)


def find_limits(deployment: Deployment, batch: float, context: float, prompt: float = 2048) -> Iterator[ServingLimit]:
    """The limits of a deployment whose decode steps have `batch` sequences of `context` tokens.

    The critical batch comes first; each is solved when it is iterated to.
    """
    even = replace(deployment, launched_engine=adjust(deployment.engine, experts={"routing": "balanced"}))
    axis = "expert" if even.axis_sizes.get("expert", 1) > 1 else "tensor"
    ranks = even.axis_sizes.get("data", 1)
    decoding = SolvedIteration(even, decode(batch, context - 1))
    prompting = SolvedIteration(even, prefill(prompt, ranks))
    # In this order, since the letters of a phase are complete once its limits are solved.
    yield from _limits(decoding, axis, "decode")
    yield from _plateau(decoding)
    yield _largest_batch(decoding)
    yield from _limits(prompting, axis, "prefill")


def heaviest(solved: SolvedIteration) -> ServingLine:
    """The matmuls that read most weights."""
    matmuls = (line for line in solved.here.lines if line.kind in MATMULS)
    return max(matmuls, key=lambda line: float(line.total("hbm_bytes")))


def _over_axis(section: str, axis: str) -> Callable[[IterationCost], Resources]:
    """Resources of one layer, with all collectives over an axis as one."""

    def layer_resources(cost: IterationCost) -> Resources:
        layer = IterationCost([replace(line, times=1) for line in cost.lines if line.section == section])
        wires = sum(wire.lower for axes, wire in layer.wires.items() if axis in axes)
        return resources(layer, {}) | {f"{axis} collectives": wires}

    return layer_resources


def _limits(solved: SolvedIteration, axis: str, phase: str) -> Iterator[ServingLimit]:
    """The limits of a phase that `limits.toml` lists."""
    line = heaviest(solved)

    def of_line(cost: IterationCost) -> Resources:
        same = next(other for other in cost.lines if (other.section, other.what) == (line.section, line.what))
        return {"FLOPs": same.compute_s, "weight reads": same.memory_s}

    def of_step(cost: IterationCost) -> Resources:
        return resources(cost, {})

    parts = {"line": of_line, "layer": _over_axis(line.section, axis), "whole": of_step}
    names = {"axis": axis, "short": "TP" if axis == "tensor" else axis, "what": line.what}
    for row in shipped_table("serving.advice", "limits.toml")[phase]:
        texts = {key: text.format(**names) for key, text in row.items()}
        variable, pair = texts["variable"], (texts["one"], texts["other"])
        for crossing in solved.solve(parts[row["of"]], variable, [pair]):
            yield crossing.limit(texts["name"], texts["counts"], variable, solved.letters.values)


def _plateau(solved: SolvedIteration) -> Iterator[ServingLimit]:
    """Tokens per second and chip that no batch exceeds.

    Once the matmuls are compute-bound, a step grows as fast as its tokens.
    """
    import sympy

    # the slope of the roofline in the batch, where the batch is huge
    letters = Letters({}, {"B": MAX_VALUE})
    lettered, step = lettered_iteration(solved.deployment, solved.step, letters)
    slope = sympy.diff(expression(iteration_cost(lettered, step).roofline), symbol("B"))
    formula = tidied(1 / (slope * product(expression(size) for size in lettered.axes.values())))
    if not formula.has(symbol("B")):
        yield ServingLimit(
            name="max tok/s/chip",
            counts="tokens per second and chip that no batch exceeds at this context",
            equation="the roofline grows with the batch",
            variable="B",
            closed=lambda: formula,
            value=number_of(formula, letters.values),
            letters=letters.values,
        )


def _largest_batch(solved: SolvedIteration) -> ServingLimit:
    """The batch at which memory is full."""
    memory, deployment, context = capacity(solved.deployment), solved.deployment, solved.step.keys + 1
    # which line of a sequence's cache holds at this context: the one while windows fill, or the one of full windows
    gap = context * (memory.early - memory.per_token) + memory.state - memory.fixed
    is_filling = first_number(gap) < 0
    symbols = {
        "m": deployment.engine.memory.share * memory.hbm / deployment.chip.visible,
        "w": memory.weights,
        "r": memory.working + memory.reserve,
        "c": memory.per_token,
        "f": memory.fixed,
    }
    if is_filling:
        symbols |= {"c": memory.early, "f": memory.state}
    letters = {name: first_number(value) for name, value in symbols.items()}
    m, w, r, c, f = (symbol(name) for name in letters)
    formula = (m * symbol("HBM") - w - r) / (symbol("S") * c + (f if letters["f"] else 0))
    return ServingLimit(
        name="largest batch",
        counts=(
            "sequences of this context beside w bytes of weights and r of workspace and reserve; c a token of cache"
        ),
        equation="memory is full",
        variable="B",
        closed=lambda: formula,
        value=first_number(memory.cache / memory.sequence(context)),
        letters=solved.letters.values | letters,
    )
