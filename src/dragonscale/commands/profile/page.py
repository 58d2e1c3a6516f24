"""A profile as one page of HTML: where the step went, its timeline, its ops under the roofline, tables that sort.

Everything is in the file: no network, no library, and a policy in its head that forbids both. Names from the profile
are escaped where they are markup and text where the script puts them. The timeline is of one step, the numbers are
means over all that were kept. What does not change lies beside: `page.html`, `page.css`, `page.js`, and in `page.toml`
the columns and colours.
"""

import json
import tomllib
from collections.abc import Sequence
from functools import cache, partial
from html import escape
from operator import itemgetter
from pathlib import Path
from string import Template
from typing import Any

from dragonscale.blocks.charts.theme import DARK, LIGHT, SERIES, Theme
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.verify.verify_blocks import STYLE
from dragonscale.evidence.profiles.device_work import TRAVELS
from dragonscale.evidence.profiles.records import MemoryTime, achieved_rate
from dragonscale.evidence.profiles.shown_step import ShownSlice, ShownStep, shown_step
from dragonscale.evidence.profiles.trace import op_facts
from dragonscale.files import write_file
from dragonscale.physics.units import render

# Rows of the table of ops.
MOST_OPS = 600
# The fraction of a step from which on an op is drawn under the roofline.
MIN_SHARE = 1e-5
# What the script draws of such an op.
_POINT = ("op", "flops", "bytes", "rate", "seconds", "share", "colour")
_NUMBER = ' class="n"'
# What an op is, by the page's names and by those of `op_facts`.
_WORDS = {"kind": "kind", "section": "section", "phase": "phase", "what": "tensor"}


def beside(name: str) -> str:
    """A file of the page."""
    return Path(__file__).with_name(name).read_text("utf-8")


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(beside("page.toml"))


def _markup(name: str, /, **fields: object) -> str:
    return Template(_data()["markup"][name]).substitute(fields)


def save_page(report: ProfileReport, path: str) -> str | None:
    """Write the page to a file; what it shows."""
    step = shown_step(report.analysis)
    write_file(path, page(report, step), "The page")
    return f", its timeline is of step {step.number}" if step else None


def page(report: ProfileReport, step: ShownStep | None) -> str:
    """The whole page."""
    ops = [_op(report, op) for op in report.analysis.totals.ran[:MOST_OPS].tolist()]
    points = _points(report, ops)
    sections = {"Where a step goes": _parts(report) + _savings(report)}
    if step:
        sections[f"Timeline of step {step.number}"] = _timeline(step)
    if points:
        chip = ""
        if report.chip:
            chip = f" The line is what {escape(report.chip)} can do at best."
        sections["Ops under the roofline"] = _markup("roof", chip=chip)
    listed_ops = ""
    if ops:
        listed_ops = _markup("find") + _table("ops", ops, ' id="ops"')
    sections |= {
        "Parts of the model": _table("groups", report.groups),
        "Beside the plan": _table("beside", report.beside),
        "Communication": _table("communication", report.communication),
        "Idle": _table("gaps", report.gaps),
        "Memory": "".join(map(_memory, report.memory)),
        "Ops": listed_ops,
        "What could not be told": "".join(map(_paragraph, (*report.unknown, *report.notes))),
    }
    filled = ""
    for head, body in sections.items():
        if body:  # a recording without memory or collectives has no section about them
            filled += f"<section><h2>{escape(head)}</h2>{body}</section>\n"
    # `<` cannot stand in the data: nothing in it can end the script that holds it
    data = json.dumps(_drawn(report, step, ops, points), separators=(",", ":")).replace("<", "\\u003c")
    return Template(beside("page.html")).substitute(
        _head(report),
        title=escape(f"{report.source}: {report.headline()}"),
        style=STYLE + Template(beside("page.css")).substitute(light=_variables(LIGHT), dark=_variables(DARK)),
        sections=filled,
        data=data,
        script=beside("page.js"),
    )


def _head(report: ProfileReport) -> dict[str, str]:
    several = planned = plan = ""
    if report.devices > 1:
        several = f"{report.devices} devices"
    where = " · ".join(filter(None, (report.software, report.device, several)))
    steps, headline = report.steps, report.headline()
    if report.planned_step_s:
        planned = f"; planned {render(report.planned_step_s, 's')}"
    if report.plan:
        plan = f"<p><code>{escape(report.plan)}</code> {escape(report.model)}</p>"
    reach = f"{render(steps.fastest_s, 's')} to {render(steps.slowest_s, 's')}"
    return {
        "headline": escape(f"{headline[:1].upper()}{headline[1:]}{planned}"),
        "where": f"{escape(report.source)}: {escape(where)}",
        "plan": plan + "".join(f"<p><b>{escape(text)}</b></p>" for text in report.differs),
        "steps": escape(f"{steps.count} steps found by {steps.found_by}, {steps.kept} kept, {reach}"),
    }


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _parts(report: ProfileReport) -> str:
    """The step as one bar of its parts, with a legend below."""
    bars = legend = ""
    for part in report.parts:
        if part.seconds > 0:
            colour = _data()["colours"]["parts"].get(part.name, "overhead")
            bars += f'<i style="width:{100 * part.share:.3f}%;background:var(--{colour})"></i>'
            legend += _dot(colour, f"{part.name} {render(part.seconds, 's')} ({part.share:.1%})")
    if bars:
        return f'<div class="whole">{bars}</div><p class="legend">{legend}</p>'
    return ""


def _dot(colour: str, text: str) -> str:
    return f'<span><b class="dot" style="background:var(--{colour})"></b>{escape(text)}</span>'


def _savings(report: ProfileReport) -> str:
    lines = ""
    for saving in report.savings:
        what, seconds = saving.what[:1].upper() + saving.what[1:], render(saving.seconds, "s")
        lines += _markup("saving", what=escape(what), seconds=seconds, why=escape(saving.why))
    if lines:
        return f"<h3>What would save most</h3><ul>{lines}</ul>"
    return ""


def _timeline(step: ShownStep) -> str:
    left = ""
    if step.left_out:
        left = f" The {step.left_out:,} shortest events are left out."
    legend = "".join(_dot(_colour_of(kind), text) for kind, text in _data()["colours"]["legend"].items())
    return _markup("timeline", seconds=render(step.seconds, "s"), left=left, legend=legend)


def _memory(use: MemoryTime) -> str:
    """Bytes in use over time, as a line; empty where none were recorded."""
    if not use.series:
        return ""
    last = max(when for when, _ in use.series) or 1.0
    top = max(use.peak_bytes, use.capacity_bytes or 0.0) or 1.0
    of_capacity = points = ""
    if use.capacity_bytes:
        of_capacity = f" of {render(use.capacity_bytes, 'bytes')}"
    for when, size in use.series:
        # the picture is 900 wide, and 140 high with 10 left free at the top
        points += f" {900 * when / last:.1f},{140 - 130 * size / top:.1f}"
    return _markup(
        "memory",
        device=use.device,
        peak=render(use.peak_bytes, "bytes"),
        room=of_capacity,
        when=render(use.peak_at_s, "s"),
        points=points[1:],
    )


# What the script draws


def _drawn(
    report: ProfileReport, step: ShownStep | None, ops: list[dict[str, Any]], points: list[dict[str, Any]]
) -> dict[str, Any]:
    """Ops by number, tracks, points, the chip's roof."""
    analysis = report.analysis
    listed = {op["op"]: op for op in ops}
    shown = {point["op"] for point in points}
    tracks: dict[str, list[Any]] = {}
    slices, step_s = list[ShownSlice](), 0.0
    if step:
        slices, step_s = [*step.own, *step.slices], step.seconds
    for slice_ in slices:
        if slice_.op >= 0:
            shown.add(slice_.op)
            colour = _colour_of(analysis.roles[slice_.op].kind)
        else:  # on a track of the analysis
            colour = _colour_of_word(slice_)
        name = slice_.name or analysis.recording.ops[slice_.op].name
        # start and length in seconds, to the nanosecond
        drawn = [round(slice_.start_s, 9), round(slice_.seconds, 9), slice_.op, name[:120], colour]
        tracks.setdefault(slice_.track, []).append(drawn)
    for track in tracks.values():
        # of slices that begin together the outer one comes first
        track.sort(key=lambda drawn: (drawn[0], -drawn[1]))
    return {
        "seconds": step_s,
        "tracks": list(tracks.items()),
        "ops": {op: listed.get(op) or _op(report, op) for op in sorted(shown)},
        "points": points,
        "chip": report.chip,
        "peak": analysis.roof.peak(analysis.dtype),
        "bandwidth": analysis.chip.bandwidth("hbm") if analysis.chip else None,
    }


def _op(report: ProfileReport, op: int) -> dict[str, Any]:
    """One op's numbers, of a mean step."""
    analysis = report.analysis
    facts, totals = op_facts(analysis, op), analysis.totals
    seconds, runs = float(totals.seconds[op]), float(totals.works[op])
    kind, bound_by = facts.get("kind", ""), facts.get("bound_by", "")
    flops, hbm_bytes = facts.get("flops"), facts.get("hbm_bytes")
    rate = moved = None
    if flops and seconds:
        rate = flops * runs / seconds
    if hbm_bytes and seconds:
        moved = hbm_bytes * runs / seconds
    return {
        "op": op,
        "name": analysis.recording.ops[op].name[:200],
        **{name: facts.get(fact, "") for name, fact in _WORDS.items()},
        "seconds": seconds,
        "share": seconds / report.step_s if report.step_s else 0.0,
        "times": float(totals.times[op]),
        "flops": flops,
        "bytes": hbm_bytes,
        "rate": rate,
        "achieved": achieved_rate(kind, bound_by, rate, moved),
        "fraction": facts.get("roofline_fraction"),
        "by": bound_by,
        "scope": facts.get("scope", "")[:300],
        "colour": _colour_of(kind),
    }


def _points(report: ProfileReport, ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ops that have a place under the roofline."""
    if report.static:  # what was not timed has no rate
        return []
    points: list[dict[str, Any]] = []
    pick = itemgetter(*_POINT)
    for op in ops:
        if op["flops"] and op["bytes"] and op["rate"] and op["share"] > MIN_SHARE:
            points.append(dict(zip(_POINT, pick(op), strict=True)))
    return points


# Tables


def _cell(value: Any, unit: str) -> str:
    """A cell that sorts by its number and shows it with its unit."""
    if unit == "list":
        value = ", ".join(value)
    if isinstance(value, tuple):  # a number with a unit of its own
        value, unit = value
    if value is None:
        return f'<td{_NUMBER} data-v="-1">–</td>'
    if isinstance(value, str):
        if unit == "?" and not value:  # what is not known of an op
            value = "?"
        return f"<td>{escape(value)}</td>"
    shown = f"{value:,.4g}"
    if unit == "%":
        shown = f"{value:.1%}"
    elif unit:
        shown = render(value, unit)
    return f'<td{_NUMBER} data-v="{value:.9g}">{escape(shown)}</td>'


def _table(name: str, rows: Sequence[Any], mark: str = "") -> str:
    """A table that sorts; `page.toml` has its columns."""
    columns = _data()["tables"][name]
    if not rows:
        return ""
    classes = dict.fromkeys(("-", "?", "list"), "")
    top = "".join(f"<th{classes.get(unit, _NUMBER)}>{escape(head)}</th>" for head, unit, _ in columns)
    body = ""
    for row in rows:
        # ops are dicts, as the script takes them; all other rows are records
        read = row.get if isinstance(row, dict) else partial(getattr, row)
        body += f"<tr>{''.join(_cell(read(field), unit) for _, unit, field in columns)}</tr>"
    head = f"<thead><tr>{top}</tr></thead>"
    return f'<div class="scroll"><table class="sorts"{mark}>{head}<tbody>{body}</tbody></table></div>'


# Colours


def _colour_of(kind: str) -> str:
    """The colour of an op by what bounds its kind."""
    if kind in TRAVELS:
        return "tensor"
    return _variable(_data()["colours"]["kinds"].get(kind, "overhead"))


def _colour_of_word(slice_: ShownSlice) -> str:
    """The colour of a slice on one of our tracks; what has none of its own still has the same one each time."""
    by_track = {"exposed communication": "tensor", "idle": "overhead"}
    word = _data()["colours"]["words"].get(slice_.name) or SERIES[sum(map(ord, slice_.name)) % len(SERIES)]
    return by_track.get(slice_.track) or _variable(word)


def _variable(role: str) -> str:
    """A role as the name of a CSS variable."""
    return role.replace(":-", "-dark").replace(":", "-")


def _variables(theme: Theme) -> str:
    pairs: list[str] = []
    for role in _data()["colours"]["roles"]:
        name = _variable(role)
        pairs.append(f"--{name}:{theme.colour(f'@{role}')};--on-{name}:{theme.colour(f'@on:{role}')}")
    return ";".join((*pairs, f"--grid:{theme.grid}"))
