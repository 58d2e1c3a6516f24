"""The job that the flags of `dscale serve` describe."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from dragonscale.blocks.sheet import several
from dragonscale.commands.asked_chips import AskedTargets, asked_chips, asked_targets
from dragonscale.commands.foreign import foreign_plan, serving_file_of, told
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.formats import check_formats, format_request, planned_formats, with_own_four_bits
from dragonscale.commands.serve.host_layers import with_host_layers
from dragonscale.commands.simulate.traffic_flags import read_traffic
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import Transformer, unseen_parameters
from dragonscale.physics.hardware import parse_target
from dragonscale.physics.hardware.catalogue import chip_path
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.units import parse, parse_count, parse_length
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.auto import AUTO, engine_of_format
from dragonscale.serving.engine.engine import load_engine, spelt_engine, split_settings
from dragonscale.serving.engine.formats import product_format
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.plan import SPREADS, ServingPlan
from dragonscale.serving.engine.plan_file import SavedDrafts, SavedPlan, read_serving_plan
from dragonscale.serving.engine.wrappers import wrapper_of
from dragonscale.serving.space.frontier import Ask
from dragonscale.serving.space.legal import divisible, shortened_prompt
from dragonscale.serving.steady.narrowing import PACE_S
from dragonscale.serving.steady.speculation import (
    MAX_DRAFTS,
    Draft,
    head_part,
    named_draft,
    own_draft,
    read_acceptance,
    read_drafter,
)
from dragonscale.serving.steady.targets import LatencyTarget, read_targets
from dragonscale.simulation.fleet_sizing.traffic_classes import means_of, router_for

# Configurations that can be asked for with --top.
MAX_ROWS = 1000

# Drafts of a step that can be asked for.
MAX_ASKED_DRAFTS = 32

# Sequences that can be asked for with --batch.
MAX_BATCH = 10**6
DEFAULTS = ServeQuestion("")


@dataclass(frozen=True)
class ServeAsked(ServingJob):
    """A serving job with the question it was read from, which the next command and a saved plan repeat."""

    # The question with the means of its use case and what its plan file says.
    question: ServeQuestion = field(kw_only=True)
    # How the question was read, where that needs a sentence.
    notes: tuple[str, ...] = ()
    # The flags of the use case, of which the job has the means; empty where there is none.
    case: dict[str, Any] = field(default_factory=dict)
    # Seconds of pauses in a session of the use case.
    session_s: float = 0.0
    # Calls of a session on average; 0 where there are none.
    session_calls: float = 0.0
    # Tokens of the longest request of the use case, as drawn; 0 where there is none.
    longest_request: int = 0

    @property
    def router(self) -> str:
        """The router that the answer is worked out for; empty where any will do."""
        return self.case.get("router", "")

    def written_slice(self, slice_: str) -> str:
        """A slice as a command reads it: with the path of its chip's file, where it has one."""
        name, _, topology = slice_.partition(":")
        parts = self.question.on.split(",") if isinstance(self.question.on, str) else []
        for part in parts:
            if chip_path(part) and parse_target(part.strip())[0].name == name:
                return f"{chip_path(part)}:{topology}"
        return slice_


def read_question(question: ServeQuestion) -> ServeAsked:
    """The job of a question. What cannot be used is refused in one sentence."""
    use_case = _with_use_case(question)
    question = use_case.question
    if question.better and not written(question.plan):
        raise InputError("--better looks for something better than a plan; give the plan with --plan tp8.")

    # The plan: settings, a plan file of ours, or the launch of another software.
    foreign = foreign_plan(question.plan, question.model, question.on)
    question = replace(question, plan=written(question.plan))
    saved: SavedPlan | None = None
    if foreign is not None:
        saved = serving_file_of(foreign)
    elif question.plan.strip():
        saved = read_serving_plan(question.plan)
    made_for = saved or SavedPlan(ServingPlan())  # whose empty fields say nothing

    # The model.
    if not written(question.model) and not made_for.model:
        raise InputError("Say what to serve: a model such as llama3-70b, or a --plan that names it.")
    named = with_assumed(question.model or made_for.model, question.assume, question.family)
    model = load_model(named)
    wrapped: list[str] = []
    wrapper = wrapper_of(question.engine)
    if wrapper is not None:
        _, comma, settings = question.engine.partition(",")
        question = replace(question, engine=f"{wrapper.engine}{comma}{settings}")
        wrapped = [wrapper.note]
    question = _with_saved(replace(question, model=named, engine=spelt_engine(question.engine)), saved)

    # The chips, with changes to them.
    named_on = question.on or made_for.slice
    changes = question.set
    changed_on = asked_chips(named_on, changes, question.profile)
    if changed_on != named_on:
        question = replace(question, on=changed_on)
    question = replace(question, set="", profile="")
    question, four_bits = with_own_four_bits(question, question.engine or made_for.engine)
    formats = format_request(question)
    file_engine = engine_of_format(formats.quantize or formats.weights)
    question = with_host_layers(question, question.engine or made_for.engine or file_engine, model)
    engine = question.engine or made_for.engine or file_engine or AUTO
    where = _targets(question, saved)
    for chip, _ in where.targets:
        check_effect(changes, "serving", kind=chip.kind)
    _check_choices(question, model, engine)

    # The requests, what they must get, and limits.
    longest, context_note = _longest(question, foreign and foreign.served_length)
    lengths = _lengths(question, model, longest)
    question = lengths.question
    goals = read_targets(question)
    batch = _batch(question, saved)
    ask = _requests(question, lengths, goals, batch, where)
    notes = [*use_case.notes]
    if foreign is not None:
        notes += told(foreign)
    notes += [*model.notes, *dict.fromkeys(filter(None, (context_note, *lengths.how_read, *where.read)))]
    notes += [*wrapped, *four_bits, *_plan_notes(question, saved, model), *lengths.cut, *where.notes]
    past_context = batch is not None and 0 < (model.context or 0) < ask.prompt + ask.output
    if past_context:
        notes.append(
            f"{model.name} was made for {model.context:,} tokens, and prompt and output are "
            f"{ask.prompt + ask.output:,}: the batch is timed all the same; vLLM and SGLang refuse such requests."
        )
    job = ServeAsked(
        question=question,
        model=model,
        targets=where.targets,
        ask=ask,
        goals=goals,
        engine=engine,
        limits=LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction),
        formats=formats,
        plan=saved and saved.plan,
        batch=batch,
        spread=question.kv_split or "copy",
        draft=_draft(question, model, ask.output),
        drafts_asked=question.drafts or 0,
        disaggregate=question.disaggregate,
        everywhere=where.everywhere,
        against_best=question.better or foreign is not None,
        force=question.force,
        past_context=past_context,
        top_asked=question.top,
        notes=tuple(notes),
        case=use_case.flags,
        session_s=use_case.session_s,
        session_calls=use_case.session_calls,
        longest_request=use_case.longest_request,
    )
    if foreign is not None or longest:
        job = _with_served_length(job, longest)
    if saved is not None:
        saved, as_replicas = _without_dense_data(job, saved)
        job = replace(job, plan=_complete_plan(job, saved), notes=(*job.notes, *as_replicas))
    return _for_one_user(job)


def _for_one_user(job: ServeAsked) -> ServeAsked:
    """The job at a batch of one, where its engines serve one request at a time and nothing says how many there are."""
    question = job.question
    says_how_many = (job.batch, question.max_seqs, question.rate, question.use_case, question.users, question.max_rate)
    if any(says_how_many) or not all(job.engine_on(chip).single_user for chip, _ in job.targets):
        return job
    return replace(job, batch=1)


def _without_dense_data(job: ServeAsked, saved: SavedPlan) -> tuple[SavedPlan, list[str]]:
    """The plan of one of the replicas that `data` of a model without experts means, and a note of it."""
    plan = saved.plan
    if plan.data == 1 or divisible(job.model).experts or job.force:
        return saved, []
    replica = replace(plan, data=1)
    note = (
        f"data={plan.data} of a model without experts is {plan.data} replicas of {several(replica.chips, 'chip')} each."
    )
    return replace(saved, plan=replica, whole=True), [note]


def _longest(question: ServeQuestion, of_launch: int | None) -> tuple[int | None, str]:
    """The longest request that must fit, by --max-context or by another software's launch, and how it was read."""
    if not question.max_context.strip():
        return of_launch, ""
    return parse_length(question.max_context, "--max-context")


def _with_served_length(job: ServeAsked, stated: int | None) -> ServeAsked:
    """The job with the longest request that another software's launch is for. Where the launch does not say (None),
    engines that have a flag for it take the model's; others fit themselves to their cache."""
    if stated is not None:
        return replace(job, served_length=stated or None, length_said=bool(stated))
    takes_context = job.engine_on(job.targets[0][0]).length_flag
    if not takes_context:
        return job
    return replace(job, served_length=job.model.context or None)


def _complete_plan(job: ServeAsked, saved: SavedPlan) -> ServingPlan:
    """The given plan as the engine runs it: in the formats and with the spread that flags say, and with `tensor` for
    the chips of the slice that it leaves open."""
    plan, question = saved.plan, job.question
    chip, slice_ = job.targets[0]
    # a plan that leaves `tensor` open takes the whole slice for it
    fills_slice = not saved.whole and slice_ is not None
    chips = plan.chips if saved.whole or slice_ is None else slice_.chips
    on_all_chips = replace(plan, tensor=max(plan.tensor * chips // plan.chips, 1))
    engine = engine_on(job.engine, chip, job.model, job.limits, chips, on_all_chips).name
    plan = replace(plan, **planned_formats(saved, question, engine, chip, job.model))
    product_format(plan.weights, plan.compute)  # refuses a pair without kernels
    if question.kv_split:
        plan = replace(plan, spread=question.kv_split)
    if fills_slice:
        if chips % plan.chips:
            raise InputError(
                f"The plan {plan} splits {plan.chips} ways, which does not divide the {chips} chips of {slice_}."
            )
        plan = replace(plan, tensor=chips // plan.chips)
    return plan


@dataclass(frozen=True)
class _UseCase:
    """A question with the means of its use case, where it has one, and what its sessions and requests are like."""

    question: ServeQuestion
    flags: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    session_s: float = 0.0
    session_calls: float = 0.0
    longest_request: int = 0


def _with_use_case(question: ServeQuestion) -> _UseCase:
    """A question with the lengths, the rate and the targets of its use case."""
    if not question.use_case:
        if question.users is not None:
            raise InputError("--users are those of a use case; add --use-case chat.")
        return _UseCase(question)

    # the use case's traffic, with what flags say otherwise
    flags: dict[str, Any] = {name: getattr(question, name) for name in ("rate", "ttft", "tpot", "e2e")}
    for name in ("prompt", "output"):
        if getattr(question, name) != getattr(DEFAULTS, name):
            flags[name] = getattr(question, name)
    flags |= {"use_case": question.use_case, "users": question.users}
    asked_traffic = read_traffic(SimulateQuestion("", **flags))
    traffic, requests = asked_traffic.traffic, asked_traffic.tables[0]
    means = means_of(traffic.source)
    with_means = replace(
        question,
        prompt=means.prompt,
        output=means.output,
        cached=question.cached or round(means.repeated_share, 2),
        rate=f"{traffic.rate:.6g}/s",
        ttft=requests.ttft,
        tpot=requests.tpot,
        e2e=requests.e2e,
    )
    note = (
        f"As {requests.name}: {requests.text}. As drawn, prompts are {means.prompt:,} tokens on average, "
        f"{means.repeated_share:.0%} cached, and outputs {means.output:,}."
    )
    # with --cached the prefix is said by hand, and what is simulated is plain traffic
    case: dict[str, Any] = {}
    if not question.cached:
        case = {"prompt": "", "output": "", "prefixes": ""} | flags
        router = router_for(asked_traffic.tables)
        if router:
            case["router"] = router
    use_case = _UseCase(with_means, case, (note, *asked_traffic.notes), longest_request=means.longest)
    calls = requests.turns * requests.calls
    if calls > 1:
        use_case = replace(use_case, session_s=requests.session_s, session_calls=calls)
    return use_case


def _check_choices(question: ServeQuestion, model: Transformer, engine: str) -> None:
    """Refuse what is not among the choices of its flag."""
    if not 0 <= question.top <= MAX_ROWS:
        raise InputError(f"--top is {question.top}; ask for 1 to {MAX_ROWS} configurations.")
    if question.kv_split and question.kv_split not in SPREADS:
        raise unknown("way to split the KV cache called", question.kv_split, SPREADS)
    check_formats(question, model)
    if split_settings(engine)[0] != AUTO:
        load_engine(engine)


def _targets(question: ServeQuestion, saved: SavedPlan | None) -> AskedTargets:
    """The chips and slices of a question, or the slice of its plan file."""
    on = question.on
    if isinstance(on, str):
        on = on.strip() or (saved and saved.slice)
    if not on:
        raise InputError("Say what to serve on: --on h100 (a chip), --on v5e:4x4 (a slice), --on v5e,h100 or --on any.")
    targets = asked_targets(on, question)
    if saved is not None and targets.everywhere:
        raise InputError(f"--plan needs a chip or a slice to run on; --on is {on!r}, write e.g. h100:8.")
    if saved is not None and len(targets.named) > 1:
        raise InputError(f"--plan needs one chip or slice to run on; --on is {shorten(written(on))}.")
    return targets


@dataclass(frozen=True)
class _Lengths:
    """Tokens of a request, the question with them, how they were read, and why the usual ones were cut."""

    question: ServeQuestion
    prompt: int
    output: int
    how_read: tuple[str, ...]
    cut: tuple[str, ...]


TASKS = {
    "embed": "{} embeds: a request is a document, which ends with its prompt (one prefill, no output tokens).",
    "encode": "{} is an encoder: a request is a document, which ends with its prompt. Its attention sees both ways and "
    "is timed as if it saw the past alone, which matters from a few thousand tokens on.",
    "rerank": "{} ranks: a request is a query with one document, which ends with its prompt (one prefill, one score).",
}
"""A note on requests of models that answer with their prompt alone."""
VISION = (
    "The vision tower ({:,.0f}M parameters) is counted as weights in 16 bits. An image is as many more tokens of "
    "--prompt; `dscale simulate --images 1x1024` times its encoding too."
)


def _lengths(question: ServeQuestion, model: Transformer, served: int | None) -> _Lengths:
    """The lengths of requests, shortened to what the model takes, or a launch that is for short requests (`served`)."""
    if model.task and question.output == DEFAULTS.output:
        prompt = question.prompt
        if prompt == DEFAULTS.prompt and model.context:
            prompt = str(min(int(prompt), model.context - 1))
        question = replace(question, prompt=prompt, output="0")
    question, cut = _within_context(question, model, served)
    if question.output.strip() == "0":  # embeddings and scores: a request ends with its prompt, as with one token
        question = replace(question, output="1")
    prompt, prompt_note = parse_length(question.prompt, "--prompt")
    output, output_note = parse_length(question.output, "--output")
    context = None if question.force or output == 1 else model.context
    prompt, shortened = shortened_prompt(question.prompt, prompt, output, context, model.name)
    how_read = filter(None, (shortened or prompt_note, output_note))
    if model.task:
        cut = (*cut, TASKS[model.task].format(model.name))
    tower = unseen_parameters(model).get("vision")
    if tower:
        cut = (*cut, VISION.format(tower / 1e6))
    return _Lengths(question, prompt, output, tuple(how_read), cut)


def _within_context(
    question: ServeQuestion, model: Transformer, served: int | None
) -> tuple[ServeQuestion, tuple[str, ...]]:
    """The question with its default lengths cut to what a model of few positions or a launch for short requests
    takes, and a note where they are."""
    whose = f"{model.name} has a context"
    longest = model.context
    if served and (not longest or served < longest):
        whose = "The launch takes requests"
        longest = served
    default_length = int(DEFAULTS.prompt) + int(DEFAULTS.output)
    is_default = (question.prompt, question.output) == (DEFAULTS.prompt, DEFAULTS.output)
    if not is_default or not longest or longest >= default_length:
        return question, ()
    output = min(int(question.output), longest // 4)
    prompt = longest - output
    note = f"{whose} of {longest:,} tokens: prompts of {prompt:,} and outputs of {output:,} are taken."
    return replace(question, prompt=str(prompt), output=str(output)), (note,)


def _requests(
    question: ServeQuestion,
    lengths: _Lengths,
    goals: dict[str, LatencyTarget],
    batch: int | None,
    where: AskedTargets,
) -> Ask:
    """The requests with their targets as means. Where no target and no batch says how quickly tokens have to come, a
    pace is kept."""
    means: dict[str, Any] = {name: goal.seconds for name, goal in goals.items()}
    if batch is None and lengths.output > 1 and not {"tpot", "itl", "e2e"} & set(goals):
        means["tpot"] = PACE_S
    return Ask(
        prompt=lengths.prompt,
        output=lengths.output,
        **means,
        rate=_positive(question.rate, "count/s", "--rate"),
        cached=question.cached,
        rented=tuple((chip.name, slice_.chips) for chip, slice_ in where.targets if slice_ is not None),
    )


def _positive(text: str, dimension: str, flag: str) -> float | None:
    if not text.strip():
        return None
    value = parse(text, dimension, flag)
    if value <= 0:
        raise InputError(f"{flag} is {shorten(text)}; it is more than nothing.")
    return value


def _batch(question: ServeQuestion, saved: SavedPlan | None) -> int | None:
    if not question.batch.strip():
        return (saved and saved.batch) or None
    batch = parse_count(re.sub(r"\s*(sequences|sequence|seqs|seq)\s*$", "", question.batch), "the batch")
    if not 1 <= batch <= MAX_BATCH:
        raise InputError(f"--batch is {shorten(question.batch)}; it has at least one sequence and at most 10^6.")
    return batch


def _draft(question: ServeQuestion, model: Transformer, output: int) -> Draft | None:
    """Who drafts: what flags say, a checkpoint's own heads where they name only a number; nobody in a plain launch."""
    counts = () if question.drafts is None else (question.drafts,)
    if question.drafts is not None and not 0 <= question.drafts <= MAX_ASKED_DRAFTS:
        raise InputError(f"--drafts is {question.drafts}; a loop drafts 0 to {MAX_ASKED_DRAFTS} tokens.")
    chances: tuple[float, ...] = ()
    if question.accept.strip():
        chances = read_acceptance(question.accept)
    elif question.drafts == 0 or output == 1:
        return None
    drafter = written(question.draft).strip()
    if drafter:
        return read_drafter(drafter, model, counts, chances)
    if chances:
        return Draft(chances, part=head_part(model), counts=counts or tuple(range(MAX_DRAFTS + 1)))
    if not question.drafts:  # a plain launch has no drafts
        return None
    # the checkpoint's own modules; of a model that has none, heads that are trained for it
    return own_draft(model, counts) or named_draft("eagle", model, counts)


def _plan_notes(question: ServeQuestion, saved: SavedPlan | None, model: Transformer) -> list[str]:
    """What a plan says that is not judged as it stands."""
    notes: list[str] = []
    if saved is not None and saved.model and saved.model not in (written(question.model), model.name):
        notes.append(f"The plan was made for {saved.model}; it is judged for {model.name}.")
    if "prefix-cach" in question.plan and not question.cached:
        notes.append(
            "No prompts share a prefix here, so its cache changes nothing; --cached or --use-case says that some do."
        )
    return notes


def _with_saved(question: ServeQuestion, saved: SavedPlan | None) -> ServeQuestion:
    """The question with what its flags leave at their defaults taken from a plan file: lengths, rate, targets, drafts,
    limits."""
    if saved is None:
        return question
    if not saved.speculation.acceptance:  # which is for whoever runs it to say; without it no drafts are counted
        saved = replace(saved, speculation=SavedDrafts())
    by_file = said_by(saved)
    at_default = [name for name in by_file if getattr(question, name) == getattr(DEFAULTS, name)]
    return replace(question, **{name: by_file[name] for name in at_default})


def said_by(saved: SavedPlan) -> dict[str, Any]:
    """What a plan file says of requests, targets, limits and drafts, by the names of flags."""
    traffic, drafts = saved.traffic, saved.speculation
    flags = {
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
    return {name: value for name, value in flags.items() if value}
