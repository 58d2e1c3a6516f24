"""The view `chips`: every chip in a table, one with its facts and sources, a slice drawn, and what can be changed of a
chip."""

from collections.abc import Callable
from typing import Any

from dragonscale.app.charts.chips import MOST
from dragonscale.app.chips_report import ChipFact, ChipReport, OtherReading, SliceReport, chip_report
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.chip_table import beside_panel, cells, scatter_panel, table_panel
from dragonscale.web.views.knobs import chip_of, knobs_panel

GROUPS = {
    "matrix": "Matrix units",
    "vector": "Vector units",
    "memory": "Memory",
    "levels": "Network",
    "ici": "Network",
    "dcn": "Network",
    "pcie": "Network",
    "structure": "Parts",
    "host": "Host",
    "price": "Price and power",
    "list_price": "Price and power",
    "power": "Price and power",
}
"""Under which heading a fact stands, by the first word of its path."""


def chip_panel(asked: PageRequest) -> dict[str, Any]:
    """One chip: its numbers that matter most, and every fact with its source and what other sources say."""
    chip = chip_of(asked, asked.text("set"))
    report, own = chip_report(chip), cells(chip_report(chip_of(asked)))
    now = cells(report)
    labels = {
        "bf16": "bf16 peak",
        "fp8": "fp8 peak",
        "hbm": "HBM",
        "bandwidth": "HBM bandwidth",
        "intensity": "compute binds above",
        "link": "one ICI link, or all NVLink, one way",
        "price": "an hour",
        "list": "list price",
        "power": "power",
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for fact in report.facts:
        groups.setdefault(_group(fact), []).append(_fact(fact, report.sources))
    return {
        "name": report.name,
        "title": report.title,
        "kind": report.kind,
        "released": report.released,
        "network": report.network,
        "largest": report.largest,
        "price": report.price,
        "sentence": f"{report.headline()}.",
        "figures": [
            {
                "label": label,
                "number": now[name],
                "about": "" if now[name]["text"] == own[name]["text"] else f"{own[name]['text']} as it is",
            }
            for name, label in labels.items()
            if now[name]["value"] is not None
        ],
        "parts": [
            {
                "part": row.part,
                "count": count(row.count, f"chip:part:{row.part}"),
                "rate": amount(row.flops_per_s, "FLOP/s", f"chip:part:{row.part}"),
            }
            for row in report.parts
        ],
        "groups": [{"title": title, "facts": facts} for title, facts in groups.items()],
        "sources": [{"name": name, "text": text} for name, text in report.sources.items()],
    }


def _group(fact: ChipFact) -> str:
    return GROUPS.get(fact.path.split(".")[0], "Parts")


def _fact(fact: ChipFact, sources: dict[str, str]) -> dict[str, Any]:
    per = f"per {fact.per}" if fact.per not in ("", "chip") else ""
    return {
        "path": fact.path,
        "number": _value(fact.value, fact.unit, f"chip:{fact.path}"),
        "about": ", ".join(part for part in (per, fact.direction, fact.note) if part),
        "source": fact.source,
        "source_text": sources.get(fact.source, ""),
        "also": [_other(other, fact.unit, sources) for other in fact.also],
    }


def _other(other: OtherReading, unit: str, sources: dict[str, str]) -> dict[str, Any]:
    return {
        "number": _value(other.value, unit, ""),
        "source": other.source,
        "source_text": sources.get(other.source, ""),
        "note": other.note,
    }


def _value(value: float | list[float], unit: str, why: str) -> Amount:
    if isinstance(value, list):
        return amount(None, unit, text="x".join(f"{one:g}" for one in value))
    return amount(value, unit, why)


def roof_panel(asked: PageRequest) -> dict[str, Any]:
    """The chip's roofs by format over HBM, with the changes of `set`; beside them its bf16 roof as it is."""
    changes = asked.text("set")
    report, own = chip_report(chip_of(asked, changes)), chip_report(chip_of(asked))
    roofs = _roofs(report)
    if changes:
        roofs.append(
            {"name": "bf16 as it is", "peak": own.bf16_flops_per_s, "bandwidth": own.hbm_bytes_per_s, "dashed": True}
        )
    return {"roofs": roofs, "points": [], "ridge": cells(report)["intensity"]}


def _roofs(report: ChipReport) -> list[dict[str, Any]]:
    """One roof for each rate of the matrix units, formats of the same rate together."""
    found: dict[float, list[str]] = {}
    for fact in report.facts:
        if fact.path.startswith("matrix.") and isinstance(fact.value, float):
            found.setdefault(fact.value, []).append(fact.path.removeprefix("matrix."))
    rows = sorted(found.items(), reverse=True)[:MOST]
    return [{"name": ", ".join(names), "peak": peak, "bandwidth": report.hbm_bytes_per_s} for peak, names in rows]


def slice_panel(asked: PageRequest) -> dict[str, Any]:
    """A slice (`slice` of the request, such as v5e:8x16): its torus or its tiers, and what it adds up to."""
    name = asked.text("slice")
    changes = asked.text("set")
    report: Any = asked.ask("chips", {"name": with_changes(name, changes) if changes else name})
    if not isinstance(report, SliceReport):
        return {"slice": "", "axes": [], "tiers": []}
    totals = [
        ("chips", count(report.chips, "slice:chips")),
        ("hosts", count(report.hosts, "slice:hosts")),
        ("bf16 in all", amount(report.bf16_flops_per_s, "FLOP/s", "slice:bf16_flops_per_s")),
        ("HBM in all", amount(report.hbm_bytes, "bytes", "slice:hbm_bytes")),
        ("HBM rate in all", amount(report.hbm_bytes_per_s, "bytes/s", "slice:hbm_bytes_per_s")),
        ("bisection, one way", amount(report.bisection_bytes_per_s, "bytes/s", "slice:bisection_bytes_per_s")),
        ("price", amount(report.price_usd_per_h, "USD/h", "slice:price_usd_per_h")),
        ("power", amount(report.power_w, "W", "slice:power_w")),
    ]
    return {
        "slice": report.slice,
        "chip": report.chip,
        "chips": report.chips,
        "pods": report.pods,
        "host_chips": report.host_chips,
        "host_shape": report.host_shape,
        "sentence": f"{report.headline()}.",
        "figures": [{"label": label, "number": number, "about": ""} for label, number in totals if number["value"]],
        "axes": [
            {
                "axis": row.axis,
                "size": row.size,
                "wraps": row.wraps,
                "out": amount(row.chip_bytes_per_s, "bytes/s", f"slice:axis:{row.axis}"),
                "hops": count(row.farthest_hops, f"slice:axis:{row.axis}"),
                "bisection": amount(row.bisection_bytes_per_s, "bytes/s", f"slice:axis:{row.axis}"),
            }
            for row in report.axes
        ],
        "tiers": [
            {
                "tier": row.tier,
                "groups": row.groups,
                "children": row.children,
                "child": amount(row.child_bytes_per_s, "bytes/s", f"slice:tier:{row.tier}"),
                "chip": amount(row.chip_bytes_per_s, "bytes/s", f"slice:tier:{row.tier}"),
                "bisection": amount(row.bisection_bytes_per_s, "bytes/s", f"slice:tier:{row.tier}"),
                "switches": amount(
                    row.switches, "count", f"slice:tier:{row.tier}", "" if row.switches is None else f"{row.switches:,}"
                ),
            }
            for row in report.tiers
        ],
        "notes": list(report.notes_beside),
    }


PANELS: dict[str, Callable[[Any], Any]] = {
    "table": table_panel,
    "scatter": scatter_panel,
    "chip": chip_panel,
    "roof": roof_panel,
    "slice": slice_panel,
    "beside": beside_panel,
    "knobs": knobs_panel,
}
