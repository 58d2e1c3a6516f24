"""The shape of a serving configuration: its mesh with what runs over each axis, its operations under the roof, its
iterations in time."""

from collections.abc import Iterable
from dataclasses import replace

from dragonscale.app.charts.moves import mesh_axes
from dragonscale.app.charts.wiring import axis_wiring, slice_wiring
from dragonscale.app.serve.bills import bills_of, deployment_of
from dragonscale.app.serve.config import first
from dragonscale.app.serve.records import ConfigReport, ServeReport
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.plan.timeline import TimelinePass, timeline
from dragonscale.serving.formats import part_format
from dragonscale.serving.lines import ServingLine
from dragonscale.serving.plan import ServingPlan
from dragonscale.sheets.charts.mesh import AxisMove, MeshAxis
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import HIDDEN, Card, mesh_card, move_card
from dragonscale.web.views.tracks import tracks_of

AXES = ("pipe", "data", "context", "width", "tensor")
"""Axes of a serving mesh, outermost first; experts are dealt out over data and tensor."""
SEEN = 2e-3
"""Operations of a smaller share of an iteration are not drawn."""


def _bills(asked: PageRequest) -> tuple[ServeReport, ConfigReport, dict[str, Ledger]] | None:
    """The ledgers of a decode step and of a prompt of the first configuration; one output token has no decode step."""
    report: ServeReport = asked.record
    return (report, report.configs[0], bills_of(report)) if report.configs else None


def mesh_panel(asked: PageRequest) -> Card:
    """The mesh of one replica, outermost axis first, with the collectives of a decode step and of a prompt over each
    axis."""
    found = _bills(asked)
    if found is None:
        return {"axes": [], "frames": [], "dots": []}
    report, one, bills = found
    piece = deployment_of(report.asked, one).piece
    degrees = {name: getattr(one, name) for name in AXES}
    laid = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, piece)
    every = {phase: {axis.name: axis for axis in mesh_axes(degrees, book.lines)} for phase, book in bills.items()}
    axes = [replace(axis, moves=(), splits=_splits(axis, one)) for axis in next(iter(every.values())).values()]
    card = mesh_card(axes, one.copy_slice, laid)
    for axis in card["axes"]:
        for phase, own in every.items():
            axis["moves"] += [_move(move, axis["name"], phase) for move in own[axis["name"]].moves]
    return card | {
        "copies": one.copies,
        "wiring": slice_wiring(piece),
        "chip": piece.chip.title,
        "chips": count(one.chips),
    }


def _splits(axis: MeshAxis, one: ConfigReport) -> str:
    """What an axis of a serving mesh splits."""
    if axis.name != "data":
        return axis.splits
    return "requests; experts" if one.expert > 1 else "requests"


def _move(move: AxisMove, axis: str, phase: str) -> Card:
    """A collective over an axis, in one of the two iterations."""
    when = {"decode": "in a decode step", "prefill": "in a prompt"}[phase]
    hidden = (move.exposed or 0.0) < HIDDEN * (move.seconds or 0.0)
    return move_card(move, axis) | {"name": f"{move.name} {when}", "phase": phase, "hidden": hidden}


def roofline_panel(asked: PageRequest) -> Card:
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


def _roofs(chip: Chip, plan: ServingPlan) -> list[Card]:
    """The roof of each format that is multiplied in."""
    found: dict[float, Card] = {}
    for part in ("mlp", "attention", "head"):
        dtype = FORMATS[part_format(plan, part)].compute
        peak = chip.peak(dtype)
        found.setdefault(peak, {"name": dtype, "peak": peak, "bandwidth": chip.bandwidth("hbm"), "why": "chip:peak"})
    return list(found.values())


def _points(ledger: Ledger, phase: str, batch: int) -> Iterable[Card]:
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


def timeline_panel(asked: PageRequest) -> Card:
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
