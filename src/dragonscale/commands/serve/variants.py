"""What stands beside a recommended configuration: limits, drafts, pools for prefill and decode, cached prefixes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dragonscale.commands.record import shared
from dragonscale.commands.serve import remedies
from dragonscale.commands.serve import serve_records as records
from dragonscale.commands.serve.config import config_report, deployed, first
from dragonscale.commands.serve.search import ranked_apart, search
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.variant_records import DraftRow
from dragonscale.serving.advice.crossovers import ServingLimit, find_limits
from dragonscale.serving.engine.legality import server_of
from dragonscale.serving.engine.restrictions import restriction
from dragonscale.serving.iteration.capacity import cache_per_chip
from dragonscale.serving.space.disaggregation import PooledConfig, Pools, as_config, best_pools
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.legal import divisible
from dragonscale.serving.space.ranking import worth
from dragonscale.serving.space.space import one_plan
from dragonscale.serving.steady.prefix import hit, rooms
from dragonscale.serving.steady.speculation import BATCHES, MAX_DRAFTS, break_even, speculate

# Other ways to serve the same requests, beside the best configuration: drafting, disaggregated prefill and decode,
# prefix caching.


HOST_BYTES = 100e9
MOST_POOLS = 3


def solved_limits(asked: ServeAsked, config: Config) -> Iterator[ServingLimit]:
    """Critical batch, degrees, contexts and the largest batch of a configuration, solved from the ledger of its own
    iterations as formulas and numbers."""
    ask = asked.ask
    tokens = min(ask.new, asked.engine_on(config.piece.chip, config.engine).scheduling.max_tokens)
    return find_limits(deployed(asked, config), config.batch, ask.prompt + ask.output // 2, tokens)


def limit_rows(asked: ServeAsked, config: Config) -> list[records.LimitRow]:
    """The same as rows."""
    return [records.LimitRow(one.name, one.counts, one.text, one.value) for one in solved_limits(asked, config)]


def speculation_report(asked: ServeAsked, config: Config) -> records.Speculation | None:
    """Drafting in one configuration, by the number of drafts."""
    draft = asked.draft_by(config.engine)
    if draft is None or (draft.source and not config.drafts):
        return None
    deployment, keys = deployed(asked, config), asked.ask.context
    most = max(0 if draft.source else MAX_DRAFTS, *draft.counts)
    loops = speculate(deployment, draft, config.batch, keys, tuple(range(most + 1)))
    rows = [DraftRow(one.drafts, one.drafting, one.verifying, one.tokens, one.tpot, one.speedup) for one in loops]
    engine, lot = asked.engine_on(config.piece.chip, config.engine), one_plan(config.piece, config.plan)
    plain = [] if config.is_fleet or not config.drafts else judge(asked.model, lot, engine, asked.ask, [config.batch])
    return records.Speculation(
        acceptance=list(draft.acceptance) if isinstance(draft.acceptance, tuple) else [draft.acceptance],
        drafter=draft.model.name if draft.model is not None else remedies.drafter(asked),
        batch=config.batch,
        rows=rows,
        best_drafts=min(loops, key=lambda one: one.tpot).drafts,
        most_batch=config.most,
        hurts_from_batch=break_even(deployment, draft, keys, [one for one in BATCHES if one <= config.most]),
        source=draft.source,
        server_gain=next((config.tokens_per_chip / one.tokens_per_chip for one in plain), None),
    )


def disaggregation_report(
    asked: ServeAsked,
    first: Config,
    row: records.ConfigReport,
    fleets: Sequence[PooledConfig],
    configs: Sequence[Config],
) -> records.Disaggregation:
    """The pools of the headline, which is `first` and told as `row`, or else the best of those that it beat, beside the
    best configuration that does both."""
    pays = isinstance(first, PooledConfig)
    best = first if pays else next(iter(ranked_apart(asked, fleets)[0]), None)
    together = min(ranked_apart(asked, configs)[0], key=lambda one: worth(one, asked.ask)) if pays else first
    if not isinstance(best, PooledConfig):
        return records.Disaggregation([], None, False, _why_no_pools(asked))
    mine, other = row if pays else config_report(asked, best), config_report(asked, together) if pays else row
    found = [best.pools, *(one.pools for one in fleets if one.place != best.place)]
    gain = other.paid / mine.paid if together.meets else None
    shown = [_pool_report(asked, one) for one in found[: MOST_POOLS * len(asked.targets)]]
    if pays:
        shown[0].ttft_s, shown[0].tpot_s, shown[0].requests_per_s = row.ttft_s, row.tpot_s, row.requests_per_s
        shown[0].ttft_p95_s = row.prefill.ttft_p95_s if row.prefill else 0.0
    advice = _pool_advice(best.pools, gain, pays, compared_text(mine, other))
    return records.Disaggregation(shown, gain, pays, advice)


def search_pools(asked: ServeAsked) -> list[PooledConfig]:
    """The best pairs of pools under one engine that have their KV cache in the same format: a cache is sent as it was
    written. Of one chip, unless pools were asked for."""

    def runs(config: Config, role: str) -> bool:
        return not _pool_restriction(asked, config, role)

    return [as_config(pair) for pair in _pool_pairs(asked, runs)]


def _pool_pairs(asked: ServeAsked, runs: Callable[[Config, str], bool]) -> list[Pools]:
    """The best pairs of pools of plans that run in their role as `runs` says, the best first."""
    targets = tuple(one for one in asked.targets if asked.pools_on(one[0]))
    same: dict[tuple[str, ...], list[Config]] = {}
    for one in search(replace(asked.apart(), targets=targets)) if targets else ():
        chip = "" if asked.question.disaggregate else one.piece.chip.name
        same.setdefault((one.plan.kv, server_of(one.engine), chip), []).append(one)
    pairs = [pair for own in same.values() for pair in best_pools(own, asked.ask, runs=runs)]
    return sorted(pairs, key=Pools.order)


def _pool_restriction(asked: ServeAsked, config: Config, role: str) -> str:
    """Why an engine does not run a plan in its role of two pools; empty where it does."""
    latent = divisible(asked.model).latent
    return restriction(config.engine, config.piece.chip, latent, config.plan, role, unasked=True).why


def _why_no_pools(asked: ServeAsked) -> str:
    """Why there are no pools: nothing fits, or what does is not run by its engine."""
    for pair in _pool_pairs(asked, lambda _config, _role: True):
        prefill = _pool_restriction(asked, pair.prefill, "prefill")
        decode = _pool_restriction(asked, pair.decode, "decode")
        if prefill or decode:
            return f"Prefill and decode apart do not run: {prefill or decode}."
    named = [str(piece or chip.name) for chip, piece in asked.targets]
    where = f"{', '.join(named[:-1])} or {named[-1]}" if len(named) > 1 else named[0]
    return f"A replica that prefills and one that decodes do not both fit on {where}."


def _pool_report(asked: ServeAsked, pair: Pools) -> records.PoolReport:
    prefill, decode = config_report(asked, pair.prefill), config_report(asked, pair.decode)
    return records.PoolReport(
        **shared(records.PoolReport, pair, prefill=prefill, decode=decode),
        ttft_s=pair.ttft,
        tpot_s=pair.tpot,
        requests_per_s=pair.requests,
        output_tokens_per_s_per_chip=pair.tokens_per_chip,
        transfer_bytes_per_s=pair.requests * pair.transfer_bytes,
        cost_usd_per_mtok=pair.usd_per_mtok,
        meets_slo=pair.meets,
    )


def compared_text(pools: records.ConfigReport, together: records.ConfigReport) -> str:
    """The tokens that a dollar buys of pools were divided by those of the best configuration that does both; at a rate
    these are dollars an hour of whole fleets, so that both are told, and not what full batches would cost."""
    if pools.replicas is None:
        return f"the tokens per dollar of the best configuration that does both ({records.beaten_text(together)})"
    does_both = f"{records.plan_text(together)} on {together.copy_slice}"
    best = f"the best configuration that does both ({does_both})"
    if pools.fleet_usd_per_h is None or together.fleet_usd_per_h is None:
        chips = f"a fleet of {pools.fleet_chips:,} chips for the rate against {together.fleet_chips:,} of"
        return f"the tokens per chip, {chips} {best}"
    dollars = f"a fleet of ${pools.fleet_usd_per_h:,.0f}/h for the rate against ${together.fleet_usd_per_h:,.0f}/h of"
    return f"the tokens per dollar, {dollars} {best}"


def _pool_advice(best: Pools, gain: float | None, pays: bool, beside: str) -> str:
    if not best.meets:
        return "Disaggregated prefill and decode miss the targets too."
    used = best.requests * best.transfer_bytes / best.port_bytes_per_s
    wires = f"KV caches take {used:.0%} of the prefill replicas' links"
    if gain is None:
        return f"Worth it: disaggregated, the targets are met, and together they are not; {wires}."
    verdict = "Worth it" if pays else "Not worth it" if gain < 1 else f"Not worth {best.chips} chips"
    return f"{verdict}: {gain:.2f}x {beside}; {wires}."


def prefix_report(asked: ServeAsked, config: Config) -> records.PrefixCache | None:
    """What the cached part of prompts saves, and where it could live."""
    past = asked.ask.past
    if past < 1:
        return None
    deployment = deployed(asked, config)
    found = hit(deployment, asked.ask.prompt, past)
    where = rooms(deployment, past, config.batch, asked.ask.prompt + asked.ask.output, HOST_BYTES)
    size = first(cache_per_chip(deployment, float(past)))
    return records.PrefixCache(
        shared_tokens=past,
        prefill_computed_s=found.computed,
        prefill_from_hbm_s=found.from_hbm,
        prefill_from_host_s=found.from_host,
        saved=found.saved,
        prefix_bytes=size,
        prefixes_hbm=where.hbm,
        prefixes_host=where.host,
        host_pays=found.host_pays,
        advice=f"A hit saves {found.saved:.0%} of the prefill"
        + "; no other prefix fits in HBM beside this batch" * (where.hbm < 2)
        + "; to load one from the host takes longer than to compute it" * (not found.host_pays),
    )
