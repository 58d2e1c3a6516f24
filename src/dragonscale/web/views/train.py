"""A training plan as panels: the answer in a sentence, where the time goes, memory, the mesh."""

from typing import Any

from dragonscale.plan.ledger import Ledger
from dragonscale.reports.charts.moves import ORDER, mesh_axes
from dragonscale.reports.charts.roles import memory_parts, time_parts
from dragonscale.reports.train.records import PlanReport, TrainReport
from dragonscale.training.plan import Plan, short_plan
from dragonscale.units import render
from dragonscale.web.amounts import amount, count, share
from dragonscale.web.asked import Asked
from dragonscale.web.views.ledgers import held_rows, line_rows


def _first(asked: Asked) -> tuple[TrainReport, PlanReport | None]:
    report: TrainReport = asked.record
    return report, report.plans[0] if report.plans else None


def answer_panel(asked: Asked) -> dict[str, Any]:
    """The answer in a sentence with its band, the figures under it, and the other plans."""
    report, one = _first(asked)
    if one is None:
        return {"feasible": False, "sentence": report.headline(), "notes": report.notes, "plans": []}
    plan = short_plan(Plan(**one.plan))
    band = f"{render(one.step_low_s, 's')} to {render(one.step_high_s, 's')}"
    said = f"{render(one.step_s, 's')} a step ({band}), {one.mfu:.1%} MFU, bound by {one.bound_by}"
    return {
        "feasible": one.feasible,
        "sentence": f"{plan} trains {report.model} on {report.slice}: {said}." if one.feasible else report.headline(),
        "plan": plan,
        "settings": one.plan,
        "slice": report.slice,
        "stack": one.stack,
        "band": one.band,
        "bound_by": one.bound_by,
        "advice": one.advice,
        "problems": one.problems,
        "notes": [*report.notes, *report.notes_beside],
        "figures": _figures(report, one),
        "plans": [
            {"plan": short_plan(Plan(**other.plan)), "step": amount(other.step_s, "s"), "mfu": share(other.mfu),
             "memory": amount(other.hbm_bytes, "bytes"), "runnable": other.runnable, "verifiable": other.verifiable}
            for other in report.plans
        ],
        "searched": report.searched,
        "batch": {"tokens": report.workload.batch_tokens, "sequences": report.workload.sequences, "seq": report.workload.seq},
    }  # fmt: skip


def _figures(report: TrainReport, one: PlanReport) -> list[dict[str, Any]]:
    """The headline numbers."""
    rows = [
        ("step", amount(one.step_s, "s", "step_s"), f"{render(one.lower_s, 's')} at best, {render(one.upper_s, 's')} without overlap"),
        ("MFU", share(one.mfu, "mfu"), f"of the {one.mfu_peak}"),
        ("tokens/s per chip", count(one.tokens_per_s_per_chip, "tokens_per_s_per_chip"), ""),
        ("memory", amount(one.hbm_bytes, "bytes", "hbm_bytes"), f"of {render(one.hbm_limit_bytes, 'bytes')}"),
    ]  # fmt: skip
    if one.days is not None:
        rows.append(
            (
                "run",
                amount(one.days * 86400, "s", "days", f"{one.days:.3g} days"),
                f"{report.workload.tokens or 0:.3g} tokens",
            )
        )
    if one.cost_usd is not None:
        rows.append(("cost", amount(one.cost_usd, "USD", "cost_usd"), ""))
    return [{"label": label, "number": number, "about": about} for label, number, about in rows]


def time_panel(asked: Asked) -> dict[str, Any]:
    """Exposed and hidden seconds by term, each with its lines."""
    report, one = _first(asked)
    if one is None:
        return {"parts": []}
    rows = [(term.name, term.exposed_s, max(term.expected_s - term.exposed_s, 0.0)) for term in one.terms]
    bounds = {term.name: term.lower_s for term in one.terms}
    lines = line_rows(report.ledger)
    return {
        "total": amount(one.step_s, "s", "step_s"),
        "lower": amount(one.lower_s, "s", "lower_s"), "upper": amount(one.upper_s, "s", "upper_s"),
        "parts": [
            {"name": part.name, "role": part.role, "shown": amount(part.value, "s", f"term:{part.name}"),
             "hidden": amount(part.hidden, "s", f"term:{part.name}"),
             "bound": amount(bounds.get(part.name, 0.0), "s", f"term:{part.name}"), "lines": lines.get(part.name, [])}
            for part in time_parts(rows)
        ],
    }  # fmt: skip


def memory_panel(asked: Asked) -> dict[str, Any]:
    """Bytes of the fullest chip by part, against what it has."""
    report, one = _first(asked)
    if one is None:
        return {"parts": []}
    held = held_rows(report.ledger)
    return {
        "used": amount(one.hbm_bytes, "bytes", "hbm_bytes"), "limit": amount(one.hbm_limit_bytes, "bytes", "hbm_limit_bytes"),
        "parts": [
            {"name": part.name, "role": part.role, "shown": amount(part.value, "bytes", f"memory:{part.name}"),
             "lines": held.get(part.name, [])}
            for part in memory_parts((row.name, row.bytes) for row in one.memory)
        ],
    }  # fmt: skip


def mesh_panel(asked: Asked) -> dict[str, Any]:
    """The mesh's axes with the collectives that run over each."""
    report, one = _first(asked)
    if one is None:
        return {"axes": []}
    return mesh_of(report.ledger, {name: one.plan[name] for name in ORDER if name in one.plan}, report.slice)


def mesh_of(ledger: Ledger, degrees: dict[str, int], where: str) -> dict[str, Any]:
    """A mesh for the page's drawing, outermost axis first."""
    return {
        "slice": where,
        "axes": [
            {"name": axis.name, "degree": axis.degree, "role": axis.role, "splits": axis.splits,
             "moves": [
                 {"name": move.name, "bytes": amount(move.bytes, "bytes", f"sent:{axis.name}"),
                  "seconds": amount(move.seconds, "s"), "exposed": amount(move.exposed, "s")}
                 for move in axis.moves
             ]}
            for axis in mesh_axes(degrees, ledger.lines)
        ],
    }  # fmt: skip


PANELS = {"answer": answer_panel, "time": time_panel, "memory": memory_panel, "mesh": mesh_panel}
