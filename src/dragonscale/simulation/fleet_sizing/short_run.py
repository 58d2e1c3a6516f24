"""A serving configuration as a fleet under its traffic: whole, or as a short run of a few replicas that shows what all
of them do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.space.ranking import replicas_for
from dragonscale.serving.steady.speculation import Acceptance
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob, FleetPool, FleetReplica
from dragonscale.simulation.fleet_sizing.fleet_traffic import USUAL_REQUESTS, FleetTraffic, steady_traffic
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
    """A serving job whose fleets are sized and confirmed under the traffic that it means."""

    serving: ServingJob
    traffic_class: ClassTable | None = None
    """The use case whose means the requests have; None where requests are alike."""
    router: str = "least_loaded"
    session_s: float = 0.0
    """Seconds of pauses in a session of the use case."""
    session_calls: float = 0.0
    """Calls of a session on average; 0 where there are none."""

    @property
    def ask(self) -> Ask:
        """The requests, with their targets as means."""
        return self.serving.ask

    @property
    def targets(self) -> Mapping[str, LatencyTarget]:
        """The targets by the name of the latency (`ttft`), each with the statistic that has to meet it."""
        return self.serving.goals

    @property
    def by_percentile(self) -> bool:
        """Whether a percentile is to be met."""
        return any(target.share for target in self.targets.values())

    @property
    def context(self) -> int | None:
        """Tokens of the longest request; None where there is no limit."""
        if self.serving.force or self.serving.past_context:
            return None
        return self.serving.model.context or None

    def deployment_of(self, config: Config, limits: LaunchLimits) -> Deployment:
        """A replica of a configuration, launched with limits."""
        engine = replace(self.serving, limits=limits).engine_on(config.piece.chip, config.engine)
        return Deployment(self.serving.model, config.piece, config.plan, engine)


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
        replicas = 1
        if rate:
            replicas = replicas_for(config, job.ask)
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
    drafting = drafts_of(job, config)
    places = config.batch
    if isinstance(config, PooledConfig):
        places = config.pools.decode.batch  # of which so many as `config.batch` decode on average
    limits = replace(job.serving.limits, max_seqs=-(-places // config.plan.data))
    replica = drafting.replica(job.deployment_of(config, limits), traffic.longest)
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


@dataclass(frozen=True)
class Drafting:
    """Tokens drafted a step, how often each is right by its position, and the model that drafts (None: heads, which
    take `part` of a step)."""

    count: int = 0
    acceptance: tuple[float, ...] = (0.0,)
    model: Transformer | None = None
    part: float | None = None

    def replica(self, deployment: Deployment, longest: int) -> FleetReplica:
        """A replica that drafts so, for requests of up to `longest` tokens."""
        return FleetReplica(deployment, longest, self.count, self.acceptance, self.model, self.part)


def drafts_of(job: SizingJob, config: Config) -> Drafting:
    """What replicas of a configuration draft."""
    draft = job.serving.draft
    if draft is None or not config.drafts:
        return Drafting()
    return Drafting(config.drafts, _by_position(draft.acceptance), draft.model, draft.part)


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
    deployment = job.deployment_of(config.pools.prefill, replace(job.serving.limits, max_seqs=None))
    return FleetPool(FleetReplica(deployment, longest), size.prefills)


def _by_position(acceptance: Acceptance) -> tuple[float, ...]:
    """The probability that a draft is accepted by its position; one probability holds for all."""
    return acceptance if isinstance(acceptance, tuple) else (acceptance,)
