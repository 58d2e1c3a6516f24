"""Up to four answers side by side: figures with what is better and by how much, time and memory on one scale, settings
that differ.

The columns are questions of one kind (`of`: train or serve), each with its own fields (`columns`). They are asked as
the tabs ask them and compared as `dscale compare` compares answers. A number in a column is derived as it is in its
tab: its id is the column's place, a colon, and the id there.
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.blocks.amounts import Amount, amount, count, share
from dragonscale.commands.charts.roles import memory_parts, time_parts
from dragonscale.commands.compare.ask_compare import compared
from dragonscale.commands.compare.compare_records import CompareReport, Figure, Side
from dragonscale.commands.compare.sides import DOLLARS, STEP, TIE_TOLERANCE, TOKENS, seconds_of
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_slice
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import Card, bar_parts, fields

MOST = 4
"""Columns that fit beside each other."""
LESS = {STEP, "TTFT", "TPOT", DOLLARS, "days", "cost", "memory"}
"""Figures of which less is better; of "batch" neither is."""
_TIMES = {"TTFT": "ttft_s", "TPOT": "tpot_s", DOLLARS: "cost_usd_per_mtok"}
_RUN = {"MFU": "own_mfu", "days": "days", "cost": "cost_usd"}
WHY = {
    "train": {STEP: "step_s", TOKENS: "tokens_per_s_per_chip", **_RUN},
    "serve": {STEP: "decode_step_s", TOKENS: "output_tokens_per_s_per_chip", **_TIMES},
}
"""Derivations of the figures, by the ids of their tabs."""
OTHERS = ("h100", "b200", "h200", "v5p", "v6e", "tpu7x", "mi300x", "a100", "gb200")
"""Chips that are suggested, those that most people know first."""


def columns_of(request: PageRequest) -> tuple[str, list[dict[str, Any]]]:
    """The kind and the fields of each column."""
    of, columns = request.text("kind") or request.text("of", "train"), request.more.get("columns")
    if of not in WHY:
        raise unknown("kind of answer to compare called", of, WHY)
    if not isinstance(columns, list) or not all(isinstance(column, Mapping) for column in columns):
        raise InputError("A comparison has `columns`, a list of questions.")
    if not 2 <= len(columns) <= MOST:
        raise InputError(f"A comparison has 2 to {MOST} columns and this has {len(columns)}.")
    return of, [
        {name: value for name, value in column.items() if value not in ("", None, [], False)} for column in columns
    ]


def sides_panel(request: PageRequest) -> Card:
    """The comparison."""
    of, columns = columns_of(request)
    answers = []
    for index, column in enumerate(columns):
        answers.append(request.ask(of, column, brief=False))
        request.send({"progress": (index + 1) / len(columns)})
    report = compared(answers, of == "serve")
    names = list(dict.fromkeys(figure.name for side in report.sides for figure in side.figures))
    return {
        "kind": of,
        **fields(report, "model workload winner notes"),
        "sides": [
            fields(side, "key label slice software chips feasible bound_by problems")
            | {"plan": side.plan or "none fits", "fields": column}
            for side, column in zip(report.sides, columns, strict=True)
        ],
        "rows": [_row(report, of, name) for name in names] + [_memory_row(report)],
        "time": _time(report),
        "memory": _memory(report),
        "settings": _settings(report),
        "sentences": [difference.text for difference in report.differences],
    }


def _row(report: CompareReport, of: str, name: str) -> Card:
    """One figure of every side, each against the first."""
    first = report.sides[0].figure(name)
    cells = []
    for index, side in enumerate(report.sides):
        figure = side.figure(name)
        why = f"{index}:{WHY[of][name]}" if name in WHY[of] else ""
        mark = _mark(first, figure, _for_tokens(report, side, name)) if index else _NONE
        cells.append({"number": _amount(figure, why), "band": _band(figure), **mark})
    shown = {(STEP, "serve"): "decode step"}.get((name, of), name)
    return {"name": shown, "less": name in LESS, "cells": cells}


_NONE = {"mark": "", "text": ""}


def _for_tokens(report: CompareReport, side: Side, name: str) -> float:
    """A step of other tokens is held against the first as if it had as many."""
    first = report.sides[0]
    return first.tokens / side.tokens if name == STEP and report.kind == "training" and side.tokens else 1.0


def _mark(first: Figure | None, figure: Figure | None, times: float) -> dict[str, str]:
    """Better or worse than the first, by how much, and whether that is beyond the bands."""
    if first is None or figure is None or not first.value or figure.value is None or first.name == "batch":
        return _NONE
    change = figure.value * times / first.value - 1
    if abs(change) < TIE_TOLERANCE:
        return {"mark": "same", "text": "the same"}
    mark = "better" if (change < 0) == (first.name in LESS) else "worse"
    sentence = f"{change:+.0%} {mark}" if abs(change) < 1 else f"{change + 1:.2g}x, {mark}"
    ends = (first.low, first.high, figure.low, figure.high)
    if None not in ends:
        low, high, least, highest = (float(end or 0.0) for end in ends)
        sentence += f", {'beyond' if highest * times < low or high < least * times else 'within'} the error"
    return {"mark": mark, "text": sentence.replace("-", "−")}


def _amount(figure: Figure | None, why: str) -> Amount:
    if figure is None or figure.value is None:
        return amount(None, "count")
    if figure.unit == "part":
        return share(figure.value, why)
    if figure.unit == "USD":
        return amount(figure.value, "USD", why, _dollars(figure.value))
    if figure.unit == "count":
        short = figure.value < 100 and figure.value != int(figure.value)
        return amount(figure.value, "count", why, f"{figure.value:,.1f}") if short else count(figure.value, why)
    return amount(figure.value, figure.unit, why)


def _dollars(value: float) -> str:
    if value >= 1e6:
        return f"${value / 1e6:,.2f}M"
    if value >= 1000:
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 1 else f"${value:,.4f}"


def _band(figure: Figure | None) -> str:
    if figure is None or figure.low is None or figure.high is None:
        return ""
    ends = [f"{end:,.0f}" if figure.unit == "count" else render(end, figure.unit) for end in (figure.low, figure.high)]
    return " to ".join(ends)


def _memory_row(report: CompareReport) -> Card:
    """What the fullest chip holds, and of how much."""
    first, cells = report.sides[0].hbm_bytes, []
    for index, side in enumerate(report.sides):
        used = side.hbm_bytes
        # more memory in use is neither good nor bad while it fits
        text = f"{used / first - 1:+.0%}".replace("-", "−") if index and first and used else ""
        limit = f"of {render(side.hbm_limit_bytes, 'bytes')}" if side.hbm_limit_bytes else ""
        number = amount(used, "bytes", f"{index}:hbm_bytes") if used else amount(None, "count")
        cells.append({"number": number, "band": limit, "mark": "", "text": text})
    return {"name": "memory", "less": True, "cells": cells}


def _time(report: CompareReport) -> Card:
    """Bars of time on one scale."""
    bars = []
    for index, side in enumerate(report.sides):
        parts = time_parts((term.name, term.exposed_s, term.hidden_s) for term in side.terms)
        cards = bar_parts(parts, "s", f"{index}:term")
        for part, card in zip(parts, cards, strict=True):
            card["hidden"] = amount(part.hidden, "s")
        bars.append(fields(side, "key label") | {"total": amount(seconds_of(side) or None, "s"), "parts": cards})
    longest = max((sum(part["shown"]["value"] for part in bar["parts"]) for bar in bars), default=0.0)
    what = "what a decode step waits for" if report.kind == "serving" else "what a step waits for"
    return {"bars": bars, "scale": longest, "what": what}


def _memory(report: CompareReport) -> Card:
    """Bars of memory on one scale, each with its own limit."""
    bars = []
    for index, side in enumerate(report.sides):
        parts = memory_parts((part.name, part.bytes) for part in side.memory)
        bar = fields(side, "key label") | {"total": amount(side.hbm_bytes or None, "bytes")}
        cards = bar_parts(parts, "bytes", f"{index}:memory")
        bars.append(bar | {"limit": side.hbm_limit_bytes, "parts": cards})
    sizes = [max(side.hbm_limit_bytes, sum(part.bytes for part in side.memory)) for side in report.sides]
    return {"bars": bars, "scale": max(sizes, default=0.0)}


def _settings(report: CompareReport) -> list[Card]:
    names = list(dict.fromkeys(setting.setting for pair in report.differences for setting in pair.settings))
    return [{"name": name, "cells": [str(side.settings.get(name, "–")) for side in report.sides]} for name in names]


def suggest_panel(request: PageRequest) -> Card:
    """Slices of other chips that are comparable with the one asked: as many chips, or as many FLOP/s."""
    on = str(request.fields.get("on", "")).split(",")[0].strip()
    try:
        slice_ = parse_slice(on)
    except InputError:
        return {"slices": []}
    suggested: dict[str, dict[str, str]] = {}
    for name in OTHERS:
        chip = load_chip(name)
        if chip.name == slice_.chip.name:
            continue
        for many, why in ((slice_.chips, "as many chips"), (_as_fast(slice_, chip), "about as many FLOP/s")):
            if (other := _slice(chip, many)) is not None:
                card = {"on": str(other), "chip": chip.title, "why": why, "chips": f"{other.chips:,}"}
                suggested.setdefault(str(other), card)
    return {"slices": list(suggested.values())}


def _as_fast(slice_: Slice, chip: Chip) -> int:
    """Chips whose peak comes nearest to a slice's: a power of two of them, as meshes want it."""
    exact = slice_.chips * slice_.chip.peak("bf16") / chip.peak("bf16")
    return min((2**power for power in range(18)), key=lambda many: abs(many / exact - 1))


def _slice(chip: Chip, many: int) -> Slice | None:
    """A slice of so many chips, where there is one."""
    try:
        return parse_slice(f"{many}x{chip.name}" if chip.kind == "tpu" else f"{chip.name}:{many}")
    except InputError:
        return None


PANELS = {"sides": sides_panel, "suggest": suggest_panel}
