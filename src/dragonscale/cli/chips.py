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


def _value(value: float | list[float], unit: str) -> str:
    return "x".join(f"{item:g}" for item in value) if isinstance(value, list) else amount(value, unit)


def _details(report) -> str:
    rows = [
        [
            fact.path,
            _value(fact.value, fact.unit),
            ", ".join(part for part in (f"per {fact.per}", fact.direction) if part),
            fact.source,
        ]
        for fact in report.facts
    ]
    header, *body = table(["what", "value", "", "source"], rows).splitlines()
    lines = [f"{report.title} ({report.name}), {report.released}: {report.network}; {report.largest}", "", header]
    for fact, line in zip(report.facts, body, strict=True):
        lines.append(line)
        if fact.also:
            others = ", ".join(f"{_value(other.value, fact.unit)} ({other.source})" for other in fact.also)
            lines.append(f"    also {others}")
    lines += ["", "Sources", *(f"  {key}: {text}" for key, text in report.sources.items())]
    price = f" at {amount(report.price_usd_per_h, 'USD/h')}" if report.price_usd_per_h else ""
    lines += ["", f"Compute binds above {report.critical_intensity_flops_per_byte:.0f} FLOPs per byte of HBM{price}."]
    return "\n".join(lines)
