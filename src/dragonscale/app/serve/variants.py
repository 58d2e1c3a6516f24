"""Other ways to serve the same requests, beside the best configuration: drafting, disaggregated prefill and decode,
prefix caching."""

from collections.abc import Sequence
from dataclasses import replace

from dragonscale.app.serve.config import config_report, deployed, first
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import Disaggregation, DraftRow, PoolReport, PrefixCache, Speculation
from dragonscale.app.serve.remedies import drafter
from dragonscale.app.serve.search import search
from dragonscale.physics.units import render
from dragonscale.serving.capacity import cache_per_chip
from dragonscale.serving.disaggregation import Pools, best_pools
from dragonscale.serving.frontier import Ask, Config, replicas_for
from dragonscale.serving.legality import server_of
from dragonscale.serving.prefix import hit, rooms
from dragonscale.serving.speculation import BATCHES, MOST, break_even, speculate

HOST_BYTES = 100e9
MOST_POOLS = 3


def speculation_report(asked: ServeAsked, config: Config) -> Speculation | None:
    """Drafting in one configuration, by the number of drafts."""
    draft = asked.draft
    if draft is None:
        return None
    deployment, keys = deployed(asked, config), asked.ask.prompt + asked.ask.output / 2
    most = max(MOST, *draft.counts)
    loops = speculate(deployment, draft, config.batch, keys, tuple(range(most + 1)))
    rows = [DraftRow(one.drafts, one.drafting, one.verifying, one.tokens, one.tpot, one.speedup) for one in loops]
    return Speculation(
        acceptance=list(draft.acceptance) if isinstance(draft.acceptance, tuple) else [draft.acceptance],
        drafter=draft.model.name if draft.model is not None else drafter(asked),
        batch=config.batch,
        rows=rows,
        best_drafts=min(loops, key=lambda one: one.tpot).drafts,
        most_batch=config.most,
        hurts_from_batch=break_even(deployment, draft, keys, [one for one in BATCHES if one <= config.most]),
    )


def disaggregation_report(asked: ServeAsked, best: Config | None) -> Disaggregation:
    """The best pools beside the best configuration that does both."""
    found = _pools(search(replace(asked, apart=True)), asked)
    gain = _gain(found[0], best, asked.ask) if found and best is not None and best.meets else None
    pays = bool(found) and found[0].meets and (gain is None or gain > 1)
    return Disaggregation([_pool_report(asked, one) for one in found], gain, pays, _pool_advice(found, gain, pays))


def _pools(configs: Sequence[Config], asked: ServeAsked) -> list[Pools]:
    """The best pairs of pools under one engine that have their KV cache in the same format: a cache is sent as it was
    written."""
    same: dict[tuple[str, str], list[Config]] = {}
    for one in configs:
        same.setdefault((one.plan.kv, server_of(one.engine)), []).append(one)
    found = [pair for own in same.values() for pair in best_pools(own, asked.ask)]
    return sorted(found, key=Pools.order)[:MOST_POOLS]


def _gain(pair: Pools, best: Config, ask: Ask) -> float:
    """Tokens for a dollar over those of a configuration that does both; for a chip where prices are not known. With a
    rate, those of the fleets that it takes."""
    if ask.rate is not None:
        chips, price = replicas_for(best, ask) * best.chips, best.piece.chip.price
        return chips / pair.chips if pair.usd_per_h is None or price is None else chips * price / pair.usd_per_h
    if pair.usd_per_mtok is not None and best.usd_per_mtok is not None:
        return best.usd_per_mtok / pair.usd_per_mtok
    return pair.tokens_per_chip / best.tokens_per_chip


def _pool_report(asked: ServeAsked, pair: Pools) -> PoolReport:
    same = ("prefills", "decodes", "chips", "transfer_s", "transfer_bytes", "port_bytes_per_s", "usd_per_h")
    return PoolReport(
        prefill=config_report(asked, pair.prefill),
        decode=config_report(asked, pair.decode),
        ttft_s=pair.ttft,
        tpot_s=pair.tpot,
        requests_per_s=pair.requests,
        output_tokens_per_s_per_chip=pair.tokens_per_chip,
        transfer_bytes_per_s=pair.requests * pair.transfer_bytes,
        cost_usd_per_mtok=pair.usd_per_mtok,
        meets_slo=pair.meets,
        ttft_p95_s=pair.ttft_p95,
        prefill_load=pair.prefill_load,
        **{name: getattr(pair, name) for name in same},
    )


def _pool_advice(found: Sequence[Pools], gain: float | None, pays: bool) -> str:
    if not found:
        return "Nothing fits that could be disaggregated."
    best = found[0]
    if not best.meets:
        return "Disaggregated prefill and decode miss the targets too."
    used = best.requests * best.transfer_bytes / best.port_bytes_per_s
    wires = f"KV caches take {used:.0%} of the prefill replicas' links"
    if gain is None:
        return f"Worth it: disaggregated, the targets are met, and together they are not; {wires}."
    verdict = "Worth it" if pays else "Not worth it"
    return f"{verdict}: {gain:.2f}x the tokens per dollar of the best configuration that does both; {wires}."


def prefix_report(asked: ServeAsked, config: Config) -> PrefixCache | None:
    """What the cached part of prompts saves, and where it could live."""
    past = asked.ask.past
    if past < 1:
        return None
    deployment = deployed(asked, config)
    found = hit(deployment, asked.ask.prompt, past)
    where = rooms(deployment, past, config.batch, asked.ask.prompt + asked.ask.output, HOST_BYTES)
    size = first(cache_per_chip(deployment, float(past)))
    return PrefixCache(
        shared_tokens=past,
        prefill_computed_s=found.computed,
        prefill_from_hbm_s=found.from_hbm,
        prefill_from_host_s=found.from_host,
        saved=found.saved,
        prefix_bytes=size,
        prefixes_hbm=where.hbm,
        prefixes_host=where.host,
        host_pays=found.host_pays,
        advice=_prefix_advice(found.saved, where.hbm, found.host_pays, found.from_host, found.computed),
    )


def _prefix_advice(saved: float, fits: float, host_pays: bool, loaded: float, computed: float) -> str:
    text = f"A hit saves {saved:.0%} of the prefill"
    if fits >= 2:
        text += f"; {int(fits):,} such prefixes fit in HBM beside this batch, the one that it shares among them"
    else:
        text += "; the batch shares one, and no other fits in HBM beside it (a smaller batch makes room)"
    verb = "still beats" if host_pays else "takes longer than"
    return (
        f"{text}, and loading one from the host ({render(loaded, 's')} in all) {verb} computing it "
        f"({render(computed, 's')})."
    )
