"""A serving configuration as a fleet under its traffic: whole, or as a short run of a few replicas that shows what all
of them do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.models.transformer import Transformer
from dragonscale.serving.engine.auto import AUTO
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Ask, Config, judge
from dragonscale.serving.space.ranking import replicas_for
from dragonscale.serving.space.space import one_plan
from dragonscale.serving.steady.speculation import Acceptance, Draft
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob, FleetPool, FleetReplica
from dragonscale.simulation.fleet_sizing.fleet_traffic import (
    USUAL_REQUESTS,
    FleetTraffic,
    steady_traffic,
)
from dragonscale.simulation.fleet_sizing.traffic_classes import ClassTable, class_traffic

# Requests in a short run over those under way at once, and in all at least: its means are then within 1% of those of a
# long run, that of the time to first token within 6%.
TURNOVERS = 5
MIN_REQUESTS = 1000

# Times of a mean session that a short run takes, and its requests at most for the sake of that.
SESSION_TIMES = 2
MAX_SESSION_REQUESTS = USUAL_REQUESTS

# Larger fleets at a rate are run as one of this size with the same load on each replica, or of as many as the fewest
# requests are enough for: the more there are, the less their batches vary.
MAX_RUN_REPLICAS = 4


@dataclass(frozen=True)
class SizingJob:
    """What fleets of serving configurations are sized and confirmed for: a model, its requests and their targets, and
    what a launch says of the engine.

    `ask` has the requests with their targets as means, `targets` the same by the name of the latency (`ttft`) with the
    statistic that counts. `engine` is a name with its settings, or `auto`: then each configuration's own.
    """

    model: Transformer
    ask: Ask
    targets: Mapping[str, LatencyTarget] = field(default_factory=dict[str, LatencyTarget])
    engine: str = AUTO
    limits: LaunchLimits = LaunchLimits()
    draft: Draft | None = None
    batch: int | None = None
    """The batch that was given; None where any will do."""
    compares_chips: bool = False
    """Whether several chips are compared, and each of them has the batch that it has alone."""
    context: int | None = None
    """Tokens of the longest request of the model; None where there is no limit."""
    traffic_class: ClassTable | None = None
    """The use case whose means the requests have; None where requests are alike."""
    router: str = "least_loaded"
    session_s: float = 0.0
    """Seconds of pauses in a session of the use case."""
    session_calls: float = 0.0
    """Calls of a session on average; 0 where there are none."""
    pace_s: float | None = None
    """Seconds per token that the search kept to though nobody asked for any."""

    @property
    def by_percentile(self) -> bool:
        """Whether a percentile is to be met."""
        return any(target.share for target in self.targets.values())

    def engine_of(self, config: Config, limits: LaunchLimits) -> Engine:
        """The engine of a configuration, launched with limits."""
        spec = self.engine
        name, comma, settings = spec.partition(",")
        if name.strip() == AUTO:
            spec = f"{config.engine}{comma}{settings}"
        return engine_on(spec, config.piece.chip, self.model, limits, config.piece.chips, config.plan)

    def at_batches(self, config: Config, batches: Sequence[int]) -> list[Config]:
        """A configuration with other batches, as its means have it."""
        engine = self.engine_of(config, self.limits)
        draft = self.draft
        if draft is not None and draft.source and not rules(engine.name).mtp:
            draft = None  # the engine does not draft with the model's own heads
        return judge(self.model, one_plan(config.piece, config.plan), engine, self.ask, batches, draft)


@dataclass(frozen=True)
class RunSize:
    """Replicas of a run and what comes to them: requests at a `rate` per second, or (0) clients that keep the batch
    full."""

    rate: float
    replicas: int
    prefills: int
    requests: int


def short_run_size(job: SizingJob, config: Config, replicas: int | None = None) -> RunSize:
    """The size of a short run of a configuration with so many replicas (None: as many as its means ask for).

    Of replicas that clients keep full one is run, since they take nothing from each other; of those that share a rate
    a few; and of two pools as few as have their ratio.
    """
    pools = config.pools if isinstance(config, PooledConfig) else None
    rate = job.ask.rate or 0.0
    if pools is not None:
        replicas = pools.decodes
        if not rate:  # pools are sized for a rate, and their TTFT is that of random arrivals
            rate = float(f"{float(config.state.requests):.4g}")  # as commands have it
    elif replicas is None:
        replicas = replicas_for(config, job.ask) if rate else 1
    rate_each = rate / replicas
    latency_s = float(config.state.latency)
    run_replicas = 1
    if rate_each:
        enough = 0.0
        if not job.session_calls:  # a run of sessions is longer than that
            enough = MIN_REQUESTS / (TURNOVERS * rate_each * latency_s)
        run_replicas = min(replicas, max(MAX_RUN_REPLICAS, int(enough)))
    prefills = 0
    if pools is not None:
        run_replicas = replicas // math.gcd(replicas, pools.prefills)
        prefills = pools.prefills * run_replicas // replicas
    run_rate = rate_each * run_replicas
    in_flight = run_rate * latency_s or config.batch  # Little's law
    requests = max(math.ceil(TURNOVERS * in_flight), MIN_REQUESTS)
    if run_rate:  # how many sessions there are swings as slowly as sessions end
        session_s = job.session_s + job.session_calls * latency_s
        requests = max(requests, min(math.ceil(SESSION_TIMES * run_rate * session_s), MAX_SESSION_REQUESTS))
    return RunSize(run_rate, run_replicas, prefills, requests)


def fleet_job(job: SizingJob, config: Config, size: RunSize, seed: int = 0) -> FleetJob:
    """So many replicas of a configuration under the traffic of a job."""
    traffic = _traffic(job, config, size)
    drafts, acceptance, draft_model = 0, (0.0,), None
    if job.draft is not None and config.drafts:
        drafts, acceptance, draft_model = config.drafts, _by_position(job.draft.acceptance), job.draft.model
    places = config.pools.decode.batch if isinstance(config, PooledConfig) else config.batch
    limits = replace(job.limits, max_seqs=-(-places // config.plan.data))
    deployment = Deployment(job.model, config.piece, config.plan, job.engine_of(config, limits))
    replica = FleetReplica(deployment, traffic.longest, drafts, acceptance, draft_model)
    targets = {f"{name}_s": target for name, target in job.targets.items() if name == "itl" or not traffic.classes}
    return FleetJob(
        FleetPool(replica, size.replicas),
        traffic,
        targets,
        prefill=_prefill_pool(job, config, size, traffic.longest),
        router=job.router,
        limits=limits,
        context=job.context,
        seed=seed,
    )


def _traffic(job: SizingJob, config: Config, size: RunSize) -> FleetTraffic:
    """What comes to a run: sessions of the use case, or requests that are alike and share a prefix."""
    fixed_count = size.requests != USUAL_REQUESTS
    if job.traffic_class is not None:
        return class_traffic(
            [job.traffic_class], [size.rate], size.requests, fixed_count=fixed_count, context=job.context
        )
    ask = job.ask
    return steady_traffic(
        ask.prompt,
        ask.output,
        size.requests,
        rate=size.rate,
        clients=config.batch,
        shared_prefix=round(ask.prompt * ask.cached),
        context=job.context,
    )


def _prefill_pool(job: SizingJob, config: Config, size: RunSize, longest: int) -> FleetPool | None:
    """The replicas that prefill, of a configuration of two pools. Limits on sequences are for those that decode."""
    if not isinstance(config, PooledConfig):
        return None
    prefill = config.pools.prefill
    engine = job.engine_of(prefill, replace(job.limits, max_seqs=None))
    deployment = Deployment(job.model, prefill.piece, prefill.plan, engine)
    return FleetPool(FleetReplica(deployment, longest), size.prefills)


def _by_position(acceptance: Acceptance) -> tuple[float, ...]:
    values: Any = acceptance if isinstance(acceptance, tuple) else (acceptance,)
    return values
