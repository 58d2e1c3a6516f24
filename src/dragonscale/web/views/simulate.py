"""A simulated fleet as panels: whether it holds, latencies as distributions, the fleet over time, and the load of each
replica.

The page's runs look for no capacity of their own accord, which takes many runs; they do where the field `max_rate` asks
for it.
"""

import itertools
from typing import Any

import numpy

from dragonscale.blocks.amounts import amount, count, dollars, quantities, share
from dragonscale.commands.simulate.ask_simulate import next_command
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.simulate.simulate_sheet import capacity_text, requests_text, verdict_fact
from dragonscale.commands.simulate.verdict import TRAFFIC
from dragonscale.physics.units import render
from dragonscale.simulation import SimulationResult
from dragonscale.simulation.fleet_sizing.simulated_run import Latency
from dragonscale.simulation.watch import MOMENTS
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, axis, fields, figure, line, log_axis, rule
from dragonscale.web.views.tracks import fields_of_command

SHORTEST = 1e-4
"""Seconds below which nobody cares how short a wait was."""
LATENCIES: dict[str, tuple[str, str]] = TABLES["simulate"]["latencies"]
PERCENTILES = ("p50", "p90", "p95", "p99")
_FLEET = ("running", "waiting", "pages", "busy", "replicas")


def answer_panel(request: PageRequest) -> Card:
    """Whether the fleet holds, the percentiles, what bounds it and what to change."""
    report: SimulateReport = request.record
    verdict = verdict_fact(report)
    grows = report.load is not None and report.load.grows
    pools = " and ".join(f"{pool.replicas} x {pool.slice} ({pool.plan}, {pool.engine})" for pool in report.fleet)
    arrived, capacity = report.rates.arrived_per_s, report.capacity
    rate = f"{arrived:.3g} requests/s" if report.load is not None else "its traffic"
    command, why = next_command(report)
    return {
        "feasible": bool(report.requests.finished),
        "meets": report.meets_slo,
        "holds": not grows and report.meets_slo is not False,
        "sentence": f"{pools} under {rate} of {report.model}{_said(report, verdict.text)}.",
        "tone": verdict.tone,
        "bound_by": report.bound_by,
        "advice": report.advice if report.bound_by != TRAFFIC else "",
        "requests": requests_text(report),
        "notes": [*report.notes, *report.notes_beside],
        "capacity": capacity_text(report, capacity)
        if capacity is not None and capacity.requests_per_s is not None
        else "",
        "figures": _figures(report),
        "next": {"text": why, "command": command, "fields": fields_of_command(command)} if command else None,
        "sizes": {**fields(report.fleet[0], "replicas kv_tokens"), "rate": arrived, "seconds": report.simulated_s},
    }


def _said(report: SimulateReport, verdict: str) -> str:
    """The verdict as the end of a sentence, with the latencies where it does not tell them."""
    verbs = (("done", " is "), ("overloaded", " is "), ("no request", ": "), ("", " "))
    begun = next(verb for word, verb in verbs if verdict.startswith(word))
    if not report.requests.finished or report.meets_slo is not None:
        return f"{begun}{verdict}"
    return f"{begun}{verdict}; {report.told('ttft_s')}, {report.told('tpot_s')}"


def _figures(report: SimulateReport) -> list[Card]:
    """The headline numbers: latencies at the percentile that counts, then what came out and what it took."""
    figures, rates = list[Card](), report.rates
    for name in ("ttft_s", "tpot_s", "e2e_s") if report.requests.finished else ():
        latency, limit = report.latency[name], report.slo.get(name)
        at = report.statistics.get(name, f"p{report.percentile}")
        value = getattr(latency, at)
        target = f"asked for: {render(limit, 's')}; " if limit else ""
        met = None if limit is None else value <= limit
        number = amount(value, "s", f"latency:{name}:{at}")
        note = f"{target}median {render(latency.p50, 's')}"
        figures.append(figure(f"{LATENCIES[name][0]} {at}", number, note, met=met))
    good = rates.goodput_requests_per_s
    goodput = amount(good, "count/s", "goodput_requests_per_s", f"{good:,.3g} requests/s")
    targets = " meet the targets" if report.slo else ", without targets"
    tokens = count(rates.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip")
    batches = f"batches of {report.mean_batch:,.3g} on average"
    waits = f"{report.mean_waiting:,.3g} requests wait on average"
    figures += [
        figure("goodput", goodput, f"{rates.good_share:.1%} of requests{targets}"),
        figure("output tokens/s per chip", tokens, f"{rates.output_tokens_per_s:,.0f} of the fleet"),
        figure("busy", share(report.utilisation, "utilisation"), batches),
        figure("KV cache in use", share(report.kv_occupancy, "kv_occupancy"), waits),
    ]
    if rates.cost_usd_per_mtok is not None:
        cost = dollars(rates.cost_usd_per_mtok, "cost_usd_per_mtok")
        chips = f"{report.chips:,.4g} chips, ${report.usd_per_h or 0:,.2f}/h"
        figures.append(figure("per million output tokens", cost, chips))
    return [{"met": None, **row} for row in figures]


def percentiles_panel(request: PageRequest) -> Card:
    """Distribution functions of the latencies, targets as rules, and the percentiles as a table."""
    report: SimulateReport = request.record
    series = [
        line(title, role, [point for point in report.result.curves.get(name, []) if point[0] > SHORTEST])
        for name, (title, role) in LATENCIES.items()
    ]
    targets = [(*LATENCIES[name], limit) for name, limit in report.slo.items()]
    rows = [_latency_row(name, report.latency[name]) for name in LATENCIES if name in report.latency]
    return {
        "series": [line for line in series if line["points"]],
        "rules": [rule(limit, f"{title} target {render(limit, 's')}", role) for title, role, limit in targets],
        "x": log_axis("time", "s"),
        "y": axis("share of requests", "share", **{"from": 0, "upto": 1}),
        "columns": ["", "mean", *PERCENTILES, "max"],
        "rows": rows if report.requests.finished else [],
    }


def _latency_row(name: str, latency: Latency) -> dict[str, Any]:
    cells = [amount(getattr(latency, key), "s", f"latency:{name}:{key}") for key in ("mean", *PERCENTILES, "max")]
    low, high = latency.p99_low, latency.p99_high
    sure = "" if low is None or high is None else f"p99 {render(low, 's')} to {render(high, 's')}"
    return {"name": LATENCIES[name][0], "cells": cells, "about": sure}


def over_time_panel(request: PageRequest) -> Card:
    """The fleet at equal times: sums of requests and shares of the cache, and each replica, for a player to step
    through."""
    report: SimulateReport = request.record
    result = report.result
    if result.seconds <= 0:
        return {"moments": [], "fleet": {}, "replicas": []}
    moments = [(index + 0.5) * result.seconds / MOMENTS for index in range(MOMENTS)]
    fleet = {name: _at(result.series.get(name, []), moments) for name in _FLEET}
    watched = [replica for replica in report.replicas if f"running:{replica.index}" in result.watched]
    rows = [_replica_track(result, replica.index, replica.pool) for replica in watched]
    tokens = [sum(row["tokens"][index] for row in rows) for index in range(MOMENTS)] if rows else []
    all_seen = len(rows) == len(report.replicas)
    return {
        "seconds": amount(result.seconds, "s"),
        "moments": [_short(moment) for moment in moments],
        "texts": [render(moment, "s") for moment in moments],
        "fleet": fleet | {"tokens": tokens},
        "replicas": rows,
        "arrivals": _rates(result),
        "about": "" if all_seen else f"{len(rows)} of {len(report.replicas)} replicas are shown.",
        "room": report.fleet[0].kv_tokens,
    }


def _replica_track(result: SimulationResult, index: int, pool: str) -> Card:
    name = f"replica {index}" + (" (prefill)" if pool == "prefill" else "")
    rounded: dict[str, Any] = {"running": int, "waiting": int, "pages": lambda share: round(share, 3), "tokens": round}
    tracks = {key: [cut(value) for _, value in result.watched[f"{key}:{index}"]] for key, cut in rounded.items()}
    return {"index": index, "pool": pool, "name": name, **tracks}


def _at(points: list[tuple[float, float]], moments: list[float]) -> list[float]:
    if not points:
        return [0.0] * len(moments)
    times, values = zip(*points, strict=True)
    return [_short(value) for value in numpy.interp(moments, times, values)]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _rates(result: SimulationResult) -> dict[str, list[list[float]]]:
    """Requests that came and that ended, a second, between the looks at the books."""
    books = {"arriving": (result.checkpoints, "arrived"), "ending": (result.departures, "finished")}
    rates: dict[str, list[list[float]]] = {name: [] for name in books}
    for name, (looks, key) in books.items():
        for early, late in itertools.pairwise(looks):
            if (long := late.seconds - early.seconds) > 0:
                rate = (getattr(late, key) - getattr(early, key)) / long
                rates[name].append([_short((early.seconds + late.seconds) / 2), _short(rate)])
    return rates


def replicas_panel(request: PageRequest) -> Card:
    """The load of each replica."""
    report: SimulateReport = request.record
    rows = [
        {
            "name": str(replica.index),
            "pool": replica.pool,
            "batch": amount(replica.mean_batch, "count", "replica:mean_batch", f"{replica.mean_batch:,.3g}"),
            **quantities(replica, {"busy": "busy_share", "tokens": "output_tokens"}, "replica:"),
        }
        for replica in report.replicas
    ]
    return {"columns": ["replica", "busy", "mean batch", "output tokens"], "rows": rows}


PANELS = {
    "answer": answer_panel,
    "over_time": over_time_panel,
    "percentiles": percentiles_panel,
    "replicas": replicas_panel,
}
