"""A deployment with letters for its numbers, so that the ledger of its iterations is a ledger of formulas.

The structure is that of a concrete plan: which mesh axes there are, over which wires they lie, which formats the chip computes
in. Sizes become symbols: the book's letters for the model (D, F, N, K, H, L, V, E), the names of the mesh axes for their
degrees, C for FLOP/s, `W_hbm` for the memory's bandwidth, `W_ici` for both directions of a torus axis, `W_node` and so on for
the links of switches. A line is then the formula of its number, and putting the numbers back in gives the number.

>>> from dragonscale.serving.deployment import deploy
>>> from dragonscale.serving.iteration import decode
>>> from dragonscale.serving.phases import iteration_cost
>>> found = letter(deploy("llama3-8b", "v5e:2x2"))
>>> cost = iteration_cost(found, found.decode_step(64, 2000))
>>> line = next(line for line in cost.lines if line.what == "U+G")
>>> print(found.here(line.flops), "FLOPs;", found.here(line.hbm_bytes), "bytes")
4*B*D*F/tensor FLOPs; 4*D*F/tensor bytes
>>> round(float(found.number(cost.lower)), 6) == round(
...     float(iteration_cost(deploy("llama3-8b", "v5e:2x2"), decode(64, 2000)).lower[0]), 6
... )
True
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from dragonscale.collectives.group import Group, Ring, Rings, Stacked, Switches, Wide
from dragonscale.hardware import Chip, Torus
from dragonscale.hardware.chip import Memory
from dragonscale.kernels import KernelProfile
from dragonscale.kernels.dtypes import FORMATS
from dragonscale.models.program import Section
from dragonscale.numbers import Number, ceil, exp, floor, maximum, minimum, product
from dragonscale.plan.rules import SERVING
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.formats import part_format
from dragonscale.serving.iteration import Iteration, decode, prefill

BOOK = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "x": "k"}
"""Dims of programs by the book's letters; others keep their names."""


@dataclass
class LetterValues:
    """Which number each letter stands for."""

    values: dict[Any, float] = field(default_factory=dict)

    def new(self, name: str, value: float, other: str = "", whole: bool = False) -> Any:
        """A letter for a number: the first that is free of the name, the name with a suffix, and the name with a count. The same
        number under the same name is the same letter. What nobody solves for may be `whole`: then it is at least 1."""
        import sympy

        for spelled in (name, *([f"{name}_{other}"] if other else []), *(f"{name}_{n}" for n in range(2, 99))):
            found = sympy.Symbol(spelled, positive=True, integer=whole or None)
            if self.values.setdefault(found, float(value)) == float(value):
                return found
        raise AssertionError(f"too many sizes called {name}")


@dataclass(frozen=True)
class LetteredWires:
    """The wires of a concrete plan, with letters for the sizes of mesh axes and for the rates of links."""

    concrete: Deployment
    axes: dict[str, Any]
    chip: Chip

    def group(self, names: tuple[str, ...]) -> Group:
        """The chips along some axes: as many rings and tiers as there are, sizes and rates as letters."""
        size = product(self.axes[name] for name in names)
        if all(_number(self.concrete.axes[name]) == 1 for name in names):
            return self._ideal(size)
        found = self.concrete.wires.group(names)
        if isinstance(found, Switches):
            order = [name for name in SERVING if name in self.axes]
            slowest = min(order.index(name) for name in names)
            faster = product(self.axes[name] for name in order[slowest + 1 :] if name not in names)
            return Switches(size, self.chip.network.levels, faster)  # pyright: ignore[reportAttributeAccessIssue]
        pods = _number(found.outer.size) if isinstance(found, Stacked) else 1
        inner = found.inner if isinstance(found, Stacked) else found
        assert isinstance(inner, Rings)
        assert isinstance(self.chip.network, Torus)
        rings = [Ring(_number(ring.size), bool(_number(ring.wrap)), _number(ring.share)) for ring in inner.axes]
        rings = [ring for ring in rings if ring.size > 1] or rings[:1]
        others = product(ring.size for ring in rings[1:])
        lettered = (replace(rings[0], size=size / others / pods), *rings[1:])
        wires = Rings(lettered, self.chip.network.link, self.chip.network.hop_latency)
        if pods == 1:
            return wires
        return Stacked(wires, Wide(pods, self.chip.dcn, self.chip.dcn_latency))

    def _ideal(self, size: Any) -> Group:
        """Wires for an axis that the plan does not have: a full ring of its own, or neighbours under the lowest switches."""
        network = self.chip.network
        if isinstance(network, Torus):
            return Rings((Ring(size),), network.link, network.hop_latency)
        return Switches(size, network.levels)


def _number(value: Any) -> float:
    return float(numpy.ravel(value)[0])


@dataclass(frozen=True)
class LetteredDeployment(Deployment):
    """A deployment whose axes, dims and rates are letters."""

    axes: dict[str, Any] = field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
    sections: tuple[Section, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride]
    kernels: KernelProfile = field(default=None)  # pyright: ignore
    wires: Any = None
    letters: LetterValues = field(default_factory=LetterValues)

    @property
    def chip(self) -> Chip:
        return self.kernels.chip

    def decode_step(self, batch: float, keys: float) -> Iteration:
        """A decode step: B sequences that hold S tokens, the new one included."""
        return decode(self.letters.new("B", batch), self.letters.new("S", keys + 1) - 1)

    def prefill_step(self, tokens: float, prompts: float = 1, past: float = 0) -> Iteration:
        """A prefill of B prompts of T new tokens."""
        before = self.letters.new("S", past) if past else 0
        return prefill(self.letters.new("T", tokens), self.letters.new("B", prompts), before)

    def at(self, variable: Any, value: float) -> "LetteredDeployment":
        """The same with another number for a letter."""
        return replace(self, letters=LetterValues(self.letters.values | {variable: value}))

    def number(self, formula: Any) -> Any:
        """A formula with the numbers put in: a float, or an array where a letter stands for one."""
        return evaluate(formula, self.letters.values)

    def here(self, formula: Any) -> Any:
        """A formula as it is for these numbers: of every maximum, minimum and case the one that holds."""
        import sympy

        return _case(sympy.sympify(formula), self.letters.values)


def evaluate(formula: Any, values: dict[Any, Any]) -> Any:
    """A formula as a number, quickly: as often as SymPy's own substitution compares maxima, a search would wait for it."""
    import sympy

    if not isinstance(formula, sympy.Basic):
        return formula
    whole: Any = formula
    if formula in values:
        return values[formula]
    if formula.is_Number:
        return float(whole)
    if isinstance(formula, sympy.Piecewise):
        cases: Any = formula.args
        return next(evaluate(value, values) for value, holds in cases if evaluate(holds, values))
    known = [evaluate(part, values) for part in formula.args]
    if formula.func in (sympy.Add, sympy.Mul):
        return sum(known) if formula.func is sympy.Add else product(known)
    if formula.func is sympy.Pow:
        return known[0] ** known[1]
    if formula.func in (sympy.Max, sympy.Min):
        return functools.reduce(maximum if formula.func is sympy.Max else minimum, known)
    if formula.func in (sympy.ceiling, sympy.floor, sympy.exp):
        return {sympy.ceiling: ceil, sympy.floor: floor, sympy.exp: exp}[formula.func](known[0])
    found: Any = formula.func(*known)
    return bool(found) if found in (sympy.true, sympy.false) else float(found)


def _case(formula: Any, values: dict[Any, float]) -> Any:
    import sympy

    if formula.is_Float:
        return sympy.nsimplify(formula, rational=True)
    if not formula.args:
        return formula
    if isinstance(formula, sympy.Piecewise):
        cases: Any = formula.args
        return _case(next(value for value, holds in cases if evaluate(holds, values)), values)
    if isinstance(formula, sympy.Max | sympy.Min):
        sign = 1 if isinstance(formula, sympy.Max) else -1
        chosen = max(formula.args, key=lambda one: (sign * round_to(evaluate(one, values)), len(one.free_symbols)))
        return _case(chosen, values)
    return formula.func(*(_case(part, values) for part in formula.args))


def round_to(value: Any) -> float:
    """A number to twelve digits: of equals, the one with letters is the formula."""
    return float(f"{float(value):.12g}")


def letter(deployment: Deployment, opened: tuple[str, ...] = ()) -> LetteredDeployment:
    """The same deployment, with letters; mesh axes of one chip are left out unless they are `opened`."""
    letters = LetterValues()
    axes = {
        name: letters.new(name, _number(size)) if _number(size) > 1 or name in opened else 1
        for name, size in deployment.axes.items()
    }
    chip = _chip(deployment, letters)
    profile = replace(deployment.kernels, chip=chip)
    pipe = axes["pipe"]
    return LetteredDeployment(
        deployment.model, replace(deployment.piece, chip=chip), replace(deployment.plan, pipe=pipe), deployment.engine,
        deployment.transport, axes=axes, sections=tuple(_sections(deployment, letters)), kernels=profile,
        wires=LetteredWires(deployment, axes, chip), letters=letters,
    )  # fmt: skip


def _sections(deployment: Deployment, letters: LetterValues) -> Iterator[Section]:
    for section in deployment.sections:
        suffix = "e" if "e" in section.dims else section.name
        dims: dict[str, Number] = {}
        for name, size in section.dims.items():
            dims[name] = letters.new(BOOK.get(name, name), size, "v" if name == "g" else suffix, True)
        repeat: Any = letters.new("L", section.repeat, section.name, True) if section.repeat > 1 else 1
        yield replace(section, dims=dims, repeat=repeat)  # pyright: ignore[reportArgumentType]


def _chip(deployment: Deployment, letters: LetterValues) -> Chip:
    chip, plan = deployment.chip, deployment.plan
    main = chip.peak(FORMATS[part_format(plan, "mlp")].compute)
    rates = {}
    for dtype, rate in chip.matrix.items():
        rates[dtype] = letters.new("C" if rate == main else f"C_{dtype}", rate)
    memory = Memory(letters.new("HBM", chip.hbm.capacity), letters.new("W_hbm", chip.bandwidth("hbm")))
    network: Any = chip.network
    if isinstance(network, Torus):
        network = replace(network, link=letters.new("W_ici", 2 * network.link) / 2)
    else:
        levels = (replace(one, bandwidth=letters.new(f"W_{one.name}", one.bandwidth)) for one in network.levels)
        network = replace(network, levels=tuple(levels))
    wide = letters.new("W_dcn", chip.dcn) if chip.dcn is not None else None
    found = replace(chip, matrix=rates, memory={**chip.memory, "hbm": memory}, network=network)
    return replace(found, dcn=wide)
