"""The flags of `dscale simulate` understood: a fleet, its traffic, and how the run is measured; what a plan file says
under them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale import simulation as sim
from dragonscale.commands.asked_chips import asked_chips, profile_notes
from dragonscale.commands.foreign import foreign_plan, script_plan, serving_file_of
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.formats import planned_formats
from dragonscale.commands.simulate.classes import OF_CLASSES, has_classes
from dragonscale.commands.simulate.fleet import AskedTraffic, read_autoscale, read_failures, read_pool, read_traffic
from dragonscale.commands.simulate.pools import (
    check_one_slice,
    placed,
    read_adapters,
    read_images,
    read_pools,
    with_tiers,
)
from dragonscale.commands.simulate.simulate_flags import PERCENTILE, check_flags
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
from dragonscale.serving.engine.legality import rules, server_of
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, is_plan_file, load_serving_plan, read_serving_plan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.iteration.deployment import Deployment, deploy, filling
from dragonscale.serving.space.legal import exchange_note, refusal, shortened_prompt, stored_note
from dragonscale.serving.steady.targets import LATENCIES, MEAN, LatencyTarget, read_targets
from dragonscale.simulation.deployed import pool_for

RECORDS = "dragonscale"
"""The engine whose server records traces (`dscale run serve --record`)."""


@dataclass(frozen=True)
class SimulateAsked:
    """The flags understood."""

    question: SimulateQuestion
    deployment: Deployment
    prefill: Deployment | None
    fleet: sim.Fleet
    traffic: AskedTraffic
    options: sim.SimulationOptions
    targets: dict[str, LatencyTarget]
    """By the name of the latency."""
    notes: tuple[str, ...] = ()
    original: SimulateQuestion | None = None
    """The question before a plan file filled it."""
    others: tuple[Deployment, ...] = ()
    """Of the pools beside the first."""

    @property
    def percentile(self) -> int:
        """The percentile at which latencies without a target are told."""
        return self.question.percentile or PERCENTILE

    @property
    def class_targets(self) -> list[dict[str, LatencyTarget]]:
        """Those of each class of traffic."""
        return [one.targets for one in self.traffic.classes]

    @property
    def has_targets(self) -> bool:
        return bool(self.targets) or any(self.class_targets)

    @property
    def deadline_s(self) -> float:
        """By when everything shall have ended; 0 where nobody says."""
        return parse(self.question.deadline, "s", "--deadline") if self.question.deadline else 0.0

    @property
    def pools(self) -> list[tuple[str, Deployment, sim.Pool]]:
        """Every pool by its name in the run's answer."""
        found = [("serve", self.deployment, self.fleet.pool)]
        if self.prefill is not None and self.fleet.prefill is not None:
            found.append(("prefill", self.prefill, self.fleet.prefill))
        rows = zip(self.others, self.fleet.others, strict=True)
        return found + [(f"serve {number}", *row) for number, row in enumerate(rows, 2)]

    def statistic(self, name: str) -> str:
        """What is told of a latency: what its target is for."""
        return self.targets[name].statistic if name in self.targets else f"p{self.percentile}"

    def reached(self, result: sim.SimulationResult, name: str) -> float:
        """That of a run."""
        return getattr(result.latency[name], self.statistic(name)).value


def read_question(question: SimulateQuestion, events: int = 0) -> SimulateAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    original = question
    plans = {name: written(getattr(question, name)) for name in ("plan", "prefill_plan")}
    substituted = substitution_notes(question.engine)
    engines = {name: spelt_engine(getattr(question, name)) for name in ("engine", "prefill_engine")}
    question = replace(question, **engines, **plans)
    name, saved = read_saved(question)
    name = with_assumed(name, question.assume, question.family)
    changes = (question.set, question.profile)
    prefill_on = asked_chips(question.prefill_on, *changes) if question.prefill_on else ""
    named_on = question.on or saved.slice
    check_one_slice(written(named_on))
    on = asked_chips(named_on, *changes)
    question = replace(question, on=question.on if on == named_on else on, prefill_on=prefill_on, set="", profile="")
    check_flags(question, bool(saved.prefill.slice))
    question = filled(question, saved)
    deployment = _deployment(name, question, saved)
    check_effect(changes[0], "serving", kind=deployment.chip.kind)
    _check_chips(deployment, str(deployment.piece))
    context = None if question.force else deployment.model.context or None
    question, shorter = _within_context(question, deployment.model.name, context)
    images, adapters = read_images(question.images), read_adapters(question.adapters)
    brought = sim.Brought(adapters.drawn if adapters is not None else None, images.many)
    traffic = read_traffic(question, context, brought, images.many * images.tokens)
    prefill = _prefill(question, deployment, saved.engine)
    forced = _refused(question, deployment, prefill, (traffic.prompt, traffic.output))
    pool = _equipped(question, read_pool(question, deployment, traffic.longest), deployment)
    pool, pools, others = _others(question, pool, traffic)
    own, recorded = traffic.room and deployment.engine.name == RECORDS, ()
    if own and original.memory_fraction is None:
        pool, recorded = _as_recorded(pool, traffic.room)
    failures, faults = read_failures(question.fail)
    fleet = sim.Fleet(
        pool,
        prefill and _prefill_pool(question, prefill, traffic.longest, pool),
        failures,
        overhead_s=0.0 if own else deployment.engine.host.front_s(traffic.prompt),  # a record's times lie behind it
        queue_limit=question.queue_limit or None,
        context=context,
        served_length=saved.served_length or None,
        faults=faults,
        others=tuple(pools),
    )
    traffic, settle = _settled(traffic, fleet, question)
    usual = f"p{question.percentile}" if question.percentile else MEAN
    goals = read_targets(question, usual).items()
    targets = {f"{latency}_s": target for latency, target in goals if not traffic.classes or latency == "itl"}
    limits: dict[str, Any] = {latency: target.seconds for latency, target in targets.items()}
    kinds = tuple({name: goal.seconds for name, goal in one.targets.items()} for one in traffic.classes)
    options = sim.SimulationOptions(
        classes=kinds,
        seed=question.seed,
        warmup=max(question.warmup, min(2 * settle, 1.5 * MOST_SETTLING)),
        cooldown=min(settle, MOST_SETTLING),
        events=events,
        **limits,
    )
    chosen = [*_chosen(question.engine or saved.engine, deployment), *_engine_notes(deployment, prefill)]
    places = (place for place in (question.on or saved.slice, question.prefill_on) if place and isinstance(place, str))
    read = filter(None, (*map(slice_note, places), *traffic.notes))
    paid = *_prices(question, deployment.chip)[1], *forced, *profile_notes([deployment.chip])
    kinds_of_replica = [deployment] if prefill is None else [deployment, prefill]
    stored = dict.fromkeys(stored_note(one.chip, one.plan) for one in kinds_of_replica)
    assumed = *shorter, *substituted, *filter(None, stored), *_served_length_note(saved, deployment)
    notes = *deployment.model.notes, *read, *assumed, *recorded, *chosen, *paid
    words = question, deployment, prefill, fleet, traffic, options, targets, notes, original, tuple(others)
    return SimulateAsked(*words)


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
    more = images.many * images.tokens + (output if output > 1 else 0)
    prompt = parse_length(question.prompt, "--prompt")[0]
    shorter, note = shortened_prompt(question.prompt, prompt, more, context, name)
    if not note:
        return question, []
    return replace(question, prompt=str(shorter)), [note]


def _others(
    question: SimulateQuestion, pool: sim.Pool, traffic: AskedTraffic
) -> tuple[sim.Pool, list[sim.Pool], list[Deployment]]:
    """The first pool with what is left to it, the pools beside it, and a replica of each."""
    tables = read_pools(question.pool)
    pools, others = list[sim.Pool](), list[Deployment]()
    for table in tables:
        own = table.over(question)
        plan = read_serving_plan(own.plan) if own.plan else SavedPlan(ServingPlan(), whole=False)
        made = _deployment(own.model, own, plan)
        _check_chips(made, table.on)
        _refused(own, made, None, (traffic.prompt, traffic.output))
        others.append(made)
        pools.append(_equipped(own, read_pool(own, made, traffic.longest), made))
    pool, pools = placed(pool, tables, pools, [one.name for one in traffic.classes])
    return pool, pools, others


def _equipped(question: SimulateQuestion, pool: sim.Pool, deployment: Deployment) -> sim.Pool:
    """A pool with what its replicas have beside a plan."""
    pool = read_images(question.images).on(with_tiers(pool, question.host_cache, deployment), deployment)
    adapters = read_adapters(question.adapters)
    return pool if adapters is None else adapters.on(pool, deployment)


BY_CACHE = ("prefix_affinity", "session_sticky", "cache_aware", "cache_scores")
"""Routers that look for what is cached, which is where prompts are prefilled."""


def _prefill_pool(question: SimulateQuestion, prefill: Deployment, longest: int, pool: sim.Pool) -> sim.Pool:
    """Replicas that prefill; prompts wait in them for the fewest tokens, or go where their beginning is cached."""
    rule = read_autoscale(question.prefill_autoscale, "--prefill-autoscale") if question.prefill_autoscale else None
    count = question.prefill_replicas or 1
    count = count if rule is None else min(max(count, rule.least), rule.most)
    router = pool.router if pool.router in BY_CACHE else "least_loaded"
    front = {"router": router, "share_prefixes": pool.share_prefixes, "autoscale": rule}
    return _equipped(question, pool_for(prefill, longest, count, **front), prefill)


def _as_recorded(pool: sim.Pool, room: int) -> tuple[sim.Pool, tuple[str, ...]]:
    """The pool with as much room as the server had that a trace was recorded of."""
    if room == pool.kv_tokens:
        return pool, ()
    note = (
        f"The trace was recorded with {room:,} tokens of KV cache in a replica, which are taken; the plan has "
        f"{pool.kv_tokens:,} (--memory-fraction takes those)."
    )
    return replace(pool, kv_tokens=room), (note,)


MOST_SETTLING = 0.2
"""Of the requests of a run, at most so many are the last that are not measured, and half as many again the first."""


def _settled(traffic: AskedTraffic, fleet: sim.Fleet, question: SimulateQuestion) -> tuple[AskedTraffic, float]:
    """The traffic, long enough to measure it, and the share of its requests that are in flight at a time: while a fleet
    fills and empties it is not one that has been up for long, so the first and the last of them are not measured.
    Clients begin one after another over the time of one request, so that requests are in every phase at any time."""
    source = traffic.source
    if isinstance(source, sim.Mixed):
        fixed = fleet.pool.autoscale is None or fleet.pool.autoscale.least > 0
        if not traffic.settle or not source.has_rate or not fixed:
            return traffic, min(traffic.settle, MOST_SETTLING)
        # Sessions are under way when the run begins, so that only batches have to fill.
        under_way, latency = _in_flight(traffic, fleet, 0)
        return replace(traffic, source=replace(source, call_s=latency)), under_way / max(source.requests, 1)
    steady = isinstance(source, sim.OpenLoop | sim.ClosedLoop)
    if not steady or question.ramp or question.arrivals == "at-once":
        return traffic, 0.0
    under_way, latency = _in_flight(traffic, fleet, question.clients or 0)
    if question.requests == SimulateQuestion.requests:
        source = replace(source, requests=max(source.requests, round(under_way / MOST_SETTLING)))
    if isinstance(source, sim.ClosedLoop):
        source = replace(source, ramp_s=latency)
    return replace(traffic, source=source), under_way / max(source.requests, 1)


def _in_flight(traffic: AskedTraffic, fleet: sim.Fleet, clients: int) -> tuple[int, float]:
    """About how many requests there are at a time, and the seconds of one; of a rate, as many as come meanwhile."""
    pool, replicas = fleet.pool, max(fleet.pool.replicas, 1)
    first = fleet.prefill or pool
    new = max(round(traffic.prompt * (1 - traffic.repeated)), 1)
    together = min(max(first.scheduler.tokens // new, 1), first.scheduler.sequences)
    prompt = first.times.step(0, 0.0, [(new, traffic.prompt - new)] * together) / together  # of the replica's time
    rate = (traffic.rate or 0.0) / replicas
    busy = 0.0 if fleet.prefill or clients else min(rate * prompt, 0.9)  # with prompts, between the tokens of others
    each, latency = max(round(clients / replicas), 1), 0.0
    for _ in range(1 if clients else 8):
        step = pool.times.step(each, each * (traffic.prompt + traffic.output / 2))
        latency = fleet.overhead_s + traffic.output * step / (1 - busy) + (each if clients else 1) * prompt
        each = each if clients else min(max(round(rate * latency), 1), pool.scheduler.sequences)
    return clients or each * replicas, latency


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


def prefill_engine(asked: str, saved: str, deployment: Deployment, chip: Chip, plan: ServingPlan) -> str:
    """The engine of replicas that prefill, where nobody names one: the one that was `asked` for, or else the form of
    the engine of the replicas that decode (`saved` is what a plan file says of these) which fits the plan.

    Replicas of one server hand caches to each other whatever its flags, so that those that prefill may exchange tokens
    by an all-to-all (`sglang-ep`) and those that decode may not (`sglang`), or the other way round.
    """
    decoding = deployment.engine.name
    if asked and split_settings(asked)[0] != AUTO:
        return asked
    if chip.name != deployment.chip.name:
        return asked or AUTO
    if not saved:
        usual = auto_choice(chip, deployment.model, plan.chips, plan).engine
        if server_of(usual) == server_of(decoding):
            return asked.replace(AUTO, usual, 1) if asked else usual
    if rules(decoding).wide and not plan.is_wide:
        return server_of(decoding)
    return asked or saved or decoding


# What a plan file says of a simulation, under what the flags say.


_SCRIPTS = (".sh", ".sbatch", ".yaml", ".yml")
"""Endings of other software's scripts and configs, which no model has."""
PROMPT, OUTPUT = 2048, 256
"""Tokens of a request where nothing says otherwise."""


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
    prompt = question.prompt or str(traffic.prompt or PROMPT)
    output = question.output or str(traffic.output or OUTPUT)
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
        words = {name: value for name, value in words.items() if name not in (*OF_CLASSES, "clients", "ramp")}
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
