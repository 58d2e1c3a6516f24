"""The flags of `dscale simulate` understood: a fleet, its traffic, and how the run is measured; what a plan file says
under them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.commands.asked_chips import asked_chips, profile_notes
from dragonscale.commands.foreign import foreign_plan, script_plan, serving_file_of
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.formats import planned_formats
from dragonscale.commands.simulate.fleet_flags import read_autoscale, read_drafts, read_failures
from dragonscale.commands.simulate.pool_flags import (
    check_one_slice,
    class_indices,
    read_adapters,
    read_images,
    read_pools,
    read_tiers,
)
from dragonscale.commands.simulate.simulate_flags import check_flags
from dragonscale.commands.simulate.traffic_flags import CLASS_FLAGS, has_classes, read_traffic
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware import Chip, Slice, parse_slice
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.hardware.price_book import Tariff
from dragonscale.physics.hardware.prices import read_tariff, slice_at_price
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.units import parse, parse_length
from dragonscale.serving.engine.auto import AUTO, auto_choice
from dragonscale.serving.engine.engine import spelt_engine, split_settings, substitution_notes
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import server_of
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, is_plan_file, load_serving_plan, read_serving_plan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.iteration.deployment import Deployment, deploy, filling
from dragonscale.serving.space.legal import exchange_note, refusal, shortened_prompt, stored_note
from dragonscale.serving.space.prefill_engine import prefill_engine
from dragonscale.serving.steady.targets import LATENCIES, MEAN, LatencyTarget, read_targets
from dragonscale.simulation.fleet_sizing.fleet_job import USUAL_PERCENTILE, FleetJob, FleetPool, FleetReplica
from dragonscale.simulation.fleet_sizing.fleet_traffic import FleetTraffic
from dragonscale.simulation.fleet_sizing.traffic_classes import ClassTable
from dragonscale.simulation.traffic import Brought

# The engine whose server records traces (`dscale run serve --record`).
RECORDING_ENGINE = "dragonscale"

# Endings of other software's scripts and configs, which no model has.
_SCRIPTS = (".sh", ".sbatch", ".yaml", ".yml")

# Mean tokens of a request where nothing says otherwise.
USUAL_PROMPT = 2048
USUAL_OUTPUT = 256


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
    plans = {name: written(getattr(question, name)) for name in ("plan", "prefill_plan")}
    substituted = substitution_notes(question.engine)
    engines = {name: spelt_engine(getattr(question, name)) for name in ("engine", "prefill_engine")}
    question = replace(question, **engines, **plans)
    model, saved = read_saved(question)
    model = with_assumed(model, question.assume, question.family)
    chip_changes = question.set
    profile = question.profile
    prefill_on = asked_chips(question.prefill_on, chip_changes, profile) if question.prefill_on else ""
    named_on = question.on or saved.slice
    check_one_slice(written(named_on))
    on = asked_chips(named_on, chip_changes, profile)
    question = replace(question, on=question.on if on == named_on else on, prefill_on=prefill_on, set="", profile="")
    check_flags(question, bool(saved.prefill.slice))
    question = filled(question, saved)
    deployment = _deployment(model, question, saved)
    check_effect(chip_changes, "serving", kind=deployment.chip.kind)
    _check_chips(deployment, str(deployment.piece))
    context = None if question.force else deployment.model.context or None
    question, shortened = _within_context(question, deployment.model.name, context)

    images, adapters = read_images(question.images), read_adapters(question.adapters)
    brought = Brought(adapters.popularity if adapters is not None else None, images.count)
    asked_traffic = read_traffic(question, context, brought, images.prompt_tokens)
    traffic = asked_traffic.traffic
    prefill = _prefill(question, deployment, saved.engine)
    forced = _refused(question, deployment, prefill, (traffic.prompt, traffic.output))

    main = _main_pool(question, deployment, traffic.longest)
    recorded: tuple[str, ...] = ()
    if traffic.recorded_kv_tokens and deployment.engine.name == RECORDING_ENGINE:
        traffic = replace(traffic, behind_server=True)
        if original.memory_fraction is None:
            main, recorded = _as_recorded(main, traffic.recorded_kv_tokens)
    others = _other_pools(question, traffic)
    tables = read_pools(question.pool)
    main_classes, *other_classes = class_indices(tables, [service.name for service in traffic.classes])
    failures, faults = read_failures(question.fail)
    job = FleetJob(
        replace(main, classes=main_classes),
        traffic,
        _targets(question, bool(traffic.classes)),
        prefill=prefill and _prefill_pool(question, prefill, traffic.longest),
        others=tuple(replace(pool, classes=own) for pool, own in zip(others, other_classes, strict=True)),
        router=question.router,
        limits=LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction),
        failures=failures,
        faults=faults,
        queue_limit=question.queue_limit or None,
        context=context,
        served_length=saved.served_length or None,
        percentile=question.percentile or USUAL_PERCENTILE,
        deadline_s=parse(question.deadline, "s", "--deadline") if question.deadline else 0.0,
        seed=question.seed,
        warmup=question.warmup,
    )
    _ = job.options  # replicas that do not fit, and failures of replicas that there are not, are refused here

    slices = (where for where in (question.on or saved.slice, question.prefill_on) if where and isinstance(where, str))
    kinds_of_replica = [deployment] if prefill is None else [deployment, prefill]
    notes = (
        *deployment.model.notes,
        *filter(None, map(slice_note, slices)),
        *asked_traffic.notes,
        *shortened,
        *substituted,
        *filter(None, dict.fromkeys(stored_note(replica.chip, replica.plan) for replica in kinds_of_replica)),
        *_served_length_note(saved, deployment),
        *recorded,
        *_chosen(question.engine or saved.engine, deployment),
        *_engine_notes(deployment, prefill),
        *_prices(question, deployment.chip)[1],
        *forced,
        *profile_notes([deployment.chip]),
    )
    return SimulateAsked(question, job, notes, original, asked_traffic.tables)


def _targets(question: SimulateQuestion, has_classes: bool) -> dict[str, LatencyTarget]:
    """The targets by the name of their latency. Classes of traffic have their own, but for gaps between tokens."""
    usual = f"p{question.percentile}" if question.percentile else MEAN
    targets = read_targets(question, usual)
    return {f"{name}_s": target for name, target in targets.items() if name == "itl" or not has_classes}


def _served_length_note(saved: SavedPlan, deployment: Deployment) -> list[str]:
    """That the engine refuses requests beyond the limit of its launch line."""
    if not saved.served_length:
        return []
    flag = deployment.engine.length_flag or "its limit"
    return [
        f"The launch takes requests of at most {saved.served_length:,} tokens, prompt and output together ({flag}); "
        "the engine refuses longer ones."
    ]


def _within_context(question: SimulateQuestion, name: str, context: int | None) -> tuple[SimulateQuestion, list[str]]:
    """Prompts that were written as all of the model's context, shortened by the output and by images; and a note."""
    if context is None or has_classes(question) or question.trace:
        return question, []
    images = read_images(question.images)
    output = parse_length(question.output, "--output")[0]
    more = images.prompt_tokens + (output if output > 1 else 0)
    prompt = parse_length(question.prompt, "--prompt")[0]
    shorter, note = shortened_prompt(question.prompt, prompt, more, context, name)
    if not note:
        return question, []
    return replace(question, prompt=str(shorter)), [note]


def _main_pool(question: SimulateQuestion, deployment: Deployment, longest: int) -> FleetPool:
    """The pool that `--on` asks for, or one beside it whose question this is."""
    drafts, acceptance = read_drafts(question)
    replica = FleetReplica(
        deployment,
        longest,
        drafts=drafts,
        acceptance=acceptance,
        draft_model=load_model(question.draft) if question.draft else None,
        tiers=read_tiers(question.host_cache),
        images=read_images(question.images),
        adapters=read_adapters(question.adapters),
    )
    rule = read_autoscale(question.autoscale) if question.autoscale else None
    return FleetPool(replica, 1 if question.replicas is None else question.replicas, rule)


def _other_pools(question: SimulateQuestion, traffic: FleetTraffic) -> list[FleetPool]:
    """The pools beside the first."""
    pools: list[FleetPool] = []
    for table in read_pools(question.pool):
        pool_question = table.over(question)
        saved = SavedPlan(ServingPlan(), whole=False)
        if pool_question.plan:
            saved = read_serving_plan(pool_question.plan)
        deployment = _deployment(pool_question.model, pool_question, saved)
        _check_chips(deployment, table.on)
        _refused(pool_question, deployment, None, (traffic.prompt, traffic.output))
        pool = _main_pool(pool_question, deployment, traffic.longest)
        pools.append(replace(pool, upto=table.max_tokens, limits=table.limits))
    return pools


def _prefill_pool(question: SimulateQuestion, prefill: Deployment, longest: int) -> FleetPool:
    """The replicas that prefill."""
    replica = FleetReplica(
        prefill,
        longest,
        tiers=read_tiers(question.host_cache),
        images=read_images(question.images),
        adapters=read_adapters(question.adapters),
    )
    rule = None
    if question.prefill_autoscale:
        rule = read_autoscale(question.prefill_autoscale, "--prefill-autoscale")
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


def _deployment(name: Any, question: SimulateQuestion, saved: SavedPlan) -> Deployment:
    """One replica."""
    where = question.on or saved.slice
    if not where:
        raise InputError("Say where a replica runs: --on h100:8, or a plan file that names its slice.")
    piece = _slice(where)
    piece = slice_at_price(piece, _prices(question, piece.chip)[0])
    limits = LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction)
    model = load_model(name)
    split = saved.plan if saved.whole else filling(saved.plan, piece)
    engine = engine_on(question.engine or saved.engine or AUTO, piece.chip, model, limits, piece.chips, split)
    formats = planned_formats(saved, ServeQuestion(name), engine.name, piece.chip, model)
    return deploy(model, piece, replace(split, **formats), engine)


def _slice(where: Any) -> Slice:
    """A slice, as an object or as it is written."""
    return where if isinstance(where, Slice) else parse_slice(written(where))


def _chosen(engine: str, deployment: Deployment) -> list[str]:
    """Which engine was taken and why, where nobody named one."""
    if engine and split_settings(engine)[0] != AUTO:
        return []
    choice = auto_choice(deployment.chip, deployment.model, deployment.piece.chips, deployment.plan)
    return [f"The engine is {choice.engine}: {choice.why}."]


def _engine_notes(deployment: Deployment, prefill: Deployment | None) -> list[str]:
    """That wide expert parallelism is run with another form of the engine, and that replicas which prefill run another
    than those which decode."""
    pools = [deployment] if prefill is None else [deployment, prefill]
    found = (exchange_note(one.engine.name, one.chip, one.plan) for one in pools)
    notes = [*dict.fromkeys(text for text in found if text)]
    if prefill is None or prefill.engine.name == deployment.engine.name:
        return notes
    return [*notes, f"Prefill replicas run {prefill.engine.name}, decode replicas {deployment.engine.name}."]


def _refused(
    question: SimulateQuestion, deployment: Deployment, prefill: Deployment | None, lengths: tuple[int, int]
) -> list[str]:
    """What no engine runs is refused; forced, it is noted."""
    roles = {BOTH: deployment} if prefill is None else {DECODE: deployment, PREFILL: prefill}
    pools = [*roles.values()]
    found = [refusal(one.engine.name, one.piece, one.model, one.plan, lengths, role) for role, one in roles.items()]
    names = [server_of(one.engine.name) for one in pools]
    if prefill is not None and names[0] != names[1]:
        found.append(
            f"prefill replicas run {names[1]} and decode replicas {names[0]}, and a cache passes between replicas of "
            f"one engine; take a chip for prefill that {names[0]} runs on"
        )
    if prefill is not None and prefill.plan.kv != deployment.plan.kv:
        found.append(
            f"prefill replicas write a KV cache in {prefill.plan.kv} and decode replicas read one in "
            f"{deployment.plan.kv}; give both kv={deployment.plan.kv}"
        )
    found = [text for text in dict.fromkeys(found) if text]
    if found and not question.force:
        raise Infeasible(f"Not possible: {found[0]}, or add --force.")
    return [f"Forced: {text}." for text in found]


def _prices(question: SimulateQuestion, chip: Chip) -> tuple[Tariff, list[str]]:
    """How the chips of both pools are paid for, and notes on it."""
    chips = [chip, *([_slice(question.prefill_on).chip] if question.prefill_on else [])]
    return read_tariff(question.price, chips, question.pricing, question.owned)


def _check_chips(deployment: Deployment, where: str) -> None:
    if deployment.plan.chips != deployment.piece.chips:
        raise InputError(
            f"The plan {deployment.plan} uses {deployment.plan.chips} chips, and one replica is {where}, which has "
            f"{deployment.piece.chips}; make them the same and ask for more --replicas."
        )


def _prefill(question: SimulateQuestion, deployment: Deployment, saved_engine: str) -> Deployment | None:
    if not question.prefill_on:
        for name in ("plan", "engine"):
            if getattr(question, f"prefill_{name}"):
                raise InputError(f"--prefill-{name} needs --prefill-on, the slice of one prefill replica.")
        return None
    saved = read_serving_plan(question.prefill_plan) if question.prefill_plan else SavedPlan(ServingPlan(), whole=False)
    # What a prefill plan does not say of formats is as in the decode pool.
    words = [name for name in ("weights", "kv", "compute", "attention", "wire") if name not in saved.named]
    plan = replace(saved.plan, **{name: getattr(deployment.plan, name) for name in words})
    where = slice_at_price(_slice(question.prefill_on), _prices(question, deployment.chip)[0])
    plan = plan if saved.whole else filling(plan, where)
    name = question.prefill_engine or prefill_engine(question.engine, saved_engine, deployment, where.chip, plan)
    # the sequences of --max-seqs are those that decode
    limits = LaunchLimits(None, question.token_budget, question.memory_fraction)
    engine = engine_on(name, where.chip, deployment.model, limits, where.chips, plan)
    found = deploy(deployment.model, where, plan, engine)
    _check_chips(found, written(question.prefill_on))
    return found


# What a plan file says of a simulation, under what the flags say.


def read_saved(question: SimulateQuestion) -> tuple[Any, SavedPlan]:
    """The model, and the plan of flags or of a file of `dscale serve --save`: given for the model, or as the plan."""
    name = question.model
    if isinstance(name, str) and name.endswith(".toml") and not Path(name).is_file():
        raise InputError(f"There is no file {shorten(name)}; a plan file is what `dscale serve … --save FILE` writes.")
    if isinstance(name, str) and name.endswith(_SCRIPTS):
        found = script_plan(name, question.on)
        return found.model, found
    if (foreign := foreign_plan(question.plan, name, question.on)) is not None:
        return name, serving_file_of(foreign)
    if not isinstance(name, str) or not is_plan_file(name):
        return name, read_serving_plan(question.plan) if question.plan else SavedPlan(ServingPlan(), whole=False)
    if question.plan:
        raise InputError(f"{shorten(name)} is a serving plan already; leave --plan out.")
    saved = load_serving_plan(name)
    if not saved.model:
        raise InputError(f'The plan file {shorten(name)} names no model; add model = "llama3-70b".')
    return saved.model, saved


def filled(question: SimulateQuestion, saved: SavedPlan) -> SimulateQuestion:
    """The question with what its flags leave open as the plan file has it, or as it usually is.

    A replica takes no more sequences at once than the planned batch. Where the plan has no rate, as many clients as
    keep its batches full send requests: the steady state that was planned.
    """
    question = _as_saved_use_case(question, saved)
    traffic, drafts, pool, launch = saved.traffic, saved.speculation, saved.prefill, saved.launch
    replicas = question.replicas
    if replicas is None:  # an autoscaled fleet begins with its least
        from_zero = question.autoscale and not read_autoscale(question.autoscale).least
        replicas = 0 if from_zero else saved.replicas or 1
    most = -(-saved.batch // saved.plan.data) if saved.batch else launch.max_seqs
    prompt = question.prompt or str(traffic.prompt or USUAL_PROMPT)
    output = question.output or str(traffic.output or USUAL_OUTPUT)
    coming = question.rate or question.clients is not None or question.trace or question.arrivals == "at-once"
    words: dict[str, Any] = {
        "replicas": replicas,
        "prompt": prompt,
        "output": "1" if output.strip() == "0" else output,  # without one a request ends with its prompt, as with one
        **{latency: getattr(question, latency) or getattr(saved.targets, latency) for latency in LATENCIES},
        "max_seqs": most if question.max_seqs is None else question.max_seqs,
        "token_budget": launch.token_budget if question.token_budget is None else question.token_budget,
        "memory_fraction": launch.memory_fraction if question.memory_fraction is None else question.memory_fraction,
    }
    if not coming:
        clients = None if traffic.rate else saved.batch * replicas or None
        words |= {"rate": traffic.rate, "clients": clients, "ramp": question.ramp or (traffic.ramp if clients else "")}
    words["lengths"] = question.lengths or "varied"
    if traffic.cached and not (question.prefixes or question.trace):
        shared = round(parse_length(prompt, "--prompt")[0] * traffic.cached)
        words["prefixes"] = f"1x{shared}" if shared else ""
    if drafts.drafts and not (question.drafts or question.accept):
        words |= {"drafts": drafts.drafts, "accept": drafts.acceptance, "draft": drafts.draft}
    own = bool(pool.slice) and not question.prefill_on
    if own:
        words |= {"prefill_on": pool.slice, "prefill_plan": pool.plan}
        words["prefill_engine"] = question.prefill_engine or pool.engine
    words["prefill_replicas"] = question.prefill_replicas or (pool.replicas if own else 0) or 1
    if has_classes(question):  # which say what comes, and what it must get
        words = {name: value for name, value in words.items() if name not in (*CLASS_FLAGS, "clients", "ramp")}
    return replace(question, **words)


def _as_saved_use_case(question: SimulateQuestion, saved: SavedPlan) -> SimulateQuestion:
    """The question with the use case of the plan file and its router, where no flag says that something else comes."""
    traffic = saved.traffic
    other = has_classes(question) or question.trace or question.clients is not None
    if not traffic.use_case or other or question.arrivals != SimulateQuestion.arrivals:
        return question
    users = question.users
    rate = question.rate
    if users is None and not rate:
        users = traffic.users or None
        rate = "" if users else traffic.rate
    router = question.router
    if router == SimulateQuestion.router:
        router = traffic.router or router
    return replace(
        question,
        use_case=traffic.use_case,
        users=users,
        rate=rate,
        router=router,
        prompt=question.prompt or traffic.turn_prompt,
        output=question.output or traffic.turn_output,
        **{latency: getattr(question, latency) or getattr(saved.targets, latency) for latency in LATENCIES},
    )
