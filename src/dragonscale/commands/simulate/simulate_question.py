"""The flags of `dscale simulate` understood: a fleet, its traffic, and how the run is measured; what a plan file says
under them."""

from dataclasses import dataclass, replace

from dragonscale.commands.asked_chips import asked_chips, profile_notes
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.deployment_flags import (
    check_chips,
    check_runs,
    engine_choice_note,
    engine_notes,
    read_deployment,
    read_prefill,
    read_prices,
    served_length_note,
)
from dragonscale.commands.simulate.fleet_flags import read_autoscale, read_drafts, read_failures
from dragonscale.commands.simulate.pool_flags import (
    check_one_slice,
    class_indices,
    read_adapters,
    read_images,
    read_pools,
    read_tiers,
)
from dragonscale.commands.simulate.saved_fleet import filled, plan_of, read_saved
from dragonscale.commands.simulate.simulate_flags import check_flags
from dragonscale.commands.simulate.traffic_flags import has_classes, read_traffic
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.units import parse, parse_length
from dragonscale.serving.engine.engine import spelt_engine
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.legal import shortened_prompt, stored_note
from dragonscale.serving.steady.speculation import read_drafter
from dragonscale.serving.steady.targets import MEAN, LatencyTarget, read_targets
from dragonscale.simulation.fleet import Autoscale
from dragonscale.simulation.fleet_sizing.fleet_job import USUAL_PERCENTILE, FleetJob, FleetPool, FleetReplica
from dragonscale.simulation.fleet_sizing.fleet_traffic import FleetTraffic
from dragonscale.simulation.fleet_sizing.traffic_classes import ClassTable
from dragonscale.simulation.traffic import Brought

# The engine whose server records traces (`dscale run serve --record`).
RECORDING_ENGINE = "dragonscale"


@dataclass(frozen=True)
class SimulateAsked:
    """The flags of a question understood, as a job, with notes on how they were read."""

    question: SimulateQuestion
    job: FleetJob
    notes: tuple[str, ...] = ()
    original: SimulateQuestion | None = None
    """The question before a plan file filled it."""
    tables: tuple[ClassTable, ...] = ()
    """The classes of traffic as they were written."""
    watch: int = 0
    """Replicas whose activities over time the run keeps."""


def read_question(question: SimulateQuestion) -> SimulateAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    original = question
    start = _read_start(question)
    question, deployment = start.question, start.deployment
    images, adapters = read_images(question.images), read_adapters(question.adapters)
    brought = Brought(adapters.popularity if adapters is not None else None, images.count)
    asked_traffic = read_traffic(question, start.context, brought, images.prompt_tokens)
    traffic = asked_traffic.traffic
    prefill = read_prefill(question, deployment, start.saved.engine)
    forced = check_runs(question, deployment, prefill, (traffic.prompt, traffic.output))
    main = _pool(question, deployment, traffic.longest)
    recorded: tuple[str, ...] = ()
    if traffic.recorded_kv_tokens and deployment.engine.name == RECORDING_ENGINE:
        # a trace of our own server: its times lie behind the tokenizer, and it says what the cache held
        traffic = replace(traffic, behind_server=True)
        if original.memory_fraction is None:
            main, recorded = _as_recorded(main, traffic.recorded_kv_tokens)
    # classes of traffic that other pools name do not come to the main one
    main, others = _split_classes(question, main, traffic)
    failures, faults = read_failures(question.fail)
    job = FleetJob(
        main,
        traffic,
        _targets(question, bool(traffic.classes)),
        prefill=prefill and _prefill_pool(question, prefill, traffic.longest),
        others=others,
        router=question.router,
        limits=LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction),
        failures=failures,
        faults=faults,
        queue_limit=question.queue_limit or None,
        context=start.context,
        served_length=start.saved.served_length or None,
        percentile=question.percentile or USUAL_PERCENTILE,
        deadline_s=parse(question.deadline or "0s", "s", "--deadline"),
        seed=question.seed,
        warmup=question.warmup,
    )
    _ = job.options  # replicas that do not fit, and failures of replicas that there are not, are refused here
    notes = (
        *deployment.model.notes,
        *_slice_notes(question, start.saved),
        *asked_traffic.notes,
        *start.notes,
        *_stored_notes(deployment, prefill),
        *served_length_note(start.saved, deployment),
        *recorded,
        *engine_choice_note(question.engine or start.saved.engine, deployment),
        *engine_notes(deployment, prefill),
        *read_prices(question, deployment.chip)[1],
        *forced,
        *profile_notes([deployment.chip]),
    )
    return SimulateAsked(question, job, notes, original, asked_traffic.tables)


@dataclass(frozen=True)
class _Start:
    """A question with what its plan file says, its chips changed as it says, and what runs on its replicas."""

    question: SimulateQuestion
    saved: SavedPlan
    deployment: Deployment
    context: int | None
    """Tokens of the longest request; None where there is no limit."""
    notes: tuple[str, ...]


def _read_start(question: SimulateQuestion) -> _Start:
    """The question with its plan file, chips and lengths understood."""
    plans = {name: written(getattr(question, name)) for name in ("plan", "prefill_plan")}
    engines = {name: spelt_engine(getattr(question, name)) for name in ("engine", "prefill_engine")}
    question = replace(question, **engines, **plans)
    fleet = read_saved(question)
    saved = fleet.plan
    model = with_assumed(fleet.model, question.assume, question.family)
    named_on = question.on or saved.slice
    check_one_slice(written(named_on))
    on = asked_chips(named_on, question.set, question.profile)
    prefill_on = question.prefill_on
    if prefill_on:
        prefill_on = asked_chips(prefill_on, question.set, question.profile)
    chip_changes = question.set
    changed_on = question.on if on == named_on else on  # a slice of a plan file stays there unless its chip changes
    question = replace(question, on=changed_on, prefill_on=prefill_on, set="", profile="")
    check_flags(question, bool(saved.prefill.slice))
    question = filled(question, saved)
    deployment = read_deployment(model, question, saved)
    check_effect(chip_changes, "serving", kind=deployment.chip.kind)
    check_chips(deployment, str(deployment.piece))
    context = None if question.force else deployment.model.context or None
    question, shortened = _within_context(question, deployment.model.name, context)
    return _Start(question, saved, deployment, context, tuple(shortened))


def _slice_notes(question: SimulateQuestion, saved: SavedPlan) -> list[str]:
    """What there is to say of slices as they were written."""
    named = (question.on or saved.slice, question.prefill_on)
    notes = [slice_note(name) for name in named if name and isinstance(name, str)]
    return list(filter(None, notes))


def _stored_notes(deployment: Deployment, prefill: Deployment | None) -> list[str]:
    """Formats that replicas store and do not compute in."""
    replicas = [deployment] if prefill is None else [deployment, prefill]
    notes = [stored_note(replica.chip, replica.plan) for replica in replicas]
    return list(filter(None, dict.fromkeys(notes)))


def _targets(question: SimulateQuestion, has_classes: bool) -> dict[str, LatencyTarget]:
    """The targets by the name of their latency. Classes of traffic have their own, but for gaps between tokens."""
    usual = f"p{question.percentile}" if question.percentile else MEAN
    targets = read_targets(question, usual)
    return {f"{name}_s": target for name, target in targets.items() if name == "itl" or not has_classes}


def _within_context(question: SimulateQuestion, name: str, context: int | None) -> tuple[SimulateQuestion, list[str]]:
    """Prompts that were written as all of the model's context, shortened by the output and by images; and a note."""
    if context is None or has_classes(question) or question.trace:
        return question, []
    images = read_images(question.images)
    prompt, _ = parse_length(question.prompt, "--prompt")
    output, _ = parse_length(question.output, "--output")
    beside_prompt = images.prompt_tokens
    if output > 1:  # an answer of one token ends with its prompt
        beside_prompt += output
    shorter, note = shortened_prompt(question.prompt, prompt, beside_prompt, context, name)
    if not note:
        return question, []
    return replace(question, prompt=str(shorter)), [note]


def _pool(question: SimulateQuestion, deployment: Deployment, longest: int) -> FleetPool:
    """The pool that a question asks for."""
    drafts, acceptance = read_drafts(question)
    draft = None
    if written(question.draft).strip():
        draft = read_drafter(written(question.draft), deployment.model, (drafts,), acceptance)
    replica = FleetReplica(
        deployment,
        longest,
        drafts=drafts,
        acceptance=acceptance,
        draft_model=draft and draft.model,
        draft_part=draft and draft.part,
        tiers=read_tiers(question.host_cache),
        images=read_images(question.images),
        adapters=read_adapters(question.adapters),
    )
    replicas = question.replicas
    if replicas is None:
        replicas = 1
    return FleetPool(replica, replicas, _autoscale(question.autoscale, "--autoscale"))


def _autoscale(text: str, flag: str) -> Autoscale | None:
    """How a pool grows and shrinks, where it does."""
    return read_autoscale(text, flag) if text else None


def _split_classes(
    question: SimulateQuestion, main: FleetPool, traffic: FleetTraffic
) -> tuple[FleetPool, tuple[FleetPool, ...]]:
    """The main pool and those beside it, each with the classes of traffic that it takes."""
    tables = read_pools(question.pool)
    pools: list[FleetPool] = []
    for table in tables:
        pool_question = table.over(question)
        deployment = read_deployment(pool_question.model, pool_question, plan_of(pool_question.plan))
        check_chips(deployment, table.on)
        check_runs(pool_question, deployment, None, (traffic.prompt, traffic.output))
        pool = _pool(pool_question, deployment, traffic.longest)
        pools.append(replace(pool, upto=table.max_tokens, limits=table.limits))
    main_classes, *other_classes = class_indices(tables, [service.name for service in traffic.classes])
    others = [replace(pool, classes=classes) for pool, classes in zip(pools, other_classes, strict=True)]
    return replace(main, classes=main_classes), tuple(others)


def _prefill_pool(question: SimulateQuestion, prefill: Deployment, longest: int) -> FleetPool:
    """The replicas that prefill."""
    replica = FleetReplica(
        prefill,
        longest,
        tiers=read_tiers(question.host_cache),
        images=read_images(question.images),
        adapters=read_adapters(question.adapters),
    )
    rule = _autoscale(question.prefill_autoscale, "--prefill-autoscale")
    return FleetPool(replica, question.prefill_replicas or 1, rule)


def _as_recorded(pool: FleetPool, kv_tokens: int) -> tuple[FleetPool, tuple[str, ...]]:
    """The pool with as much KV cache as the server had that a trace was recorded of."""
    planned = pool.replica.pool.kv_tokens
    if kv_tokens == planned:
        return pool, ()
    note = (
        f"The trace was recorded with {kv_tokens:,} tokens of KV cache in a replica, which are taken; the plan has "
        f"{planned:,} (--memory-fraction takes those)."
    )
    return replace(pool, replica=replace(pool.replica, kv_tokens=kv_tokens)), (note,)
