"""`dscale chips`: all chips, one with its sources, a slice, or the places of a tiled array's elements."""

import shlex
from dataclasses import replace
from typing import Any

from dragonscale.blocks.sheet import Column, NextStep, Prose, Sheet, Title, Verbatim, amount, facts, sheet, table
from dragonscale.commands import chips_report as reports
from dragonscale.commands.chips_charts import draw_chips
from dragonscale.commands.chips_layout import LayoutReport, layout_report
from dragonscale.commands.given import maybe_target
from dragonscale.commands.grids import grid, summary
from dragonscale.commands.questions.facts import ChipsQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware.chip_file import TEMPLATE
from dragonscale.physics.hardware.price_book import Offer
from dragonscale.physics.units import render

ChipsAnswer = reports.ChipsReport | reports.ChipReport | reports.SliceReport | LayoutReport | reports.TemplateReport


def ask(question: ChipsQuestion, listener: Listener) -> ChipsAnswer:
    """All chips, one, a slice, or a layout."""
    return _answer(question, listener).came_from(question, listener.notes)


def _answer(question: ChipsQuestion, listener: Listener) -> ChipsAnswer:
    if question.template:
        return reports.TemplateReport(TEMPLATE.read_text(encoding="utf-8"))
    if question.source and question.layout:
        raise InputError("--source takes the numbers of chips from one source; a layout has none.")
    if question.layout:
        return layout_report(question.layout)
    chip, slice_ = maybe_target(question.name, listener)
    if chip is None:
        return reports.chips_report(question.source)
    if question.source:
        chip = chip.reading(question.source)
    if slice_ is None:
        return reports.chip_report(chip)
    return reports.slice_report(replace(slice_, chip=chip))


# A matmul of a large model's MLP, for any batch.
MATMUL = "bf16[B,8192] @ bf16[8192,28672]"


def chips_blocks(report: reports.ChipsReport, _detail: bool) -> Sheet:
    """A line for each chip."""
    columns = {
        "FLOP/B": lambda chip: round(chip.critical_intensity_flops_per_byte),
        "network": lambda chip: chip.network.split(",")[0],
    }
    legend = (
        "FLOP/B: the intensity below which HBM binds. Prices are what people pay, beside the large clouds' list "
        "price. `dscale chips NAME` shows every number's source, `dscale chips v5e:8x16` a slice."
    )
    if promised := [chip.name for chip in report.chips if chip.announced]:
        legend += f" Announced, not to be had yet: {', '.join(promised)}."
    return Sheet((grid("chips", report.chips, own=columns), Prose(legend)))


def _value(value: float | list[float], unit: str) -> str:
    if isinstance(value, list):
        return "x".join(f"{item:g}" for item in value)
    return render(value, unit, 4)


def _dollars(offer: Offer) -> str:
    high = ""
    if offer.high_usd_per_h is not None:
        high = f" to {offer.high_usd_per_h:,.6g}"
    return f"{offer.usd_per_h:,.6g}{high}"


def chip_blocks(report: reports.ChipReport, _detail: bool) -> Sheet:
    """Every number of one chip with its source, and other sources' readings of it."""
    rows: list[list[Any]] = []
    others: list[list[Any]] = []
    for fact in report.facts:
        what = fact.path.removeprefix("structure.")
        per = f"per {fact.per}" if fact.per not in ("", "chip") else ""
        what_per = ", ".join(part for part in (per, fact.direction) if part)
        rows.append([what, _value(fact.value, fact.unit), what_per, fact.source])
        # prices stand in the book
        readings = ()
        if "price" not in fact.path:
            readings = fact.also
        others += [[what, _value(other.value, fact.unit), other.source, other.note] for other in readings]
    columns = [Column("what"), Column("value", right=True), Column("", keep=4, wrap=True), Column("source")]
    sources = [Column("what"), Column("value", right=True), Column("source"), Column("", wrap=True)]
    counts: list[str] = []
    for row in report.parts:
        rate = ""
        if row.flops_per_s is not None:
            rate = f" ({amount(row.flops_per_s, 'FLOP/s')} at their clock)"
        counts.append(f"{row.count:,} {row.part}s{rate}")
    since = ""
    if report.released:
        since = f", {report.released}"
    title = Title(f"{report.title} ({report.name}){since}", f"{report.network}; {report.largest}")
    pod, whole = report.pod, None
    if pod is not None:
        size = f"{pod.chips:,} chips, {pod.hosts:,} hosts"
        rates = f"{amount(pod.bf16_flops_per_s, 'FLOP/s')} in bf16, {amount(pod.hbm_bytes, 'bytes')} of HBM"
        whole = ("a pod", f"{size}, {rates} (`dscale chips {pod.slice}`)")
    hour = f"{report.price}; --pricing takes another, --price {report.name}=2/h yours"
    promised = ""
    if report.announced:
        promised = "Announced and not to be had yet: the numbers are its maker's promises."
    critical = f"{report.critical_intensity_flops_per_byte:.0f}"
    named_chip = getattr(report.asked, "name", None)
    if isinstance(named_chip, str) and named_chip:
        named = shlex.quote(named_chip)
    else:
        named = report.name
    return sheet(
        title,
        table(columns, rows, foot="Of one chip where nothing else is said."),
        table(sources, others, "As other sources give it"),
        grid("price-book", report.book, own={"$": _dollars}),
        facts(
            ("sold with", ", ".join(report.capacities) if len(report.capacities) > 1 else ""),
            ("parts", ", ".join(counts)),
            ("ICI", report.wires),
            *(("switches", line) for line in report.wiring),
            ("a host", report.host),
            whole,
            ("achievable", report.achievable),
            ("an hour", hour),
        ),
        facts(*report.sources.items()),
        Prose(report.assumed or promised),
        Prose(f"Compute binds above {critical} FLOPs per byte of HBM.", "key"),
        NextStep(f'dscale roofline "{MATMUL}" --on {named}', "Next, what that means for a matmul:"),
    )


def slice_blocks(report: reports.SliceReport, _detail: bool) -> Sheet:
    """Hosts, rings or tiers, and totals."""
    host = "x".join(map(str, report.host_shape)) or str(report.host_chips)
    cores = f", {report.cores:,} cores" if report.cores else ""
    pods = f" in {report.pods} pods" if report.pods > 1 else ""
    hosts = f"{report.hosts:,} host{'s' * (report.hosts > 1)} of {host}"
    if report.vms > report.hosts:
        hosts += f", as {report.vms:,} VMs"
    title = Title(f"{report.slice}: {report.chips:,} chips of {report.chip}{pods}{cores}", hosts)
    closed = {"": lambda row: "ring" if row.wraps else "line"}
    if report.axes:
        axes = grid("slice-axes", report.axes, own=closed)
    else:
        axes = None
    tiers = grid("slice-tiers", report.tiers) if report.tiers else None
    # cables of a tier join it to the tier below
    below = ["", *(f"{row.tier} to " for row in report.tiers)]
    cables = [f"{row.cables:,} {ends}{row.tier}" for ends, row in zip(below, report.tiers, strict=False) if row.cables]
    joined = None
    if cables[1:]:
        joined = ", ".join(cables).replace(" node,", " in nodes,", 1)
    shown = summary(
        "slice-facts",
        report,
        far=report.farthest_hops or None,
        cables=joined,
        wiring="; ".join(report.wiring) or None,
        pcie_each=report.pcie_bytes_per_s and report.pcie_bytes_per_s / report.chips,
        dcn_each=report.dcn_bytes_per_s and report.dcn_bytes_per_s / report.chips,
    )
    return sheet(title, axes, tiers, shown, Prose(_weakest(report), "key"))


def _weakest(report: reports.SliceReport) -> str:
    # pods are joined by the data-centre network, which is narrower than what is inside them
    if report.pods > 1 and report.dcn_bytes_per_s:
        width = amount(report.dcn_bytes_per_s / report.chips, "bytes/s")
        return f"Between pods a chip has {width}: keep there what moves least."
    if report.tiers:
        row = min(report.tiers, key=lambda row: row.chip_bytes_per_s)
        full = ""
        if report.full_bisection:
            full = ", with full bisection above the nodes"
        return f"The {row.tier} tier is the narrowest, {amount(row.chip_bytes_per_s, 'bytes/s')} a chip{full}."
    lines = [row.axis for row in report.axes if not row.wraps]
    if not lines:
        if report.axes:
            return "Every axis closes into a ring."
        return "One chip: there is no network."
    give = "gives" if len(lines) == 1 else "give"
    named = " and ".join(filter(None, (", ".join(lines[:-1]), lines[-1])))
    return f"Without wraparound, {named} {give} collectives half the bandwidth of a ring."


def layout_blocks(report: LayoutReport, _detail: bool) -> Sheet:
    """The position of each element in memory, as the array is written."""
    width = 0
    if report.places:
        # elements of the last dim
        width = len(report.places[0])
    if width:
        places = table([Column(f"[{column}]", right=True) for column in range(width)], report.places)
    else:
        places = None
    sizes = f"{report.elements} elements in {report.padded_elements} places"
    padding = f"{amount(report.bytes, 'bytes')} take {amount(report.padded_bytes, 'bytes')} with padding"
    grid = ()
    if places is not None:
        grid = (places,)
    return Sheet(
        (Title(report.layout, "position of each element in memory"), *grid, Prose(f"{sizes}; {padding}.", "key"))
    )


bind(reports.ChipsReport, Face(chips_blocks, draw_chips))
bind(reports.ChipReport, Face(chip_blocks, draw_chips))
bind(reports.SliceReport, Face(slice_blocks))
bind(LayoutReport, Face(layout_blocks))
bind(reports.TemplateReport, Face(lambda report, _detail: Sheet((Verbatim(report.text.rstrip()),))))
