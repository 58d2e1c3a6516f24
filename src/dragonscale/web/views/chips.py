"""The view `chips`: every chip in a table and in pictures, up to four side by side, one with its facts and sources, a
slice drawn, and what can be changed of a chip, for the page's "what if" sliders."""

from typing import Any

from dragonscale.blocks.amounts import Amount, amount, quantities
from dragonscale.commands.chips_charts import roofs_by_peak
from dragonscale.commands.chips_report import ChipFact, ChipReport, ChipsReport, SliceReport, chip_report
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import Chip, parse_target
from dragonscale.physics.hardware.changes import changed_chip, factor_of, knobs_of, read_change, with_changes
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, axis, fields, figure, figures_of
from dragonscale.web.words import looks_like_file, question_of

MOST = 4
"""Chips that stand side by side."""
HOUR, EXA = 3600.0, 1e18
_TABLE = TABLES["chips"]
COLUMNS: dict[str, tuple[str, str, str, str]] = _TABLE["columns"]
KNOBS: dict[str, str] = TABLES["knobs"]["titles"]
"""The knobs that have a slider, in their order."""
STOPS: list[str] = TABLES["knobs"]["sliders"]["stops"]


def chip_of(request: PageRequest, set_: str = "", name: str = "") -> Chip:
    """The chip that the fields name (the first of several), or another by its name, with the changes of `set`."""
    text = name or str(request.fields.get("name") or request.fields.get("on") or "").split(",")[0]
    question = question_of("chips", {"name": text})
    if looks_like_file(set_):
        raise InputError(f"set is {shorten(set_)}, which looks like a file; the page reads none.")
    chip, _ = parse_target(question.name)
    changes = [change for change in set_.split(",") if change.strip()]
    return changed_chip(chip, *changes) if changes else chip


# all of them


def table_panel(request: PageRequest) -> Card:
    """A row for each chip, numbers by column; `link` is one way: one of a TPU's ICI links, all of a GPU's NVLink."""
    report: ChipsReport = request.ask("chips", {})
    shown = "name title kind released network largest"
    return {
        "columns": [{"name": name, "title": title, "unit": unit} for name, (title, unit, *_) in COLUMNS.items()],
        "rows": [fields(chip, shown) | {"cells": cells(chip)} for chip in report.chips],
    }


def cells(chip: ChipReport) -> dict[str, Amount]:
    """The numbers of one row."""
    facts = {fact.path: fact.value for fact in chip.facts if isinstance(fact.value, int | float)}
    levels = [path for path in facts if path.startswith("levels.") and path.endswith("bandwidth")]
    link = "ici.link" if "ici.link" in facts else next(iter(levels), "")
    peak, price, power = chip.bf16_flops_per_s, chip.price_usd_per_h, facts.get("power")
    derived = {"per_exaflop": price and price / HOUR / peak * EXA, "per_flop_watt": power and peak / power}
    amounts: dict[str, Amount] = {}
    for name, (_, unit, path, field) in COLUMNS.items():
        value = getattr(chip, field) if field else facts.get(path or link)
        value = derived[name] or None if name in derived else value
        text = f"{value:,.0f}" if name == "intensity" and value is not None else ""
        amounts[name] = amount(value, unit, f"chip:{path or link}@{chip.name}", text)
    return amounts


def scatter_panel(request: PageRequest) -> Card:
    """HBM bandwidth and dollars for the FLOPs of an hour against the bf16 peak, and intensity over the years; each
    maker's chips in a colour of their own."""
    report: ChipsReport = request.ask("chips", {})
    rows = [(chip, {"year": {"value": year(chip)}, **cells(chip)}) for chip in report.chips]
    pictures = []
    for picture in _TABLE["pictures"]:
        (across, *x), (up, *y) = picture["x"], picture["y"]
        points = [
            {"x": amounts[across]["value"], "y": amounts[up]["value"], "name": chip.name} | _maker(chip)
            for chip, amounts in rows
            if amounts[across]["value"] and amounts[up]["value"]
        ]
        axes = {"x": axis(*x, log=across != "year"), "y": axis(*y, log=True)}
        pictures.append({"title": picture["title"], "about": picture["about"], **axes, "points": points})
    return {"pictures": pictures}


def _maker(chip: ChipReport) -> dict[str, str]:
    """Who makes a chip, and the colour of that maker's chips."""
    for beginning, (group, role) in _TABLE["makers"].items():
        if chip.title.startswith(beginning):
            return {"group": group, "role": role}
    return {"group": "others", "role": "overhead"}


def year(chip: ChipReport) -> float:
    """`2022-09` as a point in time."""
    began, _, month = chip.released.partition("-")
    month = month.partition("-")[0]
    return int(began) + (int(month) - 1) / 12 if began.isdecimal() and month.isdecimal() else 0.0


def beside_panel(request: PageRequest) -> Card:
    """Up to four chips (`beside` of the request, with commas), the first as the one to compare with."""
    names = [name.strip() for name in request.text("beside").split(",") if name.strip()]
    if len(names) > MOST:
        raise InputError(f"{len(names)} chips are to be compared; at most {MOST} stand side by side.")
    chips = [chip_report(chip_of(request, name=name)) for name in names]
    amounts = [cells(chip) for chip in chips]
    rows = []
    for name, (title, *_) in COLUMNS.items():
        alike = [name != "link" or chip.kind == chips[0].kind for chip in chips]  # a TPU has several links
        pairs = zip(amounts, alike, strict=True)
        rows.append({"title": title, "cells": [_compared(row[name], amounts[0][name], same) for row, same in pairs]})
    for name in ("network", "largest"):
        texts = [{"text": getattr(chip, name), "value": None, "why": ""} for chip in chips]
        rows.append({"title": name, "cells": [_compared(text, texts[0], False) for text in texts]})
    return {
        "chips": [fields(chip, "name title kind released") for chip in chips],
        "rows": rows,
        "roofs": [_roof(chip.name, chip) for chip in chips],
    }


def _compared(number: Amount, first: Amount, alike: bool) -> Card:
    """A cell, and how many times the first chip's number it is, where the two are `alike`."""
    ratio = number["value"] / first["value"] if alike and number["value"] is not None and first["value"] else 1.0
    return {
        "number": number,
        "ratio": "" if ratio == 1 else f"{ratio:.2f}x",
        "differs": number["text"] != first["text"],
    }


def _roof(name: str, chip: ChipReport) -> Card:
    return {"name": name, "peak": chip.bf16_flops_per_s, "bandwidth": chip.hbm_bytes_per_s}


# one of them


def chip_panel(request: PageRequest) -> Card:
    """One chip: its numbers that matter most, and every fact with its source and what other sources say."""
    report, amounts = chip_report(chip_of(request, request.text("set"))), cells(chip_report(chip_of(request)))
    now = cells(report)
    groups: dict[str, list[Card]] = {}
    for fact in report.facts:
        group = _TABLE["groups"].get(fact.path.split(".")[0], "Parts")  # by the first word of its path
        groups.setdefault(group, []).append(_fact(fact, report.sources))
    changed = {name: f"{amounts[name]['text']} as it is" for name in now if now[name]["text"] != amounts[name]["text"]}
    labels = [(name, label) for name, label in _TABLE["labels"].items() if now[name]["value"] is not None]
    parts = {"count": "count", "rate": "flops_per_s"}
    return {
        **fields(report, "name title kind released network largest price"),
        "sentence": f"{report.headline()}.",
        "figures": [figure(label, now[name], changed.get(name, "")) for name, label in labels],
        "parts": [{"part": row.part, **quantities(row, parts, f"chip:part:{row.part}")} for row in report.parts],
        "groups": [{"title": title, "facts": facts} for title, facts in groups.items()],
        "sources": [{"name": name, "text": text} for name, text in report.sources.items()],
    }


def _fact(fact: ChipFact, sources: dict[str, str]) -> Card:
    per = f"per {fact.per}" if fact.per not in ("", "chip") else ""
    also = [
        {**fields(other, "source note"), "number": _value(other.value, fact.unit, "")}
        | {"source_text": sources.get(other.source, "")}
        for other in fact.also
    ]
    return {
        **fields(fact, "path source"),
        "number": _value(fact.value, fact.unit, f"chip:{fact.path}"),
        "about": ", ".join(part for part in (per, fact.direction, fact.note) if part),
        "source_text": sources.get(fact.source, ""),
        "also": also,
    }


def _value(value: float | list[float], unit: str, why: str) -> Amount:
    if isinstance(value, list):
        return amount(None, unit, text="x".join(f"{size:g}" for size in value))
    return amount(value, unit, why)


def roof_panel(request: PageRequest) -> Card:
    """The chip's roofs by format over HBM, with the changes of `set`; beside them its bf16 roof as it is."""
    changes = request.text("set")
    report = chip_report(chip_of(request, changes))
    peaks = [(fact.path, fact.value) for fact in report.facts if fact.path.startswith("matrix.")]
    formats = [(path.removeprefix("matrix."), peak) for path, peak in peaks if isinstance(peak, float)]
    roofs = [fields(roof, "name peak bandwidth") for roof in roofs_by_peak(formats, report.hbm_bytes_per_s)]
    if changes:
        roofs.append(_roof("bf16 as it is", chip_report(chip_of(request))) | {"dashed": True})
    return {"roofs": roofs, "points": [], "ridge": cells(report)["intensity"]}


def slice_panel(request: PageRequest) -> Card:
    """A slice (`slice` of the request, such as v5e:8x16): its torus or its tiers, and what it adds up to."""
    name, changes = request.text("slice"), request.text("set")
    report: Any = request.ask("chips", {"name": with_changes(name, changes) if changes else name})
    if not isinstance(report, SliceReport):
        return {"slice": "", "axes": [], "tiers": []}

    def parts(rows: list[Any], kind: str, names: str) -> list[Card]:
        amounts = [quantities(row, _TABLE[kind], f"slice:{kind}:{getattr(row, kind)}") for row in rows]
        return [fields(row, names) | amount for row, amount in zip(rows, amounts, strict=True)]

    figures = figures_of(report, _TABLE["slice"]["figures"], "slice")
    return {
        **fields(report, "slice chip chips pods host_chips host_shape"),
        "sentence": f"{report.headline()}.",
        "figures": [figure for figure in figures if figure["number"]["value"]],
        "axes": parts(report.axes, "axis", "axis size wraps"),
        "tiers": parts(report.tiers, "tier", "tier groups children"),
        "notes": list(report.notes_beside),
    }


# what can be changed


def knobs_panel(request: PageRequest) -> Card:
    """A slider for each number of the chip that `--set` can change; `set` of the request says what is
    changed already."""
    changes_text = request.text("set")
    chip = chip_of(request)
    chip_of(request, changes_text)  # refuses what cannot be changed
    changes = dict(read_change(change) for change in changes_text.split(",") if change.strip())
    paths = knobs_of(chip)
    if paths.get("network") == paths.get("dcn"):  # of a torus both names mean the same wires
        paths.pop("network", None)
    return {
        "chip": chip.name,
        "title": chip.title,
        "knobs": [_knob(chip, name, paths[name], changes.get(name, "")) for name in KNOBS if name in paths],
        "kept": [f"{name}={value}" for name, value in changes.items() if name not in KNOBS],
    }


def _knob(chip: Chip, name: str, path: str, value: str) -> Card:
    """A slider: its own value, and what each stop makes of it."""
    fact = chip.facts[path]
    unit, why, datasheet = fact.dimension, f"chip:{path}", float(fact.value)
    factor = factor_of(chip, name, value) if value else 1.0
    stops = []
    for stop in STOPS:
        # the stop in the middle changes nothing, so it is no change
        change = "" if stop == "1" else f"{stop}x"
        stops.append({"value": change, "factor": float(stop), "text": render(datasheet * float(stop), unit)})
    amounts = {"own": amount(datasheet, unit, why), "now": amount(datasheet * factor, unit, why)}
    return {"name": name, "title": KNOBS[name], "value": value, "factor": factor, **amounts, "stops": stops}


PANELS = {
    "table": table_panel,
    "scatter": scatter_panel,
    "chip": chip_panel,
    "roof": roof_panel,
    "slice": slice_panel,
    "beside": beside_panel,
    "knobs": knobs_panel,
}
