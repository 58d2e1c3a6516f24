"""The flags of `dscale simulate` understood: a fleet, its traffic, and how the run is measured."""

import math
from dataclasses import dataclass, replace
from typing import Any

from dragonscale import simulation as sim
from dragonscale.app.asked_chips import asked_chips, profile_notes
from dragonscale.app.questions.flag import written
from dragonscale.app.questions.serve import ServeQuestion
from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.app.serve.formats import planned_formats
from dragonscale.app.simulate.checks import check_flags
from dragonscale.app.simulate.fleet import read_failure, read_pool
from dragonscale.app.simulate.saved import filled, read_saved
from dragonscale.app.simulate.traffic import AskedTraffic, read_traffic
from dragonscale.errors import Infeasible, InputError
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware import Chip, Slice, parse_slice
from dragonscale.physics.hardware.prices import read_prices, slice_at_price
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.units import parse
from dragonscale.serving.auto import AUTO, auto_choice
from dragonscale.serving.deployment import Deployment, deploy, filling
from dragonscale.serving.engine import spelt_engine, split_settings
from dragonscale.serving.launch import LaunchLimits, engine_on
from dragonscale.serving.legal import refusal
from dragonscale.serving.legality import rules, server_of
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.plan_file import SavedPlan, read_serving_plan
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
    notes: tuple[str, ...] = ()
    original: SimulateQuestion | None = None
    """The question before a plan file filled it."""

    @property
    def targets(self) -> dict[str, float]:
        """Seconds by the latency that they are a target for."""
        found = {"ttft_s": self.options.ttft_s, "tpot_s": self.options.tpot_s}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @property
    def percentile(self) -> int:
        """The percentile of latencies that targets are for."""
        return self.question.percentile


def read_question(question: SimulateQuestion, events: int = 0) -> SimulateAsked:
    """Check every flag; what cannot be used is refused in one sentence."""
    original = question
    plans = {name: written(getattr(question, name)) for name in ("plan", "prefill_plan")}
    question = replace(question, engine=spelt_engine(question.engine), **plans)
    name, saved = read_saved(question)
    name = with_assumed(name, question.assume, question.family)
    changes = (question.set, question.profile)
    prefill_on = asked_chips(question.prefill_on, *changes) if question.prefill_on else ""
    named_on = question.on or saved.slice
    on = asked_chips(named_on, *changes)
    question = replace(question, on=question.on if on == named_on else on, prefill_on=prefill_on, set="", profile="")
    check_flags(question, bool(saved.prefill.slice))
    question = filled(question, saved)
    deployment = _deployment(name, question, saved)
    _check_chips(deployment, str(deployment.piece))
    context = None if question.force else deployment.model.context or None
    traffic = read_traffic(question, context)
    prefill = _prefill(question, deployment)
    forced = _refused(question, deployment, prefill, traffic.prompt + traffic.output)
    pool = read_pool(question, deployment, traffic.longest)
    recorded = ()
    if traffic.room and deployment.engine.name == RECORDS and original.memory_fraction is None:
        pool, recorded = _as_recorded(pool, traffic.room)
    fleet = sim.Fleet(
        pool,
        prefill and pool_for(prefill, traffic.longest, question.prefill_replicas or 1, router="least_loaded"),
        tuple(read_failure(part) for part in question.fail.split(",") if part.strip()),
        overhead_s=deployment.engine.host.front_s(traffic.prompt),
        queue_limit=question.queue_limit or None,
        context=context,
    )
    settle = 0.0
    if isinstance(traffic.source, sim.ClosedLoop) and not question.ramp:
        traffic = replace(traffic, source=_spread(traffic, traffic.source, fleet))
        settle = (question.clients or 1) / max(traffic.source.requests, 1)
    options = sim.SimulationOptions(
        seed=question.seed,
        warmup=max(question.warmup, min(2 * settle, 0.3)),
        cooldown=min(settle, 0.2),
        ttft_s=parse(question.ttft, "s", "--ttft") if question.ttft else math.inf,
        tpot_s=parse(question.tpot, "s", "--tpot") if question.tpot else math.inf,
        events=events,
    )
    chosen = _chosen(question.engine or saved.engine, deployment)
    places = (written(question.on or saved.slice), written(question.prefill_on))
    read = (*map(slice_note, filter(None, places)), *traffic.notes)
    prices = _prices(question, deployment.chip)[1]
    notes = (
        *deployment.model.notes,
        *(text for text in read if text),
        *recorded,
        *chosen,
        *prices,
        *forced,
        *profile_notes([deployment.chip]),
    )
    return SimulateAsked(question, deployment, prefill, fleet, traffic, options, notes, original)


def _as_recorded(pool: sim.Pool, room: int) -> tuple[sim.Pool, tuple[str, ...]]:
    """The pool with as much room as the server had that a trace was recorded of."""
    if room == pool.kv_tokens:
        return pool, ()
    note = (
        f"The trace was recorded with {room:,} tokens of KV cache in a replica, which are taken; the plan has "
        f"{pool.kv_tokens:,} "
        "(--memory-fraction takes those)."
    )
    return replace(pool, kv_tokens=room), (note,)


def _spread(traffic: AskedTraffic, clients: sim.ClosedLoop, fleet: sim.Fleet) -> sim.ClosedLoop:
    """Clients that begin one after another over the time of one request, so that requests are in every phase at any
    time, as they are on a server that has been up for long. The first and last of them, while it fills and empties, are
    not measured."""
    each = max(round(clients.clients / max(fleet.pool.replicas, 1)), 1)
    step = fleet.pool.times.step(each, each * (traffic.prompt + traffic.output / 2))
    prompts = (fleet.prefill or fleet.pool).times.step(0, 0.0, [(traffic.prompt, 0)])
    return replace(clients, ramp_s=fleet.overhead_s + traffic.output * step + each * prompts)


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


def _refused(question: SimulateQuestion, deployment: Deployment, prefill: Deployment | None, tokens: int) -> list[str]:
    """What no engine runs is refused; forced, it is noted."""
    pools = [one for one in (deployment, prefill) if one is not None]
    found = [refusal(one.engine.name, one.piece, one.model, one.plan, tokens) for one in pools]
    names = [server_of(one.engine.name) for one in pools]
    if prefill is not None and names[0] != names[1]:
        found.append(
            f"prefill replicas run {names[1]} and decode replicas {names[0]}, and a cache passes between replicas "
            "of one engine; "
            f"take a chip for prefill that {names[0]} runs on"
        )
    if prefill is not None and prefill.plan.kv != deployment.plan.kv:
        found.append(
            f"prefill replicas write a KV cache in {prefill.plan.kv} and decode replicas read one in "
            f"{deployment.plan.kv}; "
            f"give both kv={deployment.plan.kv}"
        )
    found = [text for text in dict.fromkeys(found) if text]
    if found and not question.force:
        raise Infeasible(f"Not possible: {found[0]}, or add --force.")
    return [f"Forced: {text}." for text in found]


def _prices(question: SimulateQuestion, chip: Chip) -> tuple[dict[str, float], list[str]]:
    """What `--price` says of the chips of both pools, and notes on it."""
    chips = [chip, *([_slice(question.prefill_on).chip] if question.prefill_on else [])]
    return read_prices(question.price, chips)


def _check_chips(deployment: Deployment, where: str) -> None:
    if deployment.plan.chips != deployment.piece.chips:
        raise InputError(
            f"The plan {deployment.plan} uses {deployment.plan.chips} chips, and one replica is {where}, which has "
            f"{deployment.piece.chips}; make them the same and ask for more --replicas."
        )


def _prefill(question: SimulateQuestion, deployment: Deployment) -> Deployment | None:
    if not question.prefill_on:
        if question.prefill_plan:
            raise InputError("--prefill-plan needs --prefill-on, the slice of one prefill replica.")
        return None
    saved = read_serving_plan(question.prefill_plan) if question.prefill_plan else SavedPlan(ServingPlan(), whole=False)
    # What a prefill plan does not say of formats is as in the decode pool.
    words = [name for name in ("weights", "kv", "compute", "attention", "wire") if name not in saved.named]
    plan = replace(saved.plan, **{name: getattr(deployment.plan, name) for name in words})
    where = slice_at_price(_slice(question.prefill_on), _prices(question, deployment.chip)[0])
    plan = plan if saved.whole else filling(plan, where)
    engine = deployment.engine
    if where.chip.name != deployment.chip.name:
        engine = engine_on(question.engine or AUTO, where.chip, deployment.model, chips=where.chips, plan=plan)
    elif (
        not question.engine and rules(engine.name).wide and not plan.is_wide
    ):  # the same server, launched in its plain form
        engine = engine_on(server_of(engine.name), where.chip, deployment.model)
    found = deploy(deployment.model, where, plan, engine)
    _check_chips(found, written(question.prefill_on))
    return found
