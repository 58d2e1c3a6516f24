"""What else a serving question could be answered with: every configuration by latency and throughput, and one plan over
its batch."""

from typing import Any

from dragonscale.app.serve.config import deployment_of
from dragonscale.app.serve.curves import BatchCurves, batch_curves, meeting_batch, plan_curves
from dragonscale.app.serve.records import ConfigReport, ServeReport, degrees_text
from dragonscale.physics.units import render
from dragonscale.serving.frontier import Config
from dragonscale.web.amounts import count
from dragonscale.web.page_request import PageRequest

ROLES = ("compute", "hbm", "tensor", "data", "expert", "pipe", "context", "fsdp")
LOWEST = 0.03
"""The part of the shortest step below which a resource's seconds are not drawn."""
_RESOURCES = {
    "matmul FLOPs": "compute",
    "weight reads": "hbm",
    "attention FLOPs": "compute:2",
    "KV cache reads": "hbm:2",
}


def frontier_panel(asked: PageRequest) -> dict[str, Any]:
    """Tokens a second of a user against those of a chip, for every plan over its batches; the chosen one, and the
    targets."""
    report: ServeReport = asked.record
    x = {"label": "output tokens/s of one user", "unit": "count", "log": True}
    y = {"label": "output tokens/s per chip", "unit": "count", "log": True}
    if not report.configs or report.workload.output == 1:
        why = "One output token has no time per output token: there is nothing to trade." if report.configs else ""
        return {"points": [], "frontier": [], "x": x, "y": y, "about": why, "rules": []}
    one = report.configs[0]
    curves = plan_curves(report.asked, one)
    tpot = report.workload.tpot_s
    points = [
        _point(asked, config, ROLES[place % len(ROLES)], one)
        for place, plan in enumerate(curves.plans)
        for config in plan
    ]
    if not any(point["chosen"] for point in points):
        points.append(_chosen(asked, one))
    left = f"; {curves.left_out} more plans are not drawn" if curves.left_out else ""
    return {
        "points": points,
        "x": x,
        "y": y,
        "frontier": [[1 / float(own.state.tpot), own.tokens_per_chip] for own in curves.frontier],
        "rules": [{"at": 1 / tpot, "text": f"TPOT {render(tpot, 's')}", "role": "limit"}] if tpot else [],
        "about": f"Each point is a batch of a plan{left}. Right is faster for each user, up is more from each chip.",
    }


def _point(asked: PageRequest, config: Config, role: str, one: ConfigReport) -> dict[str, Any]:
    tpot = float(config.state.tpot)
    cost = config.usd_per_mtok
    money = "" if cost is None else f", ${cost:,.2f} per million"
    misses = "" if config.meets else ", misses the SLO"
    chosen = (str(config.piece), str(config.plan), config.batch) == (one.copy_slice, one.plan, one.batch)
    name = f"{config.piece} {degrees_text(config.plan)}"
    return {
        "x": 1 / tpot,
        "y": config.tokens_per_chip,
        "name": f"{name}, batch {config.batch:,}",
        "group": name,
        "role": role,
        "chosen": chosen,
        "meets": config.meets,
        "about": f"TTFT {render(float(config.state.ttft), 's')}, TPOT {render(tpot, 's')}{money}{misses}",
        "fields": {"on": _where(asked, config), "plan": str(config.plan), "batch": str(config.batch)},
    }


def _where(asked: PageRequest, config: Config) -> str:
    """The slice to ask for: the one that was named, where the plan is of a part of it."""
    given = str(asked.fields.get("on", ""))
    return given if given.startswith(f"{config.piece.chip.name}:") and "," not in given else str(config.piece)


def _chosen(asked: PageRequest, one: ConfigReport) -> dict[str, Any]:
    return {
        "x": one.tokens_per_s_per_user,
        "y": one.output_tokens_per_s_per_chip,
        "role": ROLES[0],
        "chosen": True,
        "meets": one.meets_slo,
        "name": f"{one.copy_slice} {degrees_text(one)}, batch {one.batch:,}",
        "group": f"{one.copy_slice} {degrees_text(one)}",
        "about": f"TTFT {render(one.ttft_s, 's')}, TPOT {render(one.tpot_s, 's')}",
        "fields": {"on": str(asked.fields.get("on", "") or one.slice), "plan": one.plan, "batch": str(one.batch)},
    }


def batches_panel(asked: PageRequest) -> dict[str, Any]:
    """A decode step over its batch: as expected, and by resource at datasheet rates; where compute takes over, where
    the targets break, and where memory is full."""
    report: ServeReport = asked.record
    x = {"label": "sequences that decode at once", "unit": "count", "log": True}
    y: dict[str, Any] = {"label": "time", "unit": "s", "log": True}
    if not report.configs or report.workload.output == 1:
        return {"series": [], "x": x, "y": y, "rules": [], "marks": [], "crossings": []}
    one, read = report.configs[0], report.asked
    critical = next((row for row in report.limits if row.name == "critical batch"), None)
    curves = batch_curves(read, one, deployment_of(read, one), critical.value if critical else 0.0)
    series = [
        {"name": "a decode step", "role": "ink", "points": _points(curves, curves.expected), "band": []},
        {
            "name": "TPOT",
            "role": "limit",
            "points": [[own.batch, float(own.state.tpot)] for own in curves.configs],
            "dots": True,
        },
    ]
    series += [
        {"name": name, "role": _RESOURCES.get(name, "tensor"), "points": _points(curves, values), "dashed": True}
        for name, values in curves.resources.items()
        if name != "attention FLOPs"
    ]
    y["from"] = LOWEST * min(curves.expected)
    rules = _rules(report, one, curves)
    return {
        "series": series,
        "x": x,
        "y": y,
        "rules": rules,
        "marks": [
            {"x": one.batch, "y": curves.at(curves.expected, one.batch), "text": f"batch {one.batch:,}"},
            *_crossed(critical.value if critical else None, curves),
        ],
        "crossings": _crossings(report, one, curves),
        "about": (
            "Solid: as expected. Dashed: each resource alone at datasheet rates; a step cannot be shorter than the "
            "highest."
        ),
    }


def _points(curves: BatchCurves, values: tuple[float, ...]) -> list[list[float]]:
    low = LOWEST * min(curves.expected)
    return [[batch, value] for batch, value in zip(curves.batches, values, strict=True) if value > low]


def _rules(report: ServeReport, one: ConfigReport, curves: BatchCurves) -> list[dict[str, Any]]:
    """Where memory is full, where a target breaks, and the target itself."""
    rules: list[dict[str, Any]] = [{"at": one.max_batch, "text": f"{one.max_batch:,} fit", "role": "cache"}]
    work, most = report.workload, meeting_batch(curves.configs)
    if (work.ttft_s or work.tpot_s) and most is not None and most < one.max_batch:
        rules.append({"at": most, "text": f"SLO met up to {most:,}", "role": "limit"})
    if work.tpot_s:
        rules.append(
            {"at": work.tpot_s, "along": "y", "text": f"TPOT asked for: {render(work.tpot_s, 's')}", "role": "limit"}
        )
    return rules


def _crossed(critical: float | None, curves: BatchCurves) -> list[dict[str, Any]]:
    """The batch from which matmuls are bound by compute, on the curve of the weights' reads."""
    reads = curves.resources.get("weight reads")
    if critical is None or reads is None or not curves.batches[0] <= critical <= curves.batches[-1]:
        return []
    return [
        {
            "x": critical,
            "y": curves.at(reads, critical),
            "text": f"compute takes over at {critical:,.0f}",
            "role": "compute",
        }
    ]


def _crossings(report: ServeReport, one: ConfigReport, curves: BatchCurves) -> list[dict[str, Any]]:
    """The batches at which something changes, told: what bounds the step by batch, and the limits that are solved."""
    found: list[dict[str, Any]] = []
    for config in curves.configs:
        if not found or found[-1]["bound_by"] != config.bound_by:
            found.append({"bound_by": config.bound_by, "from": count(config.batch), "here": False})
        found[-1]["here"] = found[-1]["here"] or config.batch == one.batch
    spans = [
        {"text": f"from {row['from']['text']}: bound by {row['bound_by']}", "number": row["from"], "here": row["here"]}
        for row in found
    ]
    limits = [
        {
            "text": f"{row.name}: {row.counts}",
            "formula": row.formula,
            "number": count(row.value, f"limit:{row.name}"),
            "here": False,
        }
        for row in report.limits
        if row.name in ("critical batch", "largest batch")
    ]
    return [*spans, *limits]
