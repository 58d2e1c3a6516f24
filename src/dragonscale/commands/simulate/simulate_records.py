"""The records that `dscale simulate` answers with; `--json` prints them as they are."""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import MISSED
from dragonscale.physics.hardware.price_rows import PriceRow
from dragonscale.physics.units import render
from dragonscale.serving.steady.targets import LATENCIES
from dragonscale.simulation.fleet_sizing.simulated_run import Latency
from dragonscale.simulation.result import Outcome, PoolUse, SimulationResult, Throughput

# Latencies that may have targets, in short.
NAMES = {f"{name}_s": title for name, title in LATENCIES.items()}

# All latencies that are measured, as tables have them.
TITLES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "per output token (TPOT)",
    "itl_s": "between tokens (ITL)",
    "queue_s": "until scheduled",
    "e2e_s": "whole request",
}


class PoolRow(msgspec.Struct):
    """Equal replicas of the fleet; where it grows and shrinks, those at the start, up to `most_replicas`."""

    name: str
    slice: str
    plan: str
    engine: str
    scheduler: str
    replicas: int
    chips: int
    kv_tokens: int
    router: str
    most_replicas: int | None = None
    takes: str = ""
    """Which requests come to it, and its model where that is another; empty: any."""
    release: str = ""
    """The releases that its engine describes; empty where it is none in particular."""


@dataclass(frozen=True)
class SimulatedRates(Throughput):
    """The run's rates, by chip and in money too."""

    output_tokens_per_s_per_chip: float
    cost_usd_per_mtok: float | None


class Analytic(msgspec.Struct):
    """What the planner says of one replica at the batch that the run had, where requests are all alike."""

    batch: int
    tpot_s: float
    ttft_s: float


class LoadReport(msgspec.Struct):
    """The second half of the arrivals: what came, what ended, by how much the backlog grew each second, whether that is
    more than chance, and how many requests waited when the last came."""

    arrived_per_s: float
    served_per_s: float
    growth_per_s: float
    grows: bool
    waiting: int
    is_burst: bool = False
    """Whether they came in less time than a request takes, so that nobody can say whether the fleet keeps up."""


class CapacityReport(msgspec.Struct):
    """What was found by running: the largest rate that the fleet holds, with its goodput and what stops larger ones
    (`queue`, `ttft_s`, `tpot_s` …); and the replicas that hold the asked rate, with the chips, dollars and latencies of
    their run, each at the statistic of its target or at `percentile`; `change` are the flags that ask for them, or for
    another setting of the same replicas. Null where none does."""

    requests_per_s: float | None
    goodput_requests_per_s: float | None
    good_share: float | None
    limited_by: str
    percentile: int
    replicas: int | None
    prefill_replicas: int
    chips: int | None
    usd_per_h: float | None
    usd_per_mtok: float | None
    ttft_s: float | None
    tpot_s: float | None
    runs: int
    requests_per_run: int
    change: dict[str, Any] = {}


class ReplicaRow(msgspec.Struct):
    index: int
    pool: str
    busy_share: float
    mean_batch: float
    output_tokens: int


class ClassReport(msgspec.Struct):
    """One class of traffic: what came and what it got, each latency with its target, and the means of what requests
    waited for: a place, their prefill, their tokens. `served_share` is its part of the time that requests spend in
    replicas, by which it pays for the fleet; `earned_usd_per_h` what its tokens bring at its own prices."""

    name: str
    priority: int
    requests_per_s: float
    arrived: int
    refused: int
    latency: dict[str, Latency]
    slo: dict[str, float]
    statistics: dict[str, str]
    meets_slo: bool | None
    good_share: float
    goodput_requests_per_s: float
    waited: dict[str, float]
    input_tokens_per_s: float
    output_tokens_per_s: float
    served_share: float
    usd_per_h: float | None
    usd_per_mtok: float | None
    earned_usd_per_h: float

    def told(self, name: str) -> str:
        """A latency at the statistic of its target, or its p95."""
        at = self.statistics.get(name, "p95")
        value = render(getattr(self.latency[name], at), "s")
        return f"{at} {value}" + (f" of {render(self.slo[name], 's')}" if name in self.slo else "")


class RunRow:
    """The run that a report is of; no JSON has it."""

    result: SimulationResult
    """Distributions and series over time."""


class SimulateReport(Record, RunRow):
    """The answer: whether the fleet holds, what requests got, what bounds it and what to change."""

    CHARTS: ClassVar[tuple[str, ...]] = ("latency", "occupancy")

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
    use: dict[str, PoolUse]
    bound_by: str
    advice: str
    remedy: str = ""
    """What of the advice was found to hold by running, or else the evidence."""
    notes: list[str] = []
    prices: list[PriceRow] = []
    percentile: int = 95
    target_ratios: dict[str, float] = {}
    """The statistic of each latency that has a target, over it."""
    statistics: dict[str, str] = {}
    """Which statistic each target is for: mean, p50, p90, p95 or p99; other latencies are told at `percentile`."""
    load: LoadReport | None = None
    capacity: CapacityReport | None = None
    chips: float = 0.0
    usd_per_h: float | None = None
    classes: list[ClassReport] = []
    deadline_s: float | None = None
    usd: float | None = None
    """What the whole run costs, where it has a deadline."""
    watts: float | None = None
    """Of the fleet at its chips' power limits, with their share of hosts: an upper bound."""
    mean_watts: float | None = None
    """What it draws on average, where that was measured for its chips (Hopper), by its load."""
    tokens_per_joule: float | None = None
    """Prompt and output tokens, by what it draws; by its limits where that is not known."""
    adapter_loads: int = 0

    @property
    def exit_code(self) -> int:
        return MISSED if self.meets_slo is False else 0

    def told(self, name: str) -> str:
        """A latency at the statistic of its target, as text."""
        at = self.statistics.get(name, f"p{self.percentile}")
        return f"{at} {NAMES[name]} {render(getattr(self.latency[name], at), 's')}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each latency: its mean and percentiles, with its target."""
        return [
            {"latency": name, **msgspec.to_builtins(latency), "target": self.slo.get(name)}
            for name, latency in self.latency.items()
        ]

    def headline(self) -> str:
        pools = " and ".join(f"{pool.replicas} x {pool.slice}" for pool in self.fleet)
        ends = "no request finished"
        if self.requests.finished:
            ends = ", ".join(self.told(name) for name in dict.fromkeys(("ttft_s", "tpot_s", *self.slo)))
        met = {True: ", meets the targets", False: ", misses the targets", None: ""}[self.meets_slo]
        return f"{self.model} on {pools}: {ends}{met}"
