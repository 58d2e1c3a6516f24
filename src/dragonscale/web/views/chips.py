"""The view `chips`: every chip in a table, one with its facts and sources, a slice drawn, and what can be changed of a
chip."""

from typing import Any

from dragonscale.app.chips import MOST_ROOFS
from dragonscale.app.chips_report import ChipFact, ChipReport, SliceReport, chip_report
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.web.amounts import Amount, amount, quantities
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, fields, figure, figures_of
from dragonscale.web.views.chip_table import beside_panel, cells, scatter_panel, table_panel
from dragonscale.web.views.knobs import chip_of, knobs_panel

_TABLE = TABLES["chips"]


def chip_panel(asked: PageRequest) -> Card:
    """One chip: its numbers that matter most, and every fact with its source and what other sources say."""
    chip = chip_of(asked, asked.text("set"))
    report, own = chip_report(chip), cells(chip_report(chip_of(asked)))
    now = cells(report)
    groups: dict[str, list[Card]] = {}
    for fact in report.facts:
        group = _TABLE["groups"].get(fact.path.split(".")[0], "Parts")  # by the first word of its path
        groups.setdefault(group, []).append(_fact(fact, report.sources))
    changed = {name: f"{own[name]['text']} as it is" for name in now if now[name]["text"] != own[name]["text"]}
    return {
        **fields(report, "name title kind released network largest price"),
        "sentence": f"{report.headline()}.",
        "figures": [
            figure(label, now[name], changed.get(name, ""))
            for name, label in _TABLE["labels"].items()
            if now[name]["value"] is not None
        ],
        "parts": [
            {"part": row.part, **quantities(row, {"count": "count", "rate": "flops_per_s"}, f"chip:part:{row.part}")}
            for row in report.parts
        ],
        "groups": [{"title": title, "facts": facts} for title, facts in groups.items()],
        "sources": [{"name": name, "text": text} for name, text in report.sources.items()],
    }


def _fact(fact: ChipFact, sources: dict[str, str]) -> dict[str, Any]:
    per = f"per {fact.per}" if fact.per not in ("", "chip") else ""
    return {
        **fields(fact, "path source"),
        "number": _value(fact.value, fact.unit, f"chip:{fact.path}"),
        "about": ", ".join(part for part in (per, fact.direction, fact.note) if part),
        "source_text": sources.get(fact.source, ""),
        "also": [
            {**fields(other, "source note"), "number": _value(other.value, fact.unit, "")}
            | {"source_text": sources.get(other.source, "")}
            for other in fact.also
        ],
    }


def _value(value: float | list[float], unit: str, why: str) -> Amount:
    if isinstance(value, list):
        return amount(None, unit, text="x".join(f"{one:g}" for one in value))
    return amount(value, unit, why)


def roof_panel(asked: PageRequest) -> Card:
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
    rows = sorted(found.items(), reverse=True)[:MOST_ROOFS]
    return [{"name": ", ".join(names), "peak": peak, "bandwidth": report.hbm_bytes_per_s} for peak, names in rows]


def slice_panel(asked: PageRequest) -> Card:
    """A slice (`slice` of the request, such as v5e:8x16): its torus or its tiers, and what it adds up to."""
    name = asked.text("slice")
    changes = asked.text("set")
    report: Any = asked.ask("chips", {"name": with_changes(name, changes) if changes else name})
    if not isinstance(report, SliceReport):
        return {"slice": "", "axes": [], "tiers": []}
    figures = figures_of(report, _TABLE["slice"]["figures"], "slice")
    return {
        **fields(report, "slice chip chips pods host_chips host_shape"),
        "sentence": f"{report.headline()}.",
        "figures": [one for one in figures if one["number"]["value"]],
        "axes": [
            fields(row, "axis size wraps") | quantities(row, _TABLE["axis"], f"slice:axis:{row.axis}")
            for row in report.axes
        ],
        "tiers": [
            fields(row, "tier groups children") | quantities(row, _TABLE["tier"], f"slice:tier:{row.tier}")
            for row in report.tiers
        ],
        "notes": list(report.notes_beside),
    }


PANELS = {
    "table": table_panel,
    "scatter": scatter_panel,
    "chip": chip_panel,
    "roof": roof_panel,
    "slice": slice_panel,
    "beside": beside_panel,
    "knobs": knobs_panel,
}
