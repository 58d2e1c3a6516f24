"""A simulated run as text: the fleet, what became of requests, latencies, rates, and what to change."""

from dragonscale.cli.show import table
from dragonscale.reports.simulate.records import Latency, SimulateReport
from dragonscale.units import render

_NAMES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "per output token (TPOT)",
    "itl_s": "between tokens (ITL)",
    "queue_s": "queueing",
    "e2e_s": "whole request",
}


def text_of(report: SimulateReport) -> str:
    """The whole answer."""
    traffic = ", ".join(f"{name} {value}" for name, value in report.traffic.items())
    lines = [f"{report.model} under traffic: {traffic}", ""]
    for pool in report.fleet:
        lines.append(
            f"{pool.name}: {pool.replicas} x {pool.slice} ({pool.plan}), {pool.engine}, {pool.scheduler}, "
            f"{pool.kv_tokens:,} tokens of cache each, {pool.router.replace('_', ' ')}"
        )
    lines += ["", *_requests(report), "", _latencies(report), "", *_rates(report)]
    lines += ["", *report.notes, f"Bound by {report.bound_by}. {report.advice}"]
    return "\n".join(lines)


def _requests(report: SimulateReport) -> list[str]:
    found = report.requests
    parts = [f"{found.arrived:,} requests in {render(report.simulated_s, 's')}: {found.finished:,} finished"]
    parts += [f"{count:,} refused ({reason})" for reason, count in found.refused.items()]
    parts += [f"{found.unfinished:,} unfinished"] if found.unfinished else []
    parts += [f"{found.retried:,} retried"] if found.retried else []
    parts += [f"{found.preempted:,} preemptions"] if found.preempted else []
    lines = [", ".join(parts)]
    lines.append(
        f"replicas busy {report.utilisation:.0%}, batch {report.mean_batch:.1f}, cache {report.kv_occupancy:.0%} full, "
        f"{report.mean_waiting:.1f} waiting"
    )
    if report.cache_hit_rate or report.host_hit_rate:
        lines.append(
            f"prefix cache: {report.cache_hit_rate:.0%} of prompt tokens found, {report.host_hit_rate:.0%} of them all on the host"
        )
    if report.tokens_per_verify_step:
        lines.append(f"speculation: {report.tokens_per_verify_step:.2f} tokens a step")
    return lines


def _latencies(report: SimulateReport) -> str:
    header = ["", "mean", "±", "p50", "p90", "p95", "p99", "target"]
    rows = []
    for name, title in _NAMES.items():
        if name in report.latency and report.requests.finished:
            target = render(report.slo[name], "s") if name in report.slo else ""
            rows.append([title, *_row(report.latency[name]), target])
    return table(header, rows, right=range(1, len(header)))


def _row(one: Latency) -> list[str]:
    spread = "" if one.mean_high is None else f"{(one.mean_high - one.mean) / one.mean:.1%}" if one.mean else ""
    return [render(one.mean, "s"), spread, *(render(value, "s") for value in (one.p50, one.p90, one.p95, one.p99))]


def _rates(report: SimulateReport) -> list[str]:
    rates = report.rates
    lines = [
        f"{rates.requests_per_s:.3g} requests/s, {rates.output_tokens_per_s:,.0f} output tokens/s "
        f"({rates.output_tokens_per_s_per_chip:,.0f} per chip), {rates.input_tokens_per_s:,.0f} input tokens/s"
    ]
    if rates.cost_usd_per_mtok is not None:
        at = "; ".join(f"{row.chip} at {row.text}" for row in report.prices)
        lines.append(f"${rates.cost_usd_per_mtok:.2f} per million output tokens ({at})")
    if report.slo:
        lines.append(
            f"goodput {rates.goodput_requests_per_s:.3g} requests/s: {rates.good_share:.1%} of requests meet both targets"
        )
    if report.analytic is not None:
        one = report.analytic
        lines.append(
            f"the planner at a batch of {one.batch}: TPOT {render(one.tpot_s, 's')}, TTFT {render(one.ttft_s, 's')}; "
            f"at most {one.most_requests_per_s:.3g} requests/s"
        )
    return lines
