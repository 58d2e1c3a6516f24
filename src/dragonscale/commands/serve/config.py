"""One serving configuration as a row of an answer: its times and their bands, where they go, what fills its memory,
what its tokens cost."""

from collections.abc import Sequence
from dataclasses import replace

import numpy

from dragonscale.commands.record import shared
from dragonscale.commands.serve.bands import add_bands, kind_of
from dragonscale.commands.serve.serve_records import ConfigReport, PrefillPool, ServeReport
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.serving.advice.bills import config_bills, deployed, memory_use, prefill_deployed, step_terms
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import at_batches, is_narrower
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.fleet_cost import FleetCost, config_cost
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import loaded, replicas_for
from dragonscale.serving.steady.targets import LATENCIES

# Batches that are judged around the one that a fleet has at its rate, as fractions of it.
NEAR_BATCHES = numpy.linspace(0.8, 1.4, 13)


def config_report(job: ServingJob, config: Config, full: bool = False) -> ConfigReport:
    """A configuration as a row; with `full` also its terms and memory, and beside its fields their ledgers."""
    plan, state, ask = config.plan, config.state, job.ask
    where, copies = _asked_slice(job, config)
    tpot = 0.0 if ask.output == 1 else float(state.tpot)  # one token has no time per token
    by_name: dict[str, object] = {"plan": str(plan), "engine": job.engine_spec(config.engine)}
    if isinstance(config, PooledConfig):
        by_name |= {
            "prefill": _prefill_pool(job, config),
            "decodes": config.pools.decodes,
            "places": config.pools.decode.batch,
        }
    # fields that a configuration or its plan has by the same name are taken as they are
    row = ConfigReport(
        **shared(ConfigReport, config, plan, **by_name),
        slice=where,
        decode_step_s=config.decode_s,
        ttft_s=float(state.ttft),
        tpot_s=tpot,
        output_tokens_per_s_per_chip=config.tokens_per_chip,
        cost_usd_per_mtok=config.usd_per_mtok,
        meets_slo=config.meets,
        dtypes={name: getattr(plan, name) or plan.compute for name in ("weights", "compute", "kv", "attention")},
        copy_slice=str(config.piece),
        copies=copies,
        max_batch=config.most,
        latency_s=float(state.latency),
        requests_per_s=float(state.requests),
        tokens_per_s_per_user=1 / tpot if tpot else 0.0,
        hbm_limit_bytes=config.piece.chip.visible,
        cost_usd_per_mtok_input=None,
        cost_usd_per_mtok_output=None,
        prefill_chunks=config.chunks,
        violations=violations(job, config),
        quantized=is_narrower(config, job.model),
    )
    row.config, row.state = config, state
    split_cost = config.split_cost(ask)
    if split_cost is not None:
        row.cost_usd_per_mtok_input, row.cost_usd_per_mtok_output = map(float, split_cost)
    if isinstance(config, PooledConfig):
        _add_idle(row, config)
    else:
        row.idle_usd_per_h = 0  # a replica that does both always fills its part of a slice
    if ask.rate is not None:
        _add_fleet(row, job, config, ask.rate)
    add_bands(row, kind_of(job, config))
    if full:
        row.bills = config_bills(job, config)
        row.roofline_s = float(row.bills["decode"].total("bound_s", lambda line: not line.moves))
        row.terms = step_terms(row.bills["decode"])
        row.prefill_terms = step_terms(row.bills["prefill"])
        row.memory = memory_use(job, config)
    return row


def _asked_slice(job: ServingJob, config: Config) -> tuple[str, int]:
    """The slice that was asked for and the replicas it holds; where only the chip was named, that of one replica (of
    pools as many chips as they take)."""
    chip = config.piece.chip
    for target, slice_ in job.targets:
        if slice_ is None or target.name != chip.name:
            continue
        if config.is_fleet or slice_.chips % config.chips == 0:
            return str(slice_), max(slice_.chips // config.chips, 1)
    return f"{chip.name}:{config.chips}" if config.is_fleet else str(config.piece), 1


def _prefill_pool(job: ServingJob, config: PooledConfig) -> PrefillPool:
    pools, prefill = config.pools, config.pools.prefill
    return PrefillPool(
        plan=str(prefill.plan),
        slice=str(prefill.piece),
        chips=prefill.chips,
        replicas=pools.prefills,
        load=pools.prefill_load,
        engine=job.engine_spec(prefill.engine),
    )


def _add_idle(row: ConfigReport, config: PooledConfig) -> None:
    """Add the chips of whole slices that are billed and that no pool uses, with what they cost."""
    pools = config.pools
    used: dict[str, int] = {}
    for replica, count in ((pools.prefill, pools.prefills), (pools.decode, pools.decodes)):
        name = replica.piece.chip.name
        used[name] = used.get(name, 0) + replica.chips * count
    row.idle_usd_per_h = 0
    for chips_used, (billed, price) in zip(used.values(), pools.chips_by_price, strict=True):
        idle = billed - chips_used
        row.idle_chips += idle
        if price is None or row.idle_usd_per_h is None:
            row.idle_usd_per_h = None
        else:
            row.idle_usd_per_h += idle * price


def _add_fleet(row: ConfigReport, job: ServingJob, config: Config, rate: float) -> None:
    """Add the replicas that serve a rate, in whole slices and rented one by one, with their chips and dollars."""
    replicas = replicas_for(config, job.ask)
    set_fleet(row, replicas, config_cost(config, replicas), tokens_per_s=rate * job.ask.output)
    row.enough_replicas = replicas_for(config, replace(job.ask, rented=()))


def set_fleet(row: ConfigReport, replicas: int, cost: FleetCost, tokens_per_s: float) -> None:
    """Set the replicas that serve a rate, with their chips and dollars. `tokens_per_s` are the output tokens of all
    requests at that rate."""
    row.replicas = replicas
    row.fleet_chips = round(cost.chips)
    row.fleet_usd_per_h = cost.usd_per_h
    row.fleet_usd_per_mtok = cost.usd_per_mtok(tokens_per_s)


def fleet_times(job: ServingJob, config: Config, configs: Sequence[Config], replicas: int) -> tuple[float, float]:
    """Mean seconds to the first token and per token of so many replicas at the asked rate.

    The batches that were searched are sizes that engines launch kernels for, and steps jump from one to the next, so
    that batches about as large as the replicas then have are judged too."""
    rate = (job.ask.rate or 0.0) / replicas
    ttft, tpot = loaded(config, configs, rate, replicas)
    if config.is_fleet:
        return ttft, tpot
    # requests in flight, by Little's law
    in_flight = rate * (ttft + (job.ask.output - 1) * tpot)
    around = (NEAR_BATCHES * in_flight).tolist()
    batches = sorted({min(max(round(batch), config.plan.data), config.most) for batch in around})
    if job.draft is not None:  # with as many drafts as it is launched with
        job = replace(job, draft=replace(job.draft, counts=(config.drafts,)))
    others: list[Config] = []
    for other in configs:
        if other.drafts == config.drafts and not around[0] <= other.batch <= around[-1]:
            others.append(other)
    return loaded(config, [*at_batches(job, config, batches), *others], rate, replicas)


def violations(job: ServingJob, config: Config) -> list[str]:
    """Each target that is missed, and by how much."""
    times = job.ask.times(config.state.ttft, config.state.tpot)
    return [violation(name, seconds, target) for name, (seconds, target) in times.items() if seconds > target]


def violation(name: str, seconds: float, target: float, at: str = "") -> str:
    """A latency that misses its target, as a clause; `at` says of which statistic."""
    ratio = seconds / target
    above = f"{ratio - 1:.0%} above" if ratio < 2 else f"{ratio:.3g} times"
    return f"{LATENCIES[name]} is {render(seconds, 's')}{at}, {above} the {render(target, 's')} asked for"


def deployment_of(job: ServingJob, row: ConfigReport, phase: str = "decode") -> Deployment:
    """One replica of a row's configuration: of pools one of those that run a phase."""
    if phase == "prefill":
        return prefill_deployed(job, row.config)
    return deployed(job, row.config)


def bills_of(report: ServeReport) -> dict[str, Ledger]:
    """The bills of a report's first configuration, `decode` (where more than one token is asked for) and `prefill`."""
    bills = dict(report.configs[0].bills)
    if report.workload.output == 1:
        del bills["decode"]
    return bills
