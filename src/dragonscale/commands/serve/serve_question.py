"""What `dscale serve` was asked, read at the edge."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from dragonscale.commands.asked_chips import AskedTargets, asked_chips, asked_targets
from dragonscale.commands.foreign import foreign_plan, serving_file_of, told
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.formats import check_formats, formats_for, is_pinned, planned_formats
from dragonscale.commands.simulate.traffic_flags import read_traffic
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, parse_target
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.engine.auto import AUTO, NODE, PLAIN, auto_choice
from dragonscale.serving.engine.engine import Engine, load_engine, spelt_engine, split_settings, substitution_notes
from dragonscale.serving.engine.formats import Formats, product_format
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import rules
from dragonscale.serving.engine.plan import SPREADS
from dragonscale.serving.engine.plan_file import SavedDrafts, SavedPlan, read_serving_plan
from dragonscale.serving.space.disaggregation import alone
from dragonscale.serving.space.frontier import Ask
from dragonscale.serving.space.legal import divisible, shortened_prompt
from dragonscale.serving.steady.narrowing import PACE_S
from dragonscale.serving.steady.speculation import MAX_DRAFTS, Draft, head_part, own_draft, read_acceptance
from dragonscale.serving.steady.targets import LATENCIES, LatencyTarget, read_targets
from dragonscale.simulation.fleet_sizing.traffic_classes import means_of, router_for

MOST_CONFIGS = 1000
MOST_DRAFTS = 32
MANY_EXPERTS = 64
"""Of a layer, from which pools are looked at unasked: DeepSeek and its kin, whose experts large deployments deal over
many chips."""


@dataclass(frozen=True)
class ServeAsked:
    """The flags understood. `targets` are chips, each with a slice where one was named; `everywhere` says that all
    chips of the catalogue are meant; `against_best` that something better than the given plan is looked for; `case`
    has the flags of a use case, of which the question has the means."""

    question: ServeQuestion
    model: Transformer
    targets: tuple[tuple[Chip, Slice | None], ...]
    ask: Ask
    goals: dict[str, LatencyTarget]
    """Targets by the name of the latency; `ask` has their seconds as means."""
    engine: str
    limits: LaunchLimits
    saved: SavedPlan | None = None
    batch: int | None = None
    draft: Draft | None = None
    everywhere: bool = False
    against_best: bool = False
    notes: tuple[str, ...] = ()
    case: dict[str, Any] = field(default_factory=dict)
    served_length: int | None = None
    """Tokens of the longest request that a launch of another software is for; the model's own where it says none. None
    where no launch was given, or it fits itself to its cache."""
    length_said: bool = False
    """Whether the launch says it."""
    session_s: float = 0.0
    """Seconds of pauses in a session of a use case."""
    session_calls: float = 0.0
    """Calls of a session on average; 0 where there are none."""
    longest_request: int = 0
    """Tokens of the longest request of a use case, as drawn; 0 where there is no use case."""

    @property
    def pace(self) -> float | None:
        """Seconds per token that are kept though nobody asked for any (`PACE_S`)."""
        return None if "tpot" in self.goals else self.ask.tpot

    @property
    def router(self) -> str:
        """The router that the answer is worked out for; empty where any will do."""
        return self.case.get("router", "")

    @property
    def launched(self) -> bool:
        """Whether a launch is judged, with as many sequences at once as it or its engine says, and not the best batch
        of a plan."""
        return self.batch is None and (self.limits.max_seqs is not None or self.against_best)

    @property
    def is_auto(self) -> bool:
        """Whether nobody named an engine."""
        return self.engine.partition(",")[0].strip() == AUTO

    def engine_on(self, chip: Chip, name: str = "", chips: int | None = None) -> Engine:
        """The engine as it is launched on a chip: the one of that name of those that `auto` takes, or what it takes for
        a replica on so many chips (for the plan that was given, for the slice that was asked for)."""
        plan = None if self.saved is None else self.saved.plan
        size = chips or (self._chips(chip) if plan is None else plan.chips)
        engine = engine_on(self.engine_words(name), chip, self.model, self.limits, size, plan)
        return alone(engine) if self.ask.apart else engine

    def draft_by(self, engine: str) -> Draft | None:
        """Who drafts under an engine: what was asked for, or the model's own heads where the engine takes them."""
        return None if self.draft is None or (self.draft.source and not rules(engine).mtp) else self.draft

    def lacks_drafts(self, engine: str) -> bool:
        """Whether drafts are asked for that an engine does not make: those of the model's own heads."""
        return bool(self.question.drafts) and self.draft is not None and self.draft_by(engine) is None

    def pools_on(self, chip: Chip) -> bool:
        """Whether disaggregated prefill and decode are looked at: where that was said, and else for a model of many
        experts on 16 chips or more (or on as many as it needs, where that is more than a server), by engines that do
        it."""
        wanted, row = self.question.disaggregate, rules(self.engine_on(chip).name)
        if wanted is not None or self.ask.apart or self.ask.output == 1:
            return bool(wanted) and not self.ask.apart
        free = self.saved is None and self.batch is None and divisible(self.model).experts >= MANY_EXPERTS
        return free and row.pools and (self._chips(chip) or (2 * NODE if row.wide else 0)) >= 2 * NODE

    def apart(self) -> "ServeAsked":
        """The same of replicas that only prefill or only decode: which request is in time is for both to say."""
        return replace(self, ask=replace(self.ask, apart=True, ttft=None, e2e=None))

    def engine_names(self, chip: Chip, sizes: Iterable[int]) -> dict[str, list[int]]:
        """The engines to look at for replicas of such sizes, each with its sizes."""
        found: dict[str, list[int]] = {}
        for chips in dict.fromkeys(sizes):
            plain = [NODE] if NODE < chips <= PLAIN and self.is_auto else []
            for name in {self.engine_on(chip, chips=size).name: None for size in (*plain, chips)}:
                found.setdefault(name, []).append(chips)
        return found

    def engine_words(self, name: str) -> str:
        """One of the engines that `auto` takes as it can be asked for by name, with the settings that were said."""
        _, comma, settings = self.engine.partition(",")
        return f"{name}{comma}{settings}" if name and self.is_auto else self.engine

    def why_engine(self, chip: Chip, name: str) -> str:
        """Why this engine, where nobody named one."""
        found = (auto_choice(chip, self.model, chips) for chips in (NODE, NODE + 1)) if self.is_auto else ()
        return next((one.why for one in found if one.engine == name), "")

    def _chips(self, chip: Chip) -> int | None:
        """Chips of the slice that was asked for."""
        return next((piece.chips for own, piece in self.targets if piece is not None and own.name == chip.name), None)

    def written_slice(self, piece: str) -> str:
        """A slice as a command reads it: with the path of its chip's file, where it has one."""
        name, _, topology = piece.partition(":")
        for part in self.question.on.split(",") if isinstance(self.question.on, str) else ():
            if chip_path(part) and parse_target(part.strip())[0].name == name:
                return f"{chip_path(part)}:{topology}"
        return piece

    @property
    def several(self) -> bool:
        """Whether chips are compared."""
        return len(self.targets) > 1

    @property
    def top(self) -> int:
        return self.question.top or (len(self.targets) if self.several else 5)

    @property
    def spread(self) -> str:
        return self.question.kv_split or "copy"

    @property
    def pinned(self) -> bool:
        """Whether the formats were said."""
        return self.saved is not None or is_pinned(self.question)

    def formats(self, chip: Chip, engine: str = "") -> list[Formats]:
        """The formats to look at on a chip (by that engine): those that were said, or the checkpoint's own."""
        if self.saved is not None:
            plan = self.saved.plan
            return [Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)]
        return formats_for(self.question, engine or self.engine_on(chip).name, chip, self.model)


def read_question(question: ServeQuestion) -> ServeAsked:
    """The question read, with its plan as the engine runs it: in the formats and with the spread that flags say, and
    with the `tensor` ways that it leaves open."""
    asked = _read(question)
    saved, (chip, piece) = asked.saved, asked.targets[0]
    if saved is None:
        return asked
    chips = saved.plan.chips if saved.whole or piece is None else piece.chips
    ways = replace(saved.plan, tensor=max(saved.plan.tensor * chips // saved.plan.chips, 1))
    launched = engine_on(asked.engine, chip, asked.model, asked.limits, chips, ways).name
    plan = replace(saved.plan, **planned_formats(saved, asked.question, launched, chip, asked.model))
    product_format(plan.weights, plan.compute)
    if asked.question.kv_split:
        plan = replace(plan, spread=asked.question.kv_split)
    if not saved.whole and piece is not None:
        if piece.chips % plan.chips:
            raise InputError(
                f"The plan {plan} splits {plan.chips} ways, which does not divide the {piece.chips} chips of {piece}."
            )
        plan = replace(plan, tensor=piece.chips // plan.chips)
    return replace(asked, saved=replace(saved, plan=plan))


def _read(question: ServeQuestion) -> ServeAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    used = as_used(question)
    question = used.question
    if question.better and not written(question.plan):
        raise InputError("--better looks for something better than a plan; give the plan with --plan tp8.")
    foreign = foreign_plan(question.plan, question.model, question.on)
    question = replace(question, plan=written(question.plan))
    saved = read_serving_plan(question.plan) if foreign is None and question.plan.strip() else None
    saved = serving_file_of(foreign) if foreign is not None else saved
    if not written(question.model) and not (saved and saved.model):
        raise InputError("Say what to serve: a model such as llama3-70b, or a --plan that names it.")
    named = with_assumed(question.model or (saved.model if saved else ""), question.assume, question.family)
    model = load_model(named)
    substituted = substitution_notes(question.engine)
    question = as_saved(replace(question, model=named, engine=spelt_engine(question.engine)), saved)
    named_on = question.on or (saved.slice if saved else "")
    changes = question.set
    on = asked_chips(named_on, changes, question.profile)
    question = replace(question, on=question.on if on == named_on else on, set="", profile="")
    where = _targets(question, saved)
    for chip, _ in where.targets:
        check_effect(changes, "serving", kind=chip.kind)
    engine = question.engine or (saved.engine if saved else "") or AUTO
    _check_words(question, model, engine)
    most = foreign.served_length if foreign is not None else None
    question, shorter = _within(question, model, most)
    if question.output.strip() == "0":  # embeddings and scores: a request ends with its prompt, as with one token
        question = replace(question, output="1")
    prompt, output = (parse_length(getattr(question, name), f"--{name}") for name in ("prompt", "output"))
    context = None if question.force or output[0] == 1 else model.context
    tokens, cut = shortened_prompt(question.prompt, prompt[0], output[0], context, model.name)
    prompt = tokens, cut or prompt[1]
    read = [*dict.fromkeys(note for note in (prompt[1], output[1], *where.read) if note)]
    goals, batch = read_targets(question), _batch(question, saved)
    targets: dict[str, Any] = {name: goal.seconds for name, goal in goals.items()}
    if batch is None and output[0] > 1 and not {"tpot", "itl", "e2e"} & set(goals):
        targets["tpot"] = PACE_S
    ask = Ask(
        prompt=prompt[0],
        output=output[0],
        **targets,
        rate=_positive(question.rate, "count/s", "--rate"),
        cached=question.cached,
        rented=tuple((chip.name, piece.chips) for chip, piece in where.targets if piece is not None),
    )
    limits = LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction)
    how = *(told(foreign) if foreign else ()), *model.notes, *read, *substituted, *_notes(question, saved, model)
    better = question.better or foreign is not None
    draft = _draft(question, saved, model, ask.output)
    whole = question, model, where.targets, ask, goals, engine, limits, saved, batch, draft, where.everywhere
    notes = (*used.notes, *how, *shorter, *where.notes)
    asked = ServeAsked(*whole, against_best=better, notes=notes, case=used.flags, **used.session)
    if foreign is None:
        return asked
    stated = foreign.served_length
    if stated is not None:
        return replace(asked, served_length=stated or None, length_said=bool(stated))
    takes_models_own = bool(asked.engine_on(where.targets[0][0]).length_flag)
    return replace(asked, served_length=(model.context or None) if takes_models_own else None)


@dataclass(frozen=True)
class AsUsed:
    """A question with the means of its use case, where it has one; the flags of the use case, notes on what they are,
    and what its sessions and requests are like by the fields of `ServeAsked`."""

    question: ServeQuestion
    flags: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    session: dict[str, Any] = field(default_factory=dict)


def as_used(question: ServeQuestion) -> AsUsed:
    """A question as its use case says."""
    if not question.use_case:
        if question.users is not None:
            raise InputError("--users are those of a use case; add --use-case chat.")
        return AsUsed(question)
    given = {name: getattr(question, name) for name in ("rate", *LATENCIES) if name != "itl"}
    usual = {"prompt": ServeQuestion.prompt, "output": ServeQuestion.output}
    given |= {name: getattr(question, name) for name, value in usual.items() if getattr(question, name) != value}
    given |= {"use_case": question.use_case, "users": question.users}
    asked_traffic = read_traffic(SimulateQuestion("", **given))
    one, means = asked_traffic.tables[0], means_of(asked_traffic.traffic.source)
    words = {
        "prompt": means.prompt,
        "output": means.output,
        "cached": question.cached or round(means.repeated_share, 2),
    }
    words |= {"rate": f"{asked_traffic.traffic.rate:.6g}/s", "ttft": one.ttft, "tpot": one.tpot, "e2e": one.e2e}
    note = (
        f"As {one.name}: {one.text}. As drawn, prompts are {means.prompt:,} tokens on average, "
        f"{means.repeated_share:.0%} cached, and outputs {means.output:,}."
    )
    case = {} if question.cached else {"prompt": "", "output": "", "prefixes": ""} | given
    if case and (router := router_for(asked_traffic.tables)):
        case["router"] = router
    calls = one.turns * one.calls
    session: dict[str, Any] = {"longest_request": means.longest}
    if calls > 1:
        session |= {"session_s": one.session_s, "session_calls": calls}
    return AsUsed(replace(question, **words), case, (note, *asked_traffic.notes), session)


def _check_words(question: ServeQuestion, model: Transformer, engine: str) -> None:
    if not 0 <= question.top <= MOST_CONFIGS:
        raise InputError(f"--top is {question.top}; ask for 1 to {MOST_CONFIGS} configurations.")
    if question.kv_split and question.kv_split not in SPREADS:
        raise unknown("way to split the KV cache called", question.kv_split, SPREADS)
    check_formats(question, model)
    if split_settings(engine)[0] != AUTO:
        load_engine(engine)


def _targets(question: ServeQuestion, saved: SavedPlan | None) -> AskedTargets:
    """The chips and slices of a question, or the slice of its plan file."""
    on = question.on.strip() or (saved.slice if saved else "") if isinstance(question.on, str) else question.on
    if not on:
        raise InputError("Say what to serve on: --on h100 (a chip), --on v5e:4x4 (a slice), --on v5e,h100 or --on any.")
    found = asked_targets(on, question)
    if saved is not None and found.everywhere:
        raise InputError(f"--plan needs a chip or a slice to run on; --on is {on!r}, write e.g. h100:8.")
    if saved is not None and len(found.named) > 1:
        raise InputError(f"--plan needs one chip or slice to run on; --on is {shorten(written(on))}.")
    return found


def _within(
    question: ServeQuestion, model: Transformer, served: int | None = None
) -> tuple[ServeQuestion, tuple[str, ...]]:
    """The usual lengths, where nobody says others, cut to what a model of few positions takes, or a launch that is for
    short requests (`served`)."""
    usual = (ServeQuestion.prompt, ServeQuestion.output)
    whose = f"{model.name} has a context"
    longest = model.context
    if served and (not longest or served < longest):
        whose = "The launch takes requests"
        longest = served
    if (question.prompt, question.output) != usual or not longest or longest >= sum(map(int, usual)):
        return question, ()
    output = min(int(question.output), longest // 4)
    prompt = longest - output
    note = f"{whose} of {longest:,} tokens: prompts of {prompt:,} and outputs of {output:,} are taken."
    return replace(question, prompt=str(prompt), output=str(output)), (note,)


def _positive(text: str, dimension: str, flag: str) -> float | None:
    if not text.strip():
        return None
    value = parse(text, dimension, flag)
    if value <= 0:
        raise InputError(f"{flag} is {shorten(text)}; it is more than nothing.")
    return value


def _batch(question: ServeQuestion, saved: SavedPlan | None) -> int | None:
    if not question.batch.strip():
        return saved.batch if saved is not None and saved.batch else None
    batch = parse_count(re.sub(r"\s*(sequences|sequence|seqs|seq)\s*$", "", question.batch), "the batch")
    if not 1 <= batch <= 10**6:
        raise InputError(f"--batch is {shorten(question.batch)}; it has at least one sequence and at most 10^6.")
    return batch


def _draft(question: ServeQuestion, saved: SavedPlan | None, model: Transformer, output: int) -> Draft | None:
    """Who drafts: what flags say, or else a checkpoint's own heads; a plan says itself whether there are drafts."""
    if not question.accept.strip():
        counts = () if question.drafts is None else (question.drafts,)
        own = None if question.draft or (saved is not None and not counts) else own_draft(model, counts)
        if own is None and (question.draft or question.drafts):
            raise InputError(
                "--draft and --drafts need --accept, the probability that a draft is accepted, such as 0.7."
            )
        return own if question.drafts != 0 and output > 1 else None
    if question.drafts is not None and not 0 <= question.drafts <= MOST_DRAFTS:
        raise InputError(f"--drafts is {question.drafts}; a loop drafts 0 to {MOST_DRAFTS} tokens.")
    counts = tuple(range(MAX_DRAFTS + 1)) if question.drafts is None else (question.drafts,)
    chances = read_acceptance(question.accept)
    if question.draft:
        return Draft(chances, load_model(question.draft), counts=counts)
    return Draft(chances, part=head_part(model), counts=counts)


def _notes(question: ServeQuestion, saved: SavedPlan | None, model: Transformer) -> tuple[str, ...]:
    plain = "prefix-cach" in question.plan and not question.cached
    notes = ["No prompts share a prefix here, so its cache changes nothing; --cached or --use-case says that some do."]
    if saved is None or not saved.model or saved.model in (written(question.model), model.name):
        return tuple(notes * plain)
    return (f"The plan was made for {saved.model}; it is judged for {model.name}.", *notes * plain)


# What a plan file says of a question about serving, under what its flags say.


USUAL = ServeQuestion("")


def as_saved(question: ServeQuestion, saved: SavedPlan | None) -> ServeQuestion:
    """The question with what its flags leave as it usually is taken from a plan file: lengths, rate, targets, drafts,
    limits."""
    if saved is None:
        return question
    if not saved.speculation.acceptance:  # which is for whoever runs it to say; without it no drafts are counted
        saved = replace(saved, speculation=SavedDrafts())
    left = {name: value for name, value in said_by(saved).items() if getattr(question, name) == getattr(USUAL, name)}
    return replace(question, **left)


def said_by(saved: SavedPlan) -> dict[str, Any]:
    """What a file says of requests, targets, limits and drafts, by the names of flags."""
    traffic, drafts = saved.traffic, saved.speculation
    words = {
        "prompt": str(traffic.prompt or ""),
        "output": str(traffic.output or ""),
        "cached": traffic.cached,
        "rate": traffic.rate,
        **msgspec.structs.asdict(saved.targets),
        **msgspec.structs.asdict(saved.launch),
        "accept": drafts.acceptance,
        "drafts": drafts.drafts,
        "draft": drafts.draft,
    }
    return {name: value for name, value in words.items() if value}
