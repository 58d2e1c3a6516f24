"""A fleet under traffic as it is asked for: replicas of deployments, what comes to them, and what it must get."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dragonscale.models.transformer import Transformer
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.steady.speculation import head_part
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.deployed import pool_for
from dragonscale.simulation.fleet import Autoscale, Failure, Faults, Fleet, Pool
from dragonscale.simulation.fleet_sizing.fleet_traffic import MAX_SETTLING, FleetTraffic, SettledTraffic, settled
from dragonscale.simulation.fleet_sizing.replica_extras import (
    AdapterLoad,
    ImageLoad,
    TierSize,
    with_adapters,
    with_images,
    with_tiers,
)
from dragonscale.simulation.result import SimulationOptions, SimulationResult
from dragonscale.simulation.traffic import TrafficSource

# Routers that look for what is cached, which is where prompts are prefilled.
CACHE_ROUTERS = ("prefix_affinity", "session_sticky", "cache_aware", "cache_scores")

# The percentile at which latencies without a target are reported.
USUAL_PERCENTILE = 95

# The part of the requests at the start of a run that is not measured, or more of them while the fleet fills.
USUAL_WARMUP = 0.1


@dataclass(frozen=True)
class FleetReplica:
    """One replica: what runs on it, and what it has beside the plan. Step times are tabulated for requests of up to
    `longest` tokens. Of `drafts` tokens that are proposed at a time each is accepted with a probability of
    `acceptance`; without a `draft_model` the model's own heads propose them."""

    deployment: Deployment
    longest: int
    drafts: int = 0
    acceptance: tuple[float, ...] = (0.0,)
    draft_model: Transformer | None = None
    draft_part: float | None = None
    """The fraction of a step that a draft takes without a model (None: that of one of the model's own heads)."""
    tiers: tuple[TierSize, ...] = ()
    images: ImageLoad = ImageLoad()
    adapters: AdapterLoad | None = None
    kv_tokens: int | None = None
    """Tokens of its KV cache where they were measured; None: those for which there is memory."""

    @cached_property
    def pool(self) -> Pool:
        """A pool of this replica alone. Its step times are tabulated once and serve pools of any size."""
        deployment = self.deployment
        drafter, draft_part = None, 0.0
        if self.draft_model is not None:
            drafter = deploy(self.draft_model, deployment.piece, deployment.plan, deployment.engine)
        elif self.drafts:
            draft_part = head_part(deployment.model) if self.draft_part is None else self.draft_part
        pool = pool_for(
            deployment,
            self.longest,
            draft=self.drafts,
            acceptance=self.acceptance,
            draft_part=draft_part,
            drafter=drafter,
        )
        chip_token_bytes = pool.times.per_token  # pyright: ignore[reportAttributeAccessIssue]  a StepTable
        pool = with_tiers(pool, self.tiers, deployment, chip_token_bytes)
        pool = with_images(pool, self.images, deployment)
        if self.adapters is not None:
            pool = with_adapters(pool, self.adapters, deployment, chip_token_bytes)
        if self.kv_tokens is not None:
            pool = replace(pool, kv_tokens=self.kv_tokens)
        return pool


@dataclass(frozen=True)
class FleetPool:
    """Equal replicas of a fleet. Longer requests than `upto` tokens (0: none is) and requests of other classes than
    `classes` (indices; none: all) go to other pools. `limits` are those of this pool's launch alone; where it says
    nothing, those of the fleet hold."""

    replica: FleetReplica
    replicas: int = 1
    autoscale: Autoscale | None = None
    upto: int = 0
    classes: tuple[int, ...] = ()
    limits: LaunchLimits = LaunchLimits()

    @property
    def deployment(self) -> Deployment:
        """What runs on each replica."""
        return self.replica.deployment

    def pool(self, router: str, share_prefixes: bool) -> Pool:
        """The same as the simulator has it; one that is scaled begins within its limits."""
        replicas = self.replicas
        if self.autoscale is not None:
            replicas = min(max(replicas, self.autoscale.least), self.autoscale.most)
        return replace(
            self.replica.pool,
            replicas=replicas,
            router=router,
            share_prefixes=share_prefixes,
            autoscale=self.autoscale,
            upto=self.upto,
            kinds=self.classes,
        )

    def relaunched(self, limits: LaunchLimits) -> "FleetPool":
        """The same launched with other limits, but for those that it has of its own."""
        applied = limits
        if self.limits.max_seqs is not None:
            applied = replace(applied, max_seqs=None)
        if self.limits.token_budget is not None:
            applied = replace(applied, token_budget=None)
        if not applied.settings:
            return self
        deployment = replace(
            self.deployment, launched_engine=adjust(self.deployment.launched_engine, **applied.settings)
        )
        return replace(self, replica=replace(self.replica, deployment=deployment))


@dataclass(frozen=True)
class NamedPool:
    """A pool by its name in results: `serve`, `prefill`, or `serve 2` and so on for those beside the first."""

    name: str
    deployment: Deployment
    pool: Pool


@dataclass(frozen=True)
class FleetChange:
    """What to change about a fleet so that it holds; None: leave it as it is."""

    max_seqs: int | None = None
    router: str | None = None
    token_budget: int | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    autoscale: Autoscale | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all is left as it is."""
        return self == NO_CHANGE


NO_CHANGE = FleetChange()


@dataclass(frozen=True)
class FleetJob:
    """A fleet, the traffic that comes to it and the targets it is to meet.

    The `main` pool prefills and decodes, or only decodes where there is a `prefill` pool; `others` stand beside it.
    `context` is the longest request of the model and `served_length` that of the launch. The first requests of a run,
    a part of `warmup` or more while the fleet fills, are not measured.
    """

    main: FleetPool
    traffic: FleetTraffic
    targets: Mapping[str, LatencyTarget] = field(default_factory=dict[str, LatencyTarget])
    """By the name of the latency, such as `ttft_s`."""
    prefill: FleetPool | None = None
    others: tuple[FleetPool, ...] = ()
    router: str = "least_loaded"
    limits: LaunchLimits = LaunchLimits()
    failures: tuple[Failure, ...] = ()
    faults: Faults | None = None
    queue_limit: int | None = None
    context: int | None = None
    served_length: int | None = None
    percentile: int = USUAL_PERCENTILE
    """At which latencies without a target are reported."""
    deadline_s: float = 0.0
    """By when everything is to have ended; 0 where nobody says."""
    seed: int = 0
    warmup: float = USUAL_WARMUP

    @property
    def deployment(self) -> Deployment:
        """What runs on each replica of the main pool."""
        return self.main.deployment

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet as the simulator has it."""
        share_prefixes = self.traffic.shares_prefixes
        prefill = None
        if self.prefill is not None:
            # prompts wait for the replica with the fewest tokens, or go where their beginning is cached
            router = self.router if self.router in CACHE_ROUTERS else "least_loaded"
            prefill = self.prefill.pool(router, share_prefixes)
        overhead_s = 0.0
        if not self.traffic.behind_server:
            overhead_s = self.deployment.engine.host.front_s(self.traffic.prompt)
        return Fleet(
            self.main.pool(self.router, share_prefixes),
            prefill,
            self.failures,
            overhead_s=overhead_s,
            queue_limit=self.queue_limit,
            context=self.context,
            served_length=self.served_length,
            faults=self.faults,
            others=tuple(pool.pool(self.router, share_prefixes) for pool in self.others),
        )

    @cached_property
    def pools(self) -> tuple[NamedPool, ...]:
        """Every pool by its name in results, the main one first."""
        pools = [NamedPool("serve", self.deployment, self.fleet.pool)]
        if self.prefill is not None and self.fleet.prefill is not None:
            pools.append(NamedPool("prefill", self.prefill.deployment, self.fleet.prefill))
        for number, (fleet_pool, pool) in enumerate(zip(self.others, self.fleet.others, strict=True), 2):
            pools.append(NamedPool(f"serve {number}", fleet_pool.deployment, pool))
        return tuple(pools)

    @cached_property
    def _settled(self) -> SettledTraffic:
        return settled(self.traffic, self.fleet)

    @property
    def source(self) -> TrafficSource:
        """The requests of a run."""
        return self._settled.source

    @cached_property
    def options(self) -> SimulationOptions:
        """How a run is measured."""
        share = self._settled.in_flight_share
        seconds: dict[str, Any] = {name: target.seconds for name, target in self.targets.items()}
        return SimulationOptions(
            classes=tuple({name: goal.seconds for name, goal in targets.items()} for targets in self.class_targets),
            seed=self.seed,
            warmup=max(self.warmup, min(2 * share, 1.5 * MAX_SETTLING)),
            cooldown=min(share, MAX_SETTLING),
            **seconds,
        )

    @property
    def class_targets(self) -> list[dict[str, LatencyTarget]]:
        """The targets of each class of traffic."""
        return [service.targets for service in self.traffic.classes]

    @property
    def has_targets(self) -> bool:
        """Whether any latency has a target."""
        return bool(self.targets) or any(self.class_targets)

    @property
    def prefilling_pool(self) -> str:
        """The name of the pool in which prompts are prefilled."""
        return "serve" if self.prefill is None else "prefill"

    @property
    def prefills(self) -> int:
        """Replicas that only prefill; 0 where the main pool does."""
        return 0 if self.fleet.prefill is None else self.fleet.prefill.replicas

    @property
    def scales(self) -> bool:
        """Whether the main pool grows and shrinks."""
        return self.fleet.pool.autoscale is not None

    def statistic(self, name: str) -> str:
        """What is reported of a latency: the statistic that its target is for."""
        return self.targets[name].statistic if name in self.targets else f"p{self.percentile}"

    def reached(self, result: SimulationResult, name: str) -> float:
        """That statistic of a run, in seconds."""
        return getattr(result.latency[name], self.statistic(name)).value

    def with_kv_tokens(self, kv_tokens: int) -> "FleetJob":
        """The same with so many tokens of KV cache in each replica of the main pool, as they were measured."""
        return replace(self, main=replace(self.main, replica=replace(self.main.replica, kv_tokens=kv_tokens)))

    def changed(self, change: FleetChange) -> "FleetJob":
        """The same with a change."""
        limits = replace(
            self.limits,
            max_seqs=change.max_seqs or self.limits.max_seqs,
            token_budget=change.token_budget or self.limits.token_budget,
        )
        limits_changed = LaunchLimits(change.max_seqs, change.token_budget)
        main = self.main.relaunched(limits_changed)
        if change.replicas is not None:
            main = replace(main, replicas=change.replicas)
        if change.autoscale is not None:
            main = replace(main, autoscale=change.autoscale)
        prefill = self.prefill
        if prefill is not None:
            # sequences at once are those that decode
            prefill = prefill.relaunched(LaunchLimits(token_budget=change.token_budget))
            prefill = replace(prefill, replicas=change.prefill_replicas or prefill.replicas)
        return replace(
            self,
            main=main,
            prefill=prefill,
            others=tuple(pool.relaunched(limits_changed) for pool in self.others),
            router=change.router or self.router,
            limits=limits,
        )
