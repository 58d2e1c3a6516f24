"""A simulated run as text: the fleet, what became of requests, latencies, rates, and what to change."""

import math

from dragonscale.cli.show import table
from dragonscale.reports.simulate.records import CapacityReport, Latency, SimulateReport
from dragonscale.units import render

_NAMES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "per output token (TPOT)",
    "itl_s": "between tokens (ITL)",
    "queue_s": "queueing",
    "e2e_s": "whole request",
}
_SHORT = {"ttft_s": "TTFT", "tpot_s": "TPOT"}


def text_of(report: SimulateReport) -> str:
    """The whole answer."""
    traffic = ", ".join(f"{name} {value}" for name, value in report.traffic.items())
    lines = [f"{report.model} under traffic: {traffic}", ""]
    for pool in report.fleet:
        most = "" if pool.most_replicas is None else f" to {pool.most_replicas}"
        lines.append(
            f"{pool.name}: {pool.replicas}{most} x {pool.slice} ({pool.plan}), {pool.engine}, {pool.scheduler}, "
            f"KV cache of {pool.kv_tokens:,} tokens each, {pool.router.replace('_', ' ')}"
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
        f"replicas busy {report.utilisation:.0%}, batch {report.mean_batch:.1f}, KV cache {report.kv_occupancy:.0%} full, "
        f"{report.mean_waiting:,.1f} queueing"
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
    part = (one.mean_high - one.mean) / one.mean if one.mean_high is not None and one.mean else math.inf
    spread = f"{part:.1%}" if part <= 1 else ""  # a run too short for an interval says nothing by one
    return [render(one.mean, "s"), spread, *(render(value, "s") for value in (one.p50, one.p90, one.p95, one.p99))]


def _rates(report: SimulateReport) -> list[str]:
    rates = report.rates
    lines = [
        f"{rates.requests_per_s:.3g} requests/s{_came(report)}, {rates.output_tokens_per_s:,.0f} output tokens/s "
        f"({rates.output_tokens_per_s_per_chip:,.0f} per chip), {rates.input_tokens_per_s:,.0f} input tokens/s"
    ]
    if rates.cost_usd_per_mtok is not None:
        at = "; ".join(f"{row.chip} at {row.text}" for row in report.prices)
        hourly = (
            f"{report.chips:,.4g} chip{'s' * (report.chips != 1)}, ${report.usd_per_h:,.2f}/h"
            if report.usd_per_h
            else ""
        )
        lines.append(f"{hourly}: ${rates.cost_usd_per_mtok:.2f} per million output tokens ({at})")
    if report.slo:
        lines.append(
            f"goodput {rates.goodput_requests_per_s:.3g} requests/s: {rates.good_share:.1%} of requests meet "
            f"{'both targets' if len(report.slo) > 1 else 'the target'}; {_met(report)}"
        )
    found = report.capacity
    if found is not None and found.requests_per_s is not None:
        lines.append(_capacity(report, found))
    if report.analytic is not None:
        one = report.analytic
        lines.append(
            f"the planner at a batch of {one.batch}: TPOT {render(one.tpot_s, 's')}, TTFT {render(one.ttft_s, 's')}"
        )
    return lines


def _came(report: SimulateReport) -> str:
    """What came while it was measured: random arrivals are not quite as many as asked for."""
    return f" ({report.rates.arrived_per_s:.3g}/s came)" if report.load is not None else ""


def _met(report: SimulateReport) -> str:
    """Each target against p95 and p99."""
    parts = []
    for name, limit in report.slo.items():
        one = report.latency[name]
        shares = ", ".join(f"p{part} {getattr(one, f'p{part}') / limit:.2f}x" for part in (95, 99))
        parts.append(f"{_SHORT[name]} {shares}")
    return f"of the target: {'; '.join(parts)}"


def _capacity(report: SimulateReport, found: CapacityReport) -> str:
    """What was found by running, in a line."""
    goal = f"targets met at p{found.percentile}" if report.slo else "no growing queue"
    line = f"largest rate ({goal}): {found.requests_per_s:.3g} requests/s"
    line += f", goodput {found.goodput_requests_per_s:.3g}/s" if report.slo else ""
    if found.replicas is not None and found.chips is not None:
        apart = f" and {found.prefill_replicas} for prefill" if found.prefill_replicas else ""
        money = (
            ""
            if found.usd_per_h is None
            else f", ${found.usd_per_h:,.2f}/h, ${found.usd_per_mtok:.2f} per million output tokens"
        )
        line += f"; for the asked rate {found.replicas} replicas{apart}, {found.chips:,} chips{money}"
    return f"{line} ({found.runs} runs of {found.requests_per_run:,} requests)"
