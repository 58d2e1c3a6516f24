"""Whether a fleet keeps up, and what holds its requests up where it does not."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dragonscale.simulation.backlog import Backlog
from dragonscale.simulation.fleet_sizing.capacity import FULL_SHARE, HALF_OF_QUEUE, FleetCapacity, prefill_queue
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob
from dragonscale.simulation.result import SimulationResult

# Above this share of busy time batches never run empty.
BUSY_SHARE = 0.97

# Above this load one request queues on average where they come at random (M/D/1: load^2 / 2(1 - load) = 1); a queue
# below it has another cause.
QUEUEING_LOAD = 3**0.5 - 1

# Share of a token budget, filled by prompts, below which another prompt would find room.
ROOMY_BUDGET_SHARE = 0.5

# Preemptions for each request that comes from which the KV cache is too small.
MAX_PREEMPTED_SHARE = 0.01


class Bottleneck(Enum):
    """What holds requests up, in the words of answers."""

    STARTING_REPLICAS = "replicas that start"
    KV_CACHE = "the KV cache"
    PREFILL_POOL = "the prefill pool"
    DECODE_POOL = "the decode pool"
    PLACES = "places in batches"
    PREFILL = "prefill"
    ADAPTERS = "places for adapters"
    BURSTS = "bursts"
    REPLICAS = "the replicas"


class FleetState(Enum):
    """How a run ended."""

    EMPTY = "no request came"
    REFUSED = "every request was refused"
    BATCH = "all was there from the beginning, with a deadline"
    OVERLOADED = "the queue grows"
    LATE = "a target is missed"
    FULL = "it holds, and its KV cache or its replicas are full"
    HOLDS = "it holds"


@dataclass(frozen=True)
class FleetVerdict:
    """How a run ended, and what holds its requests up (None where none was served). Where all replicas are busy and
    requests queue for them, the fleet `queues`."""

    state: FleetState
    bottleneck: Bottleneck | None = None
    queues: bool = False


def verdict_of(
    job: FleetJob,
    result: SimulationResult,
    load: Backlog | None,
    missed: Mapping[str, float],
    capacity: FleetCapacity | None,
) -> FleetVerdict:
    """The verdict on a run, from its load, the targets it missed and what was found to hold."""
    if not result.outcome.arrived:
        return FleetVerdict(FleetState.EMPTY)
    if result.outcome.refused and not result.outcome.finished:
        return FleetVerdict(FleetState.REFUSED)
    bottleneck = bottleneck_of(job, result, capacity)
    if job.deadline_s:
        return FleetVerdict(FleetState.BATCH, bottleneck)
    if load is not None and load.grows:
        return FleetVerdict(FleetState.OVERLOADED, bottleneck)
    if missed:
        return FleetVerdict(FleetState.LATE, bottleneck)
    waits = result.utilisation > BUSY_SHARE and result.mean_waiting > len(result.replicas)
    queues = waits and not _prefill_has_room(job, result)
    state = FleetState.FULL if queues or bottleneck is Bottleneck.KV_CACHE else FleetState.HOLDS
    return FleetVerdict(state, bottleneck, queues)


def bottleneck_of(job: FleetJob, result: SimulationResult, capacity: FleetCapacity | None) -> Bottleneck:
    """What holds requests up, the most telling sign first."""
    fleet, outcome = job.fleet, result.outcome
    has_prefill_pool = fleet.prefill is not None
    if grown_to(job, result, capacity):
        return Bottleneck.STARTING_REPLICAS
    if result.kv_occupancy > FULL_SHARE or outcome.preempted > MAX_PREEMPTED_SHARE * outcome.arrived:
        return Bottleneck.KV_CACHE
    if has_prefill_pool and prefill_queue(job, result) > HALF_OF_QUEUE:
        return Bottleneck.PREFILL_POOL
    places_share = result.use["serve"].places_share
    prompt_share = result.use[job.prefilling_pool].prompt_share
    if has_prefill_pool:
        return Bottleneck.PLACES if places_share > QUEUEING_LOAD else Bottleneck.DECODE_POOL
    if places_share > max(QUEUEING_LOAD, prompt_share):
        return Bottleneck.PLACES
    if prompt_share > QUEUEING_LOAD:
        return Bottleneck.PREFILL
    # nothing else is short, and yet more than one request queues for each replica
    queueing = result.mean_waiting > len(result.replicas)
    if queueing and fleet.pool.adapters:
        return Bottleneck.ADAPTERS
    return Bottleneck.BURSTS if queueing else Bottleneck.REPLICAS


def grown_to(job: FleetJob, result: SimulationResult, capacity: FleetCapacity | None) -> int:
    """Replicas that the main pool grew to, where requests waited for them to start and all of the fleet would hold the
    rate; 0 where that is not so."""
    rule = job.fleet.pool.autoscale
    if rule is None:
        return 0
    peak = max((count for _, count in result.series.get("replicas", [])), default=0.0)
    replicas = min(round(peak) - job.prefills, rule.most)  # others are only on their way out
    enough = capacity is None or (capacity.rate or 0.0) >= (job.traffic.rate or 0.0)
    return replicas if replicas > job.fleet.pool.replicas and enough else 0


def _prefill_has_room(job: FleetJob, result: SimulationResult) -> bool:
    """Whether a prefill pool, however busy, has more room in its iterations than prompts: these wait for the one under
    way, and not for each other."""
    return job.fleet.prefill is not None and result.use["prefill"].budget_share < ROOMY_BUDGET_SHARE
