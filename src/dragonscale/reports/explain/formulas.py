"""The formula behind a number, the numbers put in, and where the answer changes.

Explanations are made by running the very functions that computed the number, on symbols instead of floats: they can
never disagree with it.
"""

from typing import Any

import msgspec

from dragonscale.collectives import Options, Ring, Rings, Switches, collective_time
from dragonscale.hardware import Chip, Torus
from dragonscale.models.count import parameters
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer
from dragonscale.notation import parse_chain
from dragonscale.numbers import Number
from dragonscale.reports.roofline import prepare
from dragonscale.roofline import einsum_cost, solve_equal, symbol
from dragonscale.sharding.chain import collectives, passes
from dragonscale.sharding.mesh import Mesh
from dragonscale.units import render


class Line(msgspec.Struct):
    """One quantity: its formula, the formula with numbers in, and the value."""

    name: str
    formula: str
    numbers: str
    value: str


class Explanation(msgspec.Struct):
    subject: str
    lines: list[Line]
    crossovers: list[str]
    notes: list[str]


def formula_text(expression: Any) -> str:
    import sympy

    if isinstance(expression, sympy.Basic):
        return str(sympy.nsimplify(expression, rational=True)).replace("**", "^")
    return str(expression)


def _tidy(expression: Any) -> Any:
    """A solution without a minus sign above and below its fraction bar."""
    import sympy

    above, below = sympy.fraction(sympy.together(sympy.simplify(expression)))
    return (-above) / (-below) if above.could_extract_minus_sign() else above / below


def _with(expression: Any, values: dict[Any, float]) -> Any:
    import sympy

    return sympy.sympify(expression).subs(values)


def formula_line(name: str, formula: Any, values: dict[Any, float], dimension: str) -> Line:
    """Put values into a formula; where some symbol has none, the value stays open."""
    import sympy

    formula = sympy.sympify(formula)
    with_numbers = str(formula).replace("**", "^")
    for key, value in sorted(values.items(), key=lambda item: -len(str(item[0]))):
        with_numbers = _put_in(with_numbers, str(key), f"{value:.6g}")
    result = _with(formula, values)
    shown = (
        render(float(result), dimension)
        if result.is_number
        else "depends on " + ", ".join(sorted(map(str, result.free_symbols)))
    )
    return Line(name, formula_text(formula), with_numbers, shown)


def _put_in(text: str, name: str, number: str) -> str:
    import re

    return re.sub(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", number, text)


def explain_roofline(expression: str, chip: Chip, sizes: dict[str, int], level: str = "hbm") -> Explanation:
    """Why an operation takes as long as it does: both times, the intensity, and every crossover as a formula."""
    import sympy

    line, known, _ = prepare(expression, sizes)
    letters = {name: symbol(name) for name in line.indices}
    cost = einsum_cost(line, letters, level=level)
    (unit, dtype), flops = next(iter(cost.flops.items()))
    peak, width = symbol("C"), symbol("W")
    values: dict[Any, float] = {letters[name]: size for name, size in known.items() if isinstance(size, int)}
    values |= {peak: chip.peak(dtype, unit), width: chip.bandwidth(level)}
    moved = sympy.expand(cost.bytes[level])
    lines = [
        formula_line("FLOPs", flops, values, "FLOP"),
        formula_line(f"bytes over {level}", moved, values, "bytes"),
        formula_line("T_math = FLOPs / C", flops / peak, values, "s"),
        formula_line("T_comms = bytes / W", moved / width, values, "s"),
        formula_line("lower bound", sympy.Max(flops / peak, moved / width), values, "s"),
        formula_line("upper bound", flops / peak + moved / width, values, "s"),
        formula_line("intensity", sympy.factor(flops / moved), values, "count"),
        formula_line("critical intensity", peak / width, values, "count"),
    ]
    found: list[str] = []
    for name in line.indices:
        for solution in solve_equal(flops / peak, moved / width, letters[name]):
            value = solution.subs(values)
            known_value = f" = {float(value):,.6g}" if value.is_number else ""
            if not (value.is_number and float(value) <= 0):
                found.append(f"compute = {level} at {name} = {formula_text(_tidy(solution))}{known_value}")
    notes = [
        f"C = {render(chip.peak(dtype, unit), 'FLOP/s')} ({dtype}, {unit} unit), W = {render(chip.bandwidth(level), 'bytes/s')} ({level}) of {chip.title}"
    ]
    return Explanation(str(line), lines, found, notes)


def explain_collective(
    kind: str, volume: float | None, mesh: Mesh, axes: tuple[str, ...], options: Options
) -> Explanation:
    """Why a collective takes as long as it does, in V, W and the sizes of the axes."""
    assert mesh.chip is not None
    group = mesh.group(axes)
    network = mesh.chip.network
    size_letters = [symbol(axis) for axis in axes]
    values: dict[Any, float] = {letter: float(mesh.axes[axis]) for letter, axis in zip(size_letters, axes, strict=True)}
    v, w, hop = symbol("V"), symbol("W"), symbol("t_hop")
    if volume is not None:
        values[v] = volume
    notes: list[str] = []
    if isinstance(network, Torus) and isinstance(group, Rings):
        rings = group.axes
        if len(rings) == len(axes):
            rings = tuple(
                Ring(letter, ring.closed, ring.share) for letter, ring in zip(size_letters, rings, strict=True)
            )
        letters = Rings(rings, w, hop)
        values |= {w: network.link, hop: network.hop_latency}
        shapes = ", ".join(f"{ring.size} ({'ring' if ring.closed else 'line'})" for ring in group.axes)
        notes.append(
            f"W = {render(network.link, 'bytes/s')} one way per link of {mesh.chip.title}; hardware axes: {shapes}"
        )
        cost = collective_time(kind, v, letters, options)
    else:
        cost = collective_time(kind, v, group, options)
        if isinstance(group, Switches):
            for span in group.spans():
                fan = f"{float(span.fan):g} of its children" if float(span.fan) > 1 else "not crossed"
                notes.append(
                    f"{span.level.name}: {render(span.level.bandwidth, 'bytes/s')} per child, {fan}, shared by {float(span.sharing):g} groups"
                )
    lines = [
        formula_line("bandwidth term", cost.bandwidth, values, "s"),
        formula_line("latency term", cost.latency, values, "s"),
        formula_line("lower bound (the larger)", cost.lower, values, "s"),
    ]
    found = []
    rest = {key: value for key, value in values.items() if key != v}
    solutions = solve_equal(cost.bandwidth, cost.latency, v)
    for solution in solutions or solve_equal(_with(cost.bandwidth, rest), _with(cost.latency, rest), v):
        number = _with(solution, values)
        shown = f" = {render(float(number), 'bytes')}" if number.is_number else ""
        found.append(f"latency = bandwidth at V = {formula_text(solution)}{shown}")
    return Explanation(f"{kind} over {', '.join(axes)}", lines, found, notes)


def explain_shard(expression: str, mesh: Mesh, sizes: dict[str, int]) -> Explanation:
    """The bytes of each collective of a sharded chain as formulas in its dims and mesh axes."""
    line, known, _ = prepare(expression, sizes)
    letters: dict[str, Number] = {name: symbol(name) for name in known}
    axis_letters = {name: symbol(f"n_{name}" if name in letters else name) for name in mesh.axes}
    open_mesh = Mesh(dict(axis_letters))
    there, back = passes(parse_chain(expression), known, mesh)
    values: dict[Any, float] = {letters[name]: float(size) for name, size in known.items() if isinstance(size, int)}
    values |= {axis_letters[name]: float(size) for name, size in mesh.axes.items()}
    lines: list[Line] = []
    for way, planned in (("forward", there), ("backward", back)):
        for step in collectives(planned):
            volume = step.volume(letters, open_mesh)
            lines.append(formula_line(f"{way}: {step}", volume, values, "bytes"))
        flops = sum(p.best.flops(letters, open_mesh) for p in planned)
        lines.append(formula_line(f"{way}: FLOPs per chip", flops, values, "FLOP"))
    notes = [
        "V of each collective: bytes of the array as one group of chips sees it. An AllGather or ReduceScatter takes V/W, an AllReduce 2V/W, an AllToAll V/4W on a ring."
    ]
    return Explanation(str(line), lines, _comms_crossovers(there, letters, open_mesh, mesh, values), notes)


def _comms_crossovers(
    planned: list, letters: dict[str, Number], open_mesh: Mesh, mesh: Mesh, values: dict[Any, float]
) -> list[str]:
    """Where the forward pass's bytes over each set of axes take as long as its FLOPs, on full rings of the chip."""
    if mesh.chip is None or not isinstance(mesh.chip.network, Torus):
        return []
    import sympy

    peak, width = symbol("C"), symbol("W")
    numbers = values | {peak: mesh.chip.peak("bf16"), width: 2 * mesh.chip.network.link}
    math = sum(p.best.flops(letters, open_mesh) for p in planned) / peak
    by_axes: dict[tuple[str, ...], Number] = {}
    for step in collectives(planned):
        factor = {"all_reduce": 2, "all_to_all": sympy.Rational(1, 4)}.get(step.kind, 1)
        by_axes[step.axes] = by_axes.get(step.axes, 0) + factor * step.volume(letters, open_mesh) / (
            width * len(step.axes)
        )
    found: list[str] = []
    for axes, comms in by_axes.items():
        for name, letter in letters.items():
            for solution in solve_equal(math, comms, letter):
                number = sympy.sympify(solution).subs(numbers)
                shown = f" = {float(number):,.6g}" if number.is_number else ""
                found.append(
                    f"compute = network over {', '.join(axes)} at {name} = {formula_text(_tidy(solution))}{shown} (W: both directions)"
                )
    return found


PART_LETTERS = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "z": "F_shared"}


def explain_model(model: Transformer, sequence: int) -> Explanation:
    """Parameters and FLOPs of each part as formulas in the book's letters."""
    lines: list[Line] = []
    for section in model.program().sections:
        letters = {name: symbol(PART_LETTERS.get(name, name)) for name in section.dims}
        values: dict[Any, float] = {letters[name]: float(size) for name, size in section.dims.items()}
        repeat = symbol("L")
        open_section = Section(section.name, section.ops, letters, 1, section.span, section.chunk, section.top)  # pyright: ignore[reportArgumentType]
        values[repeat] = float(section.repeat)
        times = repeat if section.repeat > 1 else 1
        for part, formula in parameters([open_section]).items():
            lines.append(formula_line(f"{section.name}: {part} parameters", times * formula, values, "count"))
        t = symbol("T")
        values[t] = float(sequence)
        for part, formula in forward_flops([open_section], Workload(1, t, t)).items():
            if formula != 0:
                lines.append(
                    formula_line(f"{section.name}: {part} FLOPs, one sequence", times * formula, values, "FLOP")
                )
    return Explanation(
        model.name,
        lines,
        [],
        ["Training costs three times the forward FLOPs. T is the sequence length, L the layers of this kind."],
    )
