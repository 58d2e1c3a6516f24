"""A training plan as panels: the answer in a sentence, where the time goes, memory, and what hangs on them.

The first four (`answer`, `time`, `memory`, `mesh`) are asked while a slider moves; the others when it rests, those that
search (`best_batches`, `scaling`, `against`) by themselves.
"""

from typing import Any

from dragonscale.app.charts.roles import memory_parts, time_parts
from dragonscale.app.train.records import Neighbour, PlanReport, SliceRow, TrainReport
from dragonscale.physics.units import render
from dragonscale.training.simplicity import leaves_room
from dragonscale.web.amounts import amount, count, elsewhere, share
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.ledgers import held_rows, line_rows
from dragonscale.web.views.train_against import against_panel
from dragonscale.web.views.train_curves import batches_panel, best_batches_panel, scaling_panel
from dragonscale.web.views.train_mesh import mesh_panel, roofline_panel, timeline_panel, trace_panel
from dragonscale.web.views.train_plan import first_plan, only_too_large, region_of, typed_plan, typed_slice
from dragonscale.web.views.train_sliders import sliders_panel

DAY = 86400.0


def answer_panel(asked: PageRequest) -> dict[str, Any]:
    """The answer in a sentence with its band, the figures under it, and the other plans."""
    report, one = first_plan(asked)
    work = report.workload
    common = {
        "model": report.model,
        "slice": report.slice,
        "on": typed_slice(asked, report.slice),
        "stack": work.stack,
        "stack_why": work.stack_why,
        "dtype": work.dtype,
        "parameters": count(work.parameters, "model:parameters", binary=False)
        | {"text": f"{render(work.parameters, 'count')} parameters"},
        "batch": {"tokens": work.batch_tokens, "sequences": work.sequences, "seq": work.seq},
        "searched": _searched(report),
        "slices": [_slice_row(row) | {"on": typed_slice(asked, row.slice)} for row in report.slices],
        "neighbours": [
            {
                "on": typed_slice(asked, near.slice),
                "batch": f"{near.sequences}seq",
                "plan": near.plan,
                "mfu": share(near.mfu, elsewhere(_near(asked, near), "mfu")),
                "step": amount(near.step_s, "s", elsewhere(_near(asked, near), "step_s")),
            }
            for near in report.neighbours
        ],
        "notes": list(dict.fromkeys([*report.notes, *report.notes_beside])),
    }
    if one is None:
        return common | {"feasible": False, "sentence": _no_plan(report), "problems": [], "figures": [], "plans": []}
    plan = typed_plan(one.plan)
    return common | {
        "feasible": one.feasible,
        "sentence": _sentence(report, one, plan),
        "plan": plan,
        "settings": vars(one.plan),
        "divides": one.plan.replicas * one.plan.microbatch,
        "chips": one.chips,
        "stack": one.stack,
        "band": f"{one.band.rstrip('.')}.",
        "bound_by": one.bound_by,
        "region": region_of(one) if one.feasible else None,
        "advice": one.advice,
        "problems": one.problems,
        "helps": [
            {
                "change": help.change,
                "gain": share(help.gain, "helps") | {"text": f"{help.gain:+.0%}"},
                "needs": help.needs,
            }
            for help in one.helps
        ],
        "figures": _figures(one),
        "plans": [_other(other, one) for other in report.plans],
    }


def _sentence(report: TrainReport, one: PlanReport, plan: str) -> str:
    if not one.feasible:
        return f"{plan} cannot train {report.model} on {report.slice}: {'; '.join(one.problems)}."
    band = f"{render(one.step_low_s, 's')} to {render(one.step_high_s, 's')}"
    said = f"{render(one.step_s, 's')} a step ({band}), {one.mfu:.1%} MFU"
    return f"{plan} trains {report.model} on {report.slice}: {said}."


def _no_plan(report: TrainReport) -> str:
    return report.notes[0] if report.notes else f"{report.headline()}."


def _searched(report: TrainReport) -> str:
    if report.searched <= 1:
        return ""
    return f"{report.feasible:,} of {report.searched:,} plans are feasible, searched in {render(report.search_s, 's')}."


def _tight(one: PlanReport) -> str:
    """The mark of a plan that leaves no room in memory."""
    return ", tight" if one.feasible and not leaves_room(one.hbm_bytes, one.hbm_limit_bytes) else ""


def _other(other: PlanReport, first: PlanReport) -> dict[str, Any]:
    """A plan of the list: a click takes it."""
    slower = other.step_s / first.step_s - 1 if first.step_s else 0.0
    plan = typed_plan(other.plan)
    why = {name: name if other is first else elsewhere({"plan": plan}, name) for name in ("step_s", "mfu", "hbm_bytes")}
    memory = amount(other.hbm_bytes, "bytes", why["hbm_bytes"])
    return {
        "plan": plan,
        "step": amount(other.step_s if other.feasible else None, "s", why["step_s"]),
        "slower": f"{slower:+.1%}",
        "mfu": share(other.mfu, why["mfu"]) if other.feasible else amount(None, "share"),
        "memory": memory | {"text": f"{memory['text']}{_tight(other)}"},
        "runnable": other.runnable,
        "verifiable": other.verifiable,
        "bound_by": other.bound_by,
    }


def _near(asked: PageRequest, near: Neighbour) -> dict[str, str]:
    return {"on": typed_slice(asked, near.slice), "batch": f"{near.sequences}seq", "plan": near.plan}


def _slice_row(row: SliceRow) -> dict[str, Any]:
    there = {"on": row.slice, "plan": row.plan or ""}
    return {
        "on": row.slice,
        "chips": count(row.chips),
        "stack": row.stack,
        "plan": row.plan,
        "note": row.note,
        "step": amount(row.step_s, "s", elsewhere(there, "step_s")),
        "mfu": share(row.mfu, elsewhere(there, "mfu")) if row.mfu is not None else amount(None, "share"),
        "usd_per_mtok": amount(row.usd_per_mtok, "USD"),
        "days": amount(row.days, "count", text="" if row.days is None else f"{row.days:.3g}"),
        "cost": amount(row.cost_usd, "USD"),
    }


def _figures(one: PlanReport) -> list[dict[str, Any]]:
    """The headline numbers, with what stands beside each. A plan that cannot run takes no time; what it would hold is
    told where memory is all that it lacks."""
    memory = amount(one.hbm_bytes, "bytes", "hbm_bytes")
    of = f"of {render(one.hbm_limit_bytes, 'bytes')} on the fullest chip{_tight(one)}"
    if not one.feasible:
        rows = [
            ("step", amount(None, "s"), ""),
            ("MFU", amount(None, "share"), ""),
            ("tokens/s per chip", amount(None, "count"), ""),
            ("memory", memory if only_too_large(one) else amount(None, "bytes"), of),
        ]
        return [{"label": label, "number": number, "about": about, "more": []} for label, number, about in rows]
    bounds = [
        {"text": "with perfect overlap", "number": amount(one.lower_s, "s", "lower_s")},
        {"text": "with none", "number": amount(one.upper_s, "s", "upper_s")},
    ]
    rows = [
        (
            "step",
            amount(one.step_s, "s", "step_s"),
            f"{render(one.step_low_s, 's')} to {render(one.step_high_s, 's')}",
            bounds,
        ),
        ("MFU", share(one.mfu, "mfu"), f"of the {one.mfu_peak}", []),
        ("tokens/s per chip", count(one.tokens_per_s_per_chip, "tokens_per_s_per_chip"), f"on {one.chips:,} chips", []),
        ("memory", memory, of, []),
    ]
    if one.days is not None:
        steps = f"{one.steps:,} steps" if one.steps else ""
        rows.append(("run", amount(one.days * DAY, "s", "days", f"{one.days:,.3g} days"), steps, []))
    if one.cost_usd is not None:
        hours = f"{one.chip_hours:,.4g} chip hours" if one.chip_hours else ""
        rows.append(("cost", amount(one.cost_usd, "USD", "cost_usd", f"${one.cost_usd:,.0f}"), hours, []))
    return [{"label": label, "number": number, "about": about, "more": more} for label, number, about, more in rows]


def time_panel(asked: PageRequest) -> dict[str, Any]:
    """Exposed and hidden seconds by term, each with its lines. What is exposed adds up to the step."""
    report, one = first_plan(asked)
    if one is None or not one.feasible:
        return {"parts": []}
    rows = [(term.name, term.exposed_s, max(term.expected_s - term.exposed_s, 0.0)) for term in one.terms]
    bounds = {term.name: term.lower_s for term in one.terms}
    lines = {} if asked.brief else line_rows(report.ledger)
    return {
        "total": amount(one.step_s, "s", "step_s"),
        "lower": amount(one.lower_s, "s", "lower_s"),
        "upper": amount(one.upper_s, "s", "upper_s"),
        "hidden": amount(sum(hidden for _, _, hidden in rows), "s"),
        "parts": [
            {
                "name": part.name,
                "role": part.role,
                "shown": amount(part.value, "s", f"term:{part.name}"),
                "hidden": amount(part.hidden, "s", f"term:{part.name}"),
                "share": share(part.value / one.step_s),
                "bound": amount(bounds.get(part.name, 0.0), "s", f"term:{part.name}"),
                "lines": lines.get(part.name, []),
            }
            for part in time_parts(rows)
        ],
    }


def memory_panel(asked: PageRequest) -> dict[str, Any]:
    """Bytes of the fullest chip by part, against what it has; the parts add up."""
    report, one = first_plan(asked)
    if one is None or not (one.feasible or only_too_large(one)):
        return {"parts": []}
    held = {} if asked.brief else held_rows(report.ledger)
    return {
        "used": amount(one.hbm_bytes, "bytes", "hbm_bytes"),
        "limit": amount(one.hbm_limit_bytes, "bytes", "hbm_limit_bytes"),
        "parts": [
            {
                "name": part.name,
                "role": part.role,
                "shown": amount(part.value, "bytes", f"memory:{part.name}"),
                "lines": held.get(part.name, []),
            }
            for part in memory_parts((row.name, row.bytes) for row in one.memory)
        ],
    }


PANELS = {
    "answer": answer_panel,
    "time": time_panel,
    "memory": memory_panel,
    "mesh": mesh_panel,
    "sliders": sliders_panel,
    "roofline": roofline_panel,
    "timeline": timeline_panel,
    "trace": trace_panel,
    "batches": batches_panel,
    "best_batches": best_batches_panel,
    "scaling": scaling_panel,
    "against": against_panel,
}
