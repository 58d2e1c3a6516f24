"""The records that `dscale train` answers with; `--json` prints them as they are."""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import INFEASIBLE, Infeasible
from dragonscale.physics.hardware.price_rows import PriceRow
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.training.plan.plan import Plan, short_plan

if TYPE_CHECKING:
    from dragonscale.blocks.charts.chart import Chart


class TrainWorkload(msgspec.Struct):
    batch_tokens: int
    sequences: int
    seq: int
    tokens: float | None
    parameters: int
    dtype: str
    optimizer: str
    stack: str
    documents: int | None = None
    """Mean tokens of the documents that a sequence is packed with; None where it is one."""
    stack_why: str = ""
    """Why this stack, where none was named."""
    numerics: str = ""
    """How gradients are added and reduced: production or benchmark."""
    method: str = ""
    """What is trained: full, or adapters, preferences, a teacher's logits."""
    adapter_parameters: int = 0
    """Of the parameters, those in adapters."""
    unbuilt: str = ""
    """Why the stack's trainer does not build the model; empty where it does."""
    left_out: dict[str, int] = {}
    """Parameters of the model that are not trained here: what it sees and hears with."""


class Utilised(msgspec.Struct, kw_only=True):
    """What has an `mfu` of the bf16 peak, and `mfu_of_dtype` of the peak of its own format where that is another."""

    mfu_of_dtype: float | None = None

    @property
    def own_mfu(self) -> Any:
        """The MFU that people are told: of the peak of the format that matmuls are in; None without a plan."""
        mfu: float | None = getattr(self, "mfu", None)  # a field of every record of this kind
        return mfu if self.mfu_of_dtype is None else self.mfu_of_dtype


class TermRow(msgspec.Struct):
    """A line of the bill. `exposed_s` is the part of `expected_s` that the step waits for; exposed
    parts add up to it."""

    name: str
    lower_s: float
    expected_s: float
    exposed_s: float
    bytes: float
    flops: float


class MemoryRow(msgspec.Struct):
    name: str
    bytes: float


class ReleaseRow(msgspec.Struct):
    """A plan under an earlier release of its software."""

    stack: str
    when: str
    step_s: float
    hbm_bytes: float


class GoodputReport(msgspec.Struct):
    """The run of the first plan with failures, checkpoints and restarts: in the mean and as nine of ten such runs end
    at most. `goodput` is the share of all time that makes progress, `effective_mfu` the plan's MFU times that. Dollars
    are None without a price, energy and CO2 (hosts and cooling with the chips) without a power."""

    days: float
    days_p90: float
    cost_usd: float | None
    cost_usd_p90: float | None
    effective_mfu: float
    goodput: float
    failures: float
    mtbf_s: float
    checkpoint_every_s: float
    checkpoint_steps: float
    checkpoint_bytes: float
    save_s: float
    """How long the job stands still for a save."""
    write_s: float
    restart_s: float
    """What a failure costs beside the work since the last checkpoint, which takes half an interval to do again."""
    storage_bytes_per_s: float
    preemptions: float
    spares: float | None
    hosts_out: float
    """Hosts that are gone at a time, in the mean."""
    waiting: float
    """The part of all time without chips: hosts out beyond the spares, spot chips that nobody has."""
    energy_kwh: float | None
    co2_kg: float | None
    source: str
    """Where the rate of failures is from."""
    text: str
    on_demand_days: float | None = None
    """Of a run on spot chips: the same with chips that nobody takes away, and what it costs."""
    on_demand_usd: float | None = None


class PlanReport(Utilised):
    """A plan in full: its times, memory, what bounds it and what its run costs."""

    plan: Plan
    feasible: bool
    step_s: float
    lower_s: float
    upper_s: float
    mfu: float
    tokens_per_s_per_chip: float
    hbm_bytes: float
    hbm_limit_bytes: float
    bound_by: str
    terms: list[TermRow]
    days: float | None
    cost_usd: float | None
    problems: list[str]
    illegal: list[str]
    """Why the stack cannot run the plan on this chip."""
    memory: list[MemoryRow]
    chips: int
    steps: int | None
    chip_hours: float | None
    energy_kwh: float | None
    stack: str
    runnable: bool
    """Whether `dscale run train` runs it, and `dscale verify` compiles it."""
    step_low_s: float
    step_high_s: float
    band_runs: int
    """Published runs of this kind that the band from `step_low_s` to `step_high_s` rests on; `band` says it in a
    sentence."""
    band: str
    flops: float
    """Matmul FLOPs of a chip in a step, recompute, head and attention included."""
    sent_bytes: dict[str, float]
    """Bytes that a chip sends by the set of mesh axes they go over."""
    advice: str
    large_runs: str = ""
    """How long large runs of some years ago took it, where they were slower; empty where nothing is known of such."""
    verifiable: bool = False
    """Whether `dscale verify` compares it with what XLA compiles."""
    not_run: str = ""
    """Why our own program does not run it, and `dscale verify` has nothing to compile; empty where it does."""
    mfu_peak: str = ""
    """The peak that `mfu` is a part of."""
    peak_flops: float = 0.0
    logged_mfu: str = ""
    """The MFU as the software logs it, where it counts other FLOPs or divides by another peak."""
    devices: int = 1
    """Devices that a chip shows software, such as the two TensorCores of TPU v3."""
    releases: list["ReleaseRow"] = []
    """The plan under earlier releases of the same software, where they differ."""
    helps: list["Help"] = []
    gradients: str = ""
    """In what gradients are added and reduced where a stack has two ways, and what the other would change."""
    tight: bool = False
    """Whether it fits and leaves less memory free than a recommended plan does."""
    host_bytes: float = 0.0
    """Bytes of the memory of the fullest chip's host that the plan needs for that chip."""
    host_chips: int = 1
    """Chips of the job that share a host, of which each needs as much."""
    host_limit_bytes: float = 0.0
    """The host's memory for these chips."""

    @property
    def host_node_bytes(self) -> float:
        """Bytes of a host's memory that the plan needs for all its chips."""
        return self.host_bytes * self.host_chips

    def __repr__(self) -> str:
        return f"<PlanReport: {self.told()}>"

    def told(self) -> str:
        """The plan, its step and its MFU."""
        if not self.feasible:
            return f"{short_plan(self.plan)}, infeasible"
        return f"{short_plan(self.plan)}, {render(self.step_s, 's')} a step, {self.mfu_text}"

    @property
    def mfu_text(self) -> str:
        """Its MFU, and of what where that is not the bf16 peak."""
        text = f"{self.own_mfu:.1%} MFU"
        return text if self.mfu_of_dtype is None else f"{text} ({self.plan.dtype} peak)"

    @property
    def own_peak_flops(self) -> float:
        """The peak that this is a part of."""
        return self.peak_flops if self.mfu_of_dtype is None else self.peak_flops * self.mfu / self.mfu_of_dtype

    @property
    def of_peak(self) -> str:
        """Of what its MFU is a part, with the part of the bf16 peak where that is another."""
        if self.mfu_of_dtype is None:
            return f"of the {self.mfu_peak}"
        return f"of the {self.plan.dtype} peak ({self.own_peak_flops / 1e12:,.0f} TFLOP/s); {self.mfu:.1%} of bf16's"


class Help(msgspec.Struct):
    """Something that would make the job faster, judged: tokens a second over what they are, and what it takes. `flags`
    make the change in a question about the same plan."""

    change: str
    gain: float
    needs: str = ""
    flags: dict[str, str] = {}


class RemedyRow(msgspec.Struct):
    """Flags with which the job fits, where it does not as it was asked: the plan that they give, and its step."""

    flags: dict[str, str]
    plan: str
    step_s: float
    tight: bool = False


class SettingChange(msgspec.Struct, rename={"old": "from", "new": "to"}):
    """One setting of a given plan changed: the step that gives, and the step before over it, less one."""

    setting: str
    old: Any
    new: Any
    step_s: float
    gain: float
    plan: str


class SuspectRow(msgspec.Struct):
    """A candidate: something that could have been otherwise in a run, the step it gives, and its part of the
    difference."""

    cause: str
    look: str
    step_s: float
    explains: float


class PublishedRow(msgspec.Struct):
    """A published step of the same model on the same chip."""

    source: str
    plan: str
    chips: int
    step_s: float
    tokens_per_s_per_chip: float


class Measured(msgspec.Struct):
    """A measured step beside the expected one."""

    step_s: float
    expected_s: float
    ratio: float
    within_band: bool
    mfu: float
    suspects: list[SuspectRow]
    text: str
    impossible: bool = False
    """Whether the step is shorter than the datasheet allows."""
    published: list[PublishedRow] = []
    """Of a step outside its band: published runs of the model on that chip, those of the nearest rate first."""
    normal_for: str = ""
    """Earlier releases of the software for which a slow step is normal."""


class Neighbour(Utilised):
    """A batch or a number of chips near those asked for, with the best plan it has."""

    slice: str
    sequences: int
    plan: str
    step_s: float
    mfu: float


class StackRow(Utilised):
    """The recommended plan of a software stack that people run there."""

    stack: str
    plan: str
    step_s: float
    mfu: float
    tight: bool = False
    """Whether no plan leaves room in memory with it."""
    mostly: str = ""
    """The term that makes most of the difference to the stack of the answer; of the second stack alone."""
    usual: bool = True
    """Whether people commonly run it there; a less usual one is told of where it is faster."""


class UnfitStack(msgspec.Struct):
    """A software stack that people run there and that has no plan for the job."""

    stack: str
    why: str
    hbm_bytes: float | None = None
    """Of the plan that misses the memory by least."""


class SliceRow(Utilised):
    """The recommended plan on one of several slices, or why there is none; days and dollars are with failures."""

    slice: str
    chips: int
    plan: str | None
    step_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    usd_per_mtok: float | None
    days: float | None
    cost_usd: float | None
    note: str = ""
    stack: str = ""
    others: list[StackRow] = []
    """The same slice with the other stacks that people run there, where none was named."""
    tight: bool = False
    """Whether no plan leaves room in memory there."""


class FrontRow(msgspec.Struct):
    """A plan that no other beats in time, memory and chips."""

    plan: Plan
    chips: int
    step_s: float
    hbm_bytes: float


class ScalingRow(Utilised):
    """The best plan of a slice, None where nothing fits; `efficiency` is its tokens/s per chip over those of the slice
    that was asked about, of several the smallest."""

    slice: str
    chips: int
    plan: str | None
    step_s: float | None
    tokens_per_s: float | None
    efficiency: float | None
    mfu: float | None
    bound_by: str | None
    stack: str = ""


class ChangeRow(msgspec.Struct):
    """One hardware number made better: how much faster the best plan then is."""

    change: str
    fact: str
    factor: float
    step_s: float
    faster: float
    why: str
    doubled: float = 0.0
    """How much faster the same plan is with twice as much."""


class Codesign(msgspec.Struct):
    rows: list[ChangeRow]
    advice: str
    overtakes: list[str] = []
    """At what bandwidths, rates and batches another plan overtakes this one."""


class TrainReport(Record):
    """The answer: the recommended plan first, or the one that was given."""

    ROWS: ClassVar[str] = "plans"
    CHARTS: ClassVar[tuple[str, ...]] = ("time", "memory", "mesh", "roofline", "scaling", "answer")

    model: str
    slice: str
    workload: TrainWorkload
    searched: int
    search_s: float
    plans: list[PlanReport]
    feasible: int
    infeasible: dict[str, int]
    pareto: list[FrontRow]
    notes: list[str]
    scaling: list[ScalingRow] = []
    codesign: Codesign | None = None
    better: PlanReport | None = msgspec.field(default=None, name="best")
    """What is recommended where a plan was given; `best` in JSON."""
    comparison: str = ""
    """How far a given plan is from that, and what brings most of it."""
    changes: list[SettingChange] = []
    runs: PlanReport | None = None
    """The best plan that `dscale run` takes, where it does not take the recommended one."""
    verified: PlanReport | None = None
    """The same of `dscale verify`."""
    measured: Measured | None = None
    neighbours: list[Neighbour] = []
    margins: list[str] = []
    """Of a fine-tuning plan that fits: the longest sequences that it holds, and what would make it run out."""
    lighter: str = ""  # flags of the method that fits where the one that was asked for does not
    remedies: list[RemedyRow] = []
    """Changes with which the job fits, where nothing does as it was asked."""
    slices: list[SliceRow] = []
    answer: str = ""
    """What was found where slices, a batch or a model were asked for: which it is."""
    unchanged: Neighbour | None = None
    """The same job on the chip as it is, where `--set` changes it."""
    stacks: list[StackRow] = []
    """The stacks that were searched: the one of the answer, then others that people run there."""
    unfit_stacks: list[UnfitStack] = []
    """The stacks that were searched and have no plan, with the reason."""
    prices: list[PriceRow] = []
    goodput: GoodputReport | None = None
    release: str = ""
    """The software that the stack is, with its release; empty where that is nobody's."""
    idle_chips: int = 0
    """Chips of the slice that was asked for which the answer leaves idle."""
    verdict: str = ""
    """What answers the question in a line: fits, does not fit, normal, slow."""
    missing_bytes: float | None = None
    """Where nothing fits: what the nearest plan needs of a chip beyond what it has."""

    @property
    def best(self) -> PlanReport | None:
        """The plan to take: the first, or what is better than a given one; None where nothing fits."""
        if self.better is not None or self.exit_code:
            return self.better
        return self.plans[0]

    @property
    def exit_code(self) -> int:
        return 0 if self.plans and self.plans[0].feasible else INFEASIBLE

    @property
    def ledger(self) -> Ledger:
        """A line for each kernel, each move and each tensor held of the first plan."""
        return self._can("ledger", "a ledger")(self)

    def verify(self) -> Record:
        """The first plan compiled by XLA, beside what was planned."""
        return self._can("verify", "a plan to compile")(self)

    def first(self, so: str) -> PlanReport:
        """The first plan; where there is none, a sentence ends with what follows from that."""
        if not self.plans:
            raise Infeasible(f"There is no plan, so {so}.")
        return self.plans[0]

    def plot(self, kind: str = "") -> "Chart":
        """A chart of the answer, of strong scaling where that was asked for."""
        if not kind and self.scaling:
            kind = "scaling"
        return super().plot(kind)

    def to_dict(self) -> dict[str, Any]:
        """The fields, with the plan to take as `best` where it is the first too."""
        record = super().to_dict()
        was_compared = self.searched > 1  # with others than a plan that was given alone
        if record["best"] is None and self.best is not None and was_compared:
            record["best"] = msgspec.to_builtins(self.best)
        return record

    def headline(self) -> str:
        plan = self.plans[0].told() if self.plans else "no plan"
        return f"{self.model} on {self.slice}: {plan}"
