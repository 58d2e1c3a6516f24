"""`dscale roofline EXPR --on CHIP`: how long an operation takes at best and what bounds it."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json, On, Plot, Sizes, check_ending, read_sizes
from dragonscale.cli.show import amount, bar, emit_json, note, record_table, say, table

EXPRESSION = (
    "An einsum 'bf16[B,8192] @ bf16[8192,28672]', attention 'attention(B=8, T=4096, N=64, K=8, H=128, causal)', "
    "an elementwise function 'softmax(bf16[B,F])' or sum 'bf16[B,D] + bf16[B,D]', or amounts '2e12FLOP 3GB'."
)


def run(
    expression: Annotated[str, Parameter(help=EXPRESSION)],
    /,
    *,
    on: On = "",
    sizes: Sizes = "",
    memory: Annotated[str, Parameter(help="Where the operands live: hbm, vmem, l2, pcie, dcn …")] = "hbm",
    weights_only: Annotated[bool, Parameter(negative="", help="Count only the last operand's bytes.")] = False,
    per_element: Annotated[
        float | None, Parameter(help="FLOPs of an elementwise function per element; the usual ones without it.")
    ] = None,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """How long does an operation take at best, and what bounds it?"""
    from dragonscale.errors import InputError
    from dragonscale.hardware import parse_target
    from dragonscale.reports.roofline import roofline_report

    chip, piece = parse_target(on) if on else (None, None)
    if piece is not None and piece.chips > 1:
        note(f"A roofline is of one chip: using one {piece.chip.title} of {piece}.")
    if per_element is not None and per_element <= 0:
        raise InputError(f"--per-element is {per_element}; an element takes at least some FLOPs.")
    report = roofline_report(
        expression, chip, read_sizes(sizes), memory, weights_only=weights_only, per_element=per_element
    )
    if plot and chip is None:
        raise InputError("A roofline is drawn for a chip; say which with --on.")
    check_ending(plot)
    emit_json(report) if json else say(_text(report, chip.title if chip else ""))
    if plot and chip is not None:
        from dragonscale.charts import save_chart
        from dragonscale.reports.charts.roofline import draw

        save_chart(draw("", chip, report), plot)
        note(f"Wrote {plot}.")
    return 0


def _text(report, title: str) -> str:
    if not title:
        return "\n".join([report.expression, "", *_counts(report), "", report.advice])
    peak, width = amount(report.peak_flops_per_s, "FLOP/s"), amount(report.bandwidth_bytes_per_s, "bytes/s")
    rates = f"on one {title}: C = {peak} ({report.compute_dtype}), W = {width} ({report.memory})"
    lines = [report.expression, rates, ""]
    if report.lower_s is not None:
        longest = max(resource.seconds for resource in report.resources)
        rows = [
            [resource.name, resource.formula, amount(resource.seconds, "s"), bar(resource.seconds / longest)]
            for resource in report.resources
        ]
        bounds = [amount(report.lower_s, "s"), amount(report.upper_s, "s")]
        critical = f"{report.critical_intensity_flops_per_byte:,.4g}"
        reached = amount(report.attainable_flops_per_s, "FLOP/s")
        lines += [table(["resource", "formula", "time", ""], rows, right=[2]), "", *_counts(report)]
        lines.append(f"lower bound {bounds[0]} (perfect overlap), upper bound {bounds[1]} (none)")
        if report.bytes and report.flops:
            lines.append(f"critical intensity {critical} FLOPs/byte; attainable {reached}")
    else:
        lines += [f"  {resource.name:<12} {resource.formula}" for resource in report.resources] + [""]
        if report.samples:
            lines.append(_curve(report))
    for point in report.crossovers:
        lines.append(f"crossover: {point.variable} = {point.value:,.6g} ({point.below} below, {point.above} above)")
    return "\n".join([*lines, "", report.advice])


def _counts(report) -> list[str]:
    """FLOPs, bytes and their ratio: exact numbers, or formulas while sizes are open."""
    if report.flops is None:
        return [f"FLOPs  {report.flops_formula}", f"bytes  {report.bytes_formula}"]
    flops, moved = f"{report.flops:,.0f} FLOPs", f"{report.bytes:,.0f} bytes"
    if report.intensity_flops_per_byte is None:
        return [flops]
    return [f"{flops}, {moved}: intensity {report.intensity_flops_per_byte:,.4g} FLOPs/byte"]


def _curve(report) -> str:
    """The samples over the free dim."""
    columns = {
        report.free[0]: lambda sample: int(sample.value),
        "lower": ("lower_s", "s"),
        "upper": ("upper_s", "s"),
        "attainable": ("attainable_flops_per_s", "FLOP/s"),
        "bound by": "bound_by",
    }
    return record_table(report.samples, columns)
