"""The records that `dscale serve` answers with; `--json` prints them as they are."""

from functools import cached_property
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.advised import Advice
from dragonscale.commands.record import Record
from dragonscale.commands.serve.variant_records import (
    BesideRow,
    CountedRun,
    EngineRow,
    ExpectedError,
    FrontierPoint,
    LimitRow,
    MaxRate,
    MeasuredServing,
    PrefixCache,
    RungRow,
    Speculation,
)
from dragonscale.errors import INFEASIBLE, MISSED, Infeasible
from dragonscale.physics.hardware.price_rows import PriceRow
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.serving.advice.bills import MemoryUse, StepTerm, iteration_ledgers
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.limits import solved_limits
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.steady import Steady
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.fleet_sizing.simulated_run import SimulatedRun

SHORT = {"tensor": "tp", "width": "w", "data": "dp", "expert": "ep", "context": "cp", "pipe": "pp"}
"""The degrees of a plan as tables print them and `--plan` reads them."""

MEANINGS = {
    "tensor": "tp = tensor parallel",
    "width": "w = split width",
    "data": "dp = data-parallel attention",
    "expert": "ep = expert parallel",
    "context": "cp = context parallel",
    "pipe": "pp = pipeline stages",
}
"""The same in words."""


class ServeRequest(msgspec.Struct):
    """What requests look like and what they must get."""

    prompt: int
    output: int
    cached: float
    ttft_s: float | None
    tpot_s: float | None
    rate_per_s: float | None
    parameters: int
    engine: str
    engine_why: str = ""
    """Why this engine, where nobody named one."""
    engines: dict[str, str] = {}
    """The engine of the best configuration on each chip."""
    itl_s: float | None = None
    e2e_s: float | None = None
    statistics: dict[str, str] = {}
    """Which statistic each target is for: mean, p50, p90, p95 or p99."""
    router: str = ""
    """The router that the fleet was sized with and that the next command asks for; empty where any will do."""
    pace_s: float | None = None
    """The time per token that is kept where no target says one: 20 tokens/s for each user, or half of what the quickest
    configuration gives where that is less."""

    @property
    def goals(self) -> dict[str, LatencyTarget]:
        """The targets, by the name of the latency."""
        targets: dict[str, LatencyTarget] = {}
        for name, statistic in self.statistics.items():
            targets[name] = LatencyTarget(getattr(self, f"{name}_s"), statistic)
        return targets


class PrefillPool(msgspec.Struct):
    """Replicas that prefill for others: one's plan, slice and chips, how many, the part of the time that they are busy,
    (`ttft_p95_s` is null: a run tells it), and the engine that runs them (empty: that of the others)."""

    plan: str
    slice: str
    chips: int
    replicas: int
    load: float
    ttft_p95_s: float | None = None
    engine: str = ""


class JudgedRow:
    """The domain objects that a row was laid out from; no JSON has them."""

    config: Config
    state: Steady
    """The steady state whose parts add up to the times that the row shows."""
    bills: dict[str, Ledger]
    """The ledgers behind its terms, by phase; rows without terms have none."""


class ConfigReport(msgspec.Struct, JudgedRow, dict=True):
    """One configuration. `slice` is what was asked for, `copy_slice` what one replica takes of it, `copies` how many
    fit; times, batch (requests in flight) and memory are those of one replica. `prefill_s` is a whole prompt's prefill
    beside the others, in `prefill_chunks` of up to `chunk_tokens`: the iterations that it shares with their tokens and
    prompts, so that it falls where fewer of longer prompts share one. `lower_s` and `roofline_s` bound a decode step:
    everything overlapped, and kernel by kernel. Costs are dollars for a million output tokens, prompts included, and
    for a million input and output tokens where each pays for its own time. `replicas` of them serve the rate that was
    asked for, in whole slices where one was named, and each then gets less than it could do: `fleet_ttft_s`,
    `fleet_tpot_s` and `fleet_usd_per_mtok` are those of that fleet at that rate. An answer of one token has a `tpot_s`
    of 0. `quantized` says that the weights are narrower than the checkpoint's: such configurations come after those in
    its own formats. Disaggregated prefill and decode have a `prefill` pool: plan, slice, batch and memory are then
    those of one of its `decodes` decode replicas, with as many sequences as decode on average, of `places` that it is
    launched with; times, rates, costs and `chips` those of the fleet."""

    slice: str
    tensor: int
    batch: int
    prefill_s: float
    decode_step_s: float
    ttft_s: float
    tpot_s: float
    output_tokens_per_s_per_chip: float
    hbm_bytes: float
    kv_bytes_per_token: float
    bound_by: str
    cost_usd_per_mtok: float | None
    meets_slo: bool
    plan: str
    data: int
    expert: int
    context: int
    width: int
    pipe: int
    spread: str
    dtypes: dict[str, str]
    copy_slice: str
    copies: int
    chips: int
    max_batch: int
    lower_s: float
    latency_s: float
    requests_per_s: float
    tokens_per_s_per_user: float
    hbm_limit_bytes: float
    cost_usd_per_mtok_input: float | None
    cost_usd_per_mtok_output: float | None
    drafts: int = 0
    prefill_chunks: int = 1
    chunk_tokens: int = 0
    replicas: int | None = None
    fleet_chips: int | None = None
    fleet_usd_per_h: float | None = None
    fleet_ttft_s: float | None = None
    fleet_tpot_s: float | None = None
    fleet_usd_per_mtok: float | None = None
    idle_chips: int = 0
    """Chips of the fleet that are billed, because whole slices are rented, and that no replica uses."""
    idle_usd_per_h: float | None = None
    """What they cost."""
    enough_replicas: int | None = None
    """Replicas that the rate takes where they are rented one by one and not in whole slices of the one that was named;
    sized as `replicas` are; null where targets were confirmed by a run, which tells it of that fleet alone."""
    simulated: bool = False
    """Whether its fleet and `meets_slo` are those of a run; else they are expected."""
    violations: list[str] = []
    tpot_low_s: float | None = None
    tpot_high_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    tokens_low: float | None = None
    tokens_high: float | None = None
    """Between the low and high of each, TPOT, TTFT and output tokens per second per chip were in four of five published
    runs of this kind."""
    estimated: list[str] = []
    """Which of tpot, ttft and tokens are not validated: nothing like them was measured on such chips."""
    quantized: bool = False
    engine: str = ""
    """The engine that runs it, as it can be asked for by name."""
    roofline_s: float | None = None
    terms: list[StepTerm] = []
    prefill_terms: list[StepTerm] = []
    memory: MemoryUse | None = None
    prefill: PrefillPool | None = None
    decodes: int = 1
    places: int | None = None
    counted: float = 1.0
    """The part of the expected tokens that it is ranked by, and that a fleet is sized by: where nothing like it was
    measured, that of the slow end of the band."""

    def __repr__(self) -> str:
        return f"<ConfigReport: {self.slice}: {config_text(self)}, {self.times()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles keep the domain objects."""
        fields = tuple(getattr(self, name) for name in self.__struct_fields__)
        return type(self), fields, dict(self.__dict__)

    def times(self) -> str:
        """What a request waits."""
        return f"TTFT {render(self.ttft_s, 's')}, TPOT {render(self.tpot_s, 's')}"

    @property
    def paid(self) -> float:
        """What it is ranked by: dollars (chips without a price), with a rate of the fleet."""
        if self.replicas is not None:
            return self.fleet_usd_per_h or self.fleet_chips or 0
        return self.ranked_usd_per_mtok or 1 / (self.output_tokens_per_s_per_chip * self.counted)

    @property
    def ranked_usd_per_mtok(self) -> float | None:
        """Its cost, as far as its tokens count."""
        return self.cost_usd_per_mtok and self.cost_usd_per_mtok / self.counted

    @property
    def chip(self) -> str:
        """The name of its chip."""
        return self.copy_slice.partition(":")[0]


def engines_text(row: ConfigReport) -> str:
    """The engine of a configuration; of pools that run two forms of it, both."""
    if row.prefill is None or row.prefill.engine in ("", row.engine):
        return row.engine
    return f"{row.prefill.engine} for prefill and {row.engine} for decode"


def degrees_text(plan: ConfigReport | ServingPlan) -> str:
    """The sharding of a configuration in a few letters, which `--plan` reads."""
    degrees = [f"{short}{getattr(plan, name)}" for name, short in SHORT.items() if getattr(plan, name) > 1]
    text = " ".join(degrees) or "tp1"
    if plan.spread != "copy":
        text += f" spread={plan.spread}"
    return text


def plan_text(row: ConfigReport) -> str:
    """The sharding, with the replicas that the slice holds; of pools that of both."""
    if row.prefill is not None:
        prefill = degrees_text(parse_serving_plan(row.prefill.plan))
        return f"{row.prefill.replicas}x {prefill} prefill, {row.decodes}x {degrees_text(row)} decode"
    if row.copies > 1:
        return f"{row.copies}x {degrees_text(row)}"
    return degrees_text(row)


def formats_text(row: ConfigReport) -> str:
    """Formats in one word where they agree: weights/matmuls, and the KV cache where it differs."""
    weights, compute, cache = (row.dtypes[name] for name in ("weights", "compute", "kv"))
    if compute.startswith(weights):  # fp8 and fp8_block
        return compute if cache == weights else f"{compute} kv {cache}"
    if cache == compute:
        return f"{weights}/{compute}"
    return f"{weights}/{compute} kv {cache}"


def config_text(row: ConfigReport) -> str:
    """A configuration in a few words: replicas, sharding, formats, batch, drafts."""
    text = f"{plan_text(row)}, {formats_text(row)}, batch {row.batch:,}"
    if max(row.copies, row.decodes) > 1:
        text += " each"
    if row.drafts:
        text += f", {row.drafts} draft{'s' * (row.drafts > 1)} a step"
    return text


def beaten_text(row: ConfigReport) -> str:
    """A configuration that another beats, in a few words: what it is, what it makes and what that costs."""
    text = f"{plan_text(row)} on {row.copy_slice}: {row.output_tokens_per_s_per_chip:,.0f} tok/s per chip"
    if row.cost_usd_per_mtok is not None:
        text += f", ${row.cost_usd_per_mtok:,.2f} per million"
    return text


class PoolReport(msgspec.Struct):
    """Prefill and decode apart, at `requests_per_s`: there prefill replicas are busy `prefill_load` of the time, and
    the mean TTFT has the wait behind other prompts in it (`ttft_p95_s` is null: a run tells it).
    `transfer_bytes_per_s` is what the caches of all requests need of the network, `port_bytes_per_s` what the prefill
    pool's chips can send."""

    prefill: ConfigReport
    decode: ConfigReport
    prefills: int
    decodes: int
    chips: int
    ttft_s: float
    tpot_s: float
    requests_per_s: float
    output_tokens_per_s_per_chip: float
    transfer_s: float
    transfer_bytes: float
    transfer_bytes_per_s: float
    port_bytes_per_s: float
    cost_usd_per_mtok: float | None
    meets_slo: bool
    ttft_p95_s: float | None = None
    prefill_load: float = 0.0
    usd_per_h: float | None = None


class Disaggregation(msgspec.Struct):
    """The best pools, and whether they beat the best configuration that does both: `gain` is tokens for a
    dollar (for a chip, without prices) over its; with a rate, of the fleets that serve it."""

    pools: list[PoolReport]
    gain: float | None
    pays: bool
    advice: str


class ServingAdvice(msgspec.Struct, frozen=True):
    """What takes most of a step (`bound`) and what to `change`; both in one `text`; and what of it flags can follow."""

    text: str
    bound: str
    change: str
    changes: tuple[Advice, ...] = ()
    brief: str = ""
    """The first of the changes that need no other formats, which stand beside the plain launch."""


class JudgedReport:
    """What a report was laid out from, beside its question; no JSON has it."""

    judged_job: ServingJob | None = None
    """The job whose best configuration has its limits solved."""
    bottleneck: ServingAdvice | None = None


class ServeReport(Record, JudgedReport):
    """The answer: the recommended configuration first. `frontier` is over all chips that were asked for,
    `frontier_by_chip` of each of them alone."""

    ROWS: ClassVar[str] = "configs"
    CHARTS: ClassVar[tuple[str, ...]] = ("frontier", "decode", "prefill", "memory", "mesh")

    model: str
    workload: ServeRequest
    configs: list[ConfigReport]
    frontier: list[ConfigReport]
    searched: int
    search_s: float
    limit_rows: list[LimitRow] = msgspec.field(name="limits")
    notes: list[str]
    advice: str
    expected_error: ExpectedError
    frontier_by_chip: dict[str, list[FrontierPoint]] = {}
    speculation: Speculation | None = None
    disaggregation: Disaggregation | None = None
    prefix: PrefixCache | None = None
    prices: list[PriceRow] = []
    better: ConfigReport | None = None
    """What is better than a given plan, where that was asked for; `comparison` says by how much."""
    comparison: str = ""
    at_most: str = ""
    """What the sequences that a launch allows at once (`--max-seqs`) are like, where it says how many."""
    simulated: SimulatedRun | None = None
    """The headline as it was run; null in brief and where nothing meets the targets."""
    changes: list[Advice] = []
    """The advice that flags can follow, with what it brings."""
    max_rates: list[MaxRate] = []
    """What `--max-rate` found, the cheapest first."""
    release: str = ""
    """The releases of the engine that the first configuration describes; empty where it is none in particular."""
    largest_context: int | None = None
    """Tokens of the longest request that a replica of the first configuration takes, prompt and output together; null
    where nothing fits."""
    kv_cache_tokens: int | None = None
    """Tokens of KV cache of such a replica, as engines print them when they start."""
    starts: str = ""
    """That the launch of another software starts, and with what room; empty where none was given."""
    measured: MeasuredServing | None = None
    """What was measured (`--measured`) beside what is expected of the first configuration."""
    beside: list[BesideRow] = []
    """What one chip alone, or the checkpoint's own formats, would give at the batch that was asked for."""
    engines: list[EngineRow] = []
    """Each of several engines that were asked for; none where one was."""
    counted_runs: list[CountedRun] = []
    """The first configuration under a fixed number of prompts that come together: those of `--requests`, or one batch
    from start to end where `--batch` says how many."""
    recommended_reason: str = ""
    """Why the first configuration is recommended though another one that is shown costs less; empty where none does."""
    verdict: str = ""
    """What answers the question in a line: fits, meets the targets, worth it, refuses to start."""
    needs: str = ""
    """What a plain launch does not have and without which the targets are missed; empty where the plain launch does."""
    rungs: list[RungRow] = []
    """What could be added to the plain launch, and what each would bring."""

    @cached_property
    def limits(self) -> list[LimitRow]:
        """Where the first configuration changes its nature; none in brief. Solved when first asked for, since formulas
        take a second."""
        if self.judged_job is None:
            return self.limit_rows
        limits = solved_limits(self.judged_job, self.first().config)
        return [LimitRow(limit.name, limit.counts, limit.text, limit.value) for limit in limits]

    @cached_property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledgers of a prefill and of a decode step of the first configuration, with its collectives and kernels
        under their own names."""
        return iteration_ledgers(self.asked, self.first().config)

    def to_dict(self) -> dict[str, Any]:
        self.limit_rows = self.limits
        return super().to_dict()

    @property
    def best(self) -> ConfigReport | None:
        """The configuration to take; None where none meets the targets (`configs[0]` is then the nearest)."""
        return self.configs[0] if self.configs and self.configs[0].meets_slo else None

    @property
    def exit_code(self) -> int:
        """0 where the targets are met, another where something fits and misses them, and where nothing fits."""
        if self.best is not None:
            return 0
        return MISSED if self.configs else INFEASIBLE

    @property
    def ledger(self) -> Ledger:
        """A line for each kernel, each move and each tensor held of a decode step of the first configuration."""
        return self._can("ledger", "a ledger")(self)

    def verify(self) -> Record:
        """A decode step of the first configuration compiled by XLA, beside what was planned."""
        return self._can("verify", "a configuration to compile")(self)

    @property
    def bound_and_change(self) -> tuple[str, str]:
        """What bounds the first configuration, and what to change, which `advice` says in one."""
        if self.bottleneck is None:
            return "", self.advice
        return self.bottleneck.bound, self.bottleneck.change

    def first(self) -> ConfigReport:
        """The first configuration; none is a sentence."""
        if not self.configs:
            raise Infeasible("No configuration fits, so none is written, compiled or has a ledger.")
        return self.configs[0]

    def headline(self) -> str:
        if not self.configs:
            return f"{self.model}: no configuration"
        first = self.configs[0]
        ends = f"{first.times()}, {first.output_tokens_per_s_per_chip:,.0f} tok/s/chip"
        missed = "" if self.best else ", targets missed"
        return f"{self.model} on {first.slice}: {config_text(first)}, {ends}{missed}"
