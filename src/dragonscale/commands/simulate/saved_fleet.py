"""What a plan file of `dscale serve --save` says of a fleet and its traffic, under what the flags say."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.commands.foreign import foreign_plan, script_plan, serving_file_of
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.fleet_flags import read_autoscale
from dragonscale.commands.simulate.traffic_flags import has_classes
from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse_length
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, is_plan_file, load_serving_plan, read_serving_plan
from dragonscale.serving.steady.targets import LATENCIES

# Endings of other software's scripts and configs, which no model has.
_SCRIPTS = (".sh", ".sbatch", ".yaml", ".yml")

# Mean tokens of a request where nothing says otherwise.
USUAL_PROMPT = 2048
USUAL_OUTPUT = 256


@dataclass(frozen=True)
class SavedFleet:
    """The model of a question, as it was named or as an object, and the plan of its flags or of a file."""

    model: Any
    plan: SavedPlan


def read_saved(question: SimulateQuestion) -> SavedFleet:
    """The model and the plan; a file of `dscale serve --save` may stand for the model, or for the plan."""
    model = question.model
    if isinstance(model, str):
        if model.endswith(".toml") and not Path(model).is_file():
            raise InputError(
                f"There is no file {shorten(model)}; a plan file is what `dscale serve … --save FILE` writes."
            )
        if model.endswith(_SCRIPTS):
            script = script_plan(model, question.on)
            return SavedFleet(script.model, script)
    foreign = foreign_plan(question.plan, model, question.on)
    if foreign is not None:
        return SavedFleet(model, serving_file_of(foreign))
    if not isinstance(model, str) or not is_plan_file(model):
        return SavedFleet(model, plan_of(question.plan))
    if question.plan:
        raise InputError(f"{shorten(model)} is a serving plan already; leave --plan out.")
    saved = load_serving_plan(model)
    if not saved.model:
        raise InputError(f'The plan file {shorten(model)} names no model; add model = "llama3-70b".')
    return SavedFleet(saved.model, saved)


def plan_of(text: str) -> SavedPlan:
    """A plan as it is written; without one, one that leaves all open."""
    return read_serving_plan(text) if text else SavedPlan(ServingPlan(), whole=False)


def filled(question: SimulateQuestion, saved: SavedPlan) -> SimulateQuestion:
    """The question with what its flags leave open as the plan file has it, or as it usually is.

    A replica takes no more sequences at once than the planned batch. Where the plan has no rate, as many clients as
    keep its batches full send requests: the steady state that was planned.
    """
    question = _as_saved_use_case(question, saved)
    launch = saved.launch
    max_seqs = launch.max_seqs
    if saved.batch:  # sequences of the whole replica, of which each data rank has its part
        max_seqs = -(-saved.batch // saved.plan.data)
    replicas = _replicas(question, saved)
    values: dict[str, Any] = {
        "replicas": replicas,
        "max_seqs": _given(question.max_seqs, max_seqs),
        "token_budget": _given(question.token_budget, launch.token_budget),
        "memory_fraction": _given(question.memory_fraction, launch.memory_fraction),
    }
    if has_classes(question):  # which say themselves what comes, and what it must get but for gaps between tokens
        values["itl"] = question.itl or saved.targets.itl
    else:
        values |= _filled_traffic(question, saved, replicas)
    drafts, pool = saved.speculation, saved.prefill
    if drafts.drafts and not (question.drafts or question.accept):
        values |= {"drafts": drafts.drafts, "accept": drafts.acceptance, "draft": drafts.draft}
    prefills = question.prefill_replicas
    if pool.slice and not question.prefill_on:
        values |= {"prefill_on": pool.slice, "prefill_plan": pool.plan}
        values["prefill_engine"] = question.prefill_engine or pool.engine
        prefills = prefills or pool.replicas
    values["prefill_replicas"] = prefills or 1
    return replace(question, **values)


def _given(flag: Any, saved: Any) -> Any:
    """What a flag says, or else the file."""
    return saved if flag is None else flag


def _replicas(question: SimulateQuestion, saved: SavedPlan) -> int:
    """Replicas at the beginning; an autoscaled fleet begins with its least."""
    if question.replicas is not None:
        return question.replicas
    if question.autoscale and not read_autoscale(question.autoscale).least:
        return 0
    return saved.replicas or 1


def _filled_traffic(question: SimulateQuestion, saved: SavedPlan, replicas: int) -> dict[str, Any]:
    """The traffic and its targets, by the names of flags."""
    traffic = saved.traffic
    prompt = question.prompt or str(traffic.prompt or USUAL_PROMPT)
    output = question.output or str(traffic.output or USUAL_OUTPUT)
    values: dict[str, Any] = {
        "prompt": prompt,
        "output": "1" if output.strip() == "0" else output,  # a request without output ends with its prompt
        "lengths": question.lengths or "varied",
        **_latencies(question, saved),
    }
    has_arrivals = question.rate or question.clients is not None or question.trace or question.arrivals == "at-once"
    if not has_arrivals:
        values["rate"] = traffic.rate
        if not traffic.rate and saved.batch * replicas:  # clients that keep the planned batches full
            values |= {"clients": saved.batch * replicas, "ramp": question.ramp or traffic.ramp}
    # one prefix that all prompts begin with, as the planner counts what is cached
    if traffic.cached and not (question.prefixes or question.trace):
        shared = round(parse_length(prompt, "--prompt")[0] * traffic.cached)
        values["prefixes"] = f"1x{shared}" if shared else ""
    return values


def _latencies(question: SimulateQuestion, saved: SavedPlan) -> dict[str, str]:
    """The targets as they are written."""
    return {name: getattr(question, name) or getattr(saved.targets, name) for name in LATENCIES}


def _as_saved_use_case(question: SimulateQuestion, saved: SavedPlan) -> SimulateQuestion:
    """The question with the use case of the plan file and its router, where no flag says that something else comes."""
    traffic = saved.traffic
    other_traffic = has_classes(question) or question.trace or question.clients is not None
    if not traffic.use_case or other_traffic or question.arrivals != SimulateQuestion.arrivals:
        return question
    users, rate = question.users, question.rate
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
        **_latencies(question, saved),
    )
