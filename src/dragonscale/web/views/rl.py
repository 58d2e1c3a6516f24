"""A step of reinforcement learning as panels: the way to run it in a sentence, its phases as a bar, the other ways."""

from dragonscale.blocks.amounts import amount, count, dollars
from dragonscale.commands.rl.rl_records import RlPlanRow, RlReport
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import Card, fields, figure

ROLES = {
    "generation": "compute",
    "logprob": "compute:1",
    "reference": "compute:2",
    "reward": "elementwise",
    "update": "tensor",
    "weight transfer": "fsdp",
}
"""Colours of phases, those of what they mostly are."""


def answer_panel(request: PageRequest) -> Card:
    """The recommended way, and the others."""
    report: RlReport = request.record
    best = report.best
    common = {"notes": list(report.notes), "ways": [_way(row) for row in report.plans], "feasible": best is not None}
    if best is None:
        return common | {"sentence": f"{report.headline()}.", "figures": []}
    rate = count(best.likely_tokens)
    what = f"{report.algorithm.upper()} of {report.model} on {report.slice}"
    chips = f"{best.train_chips:,} chips train, {best.rollout_chips:,} generate"
    figures = [
        figure(
            "step", amount(best.likely_s, "s"), f"{render(best.step_low_s, 's')} to {render(best.step_high_s, 's')}"
        ),
        figure("tokens/s per chip", rate, chips if best.mode != "colocated" else f"{best.train_chips:,} chips do both"),
        figure("memory", amount(best.hbm_bytes, "bytes"), f"of {render(best.hbm_limit_bytes, 'bytes')}"),
        figure("staleness", count(best.staleness), "steps that answers may be old"),
    ]
    if best.cost_usd_per_step is not None:
        figures.append(figure("a step costs", dollars(best.cost_usd_per_step * best.likely_s / best.step_s), ""))
    changes = [f"{change.what}: {change.gain:+.0%} tokens/s" for change in report.changes]
    return common | {
        "sentence": f"{render(best.likely_s, 's')} a step, {rate['text']} tokens/s per chip: {what}, {best.mode}.",
        "plan": f"{best.train} + {best.replicas} x {best.rollout}",
        "about": f"{best.stack}: {best.train_stack} trains, {best.engine} generates, weights by {best.transfer}",
        "advice": f"Bound by {report.bound_by}. " + (f"Otherwise: {'; '.join(changes)}." if changes else ""),
        "figures": figures,
    }


def _way(row: RlPlanRow) -> Card:
    sizes = {"step": amount(row.likely_s, "s"), "rate": count(row.likely_tokens)}
    return fields(row, "mode stack train rollout train_chips rollout_chips feasible") | sizes


def phases_panel(request: PageRequest) -> Card:
    """What the step waits for, and what of each phase is hidden behind others."""
    best = request.record.best
    if best is None:
        return {"parts": []}
    parts = [
        {
            "name": phase.name,
            "role": ROLES.get(phase.name, "muted"),
            "shown": amount(phase.exposed_s, "s"),
            "hidden": amount(phase.seconds - phase.exposed_s, "s"),
        }
        for phase in best.phases
    ]
    return {"total": amount(best.step_s, "s"), "parts": parts}


PANELS = {"answer": answer_panel, "phases": phases_panel}
