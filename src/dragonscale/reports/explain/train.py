"""Where a parallelism scheme stops scaling, and why: its times as formulas, with numbers in, and its rules solved.

The scheme is a line in the book's notation (or the name of one); compute, the collectives of both passes and the rules
follow from it. The formulas are those that give the numbers, run on symbols.
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.hardware import Chip, Slice, Torus
from dragonscale.models.transformer import Transformer
from dragonscale.numbers import Number
from dragonscale.reports.explain.formulas import Explanation, Line, formula_line, formula_text
from dragonscale.roofline import symbol
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.crossovers import (
    CHIPS,
    Mixture,
    Rule,
    best_mixture,
    find_rules,
    least_tokens,
    numbers_of,
    span_of,
)
from dragonscale.training.rooflines import OVERLAPS, LayerTimes, axis_bandwidth, layer_times, letters
from dragonscale.training.scheme_mesh import PODS, best_mesh, counts_pods, given_mesh, possible_overlap, shares_wires
from dragonscale.training.schemes import Scheme, read_scheme, told, waits
from dragonscale.units import render


@dataclass(frozen=True)
class Setting:
    """A scheme on a machine: numbers where they are known, and the letters they stand for."""

    scheme: Scheme
    chip: Chip
    sizes: dict[str, int]
    mesh: Mesh | None
    overlap: str
    spans: dict[str, int]

    @property
    def switched(self) -> bool:
        return not isinstance(self.chip.network, Torus)

    @property
    def pods(self) -> tuple[str, ...]:
        """The axis that counts pods, where the scheme has one and the mesh gives it to the data-centre network."""
        if self.switched or not counts_pods(self.scheme):
            return ()
        across = self.mesh is None or self.mesh.pods.get(PODS, 1) == self.mesh.axes[PODS]
        return (PODS,) if across else ()

    @property
    def letters(self) -> tuple[dict[str, Number], Mesh]:
        return letters(self.scheme, self.pods, self.switched)

    @property
    def values(self) -> dict[Any, Number]:
        """What the letters stand for, as far as it is known."""
        if self.mesh is None:
            return numbers_of(self.chip, dict(self.sizes), spans=dict(self.spans))
        spans = {axis: span_of(self.mesh, axis) for axis in self.scheme.axes if axis not in self.pods}
        values = numbers_of(self.chip, dict(self.sizes), self.mesh.axes, spans)
        return values | {symbol(CHIPS): self.mesh.chips}

    @property
    def complete(self) -> bool:
        """Whether the times are numbers."""
        return self.mesh is not None and set(self.scheme.dims) <= set(self.sizes)


def layer_sizes(model: Transformer, tokens: int) -> dict[str, int]:
    """B, D and F of a model's widest dense block, for the book's schemes."""
    widths = [section.dims["f"] for section in model.program().sections if "f" in section.dims]
    if not widths:
        raise InputError(f"{model.name} has no feed-forward block; give --sizes B=…,D=…,F=… instead.")
    return {"B": tokens, "D": model.d_model, "F": max(widths)}


def explain_train(
    text: str,
    chip: Chip,
    piece: Slice | None,
    axes: dict[str, int],
    sizes: dict[str, int],
    spans: dict[str, int] | None = None,
    overlap: str = "max",
) -> Explanation:
    """Explain a scheme on a chip or a slice.

    `axes` are sizes of its mesh axes; on a slice they may be left out and the best split is taken. `spans` says how many
    whole axes of a torus each mesh axis uses, as the book counts them, instead of laying the mesh over the slice.
    """
    if overlap not in OVERLAPS:
        raise unknown("overlap", overlap, OVERLAPS)
    scheme = read_scheme(text)
    _check(scheme, chip, axes, sizes, spans or {})
    mesh = _mesh(scheme, chip, piece, axes, spans, sizes, overlap)
    setting = Setting(scheme, chip, sizes, mesh, possible_overlap(mesh, overlap), spans or {})
    lines = [*_pass_lines(setting, "forward"), *_pass_lines(setting, "backward"), *_mixture_lines(setting)]
    return Explanation(scheme.text, lines, _rules(setting), _notes(setting))


def _check(scheme: Scheme, chip: Chip, axes: dict[str, int], sizes: dict[str, int], spans: dict[str, int]) -> None:
    for name in (*axes, *spans):
        if name not in scheme.axes:
            raise unknown(f"mesh axis of {scheme.text} called", name, scheme.axes)
    if axes and len(axes) < len(scheme.axes):
        lacking = ", ".join(axis for axis in scheme.axes if axis not in axes)
        raise InputError(f"{scheme.text} also has the mesh axis {lacking}; give its size too.")
    for name, size in (*axes.items(), *sizes.items(), *spans.items()):
        if size < 1:
            raise InputError(f"{name} is {size}; it must be at least 1.")
    for name in sizes:
        if name not in scheme.dims:
            raise unknown(f"dim of {scheme.text} called", name, scheme.dims)
    several = [move for move in (*scheme.forward_moves, *scheme.backward_moves) if len(move.step.axes) > 1]
    if several and not isinstance(chip.network, Torus):
        raise InputError(
            f"{told(several[0])} runs over several mesh axes, whose bandwidths do not add up under switches; "
            "write one axis in their place."
        )


def _mesh(
    scheme: Scheme,
    chip: Chip,
    piece: Slice | None,
    axes: dict[str, int],
    spans: dict[str, int] | None,
    sizes: dict[str, int],
    overlap: str,
) -> Mesh | None:
    """The mesh as given; on a slice without one, the split that communicates least; else none, only letters."""
    if axes:
        return given_mesh(scheme, chip, piece, axes, spans)
    if piece is None or not set(scheme.dims) <= set(sizes):
        return None
    if spans:
        raise InputError("Give the sizes of the mesh axes too, or leave out how many axes of the torus they span.")
    return best_mesh(scheme, piece, sizes, overlap)


def _times(setting: Setting, phase: str) -> LayerTimes:
    """The times of a pass as formulas, without the collectives of axes that have one chip."""
    times = layer_times(setting.scheme, *setting.letters, phase)
    return LayerTimes(times.math, {axes: seconds for axes, seconds in times.comms.items() if _wide(setting, axes)})


def _wide(setting: Setting, axes: tuple[str, ...]) -> bool:
    return setting.mesh is None or setting.mesh.size(*axes) > 1


def _pass_lines(setting: Setting, phase: str) -> list[Line]:
    """Compute, each set of wires, and both together."""
    times, values = _times(setting, phase), setting.values
    lines = [formula_line(f"{phase}: T_math", times.math, values, "s")]
    moves = setting.scheme.forward_moves if phase == "forward" else setting.scheme.backward_moves
    for axes, seconds in times.comms.items():
        named = ", ".join(told(move) for move in moves if move.step.axes == axes)
        lines.append(formula_line(f"{phase}: T_{''.join(axes)} ({named})", seconds, values, "s"))
    if times.comms:
        how = "at once" if setting.overlap == "max" else "one after the other"
        if len(times.comms) > 1:
            lines.append(formula_line(f"{phase}: T_comms ({how})", times.network(setting.overlap), values, "s"))
        lines.append(formula_line(f"{phase}: T_math / T_comms", times.ratio(setting.overlap), values, "count"))
    return lines


def _mixture(setting: Setting) -> Mixture | None:
    """The best division between the two axes of a mixture, or None where there is nothing to divide."""
    axes = setting.scheme.axes
    comms = layer_times(setting.scheme, *setting.letters).comms
    if len(axes) != 2 or set(comms) != {(axis,) for axis in axes} or not all(_wide(setting, (axis,)) for axis in axes):
        return None
    return best_mixture(setting.scheme, *setting.letters, *axes, setting.overlap)


def _mixture_lines(setting: Setting) -> list[Line]:
    """The best division of N chips, if the axes keep the wires they have here."""
    import sympy

    mixed, values = _mixture(setting), setting.values
    if mixed is None:
        return []
    ways = sympy.sympify(mixed.ways).subs(values)
    lines = [formula_line(f"best {mixed.first} for N chips", mixed.ways, values, "count")]
    if ways.is_number and setting.mesh is not None and not 1 < float(ways) < setting.mesh.chips:
        return lines  # one axis alone is best; the formulas below would divide chips that are not there
    lines.append(formula_line("T_math / T_comms there", mixed.ratio, values, "count"))
    if mixed.tokens_per_chip is not None:
        lines.append(formula_line("fewest tokens per chip there", mixed.tokens_per_chip, values, "count"))
    return lines


def _rules(setting: Setting) -> list[str]:
    """Each rule, its value on this chip, and whether it is kept here."""
    rules = find_rules(setting.scheme, *setting.letters)
    return [_told_rule(setting, rule) for rule in rules if _wide(setting, rule.axes)]


def _told_rule(setting: Setting, rule: Rule) -> str:
    import sympy

    values = setting.values
    left = sympy.sympify(symbol(rule.variable))
    for way in rule.ways.split("*") if rule.ways else ():
        left = left / symbol(way)
    limit, here = sympy.sympify(rule.value).subs(values), left.subs(values)
    shown = str(left) + (" > " if rule.above else " < ") + formula_text(rule.value)
    if limit.is_number:
        shown += f" = {float(limit):,.4g}"
    if limit.is_number and here.is_number:
        kept = (here > limit) if rule.above else (here < limit)
        shown += f"; here {float(here):,.4g}, {'so it hides' if kept else 'so it shows'}"
    tokens = values.get(symbol(rule.variable))
    if rule.above and rule.ways and limit.is_number and tokens is not None:
        shown += f" (up to {rule.ways} = {float(tokens / limit):,.4g})"
    return f"{rule.phase} pass over {', '.join(rule.axes)} hides under compute if {shown}"


def _notes(setting: Setting) -> list[str]:
    chip, scheme = setting.chip, setting.scheme
    wire = "out of a chip to its node" if setting.switched else "both directions of one axis"
    notes = [
        f"C = {render(chip.peak('bf16'), 'FLOP/s')}, W = {render(axis_bandwidth(chip), 'bytes/s')} ({wire}) of {chip.title}"
    ]
    if setting.mesh is not None:
        sizes = ", ".join(f"{axis}={size}" for axis, size in setting.mesh.axes.items())
        spans = [_span(setting, axis) for axis in scheme.axes if axis not in setting.pods]
        notes.append(f"mesh: {sizes}; " + ", ".join(spans))
        if shares_wires(setting.mesh):
            notes.append("mesh axes share an axis of the torus, so their collectives are added up")
    moves = [move for move in (*scheme.forward_moves, *scheme.backward_moves) if _wide(setting, move.step.axes)]
    waited = [told(move) for move in moves if waits(move)]
    notes.append(
        f"waited for: {', '.join(waited)}" if waited else "nothing is waited for: weights and gradients travel any time"
    )
    kept = [told(move) for move in moves if waits(move) and scheme.regathered(move)]
    if kept:
        notes.append(f"{', '.join(kept)} of the backward pass need not be repeated if the result is kept")
    if setting.complete:
        notes.append(_verdict(setting))
    return notes


def _span(setting: Setting, axis: str) -> str:
    assert setting.mesh is not None
    span = float(span_of(setting.mesh, axis))
    if setting.switched:
        return f"W_{axis} = {render(span * axis_bandwidth(setting.chip), 'bytes/s')}"
    return f"M_{axis} = {span:.4g}"


def _verdict(setting: Setting) -> str:
    """What bounds the layer, and what to change."""
    scheme, mesh = setting.scheme, setting.mesh
    assert mesh is not None
    passes = {phase: layer_times(scheme, dict(setting.sizes), mesh, phase) for phase in ("forward", "backward")}
    sends = {phase: times for phase, times in passes.items() if float(times.network(setting.overlap)) > 0}
    if not sends:
        return "Bound by compute: nothing is sent."
    phase = min(sends, key=lambda name: float(sends[name].ratio(setting.overlap)))
    times = sends[phase]
    ratio = float(times.ratio(setting.overlap))
    if ratio > 1:
        return f"Bound by compute: it takes {ratio:.3g} times as long as the communication of the {phase} pass."
    axes = max(times.comms, key=lambda name: float(times.comms[name]))
    least = least_tokens(scheme, dict(setting.sizes), mesh, setting.overlap)
    tokens = scheme.tokens[0]
    change = (
        f"{tokens} = {least:,.0f} makes it bound by compute"
        if least is not None
        else f"no batch is large enough; use fewer ways of {', '.join(axes)}"
    )
    return f"Bound by the network over {', '.join(axes)} in the {phase} pass, {1 / ratio:.3g} times as long as compute: {change}."
