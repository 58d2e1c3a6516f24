"""Where serving changes its nature: degrees, batches and contexts at which two resources take equally long, solved from the ledger.

Every crossover is an equation between sums of an iteration's lines on letters (`symbols.py`). The number is a root of the
whole expression, with every maximum, minimum and rounding in it; the formula is that of the case which holds at the root.

>>> from dragonscale.serving.deployment import deploy
>>> for limit in find_limits(deploy("llama3-70b", "v5e:4x4", "weights=int8,compute=int8,kv=int8"), 64, 8192):
...     print(f"{limit.name}: {limit.text} = {limit.value:.4g}")
critical batch: C/(2*W_hbm) = 240.2
decode degree: (8*B*W_hbm + 3*F*W_ici + 2*H*N*W_ici)/(2*(4*B*W_hbm - H*W_ici)) = 24.28
cache over FLOPs: D*W_hbm*(C*V + 3*C_bf16*F*L + 2*C_bf16*H*L*N + 2*C_bf16*H*L*tensor)/(C*C_bf16*H*L*tensor) = 913.3
cache over weights: D*(3*F*L + 2*H*L*N + 2*H*L*tensor + 2*V)/(2*B*H*L*tensor) = 3428
plateau: where the roofline grows with the batch = 274.8
largest batch: (HBM*m - r - w)/(S*c) = 39.47
prefill degree: (4*C + 3*F*W_ici + 2*H*K*W_ici + 2*H*N*W_ici)/(4*C) = 6.965
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.numbers import Number, is_symbolic, product
from dragonscale.roofline import symbol
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import adjust
from dragonscale.serving.iteration import Iteration
from dragonscale.serving.lines import IterationCost, LineGroup, ServingLine
from dragonscale.serving.phases import iteration_cost
from dragonscale.serving.symbols import LetteredDeployment, letter

LONGEST = 110
"""Characters of a formula that is still read."""
MOST = 1e9
"""The largest value of a variable that is looked at."""


@dataclass(frozen=True)
class ServingLimit:
    """A number that a resource or a target sets: its name, what it counts, the equation in words, the formula (None where
    there is no closed form), and what its letters stand for."""

    name: str
    counts: str
    equation: str
    variable: str
    formula: Any
    value: float
    letters: dict[Any, float]

    @property
    def text(self) -> str:
        """The formula as people write it."""
        text = "" if self.formula is None else str(self.formula).replace("**", "^")
        return text if 0 < len(text) <= LONGEST else f"where {self.equation}"


def resources(cost: IterationCost, sizes: dict[str, Number]) -> dict[str, Number]:
    """Seconds of an iteration at datasheet rates, by what takes them."""
    matmuls = LineGroup([line for line in cost.lines if line.kind in ("matmul", "grouped matmul")])
    found = {"matmul FLOPs": matmuls.compute, "weight reads": matmuls.memory}
    if "scores" in cost.terms:
        found |= {"attention FLOPs": cost.terms["scores"].compute, "KV cache reads": cost.terms["scores"].memory}
    for axes, wire in cost.wires.items():
        name = "+".join(axis for axis in axes if sizes[axis] != 1) + " collectives"
        found[name] = found.get(name, 0) + wire.lower
    return found


def root(found: LetteredDeployment, first: Any, second: Any, variable: Any) -> tuple[Any, float] | None:
    """Where two expressions are equal, at the smallest value of a variable from 1 on: the formula of the case that holds there,
    and the value."""
    import sympy

    gap = sympy.sympify(first) - sympy.sympify(second)
    if variable not in gap.free_symbols:
        return None
    low, high = 1.0, MOST
    for _ in range(6):  # each round looks four hundred times as closely
        grid = numpy.geomspace(low, high, 400)
        signs = numpy.sign(numpy.broadcast_to(found.at(variable, grid).number(gap), grid.shape))
        changed = numpy.nonzero(signs[1:] * signs[:-1] < 0)[0]
        if not len(changed):
            break
        low, high = float(grid[changed[0]]), float(grid[changed[0] + 1])
    if high == MOST and low == 1.0:
        return None
    return _closed(found.at(variable, low), gap, variable, low), low


def _closed(there: LetteredDeployment, gap: Any, variable: Any, value: float) -> Any:
    """The formula of a root, in the case that holds there: the gap is a line in the variable, or nothing is written down."""
    import sympy

    above = sympy.Poly(sympy.numer(sympy.together(there.here(gap))), variable)
    if above.degree() != 1:
        return None
    slope, rest = above.all_coeffs()
    formula = tidied(-rest / slope)
    return formula if math.isclose(float(there.number(formula)), value, rel_tol=1e-6) else None


def tidied(formula: Any) -> Any:
    """A fraction without common factors, and without a minus sign above and below its bar."""
    import sympy

    above, below = sympy.fraction(sympy.cancel(formula))
    if above.could_extract_minus_sign() and below.could_extract_minus_sign():
        above, below = -above, -below
    return sympy.factor_terms(above) / sympy.factor_terms(below)


def heaviest(cost: IterationCost, found: LetteredDeployment) -> ServingLine:
    """The matmuls that read most of the weights."""
    matmuls = [line for line in cost.lines if line.kind in ("matmul", "grouped matmul")]
    return max(matmuls, key=lambda line: float(found.number(line.hbm_bytes * line.times)))


def find_limits(deployment: Deployment, batch: float, context: float, prompt: float = 2048) -> list[ServingLimit]:
    """The limits of a deployment whose decode steps have `batch` sequences of `context` tokens."""
    even = replace(deployment, engine=adjust(deployment.engine, experts={"routing": "balanced"}))
    axis = "expert" if float(numpy.ravel(even.axes["expert"])[0]) > 1 else "tensor"
    return [*_decode_limits(even, batch, context, axis), *_prefill_limits(even, prompt, axis)]


@dataclass(frozen=True)
class _Equation:
    """Lines of an iteration on letters, and what is asked of them."""

    found: LetteredDeployment
    taken: dict[str, Number]

    def solve(self, name: str, counts: str, first: str, second: str, variable: Any) -> Iterator[ServingLimit]:
        """Where two resources take equally long."""
        if first in self.taken and second in self.taken:
            solved = root(self.found, self.taken[first], self.taken[second], variable)
            if solved is not None:
                equation = f"{first} = {second}"
                yield ServingLimit(name, counts, equation, str(variable), *solved, self.found.letters.values)


def crossings(found: LetteredDeployment, cost: IterationCost, variable: Any, phase: str) -> Iterator[ServingLimit]:
    """Where any two resources of an iteration take equally long, by the value of a variable."""
    taken = {name: value for name, value in resources(cost, found.axes).items() if not is_symbolic(value) or value != 0}
    for first, second in itertools.combinations(taken, 2):
        name = f"{phase}: {first} = {second} at {variable}"
        yield from _Equation(found, taken).solve(name, "", first, second, variable)


def _layer(cost: IterationCost, section: str) -> IterationCost:
    """The lines of one section, once."""
    return IterationCost([replace(line, times=1) for line in cost.lines if line.section == section])


def _over_axis(cost: IterationCost, found: LetteredDeployment, axis: str) -> dict[str, Number]:
    """Resources, with all collectives over an axis as one."""
    wires = sum(wire.lower for axes, wire in cost.wires.items() if axis in axes)
    return resources(cost, found.axes) | {f"{axis} collectives": wires}


def _decode_limits(deployment: Deployment, batch: float, context: float, axis: str) -> Iterator[ServingLimit]:
    found = letter(deployment, opened=(axis,))
    step: Iteration = found.decode_step(batch, context - 1)
    cost = iteration_cost(found, step)
    line, many, held = heaviest(cost, found), step.decodes, step.keys + 1
    largest = _Equation(found, {"FLOPs": line.compute_s, "weight reads": line.memory_s})
    yield from largest.solve(
        "critical batch", f"sequences from which {line.what} is bound by compute, not by loading its weights",
        "FLOPs", "weight reads", many,
    )  # fmt: skip
    layer = _Equation(found, _over_axis(_layer(cost, line.section), found, axis))
    yield from layer.solve(
        "decode degree", f"{axis} degree up to which a layer's collectives hide under loading its weights",
        "weight reads", f"{axis} collectives", found.axes[axis],
    )  # fmt: skip
    whole = _Equation(found, resources(cost, found.axes))
    yield from whole.solve(
        "cache over FLOPs", "tokens of context from which reading the KV cache takes longer than the matmuls",
        "matmul FLOPs", "KV cache reads", held,
    )  # fmt: skip
    yield from whole.solve(
        "cache over weights", "tokens of context from which the KV cache takes longer to read than the weights",
        "weight reads", "KV cache reads", held,
    )  # fmt: skip
    yield from _plateau(found, cost, many)
    yield _largest_batch(found, many, held)


def _prefill_limits(deployment: Deployment, prompt: float, axis: str) -> Iterator[ServingLimit]:
    found = letter(deployment, opened=(axis,))
    ranks = float(numpy.ravel(deployment.axes["data"])[0])
    cost = iteration_cost(found, found.prefill_step(prompt, ranks))
    layer = _Equation(found, _over_axis(_layer(cost, heaviest(cost, found).section), found, axis))
    yield from layer.solve(
        "prefill degree", f"{axis} degree up to which a prompt's matmuls hide a layer's collectives",
        "matmul FLOPs", f"{axis} collectives", found.axes[axis],
    )  # fmt: skip


def _plateau(found: LetteredDeployment, cost: IterationCost, batch: Any) -> Iterator[ServingLimit]:
    """Where compute bounds the matmuls a step grows with its batch as fast as its tokens do."""
    import sympy

    slope = sympy.diff(found.at(batch, MOST).here(cost.roofline), batch)
    formula = tidied(1 / (slope * product(found.axes.values())))
    if not formula.has(batch):
        value = float(found.number(formula))
        counts = "tokens per second and chip that no batch exceeds at this context"
        yield ServingLimit(
            "plateau", counts, "the roofline grows with the batch", str(batch), formula, value, found.letters.values
        )


def _largest_batch(found: LetteredDeployment, batch: Any, context: Any) -> ServingLimit:
    room = capacity(found)
    known = {
        "m": found.engine.memory.share * room.hbm / found.chip.hbm.capacity,
        "w": room.weights,
        "r": room.working + room.reserve,
    }
    known |= {"c": room.per_token, "f": room.fixed}
    letters = {symbol(name): float(found.number(value)) for name, value in known.items()}
    m, w, r, c, f = letters
    formula = (m * found.chip.hbm.capacity - w - r) / (context * c + (f if letters[f] else 0))
    value = float(found.number(room.cache / (context * room.per_token + room.fixed)))
    counts = "sequences of this context beside w bytes of weights and r of workspace and reserve; c a token of cache"
    values = found.letters.values | letters
    return ServingLimit("largest batch", counts, "memory is full", str(batch), formula, value, values)
