"""Other ways to serve the same requests, as records beside the best configuration: drafts, pools for prefill and
decode, cached prefixes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dragonscale.commands.record import shared
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.config import config_report
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serving_remedies import drafter
from dragonscale.commands.serve.variant_records import DrafterRow, DraftRow
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.serving.advice.bills import deployed
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.pools import why_no_pools
from dragonscale.serving.advice.search import at_batches, ranked_by_format
from dragonscale.serving.iteration.capacity import cache_per_chip
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.disaggregation import PooledConfig, Pools
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import worth
from dragonscale.serving.steady.prefix import hit, rooms
from dragonscale.serving.steady.speculation import (
    BATCHES,
    MAX_DRAFTS,
    Draft,
    break_even,
    drafter_kinds,
    drafting_seconds,
    has_heads,
    named_draft,
    speculate,
)

# Host memory of a chip's share in which prefixes are counted.
HOST_BYTES = 100e9

# Pairs of pools that are shown for each chip.
MAX_POOLS = 3


def speculation_report(job: ServingJob, config: Config) -> records.Speculation | None:
    """Drafting in one configuration, by the number of drafts; None where nobody drafts."""
    draft = job.draft_by(config.engine)
    is_asked = job.drafts_asked or (draft is not None and 0 not in draft.counts)
    if draft is None or (draft.kind == "mtp" and draft.source and not (config.drafts or is_asked)):
        return None
    deployment = deployed(job, config)
    keys = job.ask.context  # tokens that a sequence attends to, on average
    # the model's own heads make so many; others may be asked for more
    max_drafts = max(draft.counts)
    if not draft.source:
        max_drafts = max(max_drafts, MAX_DRAFTS)
    loops = speculate(deployment, draft, config.batch, keys, tuple(range(max_drafts + 1)))
    rows: list[DraftRow] = []
    for loop in loops:
        row = DraftRow(loop.drafts, loop.drafting, loop.verifying, loop.tokens, loop.tpot, loop.speedup)
        rows.append(row)
    return records.Speculation(
        acceptance=list(draft.acceptance) if isinstance(draft.acceptance, tuple) else [draft.acceptance],
        drafter=_drafter_name(job, draft),
        batch=config.batch,
        rows=rows,
        best_drafts=min(loops, key=lambda loop: loop.tpot).drafts,
        drafts=config.drafts,
        most_batch=config.most,
        hurts_from_batch=break_even(deployment, draft, keys, [batch for batch in BATCHES if batch <= config.most]),
        source=draft.source,
        server_gain=_server_gain(job, config),
        asked=bool(is_asked),
        **_limited(job, config),
        others=_other_drafters(job, config, draft) if is_asked else [],
        alone=_drafting_alone(deployment, draft, config, keys),
    )


def _drafting_alone(deployment: Deployment, draft: Draft, config: Config, keys: float) -> str:
    """That a small draft model is quicker on one chip than split as the model is; empty where it is not."""
    if draft.model is None or config.plan.chips == 1:
        return ""
    degrees = dict.fromkeys(("tensor", "width", "data", "context"), 1)
    split_s, alone_s = (
        first_number(drafting_seconds(replace(deployment, plan=plan), draft, config.batch, keys, 0.0))
        for plan in (config.plan, replace(config.plan, **degrees))
    )
    if alone_s >= split_s:
        return ""
    return (
        f"{draft.model.name} drafts a token in {render(split_s, 's')} split over the chips and in "
        f"{render(alone_s, 's')} on one: give it a tensor parallel size of 1 (draft_tensor_parallel_size)"
    )


def _drafter_name(job: ServingJob, draft: Draft) -> str:
    """Who drafts, in words."""
    if draft.model is not None:
        return draft.model.name
    if draft.kind == "mtp" or not draft.kind:
        return drafter(job.model)
    return drafter_kinds()[draft.kind]["title"]


def _limited(job: ServingJob, config: Config) -> dict[str, Any]:
    """The limit on sequences that an engine has where it drafts, and what is left of the gain under it; nothing where
    the batch is not larger."""
    engine = job.engine_on(config.piece.chip, config.engine)
    limit = engine.scheduling.draft_sequences * config.plan.data
    if config.is_fleet or not config.drafts or not 0 < limit < config.batch:
        return {}
    (fewer,) = at_batches(job, config, [limit])
    return {"limit": limit, "limited_gain": fewer.tokens_per_chip / _plain(job, config).tokens_per_chip}


def _other_drafters(job: ServingJob, config: Config, draft: Draft) -> list[DrafterRow]:
    """What others who need no model of their own would bring with as many drafts."""
    rows: list[DrafterRow] = []
    if config.is_fleet or not config.drafts:
        return rows
    for kind, row in drafter_kinds().items():
        if kind in (draft.kind, "model") or (kind == "mtp" and not has_heads(job.model)):
            continue
        other = named_draft(kind, job.model, (config.drafts,))
        (drafted,) = at_batches(replace(job, draft=other), config, [config.batch])
        gain = drafted.tokens_per_chip / _plain(job, config).tokens_per_chip
        rows.append(DrafterRow(row["title"], list(row["acceptance"]), gain, row["source"]))
    return rows


def _plain(job: ServingJob, config: Config) -> Config:
    """The configuration without drafts."""
    (plain,) = at_batches(replace(job, draft=None), config, [config.batch])
    return plain


def _server_gain(job: ServingJob, config: Config) -> float | None:
    """Tokens/s of a configuration that drafts over those without drafts at the same batch."""
    if config.is_fleet or not config.drafts:
        return None
    return config.tokens_per_chip / _plain(job, config).tokens_per_chip


def disaggregation_report(
    job: ServeAsked,
    best: Config,
    best_row: records.ConfigReport,
    fleets: Sequence[PooledConfig],
    configs: Sequence[Config],
) -> records.Disaggregation:
    """The pools of the best configuration, or else the best of those that it beat, beside the best configuration that
    does both."""
    if isinstance(best, PooledConfig):
        pools, pools_row = best, best_row
        together = min(ranked_by_format(job, configs).native, key=lambda config: worth(config, job.ask))
        together_row = config_report(job, together)
    else:
        ranked = ranked_by_format(job, fleets).native
        if not ranked or not isinstance(ranked[0], PooledConfig):
            return records.Disaggregation([], None, False, _no_pools_text(job))
        pools, pools_row = ranked[0], config_report(job, ranked[0])
        together, together_row = best, best_row

    pays = pools is best
    pairs = [pools.pools, *(fleet.pools for fleet in fleets if fleet.place != pools.place)]
    shown = [_pool_report(job, pair) for pair in pairs[: MAX_POOLS * len(job.targets)]]
    if pays:  # as the run of the headline told them
        first = shown[0]
        first.ttft_s, first.tpot_s = best_row.ttft_s, best_row.tpot_s
        first.requests_per_s = best_row.requests_per_s
        if best_row.prefill is not None:
            first.ttft_p95_s = best_row.prefill.ttft_p95_s
    gain = together_row.paid / pools_row.paid if together.meets else None
    advice = _pool_advice(pools.pools, gain, pays, compared_text(pools_row, together_row))
    return records.Disaggregation(shown, gain, pays, advice)


def _no_pools_text(job: ServeAsked) -> str:
    """Why there are no pools: what fits is not run by its engine, or nothing fits."""
    why = why_no_pools(job)
    if why:
        return f"Prefill and decode apart do not run: {why}."
    *others, last = [str(slice_ or chip.name) for chip, slice_ in job.targets]
    where = f"{', '.join(others)} or {last}" if others else last
    return f"A replica that prefills and one that decodes do not both fit on {where}."


def _pool_report(job: ServeAsked, pools: Pools) -> records.PoolReport:
    prefill, decode = config_report(job, pools.prefill), config_report(job, pools.decode)
    return records.PoolReport(
        **shared(records.PoolReport, pools, prefill=prefill, decode=decode),
        ttft_s=pools.ttft,
        tpot_s=pools.tpot,
        requests_per_s=pools.requests,
        output_tokens_per_s_per_chip=pools.tokens_per_chip,
        transfer_bytes_per_s=pools.requests * pools.transfer_bytes,
        cost_usd_per_mtok=pools.usd_per_mtok,
        meets_slo=pools.meets,
    )


def compared_text(pools: records.ConfigReport, together: records.ConfigReport) -> str:
    """What the gain of pools is measured in, and against which configuration: tokens that a dollar buys; at a rate
    dollars an hour of whole fleets, so that both are named, and not what full batches would cost."""
    if pools.replicas is None:
        return f"the tokens per dollar of the best configuration that does both ({records.beaten_text(together)})"
    does_both = f"{records.plan_text(together)} on {together.copy_slice}"
    best = f"the best configuration that does both ({does_both})"
    if pools.fleet_usd_per_h is None or together.fleet_usd_per_h is None:
        chips = f"a fleet of {pools.fleet_chips:,} chips for the rate against {together.fleet_chips:,} of"
        return f"the tokens per chip, {chips} {best}"
    dollars = f"a fleet of ${pools.fleet_usd_per_h:,.0f}/h for the rate against ${together.fleet_usd_per_h:,.0f}/h of"
    return f"the tokens per dollar, {dollars} {best}"


def _pool_advice(pools: Pools, gain: float | None, pays: bool, compared: str) -> str:
    if not pools.meets:
        return "Disaggregated prefill and decode miss the targets too."
    # bytes of caches a second over what the links send
    used = pools.requests * pools.transfer_bytes / pools.port_bytes_per_s
    links = f"KV caches take {used:.0%} of the prefill replicas' links"
    if gain is None:
        return f"Worth it: disaggregated, the targets are met, and together they are not; {links}."
    if pays:
        verdict = "Worth it"
    elif gain < 1:
        verdict = "Not worth it"
    else:
        verdict = f"Not worth {pools.chips} chips"
    return f"{verdict}: {gain:.2f}x {compared}; {links}."


def prefix_report(job: ServingJob, config: Config) -> records.PrefixCache | None:
    """What the cached part of prompts saves, and where it could live; None without one."""
    ask = job.ask
    if ask.past < 1:
        return None
    deployment = deployed(job, config)
    cached = hit(deployment, ask.prompt, ask.past)
    fitting = rooms(deployment, ask.past, config.batch, ask.prompt + ask.output, HOST_BYTES)
    # the shared prefix itself is one of those that fit
    advice = f"A hit saves {cached.saved:.0%} of the prefill"
    if fitting.hbm < 2:
        advice += "; no other prefix fits in HBM beside this batch"
    if not cached.host_pays:
        advice += "; to load one from the host takes longer than to compute it"
    return records.PrefixCache(
        shared_tokens=ask.past,
        prefill_computed_s=cached.computed,
        prefill_from_hbm_s=cached.from_hbm,
        prefill_from_host_s=cached.from_host,
        saved=cached.saved,
        prefix_bytes=first_number(cache_per_chip(deployment, float(ask.past))),
        prefixes_hbm=fitting.hbm,
        prefixes_host=fitting.host,
        host_pays=cached.host_pays,
        advice=advice,
    )
