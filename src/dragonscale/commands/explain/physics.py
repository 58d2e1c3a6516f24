"""Rooflines, collectives, sharded einsums and models explained: the functions behind each answer, run on letters."""

from dataclasses import replace
from typing import Any

import sympy

from dragonscale.commands.collective_report import ONE_CHIP, check_options
from dragonscale.commands.explain.formulas import Explanation, FormulaLine, formula_line, tidy, told, value_of
from dragonscale.commands.roofline_report import large_limits, open_sizes, prepare
from dragonscale.models.count import parameters
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer
from dragonscale.physics.collectives import EXACT, Group, Options, Ring, Rings, Stacked, Switches, Wide
from dragonscale.physics.collectives.cost import collective_time, sent_bytes
from dragonscale.physics.hardware import Chip
from dragonscale.physics.notation import parse_chain
from dragonscale.physics.numbers import Number, maximum
from dragonscale.physics.rooflines import compute_dtype, solve_equal, symbol
from dragonscale.physics.rooflines.operation import parse_operation
from dragonscale.physics.sharding.chain import PlannedEinsum, collectives, passes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.units import render

Values = dict[Any, float]


def _rate(name: str, letters: Any) -> Any:
    """The letter of a rate, which must not be that of a dim."""
    return symbol(f"{name}_chip" if name in letters else name)


def explain_roofline(
    expression: str, chip: Chip, sizes: dict[str, int], level: str = "hbm", **counting: Any
) -> Explanation:
    """Why an operation takes as long as it does: both times, the intensity, and every crossover as a formula;
    `counting` is what `Operation.cost` takes."""
    operation = parse_operation(expression)
    all_sizes, _ = open_sizes(operation, sizes)
    letters = {name: symbol(name) for name in operation.indices}
    cost = operation.cost(letters, level, **counting)
    unit, dtype = next(iter(cost.flops), ("matrix", "bf16"))
    flops = sympy.sympify(cost.total_flops)
    peak, width = _rate("C", letters), _rate("W", letters)
    values: Values = {letters[name]: float(size) for name, size in all_sizes.items() if isinstance(size, int)}
    values |= {peak: chip.peak(dtype, unit), width: chip.bandwidth(level)}
    moved = sympy.expand(cost.bytes.get(level, 0))
    lines = [
        formula_line("FLOPs", flops, values, "FLOP"),
        formula_line(f"bytes over {level}", moved, values, "bytes"),
        formula_line("T_math = FLOPs / C", flops / peak, values, "s"),
        formula_line("T_comms = bytes / W", moved / width, values, "s"),
        formula_line("lower bound", sympy.Max(flops / peak, moved / width), values, "s"),
        formula_line("upper bound", flops / peak + moved / width, values, "s"),
        *([formula_line("intensity", sympy.factor(flops / moved), values, "count")] if moved else []),
        formula_line("critical intensity", peak / width, values, "count"),
    ]
    varied = {name: letters[name] for name in operation.varied}
    solutions = _crossings(f"compute = {level}", flops / peak, moved / width, varied, values)
    open_dims = [name for name, size in all_sizes.items() if not isinstance(size, int)]
    for name, (others, limit) in large_limits(operation.cost(all_sizes, level, **counting), open_dims, level).items():
        if not others:
            continue  # the crossing in the one letter that is left stands above
        grown = f"{', '.join(others)} large"
        lines.append(formula_line(f"intensity, {grown}", limit, values, "count"))
        for solution in solve_equal(limit, peak / width, letters[name]) if name else ():
            solutions.append(formula_line(f"{grown}: compute = {level} at {name}", tidy(solution), values, "count"))
    rates = [render(chip.peak(dtype, unit), "FLOP/s"), render(chip.bandwidth(level), "bytes/s")]
    note = f"{peak} = {rates[0]} ({dtype}, {unit} unit), {width} = {rates[1]} ({level}) of {chip.title}"
    return Explanation(str(operation), lines, [told(line) for line in solutions], [note], solutions)


def _crossings(what: str, math: Any, other: Any, letters: dict[str, Any], values: Values) -> list[FormulaLine]:
    """Where two times are equal, in each letter: positive solutions, as formulas where the times have no maximum."""
    solutions: list[FormulaLine] = []
    for name, letter in letters.items():
        first, second = sympy.sympify(math), sympy.sympify(other)
        if second.has(sympy.Max):  # which cannot be solved with letters in it
            rest = {key: value for key, value in values.items() if key != letter}
            first, second = first.subs(rest), second.subs(rest)
        for solution in solve_equal(first, second, letter):
            number = value_of(solution, values)
            if number is None or number > 0:
                line = formula_line(f"{what} at {name}", tidy(solution), values, "count")
                if number:
                    line.sides = _sides(what, math, other, values | {letter: number}, letter)
                solutions.append(line)
    return solutions


def _sides(what: str, math: Any, other: Any, values: Values, letter: Any) -> str:
    """Which of the two binds below a crossover and which above, where everything else is a number."""
    first, second = what.split(" = ")
    names: list[str] = []
    for nudge in (0.999, 1.001):  # a little below and above
        nearby = values | {letter: values[letter] * nudge}
        times = value_of(math, nearby), value_of(other, nearby)
        if times[0] is None or times[1] is None:
            return ""
        names.append(first if times[0] > times[1] else second)
    below, above = names
    return f"{below} binds below, {above} above" if below != above else ""


def lettered(group: Group, letters: dict[str, Any], axes: tuple[str, ...]) -> tuple[Group, Values, list[str]]:
    """A group with letters for its rates and, where mesh axes are whole hardware axes, for its
    sizes; what the letters stand for; and that in words. `axes` are those of more than one chip: a
    letter stands for more than one, so a size of 1 has to stay a number for its cost to be nothing."""
    if isinstance(group, Stacked):
        inner, values, notes = lettered(group.inner, {}, ())
        outer, more, others = lettered(group.outer, {}, ())
        return Stacked(inner, outer), values | more, notes + others
    if isinstance(group, Wide):
        width, time = symbol("W_dcn"), symbol("t_dcn")
        note = f"W_dcn = {render(group.egress, 'bytes/s')} one way per chip, {group.size} pods"
        return replace(group, egress=width, latency=time), {width: group.egress, time: group.latency}, [note]
    if isinstance(group, Switches):
        return _lettered_tiers(group)
    link, hop = symbol("W"), symbol("t_hop")
    # a mesh axis is the size of a hardware axis only where there are as many of both
    sizes = [letters[axis] for axis in axes] if len(group.axes) == len(axes) else [ring.size for ring in group.axes]
    rings = tuple(Ring(size, ring.closed, ring.share) for size, ring in zip(sizes, group.axes, strict=True))
    shapes = ", ".join(f"{ring.size} ({'ring' if ring.closed else 'line'})" for ring in group.axes)
    note = f"W = {render(group.link, 'bytes/s')} one way per link; hardware axes: {shapes}"
    return Rings(rings, link, hop), {link: group.link, hop: group.hop}, [note]


def _wide(mesh: Mesh, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes that have more than one chip."""
    return tuple(axis for axis in axes if mesh.axes[axis] > 1)


def _lettered_tiers(group: Switches) -> tuple[Group, Values, list[str]]:
    """A group under switches with letters for the rate and the latency of each tier."""
    values: Values = {}
    levels, notes = [], []
    for span in group.spans:
        level = span.level
        width, time = symbol(f"W_{level.name}"), symbol(f"t_{level.name}")
        levels.append(replace(level, bandwidth=width, latency=time))
        values |= {width: level.bandwidth, time: level.latency}
        fan = f"{float(span.fan):g} of its children" if float(span.fan) > 1 else "not crossed"
        if float(span.sharing) > 1:
            fan += f", shared by {float(span.sharing):g} groups"
        notes.append(f"{width} = {render(level.bandwidth, 'bytes/s')} per child of a {level.name}: {fan}")
    return replace(group, levels=tuple(levels)), values, notes


def explain_collective(
    kind: str, volume: float | None, mesh: Mesh, axes: tuple[str, ...], options: Options
) -> Explanation:
    """Why a collective takes as long as it does, in V, W and the sizes of the axes."""
    check_options(kind, mesh, options)
    letters = {axis: symbol(f"n_{axis}" if axis in ("V", "W") else axis) for axis in axes}
    v = symbol("V")
    group, values, notes = lettered(mesh.group(axes), letters, _wide(mesh, axes))
    values |= {letters[axis]: float(mesh.axes[axis]) for axis in axes}
    if volume is not None:
        values |= {v: volume}
    true, book = (collective_time(kind, v, group, replace(options, exact=exact)) for exact in (True, False))
    lines = [
        formula_line("bytes each chip sends", sent_bytes(kind, v, group, options), values, "bytes"),
        formula_line("bandwidth term", true.bandwidth, values, "s"),
        formula_line("latency term", true.latency, values, "s"),
        formula_line("lower bound (the larger)", true.lower, values, "s"),
        formula_line("the book's, to first order", book.lower, values, "s"),
    ]
    # The bandwidth term is V times something, so the two terms meet where V is latency over that.
    per_byte = sympy.sympify(true.bandwidth).subs(v, 1)
    solutions: list[FormulaLine] = []
    if not per_byte.is_zero:
        equal = sympy.simplify(sympy.sympify(true.latency) / per_byte)
        if not equal.is_zero:
            solutions.append(formula_line("latency = bandwidth at V", equal, values, "bytes"))
    if mesh.size(*axes) == 1:
        notes = [ONE_CHIP]
    return Explanation(f"{kind} over {', '.join(axes)}", lines, [told(line) for line in solutions], notes, solutions)


def explain_shard(expression: str, mesh: Mesh, sizes: dict[str, int]) -> Explanation:
    """The bytes and times of a sharded chain as formulas in its dims and mesh axes."""
    line, all_sizes, _ = prepare(expression, sizes)
    letters: dict[str, Number] = {name: symbol(name) for name in all_sizes}
    axis_letters = {name: symbol(f"n_{name}" if name in letters else name) for name in mesh.axes}
    there, back = passes(parse_chain(expression), all_sizes, mesh, EXACT)
    values: Values = {letters[name]: float(size) for name, size in all_sizes.items() if isinstance(size, int)}
    values |= {axis_letters[name]: float(size) for name, size in mesh.axes.items()}
    notes = ["V, the bytes of each collective: the array as one group of chips sees it."]
    lines: list[FormulaLine] = []
    solutions: list[FormulaLine] = []
    for way, planned in (("forward", there), ("backward", back)):
        new, times = _pass_lines(way, planned, letters, axis_letters, mesh, values, notes)
        lines += new
        for name in times:
            if way == "forward" and name != "compute":  # of the backward pass the crossovers are much the same
                solutions += _crossings(f"compute = {name}", times["compute"], times[name], letters, values)
    if mesh.chip is not None:
        peak, dtype = _rate("C", letters), compute_dtype(there[0].line)
        rates = [render(mesh.chip.peak(dtype), "FLOP/s"), render(mesh.chip.bandwidth("hbm"), "bytes/s")]
        notes.append(f"{peak} = {rates[0]} ({dtype}), W_hbm = {rates[1]} of {mesh.chip.title}")
        notes += _binding(lines)
    return Explanation(str(line), lines, [told(line) for line in solutions], notes, solutions)


def _binding(lines: list[FormulaLine]) -> list[str]:
    """What binds each pass, where its times are numbers and there are any."""
    texts: list[str] = []
    for way in ("forward", "backward"):
        times: dict[str, float] = {}  # by resource
        for line in lines:
            if line.name.startswith(f"{way}: T_") and line.value_si is not None:
                times[line.name.partition("T_")[2]] = line.value_si
        if any(times.values()):
            slowest = max(times, key=lambda name: times[name])
            texts.append(f"{way} bound by {'the network' if slowest == 'network' else slowest}")
    return [f"{'; '.join(texts).capitalize().replace('hbm', 'HBM')}."] if texts else []


def _pass_lines(
    way: str,
    planned: list[PlannedEinsum],
    letters: dict[str, Number],
    axis_letters: dict[str, Any],
    mesh: Mesh,
    values: Values,
    notes: list[str],
) -> tuple[list[FormulaLine], dict[str, Any]]:
    """The lines of one pass, and its times by resource (empty without a chip)."""
    open_mesh = Mesh(dict(axis_letters))
    lines: list[FormulaLine] = []
    network: Number = 0
    wires: Number = 0  # without the latencies, for crossovers: those have formulas
    for step in collectives(planned):
        volume = step.volume(letters, open_mesh)
        lines.append(formula_line(f"{way}: V of {step}", volume, values, "bytes"))
        if mesh.chip is not None:
            group, rates, more = lettered(mesh.group(step.axes), axis_letters, _wide(mesh, step.axes))
            values |= rates
            notes += [note for note in more if note not in notes]
            cost = collective_time(step.kind, volume, group, EXACT)
            network, wires = network + cost.lower, wires + cost.bandwidth
            lines.append(formula_line(f"{way}: T of {step.kind}", cost.lower, values, "s"))
    flops = sum(line.best.flops(letters, open_mesh) for line in planned)
    moved = sum(line.best.hbm_bytes(letters, open_mesh) for line in planned)
    lines.append(formula_line(f"{way}: FLOPs per chip", flops, values, "FLOP"))
    lines.append(formula_line(f"{way}: HBM bytes per chip", moved, values, "bytes"))
    if mesh.chip is None:
        return lines, {}
    peak, width = _rate("C", letters), symbol("W_hbm")
    dtype = compute_dtype(planned[0].line)
    values |= {peak: mesh.chip.peak(dtype), width: mesh.chip.bandwidth("hbm")}
    times: dict[str, Any] = {"compute": flops / peak, "HBM": moved / width}
    if network != 0:
        times["network"] = network
    for name, seconds in times.items():
        lines.append(formula_line(f"{way}: T_{name}", seconds, values, "s"))
    lines.append(formula_line(f"{way}: lower bound of the pass", maximum(*times.values()), values, "s"))
    return lines, times | ({"network": wires} if network != 0 else {})


# The book's letters for the dims of a model's program.
PART_LETTERS = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "z": "F_shared"}


def explain_model(model: Transformer, sequence: int) -> Explanation:
    """Parameters and FLOPs of each part as formulas in the book's letters."""
    lines: list[FormulaLine] = []
    for section in model.program().sections:
        letters = {name: symbol(PART_LETTERS.get(name, name)) for name in section.dims}
        values: Values = {letters[name]: float(size) for name, size in section.dims.items()}
        repeat, t = symbol("L"), symbol("T")
        # the section once, with letters for its dims
        open_section = Section(section.name, section.ops, letters, 1, section.span, section.chunk, section.top)  # pyright: ignore[reportArgumentType]
        values |= {repeat: float(section.repeat), t: float(sequence)}
        times = repeat if section.repeat > 1 else 1
        counts = parameters([open_section]), forward_flops([open_section], Workload(1, t, t))
        for formulas, what, unit in zip(counts, ("parameters", "FLOPs, one sequence"), ("count", "FLOP"), strict=True):
            for part, formula in formulas.items():
                if unit == "count" or formula != 0:
                    lines.append(formula_line(f"{section.name}: {part} {what}", times * formula, values, unit))
    note = "Training costs three times the forward FLOPs. T is the sequence length, L the layers of this kind."
    return Explanation(model.name, lines, [], [note])
