"""`dscale roofline EXPR --on CHIP`: how long an operation takes at best and what bounds it."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json, On, Plot, Sizes, read_sizes
from dragonscale.cli.show import amount, bar, emit_json, note, say, table


def run(
    expression: Annotated[str, Parameter(help="An einsum such as 'bf16[B,8192] @ bf16[8192,28672]'.")],
    /,
    *,
    on: On,
    sizes: Sizes = "",
    memory: Annotated[str, Parameter(help="Where the operands live: hbm, vmem, l2, pcie, dcn …")] = "hbm",
    weights_only: Annotated[bool, Parameter(negative="", help="Count only the last operand's bytes.")] = False,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """How long does an operation take at best, and what bounds it?"""
    from dragonscale.hardware import parse_target
    from dragonscale.reports.roofline import chart_points, roofline_report

    chip, piece = parse_target(on)
    if piece is not None and piece.chips > 1:
        note(f"A roofline is of one chip: using one {chip.title} of {piece}.")
    report = roofline_report(expression, chip, read_sizes(sizes), memory, weights_only)
    if plot:
        from dragonscale.roofline.chart import roofline_chart, save_chart

        dtype = report.compute_dtype if report.resources[0].name == "compute" else "bf16"
        save_chart(roofline_chart(chip, chart_points(report), dtype, [memory]), plot)
        note(f"Wrote {plot}.")
    emit_json(report) if json else say(_text(report, chip.title))
    return 0


def _text(report, title: str) -> str:
    peak, width = amount(report.peak_flops_per_s, "FLOP/s"), amount(report.bandwidth_bytes_per_s, "bytes/s")
    lines = [
        report.expression,
        f"on one {title}: C = {peak} ({report.compute_dtype}), W = {width} ({report.memory})",
        "",
    ]
    if report.lower_s is not None:
        longest = max(resource.seconds for resource in report.resources)
        rows = [
            [resource.name, resource.formula, amount(resource.seconds, "s"), bar(resource.seconds / longest)]
            for resource in report.resources
        ]
        lines += [table(["resource", "formula", "time", ""], rows, right=[2]), ""]
        lines += [
            f"lower bound {amount(report.lower_s, 's')} (perfect overlap), upper bound {amount(report.upper_s, 's')} (none)",
            f"intensity {report.intensity_flops_per_byte:,.4g} FLOPs/byte, critical {report.critical_intensity_flops_per_byte:,.4g}; "
            f"attainable {amount(report.attainable_flops_per_s, 'FLOP/s')}",
        ]
    else:
        lines += [f"  {resource.name:<12} {resource.formula}" for resource in report.resources] + [""]
        if report.samples:
            rows = [
                [
                    f"{s.value:,.0f}",
                    amount(s.lower_s, "s"),
                    amount(s.upper_s, "s"),
                    amount(s.attainable_flops_per_s, "FLOP/s"),
                    s.bound_by,
                ]
                for s in report.samples
            ]
            lines += [table([report.free[0], "lower", "upper", "attainable", "bound by"], rows, right=[0, 1, 2, 3])]
    for point in report.crossovers:
        lines.append(f"crossover: {point.variable} = {point.value:,.6g} ({point.below} below, {point.above} above)")
    return "\n".join([*lines, "", report.advice])
