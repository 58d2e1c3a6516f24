"""What a plan file says of a simulation, under what the flags say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.app.foreign import foreign_plan, serving_file_of
from dragonscale.app.questions.flag import written
from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.physics.units import parse_length
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.plan_file import SavedPlan, is_plan_file, load_serving_plan, read_serving_plan

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
        found = serving_file_of(read_plan(name, Given(slice=written(question.on))))
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
    traffic, drafts, pool, launch = saved.traffic, saved.speculation, saved.prefill, saved.launch
    replicas = question.replicas if question.replicas is not None else saved.replicas or 1
    most = -(-saved.batch // saved.plan.data) if saved.batch else launch.max_seqs
    prompt = question.prompt or str(traffic.prompt or PROMPT)
    coming = question.rate or question.clients is not None or question.trace or question.arrivals == "at-once"
    words: dict[str, Any] = {
        "replicas": replicas,
        "prompt": prompt,
        "output": question.output or str(traffic.output or OUTPUT),
        "ttft": question.ttft or saved.targets.ttft,
        "tpot": question.tpot or saved.targets.tpot,
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
    words |= {"prefill_on": pool.slice, "prefill_plan": pool.plan} if own else {}
    words["prefill_replicas"] = question.prefill_replicas or (pool.replicas if own else 0) or 1
    return replace(question, **words)
