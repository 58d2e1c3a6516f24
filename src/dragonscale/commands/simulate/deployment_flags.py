"""What runs on the replicas of `dscale simulate`, as its flags say: slices, plans and engines, what no engine runs, and
notes on how they were chosen."""

from dataclasses import replace
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.formats import planned_formats
from dragonscale.commands.simulate.saved_fleet import plan_of
from dragonscale.errors import Infeasible, InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import Chip, Slice, parse_slice
from dragonscale.physics.hardware.price_book import Tariff
from dragonscale.physics.hardware.prices import read_tariff, slice_at_price
from dragonscale.serving.engine.auto import AUTO, auto_choice
from dragonscale.serving.engine.engine import split_settings
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import server_of
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.iteration.deployment import Deployment, deploy, filling
from dragonscale.serving.space.legal import exchange_note, refusal
from dragonscale.serving.space.prefill_engine import prefill_engine

# Formats that a prefill plan has from the plan of the replicas that decode, unless it says others.
_FORMATS = ("weights", "kv", "compute", "attention", "wire")


def read_deployment(model_name: Any, question: SimulateQuestion, saved: SavedPlan) -> Deployment:
    """What runs on one replica."""
    named = question.on or saved.slice
    if not named:
        raise InputError("Say where a replica runs: --on h100:8, or a plan file that names its slice.")
    # what a chip costs depends on which chip it is
    unpriced = _slice(named)
    replica_slice = slice_at_price(unpriced, read_prices(question, unpriced.chip)[0])
    chip, chips = replica_slice.chip, replica_slice.chips
    model = load_model(model_name)
    plan = saved.plan if saved.whole else filling(saved.plan, replica_slice)
    limits = LaunchLimits(question.max_seqs, question.token_budget, question.memory_fraction)
    engine = engine_on(question.engine or saved.engine or AUTO, chip, model, limits, chips, plan)
    # formats that the plan leaves open are those that the engine takes there
    formats = planned_formats(saved, ServeQuestion(model_name), engine.name, chip, model)
    return deploy(model, replica_slice, replace(plan, **formats), engine)


def read_prefill(question: SimulateQuestion, decoding: Deployment, saved_engine: str) -> Deployment | None:
    """What runs on the replicas that prefill, where there are some."""
    if not question.prefill_on:
        for name in ("plan", "engine"):
            if getattr(question, f"prefill_{name}"):
                raise InputError(f"--prefill-{name} needs --prefill-on, the slice of one prefill replica.")
        return None
    saved = plan_of(question.prefill_plan)
    formats = {name: getattr(decoding.plan, name) for name in _FORMATS if name not in saved.named}
    plan = replace(saved.plan, **formats)
    replica_slice = slice_at_price(_slice(question.prefill_on), read_prices(question, decoding.chip)[0])
    chip, chips = replica_slice.chip, replica_slice.chips
    if not saved.whole:
        plan = filling(plan, replica_slice)
    name = question.prefill_engine or prefill_engine(question.engine, saved_engine, decoding, chip, plan)
    # the sequences of --max-seqs are those that decode
    limits = LaunchLimits(None, question.token_budget, question.memory_fraction)
    engine = engine_on(name, chip, decoding.model, limits, chips, plan)
    prefill = deploy(decoding.model, replica_slice, plan, engine)
    check_chips(prefill, written(question.prefill_on))
    return prefill


def _slice(named: Any) -> Slice:
    """A slice, as an object or as it is written."""
    return named if isinstance(named, Slice) else parse_slice(written(named))


def read_prices(question: SimulateQuestion, chip: Chip) -> tuple[Tariff, list[str]]:
    """How the chips of both pools are paid for, and notes on it."""
    chips = [chip]
    if question.prefill_on:
        chips.append(_slice(question.prefill_on).chip)
    return read_tariff(question.price, chips, question.pricing, question.owned)


def check_chips(deployment: Deployment, named: str) -> None:
    """Refuse a plan for more or fewer chips than its slice has."""
    if deployment.plan.chips != deployment.piece.chips:
        raise InputError(
            f"The plan {deployment.plan} uses {deployment.plan.chips} chips, and one replica is {named}, which has "
            f"{deployment.piece.chips}; make them the same and ask for more --replicas."
        )


def check_runs(
    question: SimulateQuestion, deployment: Deployment, prefill: Deployment | None, lengths: tuple[int, int]
) -> list[str]:
    """Refuse what no engine runs for requests of such mean prompts and outputs; forced, it is noted."""
    roles = {BOTH: deployment} if prefill is None else {DECODE: deployment, PREFILL: prefill}
    reasons = [
        refusal(replica.engine.name, replica.piece, replica.model, replica.plan, lengths, role)
        for role, replica in roles.items()
    ]
    if prefill is not None:
        reasons += _mismatches(deployment, prefill)
    reasons = list(filter(None, dict.fromkeys(reasons)))
    if reasons and not question.force:
        raise Infeasible(f"Not possible: {reasons[0]}, or add --force.")
    return [f"Forced: {reason}." for reason in reasons]


def _mismatches(decoding: Deployment, prefill: Deployment) -> list[str]:
    """Why a cache cannot pass from the replicas that prefill to those that decode."""
    reasons: list[str] = []
    prefill_server, decode_server = server_of(prefill.engine.name), server_of(decoding.engine.name)
    if prefill_server != decode_server:
        reasons.append(
            f"prefill replicas run {prefill_server} and decode replicas {decode_server}, and a cache passes between "
            f"replicas of one engine; take a chip for prefill that {decode_server} runs on"
        )
    if prefill.plan.kv != decoding.plan.kv:
        reasons.append(
            f"prefill replicas write a KV cache in {prefill.plan.kv} and decode replicas read one in "
            f"{decoding.plan.kv}; give both kv={decoding.plan.kv}"
        )
    return reasons


def engine_choice_note(engine: str, deployment: Deployment) -> list[str]:
    """Which engine was taken and why, where nobody named one."""
    if engine and split_settings(engine)[0] != AUTO:
        return []
    choice = auto_choice(deployment.chip, deployment.model, deployment.piece.chips, deployment.plan)
    return [f"The engine is {choice.engine}: {choice.why}."]


def engine_notes(deployment: Deployment, prefill: Deployment | None) -> list[str]:
    """That wide expert parallelism is run with another form of the engine, and that replicas which prefill run another
    than those which decode."""
    replicas = [deployment] if prefill is None else [deployment, prefill]
    notes = [exchange_note(replica.engine.name, replica.chip, replica.plan) for replica in replicas]
    if prefill is not None and prefill.engine.name != deployment.engine.name:
        notes.append(f"Prefill replicas run {prefill.engine.name}, decode replicas {deployment.engine.name}.")
    return list(filter(None, dict.fromkeys(notes)))


def served_length_note(saved: SavedPlan, deployment: Deployment) -> list[str]:
    """That the engine refuses requests beyond the limit of its launch line."""
    if not saved.served_length:
        return []
    flag = deployment.engine.length_flag or "its limit"
    return [
        f"The launch takes requests of at most {saved.served_length:,} tokens, prompt and output together ({flag}); "
        "the engine refuses longer ones."
    ]
