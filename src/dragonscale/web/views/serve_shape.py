"""The shape of a serving configuration: its mesh with what runs over each axis, its operations under the roof, its
iterations in time."""

from collections.abc import Iterable
from typing import Any

from dragonscale.app.charts.moves import mesh_axes
from dragonscale.app.charts.wiring import axis_wiring, slice_wiring
from dragonscale.app.serve.config import bills_of, deployment_of, first
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline
from dragonscale.serving.formats import part_format
from dragonscale.serving.lines import ServingLine
from dragonscale.serving.plan import ServingPlan
from dragonscale.sheets.charts.mesh import AxisMove, mesh_frames
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.tracks import tracks_of

AXES = ("pipe", "data", "context", "width", "tensor")
"""Axes of a serving mesh, outermost first; experts are dealt out over data and tensor."""
SEEN = 2e-3
"""Operations of a smaller share of an iteration are not drawn."""


def _bills(asked: PageRequest) -> tuple[ServeReport, ConfigReport, dict[str, Ledger]] | None:
    """The ledgers of a decode step and of a prompt of the first configuration; one output token has no decode step."""
    report: ServeReport = asked.record
    return (report, report.configs[0], bills_of(report)) if report.configs else None


def mesh_panel(asked: PageRequest) -> dict[str, Any]:
    """The mesh of one replica, outermost axis first, with the collectives of a decode step and of a prompt over each
    axis."""
    found = _bills(asked)
    if found is None:
        return {"axes": [], "frames": [], "dots": []}
    report, one, bills = found
    piece = deployment_of(report.asked, one).piece
    degrees = {name: getattr(one, name) for name in AXES}
    laid = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, piece)
    rows: dict[str, dict[str, Any]] = {}
    for phase, ledger in bills.items():
        for axis in mesh_axes(degrees, ledger.lines):
            splits = (
                "requests; experts" if axis.name == "data" and one.expert > 1 else _SPLITS.get(axis.name, axis.splits)
            )
            row = rows.setdefault(
                axis.name,
                {
                    "name": axis.name,
                    "degree": axis.degree,
                    "role": axis.role,
                    "splits": splits,
                    "lies": laid.get(axis.name, ""),
                    "moves": [],
                },
            )
            row["moves"] += [_move(move, axis.name, phase) for move in axis.moves]
    frames, dots = mesh_frames([(axis["name"], axis["degree"]) for axis in rows.values()])
    return {
        "slice": one.copy_slice,
        "copies": one.copies,
        "axes": list(rows.values()),
        "wiring": slice_wiring(piece),
        "chip": piece.chip.title,
        "chips": count(one.chips),
        "frames": [[each.left, each.top, each.right, each.bottom, each.axis] for each in frames],
        "dots": [list(dot) for dot in dots],
    }


def _move(move: AxisMove, axis: str, phase: str) -> dict[str, Any]:
    """A collective over an axis, in one of the two iterations."""
    seconds, exposed = move.seconds or 0.0, move.exposed or 0.0
    words = {"decode": "in a decode step", "prefill": "in a prompt"}
    return {
        "name": f"{move.name} {words[phase]}",
        "phase": phase,
        "bytes": amount(move.bytes, "bytes", f"sent:{axis}"),
        "seconds": amount(seconds, "s", f"sent:{axis}"),
        "exposed": amount(exposed, "s", f"sent:{axis}"),
        "hidden": exposed < 0.005 * seconds,
    }


_SPLITS = {"data": "requests"}


def roofline_panel(asked: PageRequest) -> dict[str, Any]:
    """The kernels of a decode step and of a prompt under the chip's roof: FLOPs a byte, and FLOP/s as they are expected
    to run."""
    found = _bills(asked)
    if found is None:
        return {"roofs": [], "points": []}
    report, one, bills = found
    deployment = deployment_of(report.asked, one)
    chip = deployment.chip
    points = [point for phase, ledger in bills.items() for point in _points(ledger, phase, one.batch)]
    return {"roofs": _roofs(chip, deployment.plan), "points": points, "chip": chip.title}


def _roofs(chip: Chip, plan: ServingPlan) -> list[dict[str, Any]]:
    """The roof of each format that is multiplied in."""
    found: dict[float, dict[str, Any]] = {}
    for part in ("mlp", "attention", "head"):
        dtype = FORMATS[part_format(plan, part)].compute
        peak = chip.peak(dtype)
        found.setdefault(peak, {"name": dtype, "peak": peak, "bandwidth": chip.bandwidth("hbm"), "why": "chip:peak"})
    return list(found.values())


def _points(ledger: Ledger, phase: str, batch: int) -> Iterable[dict[str, Any]]:
    whole = float(ledger.total("exposed_s")) or 1.0
    sums: dict[tuple[str, str], list[float]] = {}
    terms: dict[tuple[str, str], str] = {}
    for line in ledger.lines:
        if float(line.flops) <= 0 or float(line.hbm_bytes) <= 0 or line.moves:
            continue
        key = (line.section, line.what)
        terms[key] = line.term
        own = sums.setdefault(key, [0.0] * 5)
        for place, value in enumerate(_measures(line)):
            own[place] += value
    for (section, what), (flops, moved, seconds, compute, memory) in sums.items():
        if seconds < SEEN * whole:
            continue
        told = f"{'batch ' + format(batch, ',') if phase == 'decode' else 'a prompt'}, {render(seconds, 's')}"
        yield {
            "name": f"{phase} {what}",
            "phase": phase,
            "section": section,
            "intensity": flops / moved,
            "rate": flops / seconds,
            "bound": "compute" if compute > memory else "memory",
            "role": "compute" if phase == "prefill" else "hbm",
            "text": f"{terms[section, what]}; {told}",
            "why": f"{'term' if phase == 'decode' else 'prefill'}:{terms[section, what]}",
        }


def _measures(line: LedgerLine) -> tuple[float, float, float, float, float]:
    own = line if isinstance(line, ServingLine) else None
    bounds = (first(own.total("compute_s")), first(own.total("memory_s"))) if own else (0.0, 0.0)
    return float(line.total("flops")), float(line.total("hbm_bytes")), float(line.total("expected_s")), *bounds


def timeline_panel(asked: PageRequest) -> dict[str, Any]:
    """A prompt and then a decode step, as a chip runs them: what it does after what, and what travels beside it."""
    found = _bills(asked)
    if found is None:
        return {"tracks": [], "total": amount(None, "s")}
    _, one, bills = found
    names = {"prefill": "a prompt", "decode": f"a decode step of {one.batch:,}"}
    passes = [
        TimelinePass(names[phase], tuple(bills[phase].lines)) for phase in ("prefill", "decode") if phase in bills
    ]
    total = sum(float(book.total("exposed_s")) for book in bills.values())
    return {
        "tracks": tracks_of(timeline(passes, "")),
        "total": amount(total, "s"),
        "about": (
            f"A chip of {one.copy_slice}: a prompt that runs alone, then a decode step; layers of a kind are drawn "
            "together."
        ),
    }
