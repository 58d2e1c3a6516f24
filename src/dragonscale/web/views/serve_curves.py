"""What else a serving question could be answered with: every configuration by latency and throughput, and one plan over
its batch."""

import itertools

from dragonscale.blocks.amounts import count
from dragonscale.commands.serve.config import deployment_of
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport, degrees_text
from dragonscale.physics.units import render
from dragonscale.serving.advice.curves import BatchCurves, batch_curves, meeting_batch, plan_curves
from dragonscale.serving.space.frontier import Config
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, line, log_axis, mark, pairs, rule

ROLES = ("compute", "hbm", "tensor", "data", "expert", "pipe", "context", "fsdp")
LOWEST = 0.03
"""The part of the shortest step below which a resource's seconds are not drawn."""
_ABOUT = (
    "Solid: as expected. Dashed: each resource alone at datasheet rates; a step cannot be shorter than the highest."
)
_RESOURCES: dict[str, str] = TABLES["serve"]["resources"]


def frontier_panel(request: PageRequest) -> Card:
    """Tokens a second of a user against those of a chip, for every plan over its batches; the chosen one, and the
    targets."""
    report: ServeReport = request.record
    x, y = log_axis("output tokens/s of one user", "count"), log_axis("output tokens/s per chip", "count")
    if not report.configs or report.workload.output == 1:
        why = "One output token has no time per output token: there is nothing to trade." if report.configs else ""
        return {"points": [], "frontier": [], "x": x, "y": y, "about": why, "rules": []}
    chosen = report.configs[0]
    curves = plan_curves(report.asked, (chosen.copy_slice, chosen.plan))
    tpot = report.workload.tpot_s
    plans = zip(itertools.cycle(ROLES), curves.plans, strict=False)
    points = [_point(request, config, role, chosen) for role, plan in plans for config in plan]
    if not any(point["chosen"] for point in points):
        points.append(_chosen(request, chosen))
    left = f"; {curves.left_out} more plans are not drawn" if curves.left_out else ""
    return {
        "points": points,
        "x": x,
        "y": y,
        "frontier": [[1 / float(config.state.tpot), config.tokens_per_chip] for config in curves.frontier],
        "rules": [rule(1 / tpot, f"TPOT {render(tpot, 's')}")] if tpot else [],
        "about": f"Each point is a batch of a plan{left}. Right is faster for each user, up is more from each chip.",
    }


def _point(request: PageRequest, config: Config, role: str, chosen: ConfigReport) -> Card:
    tpot, cost = float(config.state.tpot), config.usd_per_mtok
    money = "" if cost is None else f", ${cost:,.2f} per million"
    misses = "" if config.meets else ", misses the SLO"
    is_chosen = (str(config.piece), str(config.plan), config.batch) == (chosen.copy_slice, chosen.plan, chosen.batch)
    # the slice to ask for: the one that was named, where the plan is of a part of it
    where = str(request.fields.get("on", ""))
    if "," in where or not where.startswith(f"{config.piece.chip.name}:"):
        where = str(config.piece)
    fields = {"on": where, "plan": str(config.plan), "batch": str(config.batch)}
    note = f"{_times(float(config.state.ttft), tpot)}{money}{misses}"
    name = f"{config.piece} {degrees_text(config.plan)}"
    point = _drawn(name, config.batch, 1 / tpot, config.tokens_per_chip, note, fields)
    return point | {"role": role, "chosen": is_chosen, "meets": config.meets}


def _times(ttft: float, tpot: float) -> str:
    return f"TTFT {render(ttft, 's')}, TPOT {render(tpot, 's')}"


def _drawn(group: str, batch: int, x: float, y: float, note: str, fields: dict[str, str]) -> Card:
    return {"x": x, "y": y, "name": f"{group}, batch {batch:,}", "group": group, "about": note, "fields": fields}


def _chosen(request: PageRequest, chosen: ConfigReport) -> Card:
    fields = {"on": str(request.fields.get("on", "") or chosen.slice), "plan": chosen.plan, "batch": str(chosen.batch)}
    rates, times = (
        (chosen.tokens_per_s_per_user, chosen.output_tokens_per_s_per_chip),
        _times(chosen.ttft_s, chosen.tpot_s),
    )
    point = _drawn(f"{chosen.copy_slice} {degrees_text(chosen)}", chosen.batch, *rates, times, fields)
    return point | {"role": ROLES[0], "chosen": True, "meets": chosen.meets_slo}


def batches_panel(request: PageRequest) -> Card:
    """A decode step over its batch: as expected, and by resource at datasheet rates; where compute takes over, where
    the targets break, and where memory is full."""
    report: ServeReport = request.record
    x, y = log_axis("sequences that decode at once", "count"), log_axis("time", "s")
    if not report.configs or report.workload.output == 1:
        return {"series": [], "x": x, "y": y, "rules": [], "marks": [], "crossings": []}
    chosen, read = report.configs[0], report.asked
    critical = next((row for row in report.limits if row.name == "critical batch"), None)
    up_to = critical.value if critical else 0.0
    curves = batch_curves(read, deployment_of(read, chosen), chosen.batch, chosen.max_batch, up_to)
    low = LOWEST * min(curves.expected)
    series = [
        line("a decode step", "ink", pairs(curves.batches, curves.expected, low), band=[]),
        line("TPOT", "limit", [(config.batch, float(config.state.tpot)) for config in curves.configs], dots=True),
    ]
    series += [
        line(name, _RESOURCES.get(name, "tensor"), pairs(curves.batches, values, low), dashed=True)
        for name, values in curves.resources.items()
        if name != "attention FLOPs"
    ]
    here = mark(chosen.batch, curves.at(curves.expected, chosen.batch), f"batch {chosen.batch:,}")
    return {
        "series": series,
        "x": x,
        "y": y | {"from": low},
        "rules": _rules(report, chosen, curves),
        "marks": [here, *_crossed(critical.value if critical else None, curves)],
        "crossings": _crossings(report, chosen, curves),
        "about": _ABOUT,
    }


def _rules(report: ServeReport, chosen: ConfigReport, curves: BatchCurves) -> list[Card]:
    """Where memory is full, where a target breaks, and the target itself."""
    rules, work, slo_batch = [rule(chosen.max_batch, f"{chosen.max_batch:,} fit", "cache")], report.workload, None
    if work.ttft_s or work.tpot_s:
        slo_batch = meeting_batch(curves.configs)
    if slo_batch is not None and slo_batch < chosen.max_batch:
        rules.append(rule(slo_batch, f"SLO met up to {slo_batch:,}"))
    if work.tpot_s:
        rules.append(rule(work.tpot_s, f"TPOT asked for: {render(work.tpot_s, 's')}", along="y"))
    return rules


def _crossed(critical: float | None, curves: BatchCurves) -> list[Card]:
    """The batch from which matmuls are bound by compute, on the curve of the weights' reads."""
    reads = curves.resources.get("weight reads")
    if critical is None or reads is None or not curves.batches[0] <= critical <= curves.batches[-1]:
        return []
    return [mark(critical, curves.at(reads, critical), f"compute takes over at {critical:,.0f}", role="compute")]


def _crossings(report: ServeReport, chosen: ConfigReport, curves: BatchCurves) -> list[Card]:
    """The batches at which something changes, told: what bounds the step by batch, and the limits that are solved."""
    bounds: list[Card] = []
    for config in curves.configs:
        if not bounds or bounds[-1]["bound_by"] != config.bound_by:
            bounds.append({"bound_by": config.bound_by, "from": count(config.batch), "here": False})
        bounds[-1]["here"] = bounds[-1]["here"] or config.batch == chosen.batch
    cards: list[Card] = []
    for row in bounds:
        text = f"from {row['from']['text']}: bound by {row['bound_by']}"
        cards.append({"text": text, "number": row["from"], "here": row["here"]})
    for row in report.limits:
        if row.name in ("critical batch", "largest batch"):
            number = count(row.value, f"limit:{row.name}")
            full = f"; at full length {chosen.max_batch:,} fit" if row.name == "largest batch" else ""
            cards.append(
                {"text": f"{row.name}: {row.counts}{full}", "formula": row.formula, "number": number, "here": False}
            )
    return cards
