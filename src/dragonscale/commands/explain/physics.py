"""Rooflines, collectives, sharded einsums and models explained: the functions behind each answer, run on letters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from dragonscale.commands.collective_report import ONE_CHIP, check_options
from dragonscale.commands.explain.formulas import (
    Explanation,
    FormulaLine,
    formula_line,
    solution_sentence,
    tidy,
    value_of,
)
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


def _rate(name: str, dims: Any) -> Any:
    """The letter of a rate, which must not be that of a dim."""
    return symbol(f"{name}_chip" if name in dims else name)


def explain_roofline(
    expression: str, chip: Chip, sizes: dict[str, int], level: str = "hbm", **counting: Any
) -> Explanation:
    """Why an operation takes as long as it does: both times, the intensity, and every crossover as a formula;
    `counting` is what `Operation.cost` takes."""
    operation = parse_operation(expression)
    sizes_known, _ = open_sizes(operation, sizes)
    letters = {name: symbol(name) for name in operation.indices}
    cost = operation.cost(letters, level, **counting)
    unit, dtype = next(iter(cost.flops), ("matrix", "bf16"))
    flops = sympy.sympify(cost.total_flops)
    peak, width = _rate("C", letters), _rate("W", letters)
    values: Values = {letters[name]: float(size) for name, size in sizes_known.items() if isinstance(size, int)}
    values |= {peak: chip.peak(dtype, unit), width: chip.bandwidth(level)}
    moved = sympy.expand(cost.bytes.get(level, 0))
    lines = [
        formula_line("FLOPs", flops, values, "FLOP"),
        formula_line(f"bytes over {level}", moved, values, "bytes"),
        formula_line("T_math = FLOPs / C", flops / peak, values, "s"),
        formula_line("T_comms = bytes / W", moved / width, values, "s"),
        formula_line("lower bound", sympy.Max(flops / peak, moved / width), values, "s"),
        formula_line("upper bound", flops / peak + moved / width, values, "s"),
    ]
    if moved:  # what lies in the level already has no intensity
        lines.append(formula_line("intensity", sympy.factor(flops / moved), values, "count"))
    lines.append(formula_line("critical intensity", peak / width, values, "count"))
    varied = {name: letters[name] for name in operation.varied}
    solutions = _crossings(f"compute = {level}", flops / peak, moved / width, varied, values)
    open_dims = [name for name, size in sizes_known.items() if not isinstance(size, int)]
    for name, (others, limit) in large_limits(operation.cost(sizes_known, level, **counting), open_dims, level).items():
        if not others:
            continue  # the crossing in the one letter that is left stands above
        grown = f"{', '.join(others)} large"
        lines.append(formula_line(f"intensity, {grown}", limit, values, "count"))
        if not name:  # all open dims are large: no letter is left to solve for
            continue
        for solution in solve_equal(limit, peak / width, letters[name]):
            solutions.append(formula_line(f"{grown}: compute = {level} at {name}", tidy(solution), values, "count"))
    peak_text, width_text = render(chip.peak(dtype, unit), "FLOP/s"), render(chip.bandwidth(level), "bytes/s")
    note = f"{peak} = {peak_text} ({dtype}, {unit} unit), {width} = {width_text} ({level}) of {chip.title}"
    return Explanation(str(operation), lines, list(map(solution_sentence, solutions)), [note], solutions)


def _crossings(what: str, math: Any, other: Any, letters: dict[str, Any], values: Values) -> list[FormulaLine]:
    """Where two times are equal, in each letter: positive solutions, as formulas where the times have no maximum."""
    solutions: list[FormulaLine] = []
    for name, letter in letters.items():
        first, second = sympy.sympify(math), sympy.sympify(other)
        if second.has(sympy.Max):
            # an equation with a maximum is solved in one letter, with numbers for all others
            rest = {key: value for key, value in values.items() if key != letter}
            first, second = first.subs(rest), second.subs(rest)
        for solution in solve_equal(first, second, letter):
            number = value_of(solution, values)
            if number is not None and number <= 0:
                continue
            line = formula_line(f"{what} at {name}", tidy(solution), values, "count")
            if number:
                line.sides = _sides(what, math, other, values | {letter: number}, letter)
            solutions.append(line)
    return solutions


def _sides(what: str, math: Any, other: Any, values: Values, letter: Any) -> str:
    """Which of the two binds below a crossover and which above, where everything else is a number."""
    first, second = what.split(" = ")
    binding: list[str] = []
    # the times a little below and a little above the crossover
    for nudge in (0.999, 1.001):
        nudged = values | {letter: values[letter] * nudge}
        first_s, second_s = value_of(math, nudged), value_of(other, nudged)
        if first_s is None or second_s is None:
            return ""
        binding.append(first if first_s > second_s else second)
    below, above = binding
    if below == above:  # the curves touch and do not cross
        return ""
    return f"{below} binds below, {above} above"


@dataclass(frozen=True)
class LetteredGroup:
    """A group of chips with letters for its rates, the values of these, and what they stand for in words."""

    group: Group
    values: Values
    notes: list[str]


def lettered(group: Group, letters: dict[str, Any], axes: tuple[str, ...]) -> LetteredGroup:
    """A group with letters for its rates and, where mesh axes are whole hardware axes, for its sizes. `axes` are those
    of more than one chip: a letter stands for more than one, so a size of 1 has to stay a number for its cost to be
    nothing."""
    if isinstance(group, Stacked):
        inner, outer = lettered(group.inner, {}, ()), lettered(group.outer, {}, ())
        stacked = Stacked(inner.group, outer.group)
        return LetteredGroup(stacked, inner.values | outer.values, inner.notes + outer.notes)
    if isinstance(group, Wide):
        width, time = symbol("W_dcn"), symbol("t_dcn")
        note = f"W_dcn = {render(group.egress, 'bytes/s')} one way per chip, {group.size} pods"
        values = {width: group.egress, time: group.latency}
        return LetteredGroup(replace(group, egress=width, latency=time), values, [note])
    if isinstance(group, Switches):
        return _lettered_tiers(group)
    link, hop = symbol("W"), symbol("t_hop")
    sizes: list[Any] = [ring.size for ring in group.axes]
    if len(group.axes) == len(axes):  # each mesh axis is a whole hardware axis
        sizes = [letters[axis] for axis in axes]
    rings = tuple(Ring(size, ring.closed, ring.share) for size, ring in zip(sizes, group.axes, strict=True))
    shapes = ", ".join(f"{ring.size} ({'ring' if ring.closed else 'line'})" for ring in group.axes)
    note = f"W = {render(group.link, 'bytes/s')} one way per link; hardware axes: {shapes}"
    return LetteredGroup(Rings(rings, link, hop), {link: group.link, hop: group.hop}, [note])


def _wide(mesh: Mesh, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes that have more than one chip."""
    return tuple(axis for axis in axes if mesh.axes[axis] > 1)


def _lettered_tiers(group: Switches) -> LetteredGroup:
    """Switches with a letter for the bandwidth and the latency of each tier."""
    values: Values = {}
    levels, notes = [], []
    for span in group.spans:
        level = span.level
        width, time = symbol(f"W_{level.name}"), symbol(f"t_{level.name}")
        levels.append(replace(level, bandwidth=width, latency=time))
        values |= {width: level.bandwidth, time: level.latency}
        crossed = "not crossed"
        if float(span.fan) > 1:
            crossed = f"{float(span.fan):g} of its children"
        if float(span.sharing) > 1:
            crossed += f", shared by {float(span.sharing):g} groups"
        notes.append(f"{width} = {render(level.bandwidth, 'bytes/s')} per child of a {level.name}: {crossed}")
    return LetteredGroup(replace(group, levels=tuple(levels)), values, notes)


# Where no bytes are given, the gain of adding in switches is that of large messages.
TYPICAL_BYTES = 1e9


def _known_of(kind: str, volume: float, mesh: Mesh, axes: tuple[str, ...], options: Options) -> list[str]:
    """What is known of a collective besides its time: what it is made of, and what switches gain that add."""
    sentences: list[str] = []
    if kind == "all_reduce":
        sentences.append(
            "all_reduce = reduce_scatter, then all_gather of the sums, V each; the gather can wait until the whole sum "
            "is needed (ZeRO updates the weights in between)."
        )
    if options.in_network:
        group, by_chips = mesh.group(axes), replace(options, in_network=False, exact=True)
        ring, switched = (
            collective_time(kind, volume, group, how).lower for how in (by_chips, replace(options, exact=True))
        )
        if switched:
            sentences.append(f"The switches add: {float(ring / switched):.3g}x as fast as where the chips add.")
    return sentences


def explain_collective(
    kind: str, volume: float | None, mesh: Mesh, axes: tuple[str, ...], options: Options
) -> Explanation:
    """Why a collective takes as long as it does, in V, W and the sizes of the axes."""
    check_options(kind, mesh, options)
    # an axis called V or W must not take the letter of the bytes or the bandwidth
    letters = {axis: symbol(f"n_{axis}" if axis in ("V", "W") else axis) for axis in axes}
    v = symbol("V")
    over_letters = lettered(mesh.group(axes), letters, _wide(mesh, axes))
    group, values = over_letters.group, over_letters.values
    for axis in axes:
        values[letters[axis]] = float(mesh.axes[axis])
    if volume is not None:
        values[v] = volume
    # `exact` counts the (N-1)/N that the book leaves out
    true = collective_time(kind, v, group, replace(options, exact=True))
    book = collective_time(kind, v, group, replace(options, exact=False))
    lines = [
        formula_line("bytes each chip sends", sent_bytes(kind, v, group, options), values, "bytes"),
        formula_line("bandwidth term", true.bandwidth, values, "s"),
        formula_line("latency term", true.latency, values, "s"),
        formula_line("lower bound (the larger)", true.lower, values, "s"),
        formula_line("the book's, to first order", book.lower, values, "s"),
    ]
    solutions = []
    # the bandwidth term is V times something, so the two terms meet where V is latency over that
    byte_s = sympy.sympify(true.bandwidth).subs(v, 1)
    if not byte_s.is_zero:
        equal = sympy.simplify(sympy.sympify(true.latency) / byte_s)
        if not equal.is_zero:
            solutions.append(formula_line("latency = bandwidth at V", equal, values, "bytes"))
    notes = [*over_letters.notes, *_known_of(kind, volume or TYPICAL_BYTES, mesh, axes, options)]
    if mesh.size(*axes) == 1:
        notes = [ONE_CHIP]
    return Explanation(
        f"{kind} over {', '.join(axes)}", lines, list(map(solution_sentence, solutions)), notes, solutions
    )


def explain_shard(expression: str, mesh: Mesh, sizes: dict[str, int]) -> Explanation:
    """The bytes and times of a sharded chain as formulas in its dims and mesh axes."""
    einsum = prepare(expression, sizes)
    forward, backward = passes(parse_chain(expression), einsum.sizes, mesh, EXACT)
    chain = _LetteredChain.of(mesh, einsum.sizes)
    times = chain.add_pass("forward", forward)
    solutions: list[FormulaLine] = []
    for name, seconds in times.items():
        if name != "compute":
            solutions += _crossings(f"compute = {name}", times["compute"], seconds, chain.letters, chain.values)
    chain.add_pass("backward", backward)
    if mesh.chip is not None:
        peak, dtype = _rate("C", chain.letters), compute_dtype(forward[0].line)
        peak_text, width_text = render(mesh.chip.peak(dtype), "FLOP/s"), render(mesh.chip.bandwidth("hbm"), "bytes/s")
        chain.notes.append(f"{peak} = {peak_text} ({dtype}), W_hbm = {width_text} of {mesh.chip.title}")
        chain.notes += _binding(chain.lines)
    return Explanation(str(einsum.line), chain.lines, list(map(solution_sentence, solutions)), chain.notes, solutions)


def _binding(lines: list[FormulaLine]) -> list[str]:
    """What binds each pass, where its times are numbers and there are any."""
    sentences: list[str] = []
    for way in ("forward", "backward"):
        times: dict[str, float] = {}
        for line in lines:
            if line.name.startswith(f"{way}: T_") and line.value_si is not None:
                times[line.name.partition("T_")[2]] = line.value_si
        if any(times.values()):
            slowest = max(times, key=times.__getitem__).replace("network", "the network")
            sentences.append(f"{way} bound by {slowest}")
    if not sentences:
        return []
    # `capitalize` makes small letters of all but the first
    return [f"{'; '.join(sentences).capitalize().replace('hbm', 'HBM')}."]


@dataclass
class _LetteredChain:
    """A sharded chain over letters: those of its dims and of the mesh's axes, the values of all letters, and the lines
    and notes that its passes have added."""

    mesh: Mesh
    letters: dict[str, Any]
    axis_letters: dict[str, Any]
    values: Values
    lines: list[FormulaLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, mesh: Mesh, sizes: Mapping[str, Any]) -> "_LetteredChain":
        letters = {name: symbol(name) for name in sizes}
        axis_letters: dict[str, Any] = {}
        values: Values = {}
        for name, size in sizes.items():
            if isinstance(size, int):  # an open size is its own letter
                values[letters[name]] = float(size)
        for name, size in mesh.axes.items():
            # an axis may be called as a dim is
            axis_letters[name] = symbol(f"n_{name}" if name in letters else name)
            values[axis_letters[name]] = float(size)
        notes = ["V, the bytes of each collective: the array as one group of chips sees it."]
        return cls(mesh, letters, axis_letters, values, notes=notes)

    def add_pass(self, way: str, planned: list[PlannedEinsum]) -> dict[str, Any]:
        """Add the lines of one pass; its times by resource (none without a chip), the network's without latencies, so
        that crossovers have formulas."""
        open_mesh, chip = Mesh(dict(self.axis_letters)), self.mesh.chip
        network: Number = 0
        wires: Number = 0
        for step in collectives(planned):
            volume = step.volume(self.letters, open_mesh)
            self._line(f"{way}: V of {step}", volume, "bytes")
            if chip is not None:
                cost = collective_time(step.kind, volume, self._group(step.axes), EXACT)
                network, wires = network + cost.lower, wires + cost.bandwidth
                self._line(f"{way}: T of {step.kind}", cost.lower, "s")
        flops = sum(line.best.flops(self.letters, open_mesh) for line in planned)
        moved = sum(line.best.hbm_bytes(self.letters, open_mesh) for line in planned)
        self._line(f"{way}: FLOPs per chip", flops, "FLOP")
        self._line(f"{way}: HBM bytes per chip", moved, "bytes")
        if chip is None:
            return {}
        peak, width = _rate("C", self.letters), symbol("W_hbm")
        self.values |= {peak: chip.peak(compute_dtype(planned[0].line)), width: chip.bandwidth("hbm")}
        times: dict[str, Any] = {"compute": flops / peak, "HBM": moved / width}
        if network != 0:
            times["network"] = network
        for name, seconds in times.items():
            self._line(f"{way}: T_{name}", seconds, "s")
        self._line(f"{way}: lower bound of the pass", maximum(*times.values()), "s")
        if network != 0:
            times["network"] = wires
        return times

    def _group(self, axes: tuple[str, ...]) -> Group:
        """The chips along some axes over letters, whose values and meanings are kept."""
        over_letters = lettered(self.mesh.group(axes), self.axis_letters, _wide(self.mesh, axes))
        self.values |= over_letters.values
        self.notes += [note for note in over_letters.notes if note not in self.notes]
        return over_letters.group

    def _line(self, name: str, number: Any, unit: str) -> None:
        self.lines.append(formula_line(name, number, self.values, unit))


# The book's letters of a model's dims.
PART_LETTERS = {"d": "D", "f": "F", "n": "N", "k": "K", "h": "H", "g": "H", "v": "V", "e": "E", "z": "F_shared"}


def _layer_lines(name: str, layer: Section, values: Values) -> list[FormulaLine]:
    """Training FLOPs of each part of one layer: forward, and twice as many backward."""
    t = symbol("T")
    lines: list[FormulaLine] = []
    for part, formula in forward_flops([layer], Workload(1, t, t)).items():
        if formula != 0:
            lines.append(formula_line(f"{name}: {part} training FLOPs, one layer", 3 * formula, values, "FLOP"))
    return lines


def explain_model(model: Transformer, sequence: int) -> Explanation:
    """Parameters and FLOPs of each part as formulas in the book's letters."""
    lines: list[FormulaLine] = []
    for section in model.program().sections:
        letters = {name: symbol(PART_LETTERS.get(name, name)) for name in section.dims}
        values: Values = {letters[name]: float(size) for name, size in section.dims.items()}
        repeat, t = symbol("L"), symbol("T")
        open_section = Section(section.name, section.ops, letters, 1, section.span, section.chunk, section.top)  # pyright: ignore[reportArgumentType]
        values |= {repeat: float(section.repeat), t: float(sequence)}
        # a section that stands once, such as the head, has no L in its formulas
        times = repeat if section.repeat > 1 else 1
        for part, formula in parameters([open_section]).items():
            lines.append(formula_line(f"{section.name}: {part} parameters", times * formula, values, "count"))
        for part, formula in forward_flops([open_section], Workload(1, t, t)).items():
            if formula != 0:  # norms and embeddings have parameters and no matmul
                lines.append(
                    formula_line(f"{section.name}: {part} FLOPs, one sequence", times * formula, values, "FLOP")
                )
        if section.repeat > 1:
            lines += _layer_lines(section.name, open_section, values)
    note = "Training costs three times the forward FLOPs. T is the sequence length, L the layers of this kind."
    return Explanation(model.name, lines, [], [note])
