"""The answer to `dscale simulate`: the run's numbers, the planner's beside them, what bounds the fleet and what to change."""

import math
from collections.abc import Callable
from typing import Any

from dragonscale.hardware.prices import unpriced
from dragonscale.reports.prices import price_rows
from dragonscale.reports.simulate.question import SimulateQuestion
from dragonscale.reports.simulate.reading import SimulateAsked
from dragonscale.reports.simulate.records import Analytic, Latency, PoolRow, ReplicaRow, SimulatedRates, SimulateReport
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.economics import usd_per_million
from dragonscale.serving.frontier import Ask, Config, judge
from dragonscale.serving.space import Formats, Lot, stack
from dragonscale.simulation import Pool, SimulationResult, Summary, simulate

BUSY = 0.97
"""Above this share of busy time a fleet has nothing left."""


def run_simulation(
    asked: SimulateAsked, progress: Callable[[int], None] | None = None
) -> tuple[SimulateReport, SimulationResult]:
    """Simulate, and report."""
    result = simulate(asked.fleet, asked.traffic.source, asked.options, progress)
    return _report(asked, result), result


def _report(asked: SimulateAsked, result: SimulationResult) -> SimulateReport:
    planned = _analytic(asked, result)
    chips = _chips(asked, result)
    targets = {"ttft_s": asked.options.ttft_s, "tpot_s": asked.options.tpot_s}
    targets = {name: value for name, value in targets.items() if math.isfinite(value)}
    latency = {name: _latency(summary) for name, summary in result.latency.items()}
    missed = [name for name, limit in targets.items() if latency[name].p95 > limit]
    bound, advice = _judge(asked, result, planned, targets, latency, missed)
    price = asked.deployment.chip.price
    kinds = [asked.deployment.chip, *([asked.prefill.chip] if asked.prefill is not None else [])]
    each = result.throughput.output_tokens_per_s / chips if chips else 0.0
    cost = float(usd_per_million(each, 1, price)) if price is not None and each > 0 else None
    return SimulateReport(
        model=asked.deployment.model.name,
        traffic=_described(asked.question),
        fleet=_pools(asked),
        seed=asked.options.seed,
        simulated_s=result.seconds,
        requests=result.outcome,
        latency=latency,
        rates=SimulatedRates(**vars(result.throughput), output_tokens_per_s_per_chip=each, cost_usd_per_mtok=cost),
        slo=targets,
        meets_slo=not missed if targets else None,
        analytic=planned,
        replicas=[
            ReplicaRow(one.index, one.pool, one.busy_s / (result.seconds or 1), one.mean_batch, one.output_tokens)
            for one in result.replicas
        ],
        bound_by=bound,
        advice=advice,
        notes=[sentence] if (sentence := unpriced(kinds)) else [],
        prices=price_rows(kinds),
        **{name: getattr(result, name) for name in _SAME},
    )


_SAME = (
    "utilisation", "kv_occupancy", "mean_batch", "mean_waiting", "cache_hit_rate", "host_hit_rate",
    "tokens_per_verify_step",
)  # fmt: skip
"""What a report says as the simulator has it."""


def _described(question: SimulateQuestion) -> dict[str, Any]:
    """The traffic in the words of the flags that describe it."""
    names = ["requests"]
    if question.trace:
        return {"trace": question.trace, "speed": question.speed}
    names += ["clients"] if question.clients else ["arrivals", *(["rate"] if question.rate else [])]
    names += ["prompt", "output", "lengths", *(["prefixes"] if question.prefixes else [])]
    return {name: getattr(question, name) for name in names}


def _pools(asked: SimulateAsked) -> list[PoolRow]:
    def row(name: str, deployment: Deployment, pool: Pool) -> PoolRow:
        return PoolRow(
            name, str(deployment.piece), str(deployment.plan), deployment.engine.name, pool.scheduler.kind, pool.replicas,
            pool.replicas * deployment.piece.chips, pool.kv_tokens, pool.router,
        )  # fmt: skip

    rows = [row("serve" if asked.prefill is None else "decode", asked.deployment, asked.fleet.pool)]
    if asked.prefill is not None and asked.fleet.prefill is not None:
        rows.append(row("prefill", asked.prefill, asked.fleet.prefill))
    return rows


def _chips(asked: SimulateAsked, result: SimulationResult) -> float:
    """Chips in use: those of the pools, or on average where the fleet grows and shrinks."""
    pool = asked.fleet.pool
    replicas: float = pool.replicas
    points = result.series.get("replicas", [])
    if pool.autoscale is not None and points:
        replicas = sum(value for _, value in points) / len(points)
    chips = replicas * asked.deployment.piece.chips
    if asked.prefill is not None and asked.fleet.prefill is not None:
        chips += asked.fleet.prefill.replicas * asked.prefill.piece.chips
    return chips


def _latency(summary: Summary) -> Latency:
    def interval(estimate: Any) -> tuple[float | None, float | None]:
        return (estimate.low, estimate.high) if estimate.known else (None, None)

    return Latency(
        summary.mean.value, summary.p50.value, summary.p90.value, summary.p95.value, summary.p99.value, summary.most,
        *interval(summary.mean), *interval(summary.p99),
    )  # fmt: skip


def _analytic(asked: SimulateAsked, result: SimulationResult) -> Analytic | None:
    """The planner's steady state at the mean batch, and the most that replicas can do."""
    if asked.prefill is not None or asked.fleet.pool.scheduler.draft or not result.outcome.finished:
        return None
    deployment = asked.deployment
    formats = Formats(deployment.plan.weights, deployment.plan.compute, deployment.plan.kv, deployment.plan.attention)
    lot = Lot((deployment.piece,), stack([deployment.plan], formats, deployment.plan.spread))
    running = max(1, round(result.mean_running / max(asked.fleet.pool.replicas, 1)))
    found = judge(
        deployment.model, lot, deployment.engine, Ask(asked.traffic.prompt, asked.traffic.output), (running, *_BATCHES)
    )
    if not found:
        return None
    most = max(float(one.state.requests) for one in found)
    near: Config = min(found, key=lambda one: abs(one.batch - running))
    return Analytic(near.batch, float(near.state.tpot), float(near.state.ttft), most * asked.fleet.pool.replicas)


_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _judge(
    asked: SimulateAsked, result: SimulationResult, planned: Analytic | None, targets: dict[str, float],
    latency: dict[str, Latency], missed: list[str],
) -> tuple[str, str]:  # fmt: skip
    """What holds the fleet back, and what to change."""
    outcome = result.outcome
    if not outcome.arrived:
        return "nothing", "No request came, so nothing can be said; give --requests and a --rate."
    if outcome.refused and not outcome.finished:
        return "refusals", f"Every request was refused: {', '.join(outcome.refused)}."
    wanted = asked.traffic.rate
    if planned is not None and wanted is not None and wanted > planned.most_requests_per_s:
        needed = math.ceil(wanted / (planned.most_requests_per_s / asked.fleet.pool.replicas * 0.85))
        return (
            "the replicas",
            f"Overloaded: {wanted:.3g} requests come each second and {planned.most_requests_per_s:.3g} can be served, so the "
            f"queue grows without end; --replicas {needed} would run at 85%.",
        )
    if result.kv_occupancy > 0.9 or outcome.preempted > 0.01 * outcome.arrived:
        return (
            "the cache",
            f"The cache is full ({result.kv_occupancy:.0%} on average, {outcome.preempted} preemptions); a narrower --plan kv=…, "
            f"more chips per replica or more --replicas would make room.",
        )
    if missed:
        name = missed[0]
        what = "TTFT" if name == "ttft_s" else "TPOT"
        change = (
            "more --replicas, a prefill pool (--prefill-on) or a smaller token budget"
            if name == "ttft_s"
            else "more --replicas (smaller batches), more chips per replica or a prefill pool (--prefill-on)"
        )
        return (
            what,
            f"{what} is {latency[name].p95 * 1e3:.4g} ms at the 95th percentile and should be {targets[name] * 1e3:.4g} ms; {change} would lower it.",
        )
    if result.utilisation > BUSY and result.mean_waiting > asked.fleet.pool.replicas:
        return "the replicas", "Replicas are never idle and requests wait; more --replicas would shorten the queue."
    spare = (
        ""
        if planned is None or wanted is None
        else f" The fleet could take {planned.most_requests_per_s:.3g} requests a second."
    )
    return "the traffic", f"Nothing holds requests up: {result.mean_waiting:.2g} wait on average.{spare}"
