"""What else a serving question could be answered with: every configuration by latency and throughput, and one plan over
its batch."""

import itertools

from dragonscale.commands.serve.config import deployment_of
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport, degrees_text
from dragonscale.physics.units import render
from dragonscale.serving.advice.curves import BatchCurves, batch_curves, meeting_batch, plan_curves
from dragonscale.serving.space.frontier import Config
from dragonscale.web.amounts import count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, line, log_axis, mark, pairs, rule

ROLES = ("compute", "hbm", "tensor", "data", "expert", "pipe", "context", "fsdp")
LOWEST = 0.03
"""The part of the shortest step below which a resource's seconds are not drawn."""
_ABOUT = (
    "Solid: as expected. Dashed: each resource alone at datasheet rates; a step cannot be shorter than the highest."
)
_RESOURCES: dict[str, str] = TABLES["serve"]["resources"]


def frontier_panel(asked: PageRequest) -> Card:
    """Tokens a second of a user against those of a chip, for every plan over its batches; the chosen one, and the
    targets."""
    report: ServeReport = asked.record
    x, y = log_axis("output tokens/s of one user", "count"), log_axis("output tokens/s per chip", "count")
    if not report.configs or report.workload.output == 1:
        why = "One output token has no time per output token: there is nothing to trade." if report.configs else ""
        return {"points": [], "frontier": [], "x": x, "y": y, "about": why, "rules": []}
    one = report.configs[0]
    curves = plan_curves(report.asked, (one.copy_slice, one.plan))
    tpot = report.workload.tpot_s
    plans = zip(itertools.cycle(ROLES), curves.plans, strict=False)
    points = [_point(asked, config, role, one) for role, plan in plans for config in plan]
    if not any(point["chosen"] for point in points):
        points.append(_chosen(asked, one))
    left = f"; {curves.left_out} more plans are not drawn" if curves.left_out else ""
    return {
        "points": points,
        "x": x,
        "y": y,
        "frontier": [[1 / float(own.state.tpot), own.tokens_per_chip] for own in curves.frontier],
        "rules": [rule(1 / tpot, f"TPOT {render(tpot, 's')}")] if tpot else [],
        "about": f"Each point is a batch of a plan{left}. Right is faster for each user, up is more from each chip.",
    }


def _point(asked: PageRequest, config: Config, role: str, one: ConfigReport) -> Card:
    tpot, cost = float(config.state.tpot), config.usd_per_mtok
    money = "" if cost is None else f", ${cost:,.2f} per million"
    misses = "" if config.meets else ", misses the SLO"
    chosen = (str(config.piece), str(config.plan), config.batch) == (one.copy_slice, one.plan, one.batch)
    # the slice to ask for: the one that was named, where the plan is of a part of it
    given = str(asked.fields.get("on", ""))
    where = given if given.startswith(f"{config.piece.chip.name}:") and "," not in given else str(config.piece)
    fields = {"on": where, "plan": str(config.plan), "batch": str(config.batch)}
    about = f"{_times(float(config.state.ttft), tpot)}{money}{misses}"
    name = f"{config.piece} {degrees_text(config.plan)}"
    point = _drawn(name, config.batch, 1 / tpot, config.tokens_per_chip, about, fields)
    return point | {"role": role, "chosen": chosen, "meets": config.meets}


def _times(ttft: float, tpot: float) -> str:
    return f"TTFT {render(ttft, 's')}, TPOT {render(tpot, 's')}"


def _drawn(group: str, batch: int, x: float, y: float, about: str, fields: dict[str, str]) -> Card:
    return {"x": x, "y": y, "name": f"{group}, batch {batch:,}", "group": group, "about": about, "fields": fields}


def _chosen(asked: PageRequest, one: ConfigReport) -> Card:
    fields = {"on": str(asked.fields.get("on", "") or one.slice), "plan": one.plan, "batch": str(one.batch)}
    rates, times = (one.tokens_per_s_per_user, one.output_tokens_per_s_per_chip), _times(one.ttft_s, one.tpot_s)
    point = _drawn(f"{one.copy_slice} {degrees_text(one)}", one.batch, *rates, times, fields)
    return point | {"role": ROLES[0], "chosen": True, "meets": one.meets_slo}


def batches_panel(asked: PageRequest) -> Card:
    """A decode step over its batch: as expected, and by resource at datasheet rates; where compute takes over, where
    the targets break, and where memory is full."""
    report: ServeReport = asked.record
    x, y = log_axis("sequences that decode at once", "count"), log_axis("time", "s")
    if not report.configs or report.workload.output == 1:
        return {"series": [], "x": x, "y": y, "rules": [], "marks": [], "crossings": []}
    one, read = report.configs[0], report.asked
    critical = next((row for row in report.limits if row.name == "critical batch"), None)
    up_to = critical.value if critical else 0.0
    curves = batch_curves(read, deployment_of(read, one), one.batch, one.max_batch, up_to)
    low = LOWEST * min(curves.expected)
    series = [
        line("a decode step", "ink", pairs(curves.batches, curves.expected, low), band=[]),
        line("TPOT", "limit", [(own.batch, float(own.state.tpot)) for own in curves.configs], dots=True),
    ]
    series += [
        line(name, _RESOURCES.get(name, "tensor"), pairs(curves.batches, values, low), dashed=True)
        for name, values in curves.resources.items()
        if name != "attention FLOPs"
    ]
    here = mark(one.batch, curves.at(curves.expected, one.batch), f"batch {one.batch:,}")
    return {
        "series": series,
        "x": x,
        "y": y | {"from": low},
        "rules": _rules(report, one, curves),
        "marks": [here, *_crossed(critical.value if critical else None, curves)],
        "crossings": _crossings(report, one, curves),
        "about": _ABOUT,
    }


def _rules(report: ServeReport, one: ConfigReport, curves: BatchCurves) -> list[Card]:
    """Where memory is full, where a target breaks, and the target itself."""
    rules, work, most = [rule(one.max_batch, f"{one.max_batch:,} fit", "cache")], report.workload, None
    if work.ttft_s or work.tpot_s:
        most = meeting_batch(curves.configs)
    if most is not None and most < one.max_batch:
        rules.append(rule(most, f"SLO met up to {most:,}"))
    if work.tpot_s:
        rules.append(rule(work.tpot_s, f"TPOT asked for: {render(work.tpot_s, 's')}", along="y"))
    return rules


def _crossed(critical: float | None, curves: BatchCurves) -> list[Card]:
    """The batch from which matmuls are bound by compute, on the curve of the weights' reads."""
    reads = curves.resources.get("weight reads")
    if critical is None or reads is None or not curves.batches[0] <= critical <= curves.batches[-1]:
        return []
    return [mark(critical, curves.at(reads, critical), f"compute takes over at {critical:,.0f}", role="compute")]


def _crossings(report: ServeReport, one: ConfigReport, curves: BatchCurves) -> list[Card]:
    """The batches at which something changes, told: what bounds the step by batch, and the limits that are solved."""
    found: list[Card] = []
    for config in curves.configs:
        if not found or found[-1]["bound_by"] != config.bound_by:
            found.append({"bound_by": config.bound_by, "from": count(config.batch), "here": False})
        found[-1]["here"] = found[-1]["here"] or config.batch == one.batch
    cards: list[Card] = []
    for row in found:
        text = f"from {row['from']['text']}: bound by {row['bound_by']}"
        cards.append({"text": text, "number": row["from"], "here": row["here"]})
    for row in report.limits:
        if row.name in ("critical batch", "largest batch"):
            number = count(row.value, f"limit:{row.name}")
            full = f"; at full length {one.max_batch:,} fit" if row.name == "largest batch" else ""
            cards.append(
                {"text": f"{row.name}: {row.counts}{full}", "formula": row.formula, "number": number, "here": False}
            )
    return cards
