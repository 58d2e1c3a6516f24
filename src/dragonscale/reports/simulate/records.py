"""The records that `dscale simulate` answers with; `--json` prints them as they are."""

from dataclasses import dataclass
from typing import Any

import msgspec

from dragonscale.reports.prices import PriceRow
from dragonscale.simulation.result import Outcome, Throughput


class Latency(msgspec.Struct):
    """A distribution. `mean_low` and `mean_high` are a 95% interval, as are those of the 99th percentile; null where the run
    is too short to say."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean_low: float | None
    mean_high: float | None
    p99_low: float | None
    p99_high: float | None


class PoolRow(msgspec.Struct):
    """Equal replicas of the fleet."""

    name: str
    slice: str
    plan: str
    engine: str
    scheduler: str
    replicas: int
    chips: int
    kv_tokens: int
    router: str


@dataclass(frozen=True)
class SimulatedRates(Throughput):
    """The run's rates, by chip and in money too."""

    output_tokens_per_s_per_chip: float
    cost_usd_per_mtok: float | None


class Analytic(msgspec.Struct):
    """What the planner says of one replica at the batch that the run had, and of the most that the fleet can do."""

    batch: int
    tpot_s: float
    ttft_s: float
    most_requests_per_s: float


class ReplicaRow(msgspec.Struct):
    index: int
    pool: str
    busy_share: float
    mean_batch: float
    output_tokens: int


class SimulateReport(msgspec.Struct):
    model: str
    traffic: dict[str, Any]
    fleet: list[PoolRow]
    seed: int
    simulated_s: float
    requests: Outcome
    latency: dict[str, Latency]
    rates: SimulatedRates
    slo: dict[str, float]
    meets_slo: bool | None
    utilisation: float
    kv_occupancy: float
    mean_batch: float
    mean_waiting: float
    cache_hit_rate: float
    host_hit_rate: float
    tokens_per_verify_step: float
    analytic: Analytic | None
    replicas: list[ReplicaRow]
    bound_by: str
    advice: str
    notes: list[str] = []
    prices: list[PriceRow] = []
