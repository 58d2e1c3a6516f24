"""`dscale chips [NAME]`: what is known of each chip, and from where."""

from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import amount, emit_json, say, table


def run(
    name: Annotated[str | None, Parameter(help="A chip's name, alias, or TOML file.")] = None,
    /,
    *,
    source: Annotated[str | None, Parameter(help="Use one source's numbers throughout, such as 'book'.")] = None,
    json: Json = False,
) -> int:
    """What do we know about chips, and from where?"""
    from dragonscale.hardware import load_chip
    from dragonscale.reports.chips import chip_report, chips_report

    if name is None:
        reports = chips_report()
        emit_json(reports) if json else say(_listing(reports))
        return 0
    chip = load_chip(name)
    report = chip_report(chip.reading(source) if source else chip)
    emit_json(report) if json else say(_details(report))
    return 0


def _listing(reports: list) -> str:
    rows = [
        [
            report.name,
            amount(report.bf16_flops_per_s, "FLOP/s"),
            amount(report.hbm_bytes, "bytes"),
            amount(report.hbm_bytes_per_s, "bytes/s"),
            f"{report.critical_intensity_flops_per_byte:.0f}",
            report.network.split(",")[0],
            amount(report.price_usd_per_h, "USD/h"),
        ]
        for report in reports
    ]
    header = ["chip", "bf16", "HBM", "HBM rate", "FLOP/B", "network", "price"]
    text = table(header, rows, right=[1, 2, 3, 4, 6])
    return f"{text}\n\nFLOP/B: the intensity below which HBM binds. `dscale chips NAME` shows every number's source."


def _details(report) -> str:
    rows = []
    for fact in report.facts:
        if isinstance(fact.value, list):
            value = "x".join(f"{item:g}" for item in fact.value)
        else:
            value = amount(fact.value, fact.unit)
        qualifier = ", ".join(part for part in (f"per {fact.per}", fact.direction) if part)
        rows.append([fact.path, value, qualifier, fact.source])
        also = [
            f"{amount(o.value, fact.unit) if not isinstance(o.value, list) else 'x'.join(f'{i:g}' for i in o.value)} ({o.source})"
            for o in fact.also
        ]
        if also:
            rows.append(["", f"also {', '.join(also)}"[:60], "", ""])
    lines = [f"{report.title} ({report.name}), {report.released}: {report.network}; {report.largest}", ""]
    wide = [row for row in rows if row[0]]
    body = table(["what", "value", "", "source"], wide).splitlines()
    lines.append(body[0])
    remaining = iter(body[1:])
    for row in rows:
        lines.append(next(remaining) if row[0] else f"    {row[1]}")
    lines += ["", "Sources"] + [f"  {key}: {text}" for key, text in report.sources.items()]
    price = f" at {amount(report.price_usd_per_h, 'USD/h')}" if report.price_usd_per_h else ""
    lines += ["", f"Compute binds above {report.critical_intensity_flops_per_byte:.0f} FLOPs per byte of HBM{price}."]
    return "\n".join(lines)
