"""A plan on its chips: the mesh with what goes over each axis, the roofline with the plan's own operations, one step
over time."""

from typing import Any

from dragonscale.app.charts.moves import ORDER, mesh_axes
from dragonscale.app.charts.wiring import axis_wiring, slice_wiring
from dragonscale.plan.ledger import Ledger
from dragonscale.sheets.charts.mesh import mesh_frames
from dragonscale.training.evaluation import Job
from dragonscale.training.layer_rooflines import layer_points
from dragonscale.training.plan import Plan
from dragonscale.training.step_timeline import step_timeline
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.tracks import tracks_of
from dragonscale.web.views.train_plan import first_plan, job_of, typed_plan


def mesh_panel(asked: PageRequest) -> dict[str, Any]:
    """The mesh's axes with the collectives that run over each, and the chips at their places."""
    report, one = first_plan(asked)
    if one is None:
        return {"slice": report.slice, "axes": [], "frames": [], "dots": [], "wiring": "", "chip": ""}
    _, job, _ = job_of(asked)
    degrees = {name: getattr(one.plan, name) for name in ORDER if hasattr(one.plan, name)}
    found = mesh_of(report.ledger, degrees, report.slice)
    laid = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, job.slice)
    for axis in found["axes"]:
        axis["lies"] = laid.get(axis["name"], "")
        if not one.feasible:  # nothing travels in a step that cannot be
            axis["moves"] = []
    return found | {"wiring": slice_wiring(job.slice), "chip": job.slice.chip.title, "chips": count(one.chips)}


def mesh_of(ledger: Ledger, degrees: dict[str, int], where: str) -> dict[str, Any]:
    """A mesh for the page's drawing, outermost axis first: its axes, and frames and chips at their places."""
    axes = mesh_axes(degrees, ledger.lines)
    frames, dots = mesh_frames([(axis.name, axis.degree) for axis in axes])
    return {
        "slice": where,
        "axes": [
            {
                "name": axis.name,
                "degree": axis.degree,
                "role": axis.role,
                "splits": axis.splits,
                "moves": [
                    {
                        "name": move.name,
                        "bytes": amount(move.bytes, "bytes", f"sent:{axis.name}"),
                        "seconds": amount(move.seconds, "s", f"sent:{axis.name}"),
                        "exposed": amount(move.exposed, "s", f"sent:{axis.name}"),
                        "hidden": (move.exposed or 0.0) <= 0.005 * (move.seconds or 0.0),
                    }
                    for move in axis.moves
                ],
            }
            for axis in axes
        ],
        "frames": [[one.left, one.top, one.right, one.bottom, one.axis] for one in frames],
        "dots": [list(dot) for dot in dots],
    }


def roofline_panel(asked: PageRequest) -> dict[str, Any]:
    """The forward matmuls of a layer under the roof of the chip's memory; the whole step under the roof of each set of
    wires."""
    report, one = first_plan(asked)
    if one is None or not one.feasible:
        return {"roofs": [], "points": []}
    _, job, plan = job_of(asked)
    chip, ledger = job.slice.chip, report.ledger
    peak, memory = chip.peak(plan.dtype), chip.bandwidth("hbm")
    top = f"{plan.dtype} peak"
    points = [
        {
            "name": name,
            "intensity": intensity,
            "rate": rate,
            "bound": "HBM" if intensity * memory < peak else "compute",
            "why": "",
            "roof": "HBM" if intensity * memory < peak else top,
        }
        for name, intensity, rate in layer_points(job, ledger)
    ]
    roofs, wired = _network(ledger, one.flops, one.step_s, peak)
    roofs = [{"name": top, "peak": peak, "bandwidth": memory, "role": "hbm"}, *roofs]
    return {"roofs": roofs, "points": points + wired, "about": f"{typed_plan(plan)} on {chip.title}, {plan.dtype}"}


def _network(ledger: Ledger, flops: float, step_s: float, peak: float) -> tuple[list[Any], list[Any]]:
    """For each set of axes the bytes a second that its moves get at datasheet rates as a roof, and the step's FLOPs per
    byte sent."""
    seconds: dict[tuple[str, ...], float] = {}
    for line in ledger.lines:
        if line.moves and line.axes:
            key = tuple(sorted(line.axes))
            seconds[key] = seconds.get(key, 0.0) + float(line.total("bound_s"))
    roofs, points = [], []
    for axes, sent in ledger.sent_bytes.items():
        name, size, took = "+".join(axes), float(sent), seconds.get(axes, 0.0)
        if size <= 0 or took <= 0:
            continue
        bandwidth = size / took
        roofs.append({"name": f"wires of {name}", "peak": peak, "bandwidth": bandwidth, "role": axes[0]})
        bound = f"wires of {name}" if flops / size * bandwidth < peak else "compute"
        points.append(
            {
                "name": f"step over {name}",
                "intensity": flops / size,
                "rate": flops / step_s,
                "bound": bound,
                "why": f"sent:{name}",
                "roof": f"wires of {name}",
            }
        )
    return roofs, points


def _trace(asked: PageRequest) -> tuple[dict[str, Any], Job, Plan]:
    report, _ = first_plan(asked)
    _, job, plan = job_of(asked)
    many = max(job.batch / (plan.replicas * plan.microbatch), 1.0)
    return step_timeline(report.ledger, many, f"{report.model} on {report.slice}: {typed_plan(plan)}"), job, plan


def trace_panel(asked: PageRequest) -> dict[str, Any]:
    """One step in the format of Perfetto, to be downloaded."""
    return _trace(asked)[0]


def timeline_panel(asked: PageRequest) -> dict[str, Any]:
    """One step by tracks (compute, and one for each set of mesh axes): [name, start, seconds, depth, role, term] of
    each slice."""
    report, one = first_plan(asked)
    if one is None or not one.feasible:
        return {"total": amount(None, "s"), "tracks": []}
    return {
        "total": amount(one.step_s, "s", "step_s"),
        "tracks": tracks_of(_trace(asked)[0]),
        "about": f"A chip of the fullest stage of {report.slice}; layers of a kind are drawn together.",
    }
