"""A training plan as panels: the answer in a sentence, where the time goes, memory; the mesh with what goes over each
axis, the roofline with the plan's own operations, one step over time.

The first four (`answer`, `time`, `memory`, `mesh`) are asked while a slider moves; the others when it rests, those that
search (`best_batches`, `scaling`, `against`) by themselves.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from dragonscale.blocks.amounts import amount, count, elsewhere, length_text, money, quantities, share
from dragonscale.commands.charts.moves import ORDER, mesh_axes
from dragonscale.commands.charts.roles import memory_parts, term_parts
from dragonscale.commands.charts.wiring import axis_wiring, slice_wiring
from dragonscale.commands.train.cost import usd_per_mtok
from dragonscale.commands.train.plans import MEMORY_NAMES
from dragonscale.commands.train.train_records import Neighbour, PlanReport, SliceRow, StackRow, TrainReport
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.training.cost.evaluation import layer_matmuls
from dragonscale.training.cost.step_timeline import step_timeline
from dragonscale.training.plan.plan import Plan
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views import train_plan
from dragonscale.web.views.cards import (
    Card,
    bar_parts,
    bounded,
    fields,
    figure,
    held_row,
    line_rows,
    mesh_card,
    notes_of,
)
from dragonscale.web.views.tracks import tracks_of
from dragonscale.web.views.train_curves import batches_panel, best_batches_panel, scaling_panel
from dragonscale.web.views.train_plan import STEP, first_plan, job_of, only_too_large, typed_plan, typed_slice

DAY = 86400.0
AXIS_WORDS = {
    "pipe": "pipeline",
    "data": "copies",
    "fsdp": "FSDP",
    "expert": "experts",
    "context": "context",
    "tensor": "tensor",
}


def answer_panel(request: PageRequest) -> Card:
    """The answer in a sentence with its band, the figures under it, and the other plans."""
    report, plan_report = first_plan(request)
    work = report.workload
    size = f"{render(work.parameters, 'count')} parameters"
    feasible = f"{report.feasible:,} of {report.searched:,} plans are"
    common = {
        **fields(report, "model slice"),
        **fields(work, "stack stack_why dtype"),
        "on": typed_slice(request, report.slice),
        "parameters": amount(work.parameters, "count", "model:parameters", size),
        "batch": {"tokens": work.batch_tokens, "sequences": work.sequences, "seq": work.seq},
        "searched": f"{feasible} feasible, searched in {render(report.search_s, 's')}." if report.searched > 1 else "",
        "slices": [_slice_row(row) | {"on": typed_slice(request, row.slice)} for row in report.slices],
        "stacks": [_stack_row(row) for row in report.stacks] if len(report.stacks) > 1 else [],
        "neighbours": [_neighbour(request, neighbour) for neighbour in report.neighbours],
        "notes": notes_of(report),
    }
    if plan_report is None:
        no_plan = report.notes[0] if report.notes else f"{report.headline()}."
        return common | {"feasible": False, "sentence": no_plan, "problems": [], "figures": [], "plans": []}
    plan = typed_plan(plan_report.plan)
    gains = [amount(help.gain, "share", "helps", f"{help.gain:+.0%}") for help in plan_report.helps]
    helps = [
        {**fields(help, "change needs"), "gain": gain} for help, gain in zip(plan_report.helps, gains, strict=True)
    ]
    return common | {
        **fields(plan_report, "feasible chips stack bound_by advice problems gradients"),
        "sentence": _sentence(report, plan_report, plan),
        "plan": plan,
        "plan_words": _plan_words(plan_report.plan),
        "settings": vars(plan_report.plan),
        "divides": plan_report.plan.replicas * plan_report.plan.microbatch,
        "band": f"{plan_report.band[:1].upper()}{plan_report.band[1:].rstrip('.')}.",
        "region": train_plan.region_of(plan_report) if plan_report.feasible else None,
        "helps": helps,
        "figures": _figures(report, plan_report) if plan_report.feasible else _no_figures(plan_report),
        "plans": [_other(other, plan_report) for other in report.plans],
    }


def _sentence(report: TrainReport, plan_report: PlanReport, plan: str) -> str:
    if not plan_report.feasible:
        return f"{plan} cannot train {report.model} on {report.slice}: {'; '.join(plan_report.problems)}."
    times = f"{render(plan_report.step_s, 's')} a step, {plan_report.mfu_text}"
    spare = render(max(plan_report.hbm_limit_bytes - plan_report.hbm_bytes, 0.0), "bytes")
    method = report.workload.method
    model = f"{report.model}, {method}," if method not in ("", "full") else report.model
    fits = f"{times}: {model} fits on {report.slice} with {spare} of a chip to spare{_tight(plan_report)}."
    return f"{fits} {_bill(report, plan_report)}".rstrip()


def _bill(report: TrainReport, plan_report: PlanReport) -> str:
    """How long the tokens of the run take and what they cost, with failures; without tokens what a million of them
    costs."""
    tokens, run = report.workload.tokens, report.goodput
    if not tokens or plan_report.days is None:
        million = usd_per_mtok(report, plan_report)
        return "" if million is None else f"A million tokens cost {money(million)}."
    days, usd, how = plan_report.days, plan_report.cost_usd, ""
    if run is not None:
        days, usd, how = run.days, run.cost_usd, ", failures included"
    cost = "" if usd is None else f" and {money(usd)}"
    return f"{render(tokens, 'count')} tokens take {length_text(days)}{cost}{how}."


def _plan_words(plan: Plan) -> str:
    """What the short form of a plan stands for."""
    ways = [f"{getattr(plan, axis):,}-way {name}" for axis, name in AXIS_WORDS.items() if getattr(plan, axis) > 1]
    recomputed = "nothing recomputed" if plan.remat == "none" else f"recompute {plan.remat}"
    return ", ".join([*(ways or ["one chip"]), f"ZeRO-{plan.zero}", f"microbatch {plan.microbatch:,}", recomputed])


def _band(plan_report: PlanReport) -> str:
    return f"{render(plan_report.step_low_s, 's')} to {render(plan_report.step_high_s, 's')}"


def _tight(plan_report: PlanReport) -> str:
    """The mark of a plan that leaves no room in memory."""
    return ", tight" if plan_report.feasible and plan_report.tight else ""


def _other(other: PlanReport, first: PlanReport) -> Card:
    """A plan of the list: a click takes it."""
    slower = other.step_s / first.step_s - 1 if first.step_s else 0.0
    plan = typed_plan(other.plan)
    why = str if other is first else partial(elsewhere, {"plan": plan})
    times = quantities(other, STEP, why) if other.feasible else {"step": amount(None, "s"), "mfu": share(None)}
    memory = f"{render(other.hbm_bytes, 'bytes')}{_tight(other)}"
    return {
        "plan": plan,
        **times,
        "slower": f"{slower:+.1%}",
        "memory": amount(other.hbm_bytes, "bytes", why("hbm_bytes"), memory),
        **fields(other, "runnable verifiable bound_by"),
    }


def _neighbour(request: PageRequest, neighbour: Neighbour) -> Card:
    there = {"on": typed_slice(request, neighbour.slice), "batch": f"{neighbour.sequences}seq", "plan": neighbour.plan}
    return there | quantities(neighbour, STEP, partial(elsewhere, there))


def _stack_row(row: StackRow) -> Card:
    there = partial(elsewhere, {"stack": row.stack, "plan": row.plan})
    return fields(row, "stack plan tight mostly") | quantities(row, STEP, there)


def _slice_row(row: SliceRow) -> Card:
    there = {"on": row.slice, "plan": row.plan or ""}
    money = {"chips": "chips", "usd_per_mtok": "usd_per_mtok", "cost": "cost_usd"}
    days = amount(row.days, "count", text="" if row.days is None else f"{row.days:.3g}")
    amounts = quantities(row, STEP, partial(elsewhere, there)) | quantities(row, money, "")
    return {**fields(row, "stack plan note"), **amounts, "days": days}


def _figures(report: TrainReport, plan_report: PlanReport) -> list[Card]:
    """The headline numbers, with what stands beside each."""
    run, million = report.goodput, usd_per_mtok(report, plan_report)
    bounds = [
        {"text": "with perfect overlap", "number": amount(plan_report.lower_s, "s", "lower_s")},
        {"text": "with none", "number": amount(plan_report.upper_s, "s", "upper_s")},
    ]
    tokens = count(plan_report.tokens_per_s_per_chip, "tokens_per_s_per_chip")
    figures = [
        figure("step", amount(plan_report.step_s, "s", "step_s"), _band(plan_report), more=bounds),
        figure("MFU", share(plan_report.own_mfu, "own_mfu"), plan_report.of_peak),
        figure("tokens/s per chip", tokens, f"on {plan_report.chips:,} chips"),
        figure("memory", amount(plan_report.hbm_bytes, "bytes", "hbm_bytes"), _of_memory(plan_report)),
    ]
    if million is not None:
        price = next((row.text for row in report.prices if row.chip == report.slice.partition(":")[0]), "")
        number = amount(million, "USD", "usd_per_mtok", money(million))
        figures.append(figure("per million tokens", number, f"at {price}"))
    if plan_report.days is not None:
        days = amount(plan_report.days * DAY, "s", "days", length_text(plan_report.days))
        figures.append(figure("run", days, f"{plan_report.steps:,} steps" if plan_report.steps else ""))
    if run is not None:
        days, p90 = amount(run.days * DAY, "s", "goodput", length_text(run.days)), length_text(run.days_p90)
        dollars = "" if run.cost_usd is None else f"{money(run.cost_usd)}; "
        figures.append(figure("with failures", days, f"{dollars}p90 {p90}; {run.text}"))
    if plan_report.cost_usd is not None:
        hours = f"{render(plan_report.chip_hours, 'count')} chip hours" if plan_report.chip_hours else ""
        figures.append(
            figure("cost", amount(plan_report.cost_usd, "USD", "cost_usd", money(plan_report.cost_usd)), hours)
        )
    return [{"more": [], **row} for row in figures]


def _of_memory(plan_report: PlanReport) -> str:
    return f"of {render(plan_report.hbm_limit_bytes, 'bytes')} on the fullest chip{_tight(plan_report)}"


def _no_figures(plan_report: PlanReport) -> list[Card]:
    """A plan that cannot run takes no time; what it would hold is told where memory is all that it lacks."""
    memory = amount(plan_report.hbm_bytes if only_too_large(plan_report) else None, "bytes", "hbm_bytes")
    times = {"step": "s", "MFU": "share", "tokens/s per chip": "count"}
    figures = [figure(label, amount(None, unit), more=[]) for label, unit in times.items()]
    return [*figures, figure("memory", memory, _of_memory(plan_report), more=[])]


def time_panel(request: PageRequest) -> Card:
    """Exposed and hidden seconds by term, each with its lines. What is exposed adds up to the step."""
    report, plan_report = first_plan(request)
    if plan_report is None or not plan_report.feasible:
        return {"parts": []}
    bounds = {term.name: term.lower_s for term in plan_report.terms}
    lines = {} if request.brief else line_rows(report.ledger)
    cards = bounded(term_parts(plan_report.terms), "term", bounds, lines)
    return {
        **quantities(plan_report, {"total": "step_s", "lower": "lower_s", "upper": "upper_s"}, str),
        "hidden": amount(sum(max(term.expected_s - term.exposed_s, 0.0) for term in plan_report.terms), "s"),
        "parts": [card | {"share": share(card["shown"]["value"] / plan_report.step_s)} for card in cards],
    }


def memory_panel(request: PageRequest) -> Card:
    """Bytes of the fullest chip by part, against what it has; the parts add up."""
    report, plan_report = first_plan(request)
    if plan_report is None or not (plan_report.feasible or only_too_large(plan_report)):
        return {"parts": []}
    parts = memory_parts((row.name, row.bytes) for row in plan_report.memory)
    return {
        **quantities(plan_report, {"used": "hbm_bytes", "limit": "hbm_limit_bytes"}, str),
        "parts": bar_parts(parts, "bytes", "memory", {} if request.brief else _held_rows(report.ledger)),
    }


def _held_rows(ledger: Ledger) -> dict[str, list[Card]]:
    """Tensors on a chip by their part of memory, the largest first."""
    rows: dict[str, list[Card]] = {}
    for tensor in sorted(ledger.held, key=lambda tensor: -float(tensor.bytes)):
        rows.setdefault(MEMORY_NAMES.get(tensor.part, tensor.part), []).append(
            held_row(tensor) | fields(tensor, "since until")
        )
    return rows


def against_panel(request: PageRequest) -> Card:
    """A given plan beside the best one, as `dscale train --plan` compares them: how far it is from it, and which
    setting to change. It is a search, so it is asked by itself."""
    if not request.fields.get("plan"):
        return {"text": "", "changes": []}
    searched = {name: value for name, value in request.fields.items() if name != "alone"}
    report: TrainReport = request.ask("train", searched, brief=False)
    best, measured = report.better, report.measured
    plan = typed_plan(best.plan) if best else ""
    suspects = [
        {
            **fields(suspect, "cause look"),
            "step": amount(suspect.step_s, "s", "measured"),
            "explains": f"{suspect.explains:.0%}",
        }
        for suspect in (measured.suspects if measured else ())
    ]
    changes = [
        {
            **fields(change, "setting plan"),
            "from": str(change.old),
            "to": str(change.new),
            "step": amount(change.step_s, "s", elsewhere({"plan": change.plan}, "step_s")),
            "gain": f"{change.gain:+.1%}",
            "better": change.gain > 0,
        }
        for change in report.changes
    ]
    return {
        "text": report.comparison or f"None of {report.searched:,} plans is feasible.",
        "best": best and {"plan": plan, **quantities(best, STEP, partial(elsewhere, {"plan": plan}))},
        "changes": changes,
        "measured": measured and {"text": measured.text, "suspects": suspects},
    }


def mesh_panel(request: PageRequest) -> Card:
    """The mesh's axes with the collectives that run over each, and the chips at their places."""
    report, plan_report = first_plan(request)
    if plan_report is None:
        return {"slice": report.slice, "axes": [], "frames": [], "dots": [], "wiring": "", "chip": ""}
    slice_ = job_of(request)[1].slice
    degrees = {name: getattr(plan_report.plan, name) for name in ORDER if hasattr(plan_report.plan, name)}
    axes = mesh_axes(degrees, report.ledger.lines)
    if not plan_report.feasible:  # nothing travels in a step that cannot be
        axes = [replace(axis, moves=()) for axis in axes]
    wiring = axis_wiring({name: degree for name, degree in degrees.items() if degree > 1}, slice_)
    shape = {"wiring": slice_wiring(slice_), "chip": slice_.chip.title, "chips": count(plan_report.chips)}
    return mesh_card(axes, report.slice, wiring) | shape


def roofline_panel(request: PageRequest) -> Card:
    """The forward matmuls of a layer under the roof of the chip's memory; the whole step under the roof of each set of
    wires."""
    report, plan_report = first_plan(request)
    if plan_report is None or not plan_report.feasible:
        return {"roofs": [], "points": []}
    _, job, plan = job_of(request)
    chip, top = job.slice.chip, f"{plan.dtype} peak"
    peak, memory = chip.peak(plan.dtype), chip.bandwidth("hbm")
    points = []
    for matmul in layer_matmuls(job, report.ledger):
        by_memory = matmul.intensity * memory < peak
        bound = {"bound": "HBM" if by_memory else "compute", "why": "", "roof": "HBM" if by_memory else top}
        points.append({"name": matmul.name, "intensity": matmul.intensity, "rate": matmul.flops_per_s, **bound})
    roofs, wired = _network(report.ledger, plan_report.flops, plan_report.step_s, peak)
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


def trace_panel(request: PageRequest) -> dict[str, Any]:
    """One step in the format of Perfetto, to be downloaded."""
    report, _ = first_plan(request)
    _, job, plan = job_of(request)
    many = max(job.batch / (plan.replicas * plan.microbatch), 1.0)
    return step_timeline(report.ledger, many, f"{report.model} on {report.slice}: {typed_plan(plan)}")


def timeline_panel(request: PageRequest) -> Card:
    """One step by tracks (compute, and one for each set of mesh axes): [name, start, seconds, depth, role, term] of
    each slice."""
    report, plan_report = first_plan(request)
    if plan_report is None or not plan_report.feasible:
        return {"total": amount(None, "s"), "tracks": []}
    return {
        "total": amount(plan_report.step_s, "s", "step_s"),
        "tracks": tracks_of(trace_panel(request)),
        "about": f"A chip of the fullest stage of {report.slice}; layers of a kind are drawn together.",
    }


PANELS = {
    "answer": answer_panel,
    "time": time_panel,
    "memory": memory_panel,
    "mesh": mesh_panel,
    "sliders": train_plan.sliders_panel,
    "roofline": roofline_panel,
    "timeline": timeline_panel,
    "trace": trace_panel,
    "batches": batches_panel,
    "best_batches": best_batches_panel,
    "scaling": scaling_panel,
    "against": against_panel,
}
