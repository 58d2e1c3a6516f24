"""What an answer recommends, with everything it was worked out for: as a plan file, and as the question that
`dscale simulate` answers about it."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from dragonscale.commands.given import slice_of, unnamed
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.config import deployment_of
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.commands.simulate.ask_simulate import command_of
from dragonscale.physics.hardware import Slice
from dragonscale.serving.engine import plan_file
from dragonscale.serving.engine.auto import auto_choice
from dragonscale.serving.engine.checkpoint import plan_text
from dragonscale.serving.engine.engine import split_settings
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.space.prefill_engine import prefill_engine
from dragonscale.serving.steady.targets import LATENCIES


def recommended(asked: ServeAsked, report: ServeReport) -> plan_file.SavedPlan:
    """What a report recommends."""
    return saved_plan(asked, report.configs[0])


def saved_plan(asked: ServeAsked, best: ConfigReport) -> plan_file.SavedPlan:
    """A configuration as a plan file."""
    pool = best.prefill
    question, limits, rate = asked.question, asked.limits, asked.question.rate.strip()
    if pool is not None:  # which are sized for a rate, and their TTFT is that of random arrivals
        rate = rate or f"{best.requests_per_s:.4g}/s"
    replicas = best.copies if best.replicas is None else best.replicas
    prefill = plan_file.SavedPrefill()
    if pool is not None:
        replicas = best.decodes
        prefill = plan_file.SavedPrefill(
            asked.written_slice(pool.slice),
            plan_text(parse_serving_plan(pool.plan), asked.model),
            pool.replicas,
            pool.engine if pool.engine != best.engine else "",
        )
    return plan_file.SavedPlan(
        parse_serving_plan(best.plan),
        written(question.model),
        asked.written_slice(best.copy_slice),
        best.engine,
        best.places or best.batch,
        replicas=replicas,
        traffic=_traffic(asked, rate, several=replicas > 1 or prefill.replicas > 1),
        targets=plan_file.SavedTargets(**{name: getattr(question, name).strip() for name in LATENCIES}),
        launch=plan_file.SavedLaunch(limits.max_seqs, limits.token_budget, limits.memory_fraction),
        speculation=_drafts(asked, best),
        prefill=prefill,
    )


def _traffic(asked: ServeAsked, rate: str, several: bool) -> plan_file.SavedTraffic:
    """What comes, with the use case whose means it is; a router only where there are `several` replicas."""
    traffic = plan_file.SavedTraffic(
        prompt=asked.ask.prompt,
        output=asked.ask.output,
        cached=asked.ask.cached,
        rate=rate,
        longest=asked.longest_request,
    )
    case = asked.case
    if not case:
        return traffic
    return structs.replace(
        traffic,
        use_case=case["use_case"],
        users=case["users"] or 0,
        turn_prompt=case["prompt"],
        turn_output=case["output"],
        router=asked.router if several else "",
    )


def _drafts(asked: ServeAsked, best: ConfigReport) -> plan_file.SavedDrafts:
    if asked.draft is None or not best.drafts:
        return plan_file.SavedDrafts()
    chances = asked.draft.acceptance
    by_position = chances if isinstance(chances, tuple) else (chances,)
    text = ",".join(f"{chance:g}" for chance in by_position)
    return plan_file.SavedDrafts(best.drafts, text, written(asked.question.draft))


# Flags that both commands have, and that a plan does not say.
SHARED_FLAGS = ("token_budget", "memory_fraction", "price", "pricing", "owned", "family", "force", "set", "assume")


def simulate_question(asked: ServeAsked, best: ConfigReport) -> SimulateQuestion:
    """Replicas of a configuration under their traffic: at the rate that was asked for, or with as many clients as keep
    their batches full."""
    saved, chip = saved_plan(asked, best), piece_of(asked, best.copy_slice).chip
    is_usual = asked.is_auto and auto_choice(chip, asked.model, saved.plan.chips, saved.plan).engine == saved.engine
    engine = "" if is_usual else saved.engine
    rate = saved.traffic.rate
    shared = round(saved.traffic.prompt * saved.traffic.cached)
    flags: dict[str, Any] = {
        "replicas": saved.replicas if saved.replicas > 1 else None,
        "rate": rate,
        "clients": None if rate else saved.batch * saved.replicas,
        "prompt": str(saved.traffic.prompt),
        "output": str(saved.traffic.output) if saved.traffic.output > 1 else "0",
        "prefixes": f"1x{shared}" if shared else "",  # one prefix that all prompts begin with, as serve counts it
        **{name: getattr(saved.targets, name) for name in LATENCIES},
        "plan": plan_text(saved.plan, asked.model),
        "engine": engine,
        "max_seqs": -(-saved.batch // saved.plan.data),
        "drafts": saved.speculation.drafts,
        "accept": saved.speculation.acceptance,
        "draft": saved.speculation.draft,
        **{name: getattr(asked.question, name) for name in SHARED_FLAGS},
    }
    if asked.case:
        flags |= {**asked.case, "clients": None}
    if saved.prefill.slice:
        flags |= {"prefill_on": saved.prefill.slice, "prefill_plan": saved.prefill.plan}
        flags["prefill_engine"] = _prefill_engine(asked, best, engine)
        flags["prefill_replicas"] = saved.prefill.replicas if saved.prefill.replicas > 1 else None
    return SimulateQuestion(saved.model, on=saved.slice, **flags)


def _prefill_engine(asked: ServeAsked, best: ConfigReport, engine: str) -> str:
    """The flag for the engine of the replicas that prefill: empty where a run takes it by itself beside `engine`, the
    flag for that of the replicas that decode."""
    assert best.prefill is not None
    decode, prefill = deployment_of(asked, best), deployment_of(asked, best, "prefill")
    usual = prefill_engine(engine, "", decode, prefill.chip, prefill.plan)
    return "" if split_settings(usual)[0] == prefill.engine.name else best.prefill.engine


def next_command(asked: ServeAsked, report: ServeReport) -> str:
    """What runs the recommended replicas under their traffic; none where nothing is recommended or names cannot say
    it."""
    question = asked.question
    if not report.configs or not report.configs[0].meets_slo or unnamed(question.model, question.on, question.draft):
        return ""
    best = report.configs[0]
    next_question = simulate_question(asked, best)
    if asked.launched and best.prefill is None:  # as it is launched, whatever the best load is
        launched = asked.engine_on(piece_of(asked, best.copy_slice).chip, best.engine, best.chips)
        next_question = replace(next_question, max_seqs=launched.scheduling.max_sequences)
    if not (next_question.replicas or next_question.prefill_replicas):  # a single replica gets everything
        next_question = replace(next_question, router=SimulateQuestion.router)
    if not next_question.rate and not asked.case:
        for max_rate in report.max_rates:  # the rate that was found by running it
            if (max_rate.slice, max_rate.plan) == (best.copy_slice, best.plan) and max_rate.requests_per_s:
                rate = f"{max_rate.requests_per_s:.4g}/s"
                next_question = replace(next_question, replicas=None, clients=None, rate=rate)
                break
    return command_of(next_question)


def piece_of(asked: ServeAsked, name: str) -> Slice:
    """The slice of a replica, of the very chips that were asked about."""
    return slice_of(name, (chip for chip, _ in asked.targets))
