"""Separate pools for prefill and decode, as a job wants them searched, and why there are none."""

from collections.abc import Callable

from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import search
from dragonscale.serving.engine.legality import server_of
from dragonscale.serving.engine.restrictions import DECODE, PREFILL, restriction
from dragonscale.serving.space.disaggregation import PooledConfig, Pools, as_config, best_pools
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.legal import divisible


def search_pools(job: ServingJob) -> list[PooledConfig]:
    """The best pairs of pools whose plans their engine runs in their roles, the best first."""

    def runs(config: Config, role: str) -> bool:
        return not pool_restriction(job, config, role)

    return [as_config(pair) for pair in _pool_pairs(job, runs)]


def why_no_pools(job: ServingJob) -> str:
    """Why an engine does not run the pools that would fit; empty where none fit."""
    # all pairs that fit, whatever their engine runs
    for pair in _pool_pairs(job, lambda _config, _role: True):
        why = pool_restriction(job, pair.prefill, PREFILL) or pool_restriction(job, pair.decode, DECODE)
        if why:
            return why
    return ""


def pool_restriction(job: ServingJob, config: Config, role: str) -> str:
    """Why an engine does not run a plan in its role of two pools; empty where it does."""
    latent = divisible(job.model).latent
    return restriction(config.engine, config.piece.chip, latent, config.plan, role, unasked=True).why


def _pool_pairs(job: ServingJob, runs: Callable[[Config, str], bool]) -> list[Pools]:
    """The best pairs of pools of plans that run in their roles, the best first.

    Both pools have one engine and one format of the KV cache, which is sent as it was written; and one chip, unless
    pools were asked for."""
    if not job.searches_pools:
        return []
    # configurations that can be paired, by cache format, server and chip
    groups: dict[tuple[str, ...], list[Config]] = {}
    for config in search(job.pool_job()):
        chip = "" if job.disaggregate else config.piece.chip.name
        groups.setdefault((config.plan.kv, server_of(config.engine), chip), []).append(config)
    pairs: list[Pools] = []
    for configs in groups.values():
        pairs += best_pools(configs, job.ask, runs=runs)
    return sorted(pairs, key=Pools.order)
