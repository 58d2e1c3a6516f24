"""A plan on its chips: the mesh with what goes over each axis, the roofline with the plan's own operations, one step
over time."""

from dataclasses import replace
from typing import Any

from dragonscale.app.charts.moves import ORDER, mesh_axes
from dragonscale.app.charts.wiring import axis_wiring, slice_wiring
from dragonscale.plan.ledger import Ledger
from dragonscale.training.evaluation import layer_points
from dragonscale.training.step_timeline import step_timeline
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import Card, mesh_card
from dragonscale.web.views.tracks import tracks_of
from dragonscale.web.views.train_plan import first_plan, job_of, typed_plan


def mesh_panel(asked: PageRequest) -> Card:
    """The mesh's axes with the collectives that run over each, and the chips at their places."""
    report, one = first_plan(asked)
    if one is None:
        return {"slice": report.slice, "axes": [], "frames": [], "dots": [], "wiring": "", "chip": ""}
    piece = job_of(asked)[1].slice
    degrees = {name: one.plan[name] for name in ORDER if name in one.plan}
    axes = mesh_axes(degrees, report.ledger.lines)
    if not one.feasible:  # nothing travels in a step that cannot be
        axes = [replace(axis, moves=()) for axis in axes]
    laid = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, piece)
    shape = {"wiring": slice_wiring(piece), "chip": piece.chip.title, "chips": count(one.chips)}
    return mesh_card(axes, report.slice, laid) | shape


def roofline_panel(asked: PageRequest) -> Card:
    """The forward matmuls of a layer under the roof of the chip's memory; the whole step under the roof of each set of
    wires."""
    report, one = first_plan(asked)
    if one is None or not one.feasible:
        return {"roofs": [], "points": []}
    _, job, plan = job_of(asked)
    chip, top = job.slice.chip, f"{plan.dtype} peak"
    peak, memory = chip.peak(plan.dtype), chip.bandwidth("hbm")
    points = []
    for name, intensity, rate in layer_points(job, report.ledger):
        by_memory = intensity * memory < peak
        bound = {"bound": "HBM" if by_memory else "compute", "why": "", "roof": "HBM" if by_memory else top}
        points.append({"name": name, "intensity": intensity, "rate": rate, **bound})
    roofs, wired = _network(report.ledger, one.flops, one.step_s, peak)
    roofs = [{"name": top, "peak": peak, "bandwidth": memory, "role": "hbm"}, *roofs]
    return {"roofs": roofs, "points": points + wired, "about": f"{typed_plan(plan)} on {chip.title}, {plan.dtype}"}


def _network(ledger: Ledger, flops: float, step_s: float, peak: float) -> tuple[list[Card], list[Card]]:
    """For each set of axes the bytes a second that its moves get at datasheet rates as a roof, and the step's FLOPs per
    byte sent."""
    seconds: dict[tuple[str, ...], float] = {}
    for line in ledger.lines:
        if line.moves and line.axes:
            key = tuple(sorted(line.axes))
            seconds[key] = seconds.get(key, 0.0) + float(line.total("bound_s"))
    roofs, points = [], []
    for axes, sent in ledger.sent_bytes.items():
        size, took = float(sent), seconds.get(axes, 0.0)
        if size <= 0 or took <= 0:
            continue
        over, intensity, bandwidth = "+".join(axes), flops / size, size / took
        wires = f"wires of {over}"
        bound = wires if intensity * bandwidth < peak else "compute"
        roofs.append({"name": wires, "peak": peak, "bandwidth": bandwidth, "role": axes[0]})
        point = {"name": f"step over {over}", "intensity": intensity, "rate": flops / step_s}
        points.append(point | {"bound": bound, "why": f"sent:{over}", "roof": wires})
    return roofs, points


def trace_panel(asked: PageRequest) -> dict[str, Any]:
    """One step in the format of Perfetto, to be downloaded."""
    report, _ = first_plan(asked)
    _, job, plan = job_of(asked)
    many = max(job.batch / (plan.replicas * plan.microbatch), 1.0)
    return step_timeline(report.ledger, many, f"{report.model} on {report.slice}: {typed_plan(plan)}")


def timeline_panel(asked: PageRequest) -> Card:
    """One step by tracks (compute, and one for each set of mesh axes): [name, start, seconds, depth, role, term] of
    each slice."""
    report, one = first_plan(asked)
    if one is None or not one.feasible:
        return {"total": amount(None, "s"), "tracks": []}
    return {
        "total": amount(one.step_s, "s", "step_s"),
        "tracks": tracks_of(trace_panel(asked)),
        "about": f"A chip of the fullest stage of {report.slice}; layers of a kind are drawn together.",
    }
