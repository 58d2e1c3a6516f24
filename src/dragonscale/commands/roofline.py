"""`dscale roofline`: the time of each resource, the bounds, and where another takes over."""

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
        _resources(report) if report.chip is not None and report.resources else None,
        _summary(report),
        grid("roofline-limits", report.limits) if report.limits else None,
        _curve(report) if report.samples else None,
        _crossovers(report) if report.crossovers else None,
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
    longest = max(row.seconds or 0.0 for row in report.resources) or 1.0
    columns = {"resource": lambda row: spelled(row.name), "": lambda row: (row.seconds or 0.0) / longest}
    return grid("roofline-resources", report.resources, own=columns)


def _summary(report: RooflineReport) -> Facts:
    """FLOPs and bytes, as numbers or formulas; then the bounds."""
    critical = report.critical_intensity_flops_per_byte
    binding = ""
    if critical is not None:
        binding = f"; compute binds above {critical:,.4g}"
    if report.flops is None:
        alone = report.chip is None
        return facts(
            ("FLOPs", report.flops_formula) if alone else None,
            ("bytes", report.bytes_formula) if alone else None,
            ("intensity", f"{report.intensity_formula} FLOPs/byte{binding}") if report.intensity_formula else None,
        )
    intensity = report.intensity_flops_per_byte
    return facts(
        ("FLOPs", f"{report.flops:,.0f}"),
        ("bytes", f"{report.bytes:,.0f}") if report.bytes else None,
        ("intensity", f"{intensity:,.4g} FLOPs/byte{binding}") if intensity else None,
        (
            "at best",
            f"{amount(report.lower_s, 's')} with perfect overlap, {amount(report.upper_s, 's')} with none",
            "key",
        )
        if report.lower_s is not None
        else None,
        ("reaches", amount(report.attainable_flops_per_s, "FLOP/s")) if report.attainable_flops_per_s else None,
    )


def _crossovers(report: RooflineReport) -> Grid:
    sides = {
        "below it": lambda row: f"{spelled(row.below)} binds",
        "above it": lambda row: f"{spelled(row.above)} binds",
    }
    return grid("roofline-crossovers", report.crossovers, own=sides)


def _curve(report: RooflineReport) -> Grid:
    """The samples over the free dim."""
    columns = {
        **{name: lambda sample, name=name: sample.sizes[name] for name in report.samples[0].sizes},
        "FLOPs/byte": (lambda sample: f"{sample.intensity_flops_per_byte:,.4g}", ""),
        "at best": ("lower_s", "s"),
        "no overlap": ("upper_s", "s"),
        "reaches": ("attainable_flops_per_s", "FLOP/s"),
        "bound by": lambda sample: spelled(sample.bound_by),
    }
    return records(report.samples, columns, how={"FLOPs/byte": {"keep": 2}})


bind(RooflineReport, Face(roofline_blocks, draw_roofline))
