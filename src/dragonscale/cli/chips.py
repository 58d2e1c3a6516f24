"""`dscale chips [NAME]`: what is known of each chip, and from where."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.show import amount, emit_json, record_table, say, table


def run(
    name: Annotated[
        str | None, Parameter(help="A chip's name, alias or TOML file; or a slice, such as v5e:8x16.")
    ] = None,
    /,
    *,
    source: Annotated[str | None, Parameter(help="Use one source's numbers throughout, such as 'book'.")] = None,
    layout: Annotated[str, Parameter(help="Where a tiled array's elements lie: 'f32[3,5]{1,0:T(2,2)}'.")] = "",
    json: Json = False,
) -> int:
    """What do we know about chips, and from where? What is a slice of them?"""
    from dragonscale.errors import InputError
    from dragonscale.hardware import parse_target
    from dragonscale.reports.chips import chip_report, chips_report
    from dragonscale.reports.layout import layout_report
    from dragonscale.reports.slices import slice_report

    chip, piece = parse_target(name) if name and not layout else (None, None)
    if source and chip is None:
        raise InputError("--source takes the numbers of one chip from one source; name the chip, such as h100.")
    if chip and source:
        chip = chip.reading(source)
    if layout:
        report, text = layout_report(layout), _places
    elif chip is None:
        report, text = chips_report(), _listing
    elif piece is not None:
        report, text = slice_report(replace(piece, chip=chip)), _slice
    else:
        report, text = chip_report(chip), _details
    emit_json(report) if json else say(text(report))
    return 0


def _places(report) -> str:
    rows = [[str(place) for place in row] for row in report.places]
    grid = table([""] * len(rows[0]), rows, right=range(len(rows[0]))).split("\n", 1)[1] if rows else ""
    sizes = f"{report.elements} elements in {report.padded_elements} places"
    padding = f"{amount(report.bytes, 'bytes')} take {amount(report.padded_bytes, 'bytes')} with padding"
    return f"{report.layout}: position of each element in memory\n\n{grid}\n\n{sizes}; {padding}."


def _slice(report) -> str:
    host = "x".join(map(str, report.host_shape)) or str(report.host_chips)
    cores = f", {report.cores:,} cores" if report.cores else ""
    pods = f" in {report.pods} pods" if report.pods > 1 else ""
    hosts = f"{report.hosts:,} host{'s' * (report.hosts > 1)} of {host}"
    hosts += f", as {report.vms:,} VMs" if report.vms > report.hosts else ""
    lines = [f"{report.slice}: {report.chips:,} chips of {report.chip}{pods}{cores}; {hosts}", ""]
    if report.axes:
        columns = {
            "axis": "axis",
            "chips": "size",
            "": lambda row: "ring" if row.wraps else "line",
            "out of a chip": ("chip_bytes_per_s", "bytes/s"),
            "farthest hops": "farthest_hops",
            "bisection, one way": ("bisection_bytes_per_s", "bytes/s"),
        }
        lines += [record_table(report.axes, columns), ""]
    if report.tiers:
        columns = {
            "tier": "tier",
            "groups": "groups",
            "children": "children",
            "out of a child": ("child_bytes_per_s", "bytes/s"),
            "of a chip": ("chip_bytes_per_s", "bytes/s"),
            "bisection, one way": ("bisection_bytes_per_s", "bytes/s"),
            "switches": "switches",
        }
        lines += [record_table(report.tiers, columns), ""]
    totals = {
        "bf16": amount(report.bf16_flops_per_s, "FLOP/s"),
        "HBM": f"{amount(report.hbm_bytes, 'bytes')} at {amount(report.hbm_bytes_per_s, 'bytes/s')}",
        "bisection, one way": amount(report.bisection_bytes_per_s, "bytes/s"),
        "PCIe": amount(report.pcie_bytes_per_s, "bytes/s"),
        "DCN": amount(report.dcn_bytes_per_s, "bytes/s"),
        "price": amount(report.price_usd_per_h, "USD/h"),
        "power": amount(report.power_w, "W"),
    }
    lines.append("in all: " + ", ".join(f"{name} {value}" for name, value in totals.items() if value != "–"))
    return "\n".join([*lines, "", _weakest(report)])


def _weakest(report) -> str:
    if report.pods > 1:
        width = amount(report.dcn_bytes_per_s / report.chips, "bytes/s")
        return f"Between pods a chip has {width}: keep there what moves least."
    if report.tiers:
        row = min(report.tiers, key=lambda row: row.chip_bytes_per_s)
        width = amount(row.chip_bytes_per_s, "bytes/s")
        full = "" if report.full_bisection is None else ", with full bisection above the nodes" * report.full_bisection
        return f"The {row.tier} tier is the narrowest, {width} a chip{full}."
    lines = [row.axis for row in report.axes if not row.wraps]
    if not lines:
        return "Every axis closes into a ring."
    return f"Without wraparound, {', '.join(lines)} gives collectives half the bandwidth of a ring."


def _listing(reports) -> str:
    columns = {
        "chip": "name",
        "bf16": ("bf16_flops_per_s", "FLOP/s"),
        "HBM": ("hbm_bytes", "bytes"),
        "HBM rate": ("hbm_bytes_per_s", "bytes/s"),
        "FLOP/B": lambda report: round(report.critical_intensity_flops_per_byte),
        "network": lambda report: report.network.split(",")[0],
        "price": ("price_usd_per_h", "USD/h"),
        "list": ("list_price_usd_per_h", "USD/h"),
    }
    text = record_table(reports, columns)
    told = (
        "FLOP/B: the intensity below which HBM binds. Prices are what people pay, beside the large clouds' list price."
    )
    return f"{text}\n\n{told} `dscale chips NAME` shows every number's source."


def _value(value: float | list[float], unit: str) -> str:
    return "x".join(f"{item:g}" for item in value) if isinstance(value, list) else amount(value, unit)


def _details(report) -> str:
    rows = []
    for fact in report.facts:
        about = ", ".join(part for part in (f"per {fact.per}", fact.direction) if part)
        rows.append([fact.path, _value(fact.value, fact.unit), about, fact.source])
    header, *body = table(["what", "value", "", "source"], rows).splitlines()
    lines = [f"{report.title} ({report.name}), {report.released}: {report.network}; {report.largest}", "", header]
    for fact, line in zip(report.facts, body, strict=True):
        lines.append(line)
        if fact.also:
            others = ", ".join(f"{_value(other.value, fact.unit)} ({other.source})" for other in fact.also)
            lines.append(f"    also {others}")
    counts = []
    for row in report.parts:
        rate = "" if row.flops_per_s is None else f" ({amount(row.flops_per_s, 'FLOP/s')} at their clock)"
        counts.append(f"{row.count:,} {row.part}s{rate}")
    lines += ["", "Parts: " + ", ".join(counts)] if counts else []
    lines += ["", "Sources", *(f"  {key}: {text}" for key, text in report.sources.items())]
    lines += ["", f"An hour: {report.price}; --price {report.name}=2/h takes yours."]
    lines.append(f"Compute binds above {report.critical_intensity_flops_per_byte:.0f} FLOPs per byte of HBM.")
    return "\n".join(lines)
