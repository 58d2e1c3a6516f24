"""A profile as one page of HTML: where the step went, its timeline, its ops under the roofline, tables that sort.

Everything is in the file: no network, no library, and a policy in its head that forbids both. Names from the profile
are escaped where they are markup and text where the script puts them. The timeline is of one step, the numbers are
means over all that were kept.
"""

import json
from html import escape
from typing import TYPE_CHECKING, Any

from dragonscale.app.profile.page_look import LOOK, colour_of, colour_of_word
from dragonscale.app.profile.page_script import SCRIPT
from dragonscale.app.profile.shown import ShownStep, shown_step
from dragonscale.app.profile.tables import rate_of
from dragonscale.files import write_file
from dragonscale.physics.units import render

if TYPE_CHECKING:
    from dragonscale.app.profile.records import ProfileReport
    from dragonscale.evidence.profiles.records import MemoryTime

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
MOST_OPS = 600
"""Rows of the table of ops."""


def save_page(report: "ProfileReport", path: str) -> str | None:
    """Write the page to a file; what it shows."""
    step = shown_step(report.analysis)
    write_file(path, page(report, step), "The page")
    return f", its timeline is of step {step.number}" if step else None


def page(report: "ProfileReport", step: ShownStep | None) -> str:
    """The whole page."""
    ops = _ops(report)
    sections = {
        "Where a step goes": _parts(report) + _savings(report),
        f"Timeline of step {step.number}" if step else "": _timeline(step) if step else "",
        "Ops under the roofline": _roof(report) if _points(report, ops) else "",
        "Parts of the model": _groups(report),
        "Beside the plan": _beside(report),
        "Communication": _moves(report),
        "Idle": _gaps(report),
        "Memory": "".join(_memory(each) for each in report.memory if each.series),
        "Ops": _table_of_ops(ops),
        "What could not be told": "".join(f"<p>{escape(one)}</p>" for one in (*report.unknown, *report.notes)),
    }
    told = "".join(
        f"<section><h2>{escape(head)}</h2>{inside}</section>\n" for head, inside in sections.items() if inside
    )
    # `<` cannot stand in the data: nothing in it can end the script that holds it
    data = json.dumps(_data(report, step, ops), separators=(",", ":")).replace("<", "\\u003c")
    title = escape(f"{report.source}: {report.headline()}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<meta '
        f'http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<title>{title}</title>\n<style>{LOOK}</style></head>\n'
        f"<body><main>\n{_head(report)}{told}"
        "<footer>Made by <code>dscale profile --html</code>; <code>--json</code> has the same "
        "numbers.</footer>\n</main>\n"
        '<div id="tip" hidden></div>\n<script type="application/json" '
        f'id="data">{data}</script>\n<script>{SCRIPT}</script></body></html>\n'
    )


def _head(report: "ProfileReport") -> str:
    where = " · ".join(
        filter(None, (report.software, report.device, f"{report.devices} devices" if report.devices > 1 else ""))
    )
    steps = report.steps
    found = (
        f"{steps.count} steps found by {steps.found_by}, {steps.kept} kept, {render(steps.fastest_s, 's')} to "
        f"{render(steps.slowest_s, 's')}"
    )
    planned = f"; planned {render(report.planned_step_s, 's')}" if report.planned_step_s else ""
    differs = "".join(f"<p><b>{escape(one)}</b></p>" for one in report.differs)
    plan = f"<p><code>{escape(report.plan)}</code> {escape(report.model)}</p>" if report.plan else ""
    return (
        f"<h1>{escape(report.headline()[:1].upper() + report.headline()[1:])}{escape(planned)}</h1>\n"
        f'<p class="soft">{escape(report.source)}: {escape(where)}</p>{plan}{differs}<p '
        f'class="soft">{escape(found)}</p>\n'
    )


def _parts(report: "ProfileReport") -> str:
    colours = {"compute": "compute", "exposed communication": "tensor", "exposed copies": "hbm", "idle": "overhead"}
    some = [part for part in report.parts if part.seconds > 0]
    bars = "".join(
        f'<i style="width:{100 * part.share:.3f}%;background:var(--{colours.get(part.name, "overhead")})"></i>'
        for part in some
    )
    words = "".join(
        f'<span><b class="dot" style="background:var(--{colours.get(part.name, "overhead")})"></b>{escape(part.name)} '
        f"{render(part.seconds, 's')} ({part.share:.1%})</span>"
        for part in some
    )
    return f'<div class="whole">{bars}</div><p class="legend">{words}</p>' if some else ""


def _savings(report: "ProfileReport") -> str:
    lines = "".join(
        "<li><div "
        f'class="top"><span>{escape(one.what[:1].upper() + one.what[1:])}</span><b>{render(one.seconds, "s")}</b></div>'
        f'<div class="soft">{escape(one.why)}</div></li>'
        for one in report.savings
    )
    return f"<h3>What would save most</h3><ul>{lines}</ul>" if lines else ""


def _timeline(step: ShownStep) -> str:
    left = f" The {step.left_out:,} shortest events are left out." if step.left_out else ""
    return (
        f'<p class="soft">One step of {render(step.seconds, "s")}, the nearest to the median.{left} Drag to move; '
        "click it and turn the wheel, "
        "or hold Shift, to zoom; double-click shows all.</p>"
        '<p><button id="in">+</button> <button id="out">−</button> <button id="all">all</button></p>'
        '<div class="drawn"><canvas id="lines" tabindex="0" aria-label="timeline of a step"></canvas></div>'
        f'<p class="legend soft">{_legend()}</p>'
    )


def _legend() -> str:
    """What the colours of ops stand for."""
    kinds = {
        "matmul": "matmul",
        "attention": "attention",
        "elementwise": "elementwise",
        "reduction": "reduction",
        "copy": "copy, gather",
    }
    kinds |= {"all_reduce": "communication", "host": "host"}
    return "".join(
        f'<span><b class="dot" style="background:var(--{colour_of(kind)})"></b>{escape(text)}</span>'
        for kind, text in kinds.items()
    )


def _roof(report: "ProfileReport") -> str:
    chip = f" The line is what {escape(report.chip)} can do at best." if report.chip else ""
    return (
        '<p class="soft">Each op with known FLOPs and bytes; the larger the point, the more of the step it '
        f"takes.{chip}</p>"
        '<div class="drawn"><canvas id="roof" aria-label="roofline of ops"></canvas></div>'
    )


def _data(report: "ProfileReport", step: ShownStep | None, ops: list[dict[str, Any]]) -> dict[str, Any]:
    """What the script draws: ops by number, tracks, points, the chip's roof."""
    analysis = report.analysis
    points = _points(report, ops)
    shown = {one.op for one in step.slices if one.op >= 0} if step else set()
    known = {one["op"]: one for one in ops}
    tracks: dict[str, list[Any]] = {}
    for one in (*step.own, *step.slices) if step else ():
        name = one.name or analysis.recording.ops[one.op].name
        colour = colour_of(analysis.roles[one.op].kind) if one.op >= 0 else colour_of_word(one.track, one.name)
        tracks.setdefault(one.track, []).append([_short(one.start_s), _short(one.seconds), one.op, name[:120], colour])
    for slices in tracks.values():
        slices.sort(key=lambda each: (each[0], -each[1]))
    told = {op: known.get(op) or _op(report, op) for op in sorted(shown | {each["op"] for each in points})}
    return {
        "seconds": step.seconds if step else 0.0,
        "tracks": list(tracks.items()),
        "ops": told,
        "points": points,
        "chip": report.chip,
        "peak": analysis.roof.peak(analysis.dtype),
        "bandwidth": analysis.chip.bandwidth("hbm") if analysis.chip else None,
    }


def _short(value: float) -> float:
    return round(value, 9)


def _op(report: "ProfileReport", op: int) -> dict[str, Any]:
    """One op's numbers, of a mean step."""
    from dragonscale.app.profile.trace import op_facts

    analysis = report.analysis
    facts, totals = op_facts(analysis, op), analysis.totals
    seconds = float(totals.seconds[op])
    runs = float(totals.works[op])
    rate, moved = (
        facts[name] * runs / seconds if facts.get(name) and seconds else None for name in ("flops", "hbm_bytes")
    )
    return {
        "op": op,
        "name": analysis.recording.ops[op].name[:200],
        "kind": facts.get("kind", ""),
        "section": facts.get("section", ""),
        "phase": facts.get("phase", ""),
        "what": facts.get("tensor", ""),
        "seconds": seconds,
        "share": seconds / report.step_s if report.step_s else 0.0,
        "times": float(totals.times[op]),
        "flops": facts.get("flops"),
        "bytes": facts.get("hbm_bytes"),
        "rate": rate,
        "achieved": rate_of(facts.get("kind", ""), facts.get("bound_by", ""), rate, moved),
        "fraction": facts.get("roofline_fraction"),
        "by": facts.get("bound_by", ""),
        "scope": facts.get("scope", "")[:300],
        "colour": colour_of(facts.get("kind", "")),
    }


def _ops(report: "ProfileReport") -> list[dict[str, Any]]:
    return [_op(report, op) for op in report.analysis.totals.ran[:MOST_OPS].tolist()]


def _points(report: "ProfileReport", ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ops that have a place under the roofline."""
    if report.static:
        return []
    return [
        {name: one[name] for name in ("op", "flops", "bytes", "rate", "seconds", "share", "colour")}
        for one in ops
        if one["flops"] and one["bytes"] and one["rate"] and one["share"] > 1e-5
    ]


# Tables


def _cell(value: Any, unit: str = "") -> str:
    """A cell that sorts by its number and shows it with its unit."""
    if isinstance(value, tuple):  # a number with a unit of its own
        value, unit = value
    if value is None:
        return '<td class="n" data-v="-1">–</td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    shown = f"{value:.1%}" if unit == "%" else render(value, unit) if unit else f"{value:,.4g}"
    return f'<td class="n" data-v="{value:.9g}">{escape(shown)}</td>'


def _table(heads: dict[str, str], rows: list[list[Any]], name: str = "") -> str:
    """A table that sorts: heads with the unit of their column (`-`: text)."""
    if not rows:
        return ""
    units = list(heads.values())
    right = {True: "", False: ' class="n"'}
    top = "".join(f"<th{right[unit == '-']}>{escape(head)}</th>" for head, unit in heads.items())
    body = "".join(
        f"<tr>{''.join(_cell(value, '' if unit == '-' else unit) for value, unit in zip(row, units, strict=True))}</tr>"
        for row in rows
    )
    mark = f' id="{name}"' if name else ""
    return (
        '<div class="scroll"><table '
        f'class="sorts"{mark}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _groups(report: "ProfileReport") -> str:
    heads = {
        "section": "-",
        "phase": "-",
        "kind": "-",
        "time": "s",
        "of the step": "%",
        "achieved": "",
        "of its roofline": "%",
        "bound by": "-",
    }
    return _table(
        heads,
        [
            [
                g.section or "?",
                g.phase,
                g.kind or "?",
                g.exposed_s,
                g.share,
                rate_of(g.kind, g.bound_by, g.flops_per_s, g.bytes_per_s),
                g.fraction,
                g.bound_by,
            ]
            for g in report.groups
        ],
    )


def _beside(report: "ProfileReport") -> str:
    heads = {"section": "-", "phase": "-", "kind": "-", "measured": "s", "expected": "s", "difference": "s", "why": "-"}
    return _table(
        heads,
        [
            [one.section, one.phase, one.kind, one.measured_s, one.expected_s, one.difference_s, one.why]
            for one in report.beside
        ],
    )


def _moves(report: "ProfileReport") -> str:
    heads = {
        "collective": "-",
        "over": "-",
        "in flight": "s",
        "exposed": "s",
        "overlapped": "s",
        "sent": "bytes",
        "sent a second": "B/s",
    }
    rows = [
        [m.kind, m.over, m.seconds, m.exposed_s, m.overlapped_s, m.sent_bytes, m.bus_bytes_per_s]
        for m in report.communication
    ]
    return _table(heads, rows)


def _gaps(report: "ProfileReport") -> str:
    heads = {"cause": "-", "a step": "s", "times": "", "longest": "s", "while the host was in": "-"}
    return _table(
        heads, [[one.cause, one.seconds, one.times, one.longest_s, ", ".join(one.what)] for one in report.gaps]
    )


def _table_of_ops(ops: list[dict[str, Any]]) -> str:
    heads = {
        "op": "-",
        "kind": "-",
        "section": "-",
        "phase": "-",
        "tensor": "-",
        "time": "s",
        "of the step": "%",
        "times": "",
        "achieved": "",
        "of its roofline": "%",
        "bound by": "-",
    }
    names = ("name", "kind", "section", "phase", "what", "seconds", "share", "times", "achieved", "fraction", "by")
    made = _table(heads, [[one[name] for name in names] for one in ops], "ops")
    return (
        (
            '<p><input id="find" type="search" placeholder="rows with this word" aria-label="rows with this '
            f'word"></p>{made}'
        )
        if made
        else ""
    )


def _memory(one: "MemoryTime") -> str:
    """Bytes in use over time, as a line."""
    last = max(when for when, _ in one.series) or 1.0
    top = max(one.peak_bytes, one.capacity_bytes or 0.0) or 1.0
    path = " ".join(f"{900 * when / last:.1f},{140 - 130 * size / top:.1f}" for when, size in one.series)
    room = f" of {render(one.capacity_bytes, 'bytes')}" if one.capacity_bytes else ""
    return (
        f'<p class="soft">Device {one.device}: at most {render(one.peak_bytes, "bytes")}{room}, '
        f"{render(one.peak_at_s, 's')} after the beginning.</p>"
        f'<svg viewBox="0 0 900 144" role="img" aria-label="memory over time"><polyline points="{path}" fill="none" '
        'stroke="var(--cache)" stroke-width="2"/></svg>'
    )
