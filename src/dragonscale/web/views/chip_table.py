"""Every chip in a table and in a picture; up to four side by side, with what differs marked."""

from typing import Any

from dragonscale.app.chips_report import ChipReport, ChipsReport, chip_report
from dragonscale.errors import InputError
from dragonscale.web.amounts import Amount, amount
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, axis, fields, log_axis
from dragonscale.web.views.knobs import chip_of

MOST = 4
HOUR = 3600.0
EXA = 1e18
COLUMNS: dict[str, tuple[str, str, str]] = TABLES["chips"]["columns"]
"""Title, unit and the chip's fact."""
TEXTS = ("network", "largest")


def table_panel(asked: PageRequest) -> Card:
    """A row for each chip, numbers by column; `link` is one way: one of a TPU's ICI links, all of a GPU's NVLink."""
    report: ChipsReport = asked.ask("chips", {})
    return {
        "columns": [{"name": name, "title": title, "unit": unit} for name, (title, unit, _) in COLUMNS.items()],
        "rows": [
            fields(one, "name title kind released network largest") | {"cells": cells(one)} for one in report.chips
        ],
    }


def cells(one: ChipReport) -> dict[str, Amount]:
    """The numbers of one row."""
    facts = {fact.path: fact.value for fact in one.facts}
    link = (
        "ici.link"
        if "ici.link" in facts
        else next((path for path in facts if path.startswith("levels.") and path.endswith("bandwidth")), "")
    )
    price = one.price_usd_per_h
    power = facts.get("power")
    found = {
        "bf16": one.bf16_flops_per_s,
        "fp8": facts.get("matrix.fp8"),
        "hbm": one.hbm_bytes,
        "bandwidth": one.hbm_bytes_per_s,
        "intensity": one.critical_intensity_flops_per_byte,
        "link": facts.get(link),
        "power": power,
        "price": price,
        "list": one.list_price_usd_per_h,
        "per_exaflop": price / HOUR / one.bf16_flops_per_s * EXA if price else None,
        "per_flop_watt": one.bf16_flops_per_s / power if isinstance(power, float) and power else None,
    }
    made: dict[str, Amount] = {}
    for name, value in found.items():
        _, unit, path = COLUMNS[name]
        number = value if isinstance(value, int | float) else None
        text = f"{number:,.0f}" if name == "intensity" and number is not None else ""
        made[name] = amount(number, unit, f"chip:{path or link}@{one.name}", text)
    return made


def scatter_panel(asked: PageRequest) -> Card:
    """HBM bandwidth against the bf16 peak, and dollars for the FLOPs of an hour against the peak."""
    report: ChipsReport = asked.ask("chips", {})

    rows = [(one, cells(one)) for one in report.chips]
    prices = [(one, row["bf16"]["value"], row["per_exaflop"]["value"]) for one, row in rows]
    rates = [(one, row["bf16"]["value"], row["bandwidth"]["value"]) for one, row in rows]
    years = [(one, year(one), one.critical_intensity_flops_per_byte) for one in report.chips]
    peak = log_axis("bf16 peak", "FLOP/s")
    return {
        "pictures": [
            _picture(
                "Peak against HBM bandwidth",
                "A chip to the lower right needs more FLOPs per byte before compute binds.",
                (peak, log_axis("HBM bandwidth", "bytes/s")),
                rates,
            ),
            _picture(
                "What a peak costs",
                "Dollars for 10^18 FLOPs in bf16 at the peak, at the price of an hour.",
                (peak, log_axis("$ per EFLOP", "USD")),
                prices,
            ),
            _picture(
                "Intensity over time",
                "FLOPs per byte of HBM from which on compute binds, by the year of release.",
                (axis("released", "year", log=False), log_axis("FLOP/B", "count")),
                years,
            ),
        ],
    }


def _picture(title: str, about: str, axes: tuple[Card, Card], rows: list[tuple[ChipReport, Any, Any]]) -> Card:
    """Chips over two quantities, TPUs and GPUs in their colours."""
    points = [
        {"x": x, "y": y, "name": one.name, "role": "compute" if one.kind == "tpu" else "tensor"}
        for one, x, y in rows
        if x and y
    ]
    return {"title": title, "about": about, "x": axes[0], "y": axes[1], "points": points}


def year(one: ChipReport) -> float:
    """`2022-09` as a point in time."""
    parts = one.released.split("-")
    return (
        int(parts[0]) + (int(parts[1]) - 1) / 12
        if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal()
        else 0.0
    )


def beside_panel(asked: PageRequest) -> Card:
    """Up to four chips (`beside` of the request, with commas), the first as the one to compare with."""
    names = [name.strip() for name in asked.text("beside").split(",") if name.strip()]
    if len(names) > MOST:
        raise InputError(f"{len(names)} chips are to be compared; at most {MOST} stand side by side.")
    reports = [chip_report(chip_of(asked, name=name)) for name in names]
    rows = [
        {
            "title": title,
            "cells": [
                _compared(cells(one)[name], cells(reports[0])[name], name != "link" or one.kind == reports[0].kind)
                for one in reports
            ],
        }
        for name, (title, _, _) in COLUMNS.items()
    ]
    texts = [{"title": name, "cells": [_text_cell(one, reports[0], name) for one in reports]} for name in TEXTS]
    return {
        "chips": [fields(one, "name title kind released") for one in reports],
        "rows": rows + texts,
        "roofs": [
            {"name": one.name, "peak": one.bf16_flops_per_s, "bandwidth": one.hbm_bytes_per_s} for one in reports
        ],
    }


def _text_cell(one: ChipReport, first: ChipReport, name: str) -> Card:
    number = {"text": getattr(one, name), "value": None, "why": ""}
    return {"number": number, "ratio": "", "differs": getattr(one, name) != getattr(first, name)}


def _compared(one: Amount, first: Amount, alike: bool) -> Card:
    """A cell, and how many times the first chip's number it is, where the two are `alike`: a TPU has several links."""
    known = alike and one["value"] is not None and first["value"]
    ratio = one["value"] / first["value"] if known else None
    return {
        "number": one,
        "ratio": "" if ratio is None or ratio == 1 else f"{ratio:.2f}x",
        "differs": one["text"] != first["text"],
    }
