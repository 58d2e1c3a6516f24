"""`dscale roofline`: the time of each resource, the bounds, and where another takes over."""

from typing import Any

from dragonscale.blocks.sheet import Facts, Grid, Prose, Sheet, Title, amount, facts, records, sheet, table
from dragonscale.commands.charts.pictures import draw_roofline
from dragonscale.commands.given import maybe_target, size_lists
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.operations import RooflineQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.commands.roofline_report import RooflineReport, roofline_report, spelled
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import check_effect, with_changes
from dragonscale.physics.hardware.chip import dtype_bytes


def ask(question: RooflineQuestion, listener: Listener, solve: bool = True) -> RooflineReport:
    """The roofline of the expression, on a chip or without one; `solve=False` leaves out where another resource takes
    over."""
    check_effect(question.set, "kernels")
    chip, slice_ = maybe_target(with_changes(question.on, question.set), listener)
    if slice_ is not None and slice_.chips > 1:
        listener.note(f"A roofline is of one chip: using one {slice_.chip.title} of {slice_}.")
    if question.per_element is not None and question.per_element <= 0:
        raise InputError(f"--per-element is {question.per_element}; an element takes at least some FLOPs.")
    report = roofline_report(
        question.expression,
        chip,
        size_lists(question.sizes),
        question.memory,
        solve,
        weights_only=question.weights_only,
        per_element=question.per_element,
    )
    dtype = report.compute_dtype
    if chip is not None and report.unit == "matrix" and dtype_bytes(dtype) < 2 and chip.format(dtype) != "native":
        listener.note(
            f"{chip.title} has no matmuls in {dtype}: such operands are multiplied as something wider, at its rate."
        )
    return report.came_from(chip, listener.notes)


def roofline_blocks(report: RooflineReport, _detail: bool) -> Sheet:
    """Numbers where every size is known, formulas and a curve where one is open."""
    return sheet(
        _title(report),
        Prose(report.advice, "key"),
        None if report.chip is None else _resources(report),
        _summary(report),
        grid("roofline-limits", report.limits),
        _curve(report),
        _crossovers(report),
    )


def _title(report: RooflineReport) -> Title:
    if report.chip is None:
        return Title(report.expression)
    peak, width = amount(report.peak_flops_per_s, "FLOP/s"), amount(report.bandwidth_bytes_per_s, "bytes/s")
    rates = f"C = {peak} ({report.compute_dtype}), W = {width} ({spelled(report.memory)})"
    return Title(report.expression, f"on one {report.chip_title}: {rates}")


def _resources(report: RooflineReport) -> Grid:
    if report.lower_s is None:
        return table(["resource", "formula"], [[spelled(row.name), row.formula] for row in report.resources])
    # the bars are drawn against the longest time
    longest = max((row.seconds or 0.0 for row in report.resources), default=0.0) or 1.0
    columns = {"resource": lambda row: spelled(row.name), "": lambda row: (row.seconds or 0.0) / longest}
    return grid("roofline-resources", report.resources, own=columns)


def _summary(report: RooflineReport) -> Facts:
    """FLOPs and bytes, as numbers or formulas; then the bounds."""
    binding = ""
    if report.critical_intensity_flops_per_byte is not None:
        binding = f"; compute binds above {report.critical_intensity_flops_per_byte:,.4g}"
    rows: list[tuple[str, str] | tuple[str, str, str]] = []
    if report.flops is None:
        if report.chip is None:  # on a chip the formulas stand beside the times
            rows += [("FLOPs", report.flops_formula), ("bytes", report.bytes_formula)]
        if report.intensity_formula:
            rows.append(("intensity", f"{report.intensity_formula} FLOPs/byte{binding}"))
        return facts(*rows)
    rows.append(("FLOPs", f"{report.flops:,.0f}"))
    if report.bytes:
        rows.append(("bytes", f"{report.bytes:,.0f}"))
    if report.intensity_flops_per_byte:
        rows.append(("intensity", f"{report.intensity_flops_per_byte:,.4g} FLOPs/byte{binding}"))
    if report.lower_s is not None:
        overlap, without = amount(report.lower_s, "s"), amount(report.upper_s, "s")
        rows.append(("at best", f"{overlap} with perfect overlap, {without} with none", "key"))
    if report.attainable_flops_per_s:
        rows.append(("reaches", amount(report.attainable_flops_per_s, "FLOP/s")))
    return facts(*rows)


def _crossovers(report: RooflineReport) -> Grid:
    sides = {
        "below it": lambda row: f"{spelled(row.below)} binds",
        "above it": lambda row: f"{spelled(row.above)} binds",
    }
    return grid("roofline-crossovers", report.crossovers, own=sides)


def _curve(report: RooflineReport) -> Grid | None:
    """The samples over the free dims."""
    if not report.samples:
        return None
    columns: dict[str, Any] = {}
    for dim in report.samples[0].sizes:
        columns[dim] = lambda sample, dim=dim: sample.sizes[dim]
    columns |= {
        "FLOPs/byte": (lambda sample: f"{sample.intensity_flops_per_byte:,.4g}", ""),
        "at best": ("lower_s", "s"),
        "no overlap": ("upper_s", "s"),
        "reaches": ("attainable_flops_per_s", "FLOP/s"),
        "bound by": lambda sample: spelled(sample.bound_by),
    }
    return records(report.samples, columns, how={"FLOPs/byte": {"keep": 2}})


bind(RooflineReport, Face(roofline_blocks, draw_roofline))
