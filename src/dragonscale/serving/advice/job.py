"""What is to be served: a model, the chips it may run on, its requests, and what the answer has to hold to.

A job holds domain objects alone, so that everything in this package answers for a caller in Python as it does for the
command line. What it leaves open (plan, batch, engine, formats) is searched.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.advice.formats import FormatRequest, formats_on
from dragonscale.serving.engine.auto import AUTO, NODE, PLAIN, auto_choice
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.disaggregation import alone
from dragonscale.serving.space.frontier import Ask
from dragonscale.serving.space.legal import divisible
from dragonscale.serving.steady.speculation import Draft
from dragonscale.serving.steady.targets import LatencyTarget

# Experts of a layer from which disaggregated prefill and decode are worth a look: DeepSeek and similar models, whose
# experts large deployments spread over many chips.
MANY_EXPERTS = 64

# Configurations that are shown of one chip by default.
ROWS = 5


@dataclass(frozen=True)
class ServingJob:
    """A model to serve on some chips under targets and limits."""

    model: Transformer
    # Chips to serve on, each with a slice where one was named; else all slices of the chip.
    targets: tuple[tuple[Chip, Slice | None], ...]
    # The requests, and the targets as means.
    ask: Ask
    # The targets by latency, each with the statistic that has to meet it.
    goals: dict[str, LatencyTarget]
    # An engine's name with its settings, or `auto`.
    engine: str
    limits: LaunchLimits
    formats: FormatRequest = FormatRequest()
    # The plan to judge; None to search all.
    plan: ServingPlan | None = None
    # Sequences that decode at once; None to search all.
    batch: int | None = None
    # What tensor parallelism beyond the KV heads does with the KV cache.
    spread: str = "copy"
    # Who drafts: what was asked for, or the model's own heads.
    draft: Draft | None = None
    # Drafts a step that were asked for by number; 0 leaves the number open.
    drafts_asked: int = 0
    # Whether to search separate pools for prefill and decode; None where nobody said.
    disaggregate: bool | None = None
    # Whether the targets are all chips of the catalogue.
    everywhere: bool = False
    # Whether something better than the given plan is searched too.
    against_best: bool = False
    # Whether a batch is timed past the tokens that the model was made for, as benchmarks do.
    past_context: bool = False
    # Whether to judge what no engine runs.
    force: bool = False
    # Configurations to show; 0 for the default.
    top_asked: int = 0
    # Tokens of the longest request that another software's launch is for, the model's context where it names none. None
    # where there is no such launch, or it fits itself to its cache.
    served_length: int | None = None
    # Whether the launch names that length itself.
    length_said: bool = False

    @property
    def pace(self) -> float | None:
        """Seconds per token that are kept although no target names any (`PACE_S`); None where one does."""
        if "tpot" in self.goals:
            return None
        return self.ask.tpot

    @property
    def launched(self) -> bool:
        """Whether a launch is judged, which says how many sequences run at once, rather than a plan's best batch."""
        return self.batch is None and (self.limits.max_seqs is not None or self.against_best)

    @property
    def is_auto(self) -> bool:
        """Whether the engine is left open."""
        return self.engine.partition(",")[0].strip() == AUTO

    @property
    def compares_chips(self) -> bool:
        """Whether there are several chips to choose from."""
        return len(self.targets) > 1

    @property
    def top(self) -> int:
        """How many configurations to show: of several chips one each by default."""
        if self.top_asked:
            return self.top_asked
        return len(self.targets) if self.compares_chips else ROWS

    @property
    def has_fixed_formats(self) -> bool:
        """Whether formats are given, by name or by a plan."""
        return self.plan is not None or self.formats.is_pinned

    @property
    def batches(self) -> list[int] | None:
        """The batches to judge; None for a range of them."""
        return None if self.batch is None else [self.batch]

    def slice_chips(self, chip: Chip) -> int | None:
        """The chips of the slice that is named of a chip; None where only the chip is."""
        for target, slice_ in self.targets:
            if slice_ is not None and target.name == chip.name:
                return slice_.chips
        return None

    def formats_on(self, chip: Chip, engine: str = "") -> list[Formats]:
        """The formats to search on a chip (under that engine): those that are fixed, or the checkpoint's own."""
        if self.plan is not None:
            return [Formats.of(self.plan)]
        return formats_on(self.formats, engine or self.engine_on(chip).name, chip, self.model, self.force)

    def engine_on(self, chip: Chip, name: str = "", chips: int | None = None) -> Engine:
        """The engine as it is launched on a chip: where the engine is open that of `name`, or the usual one for a
        replica of so many chips (by default those of the given plan or of the named slice)."""
        size = chips
        if not size:
            size = self.slice_chips(chip) if self.plan is None else self.plan.chips
        engine = engine_on(self.engine_spec(name), chip, self.model, self.limits, size, self.plan)
        return alone(engine) if self.ask.apart else engine

    def engine_spec(self, name: str) -> str:
        """An engine as it is asked for by name, with the settings that were given; the asked one unless it is open."""
        if not name or not self.is_auto:
            return self.engine
        _, comma, settings = self.engine.partition(",")
        return f"{name}{comma}{settings}"

    def engine_names(self, chip: Chip, sizes: Iterable[int]) -> dict[str, list[int]]:
        """The engines to search for replicas of such sizes, each with its sizes.

        Between one server and two both the plain form of an engine and that for wide expert parallelism count."""
        engines: dict[str, list[int]] = {}
        for chips in dict.fromkeys(sizes):
            as_launched_on = [chips]
            if self.is_auto and NODE < chips <= PLAIN:
                as_launched_on = [NODE, chips]
            names = [self.engine_on(chip, chips=size).name for size in as_launched_on]
            for name in dict.fromkeys(names):
                engines.setdefault(name, []).append(chips)
        return engines

    def why_engine(self, chip: Chip, name: str) -> str:
        """Why an open engine is this one there; empty where it was asked for."""
        if not self.is_auto:
            return ""
        for chips in (NODE, NODE + 1):
            choice = auto_choice(chip, self.model, chips)
            if choice.engine == name:
                return choice.why
        return ""

    def draft_by(self, engine: str) -> Draft | None:
        """Who drafts under an engine: not the model's own heads where the engine has no kernels for them."""
        if self.draft is not None and self.draft.kind == "mtp" and self.draft.source and not rules(engine).mtp:
            return None
        return self.draft

    def lacks_drafts(self, engine: str) -> bool:
        """Whether drafts by the model's own heads are asked for that an engine does not make."""
        return bool(self.drafts_asked) and self.draft is not None and self.draft_by(engine) is None

    @property
    def searches_pools(self) -> bool:
        """Whether separate pools for prefill and decode are searched: where that was asked for."""
        return bool(self.disaggregate) and not self.ask.apart

    def offers_pools(self, chip: Chip) -> bool:
        """Whether separate pools that nobody asked for are worth a look on a chip: for a model of many experts on two
        servers or more (or on as many as it needs, where that is more than one), by engines that have them."""
        if self.ask.apart or self.disaggregate is not None or self.ask.output == 1:
            return False
        if self.plan is not None or self.batch is not None or divisible(self.model).experts < MANY_EXPERTS:
            return False
        row = rules(self.engine_on(chip).name)
        chips = self.slice_chips(chip)
        if chips is None:
            chips = 2 * NODE if row.wide else 0
        return row.pools and chips >= 2 * NODE

    def pool_job(self) -> "ServingJob":
        """The job of replicas that only prefill or only decode. TTFT and E2E are for both together to meet."""
        return replace(self, ask=replace(self.ask, apart=True, ttft=None, e2e=None))
