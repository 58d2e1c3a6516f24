"""A serving plan judged as the target's engine runs it."""

import math
import re
from dataclasses import replace
from typing import Any

import msgspec

from dragonscale.commands.export.plans import GivenPlan
from dragonscale.commands.export.training import JudgedPlan, command
from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_question import ServeAsked, read_question, said_by
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.errors import Infeasible
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.target import Target
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import parse_count, render
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.legality import rules, server_of
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, SavedPrefill, SavedTraffic, read_serving_plan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.space.legal import refusal, shortened_prompt


def judged_serving(question: ExportQuestion, given: GivenPlan, target: Target, as_run: Any) -> JudgedPlan:
    """The plan judged under the target's engine; `as_run` is the plan that the target runs instead of the one given."""
    assert isinstance(given.file, SavedPlan)
    file = _with_flags(given.file, question)
    engine = engine_for(target, question.engine.strip() or file.engine, file.plan)
    pool = file.prefill if file.prefill.slice else None
    role = "decode" if pool else ""
    asked, best = _judged(question, file, engine, DECODE if pool else BOTH)
    expected, numbers = [expectation(best, role), *overload(best, file, asked.ask.rate)], _numbers(best)
    if as_run is not None and as_run != file.plan:
        _, other = _judged(question, replace(file, plan=as_run), engine, DECODE if pool else BOTH)
        expected += _instead(best, other)
        numbers = {**_numbers(other), "planned_s": best.tpot_s}
    prefill = None
    if pool is not None:
        named = question.engine.strip() or pool.engine or file.engine
        prefill, ttft = _pool(question, file, engine_for(target, named, read_serving_plan(pool.plan).plan))
        expected += prefill.expected
        numbers["ttft_s"] = ttft
    run = _run(question, asked, file, best, engine, role, expected, prefill)
    return JudgedPlan(run, numbers)


def _pool(question: ExportQuestion, file: SavedPlan, engine: str) -> tuple[ServingRun, float]:
    """The replicas that prefill, as a run of their own."""
    pool = file.prefill
    plan = read_serving_plan(pool.plan)
    own = replace(
        plan,
        model=file.model,
        slice=pool.slice,
        engine=engine,
        batch=plan.plan.data,
        replicas=pool.replicas,
        launch=file.launch,
        traffic=SavedTraffic(file.traffic.prompt, 1, file.traffic.cached, longest=file.traffic.longest),
        prefill=SavedPrefill(),
    )
    asked, best = _judged(question, own, engine, PREFILL)
    run = _run(question, asked, own, best, engine, "prefill", [expectation(best, "prefill")], None)
    return run, best.ttft_s


def _run(
    question: ExportQuestion,
    asked: ServeAsked,
    file: SavedPlan,
    best: ConfigReport,
    engine: str,
    role: str,
    expected: list[str],
    prefill: ServingRun | None,
) -> ServingRun:
    assert asked.plan is not None
    piece = parse_slice(best.copy_slice) if asked.targets[0][1] is None else asked.targets[0][1]
    limits = LaunchLimits(file.launch.max_seqs, file.launch.token_budget, file.launch.memory_fraction)
    launched = engine_on(engine, piece.chip, asked.model, limits, piece.chips, asked.plan)
    traffic = file.traffic
    if not traffic.prompt:
        traffic = SavedTraffic(asked.ask.prompt, asked.ask.output, traffic.cached, traffic.rate, traffic.ramp)
    file = replace(
        file,
        plan=asked.plan,
        model=written(asked.question.model),
        slice=best.copy_slice,
        engine=engine,
        batch=file.batch or best.batch,
        traffic=traffic,
    )
    return ServingRun(
        file,
        asked.model,
        model_fields(asked.question.model),
        piece,
        launched,
        tuple(expected),
        command(question),
        prefill,
        role,
    )


def _judged(question: ExportQuestion, file: SavedPlan, engine: str, role: str) -> tuple[ServeAsked, ConfigReport]:
    asked = read_question(_question(question, file, engine))
    asked = replace(asked, ask=asked.pool_job().ask) if role == DECODE else asked
    assert asked.plan is not None
    chip, piece = asked.targets[0]
    lengths, name = (asked.ask.prompt, asked.ask.output), engine.partition(",")[0]
    if not question.force and (why := refusal(name, piece or chip, asked.model, asked.plan, lengths, role)):
        raise Infeasible(re.sub(r"--engine (?=\w)", "--to ", f"{name} cannot run {asked.plan}: {why}."))
    report = answer(asked, Listener().step)
    if not report.configs:
        raise _refused(report, file)
    return asked, report.configs[0]


def overload(best: ConfigReport, file: SavedPlan, rate: float | None) -> list[str]:
    """That more requests come than the replicas serve: then they queue without end."""
    replicas = file.replicas or 1
    if rate is None or file.prefill.slice or rate <= best.requests_per_s * replicas:
        return []
    needed = math.ceil(rate / best.requests_per_s)
    served = (
        f"{replicas} replica{'s' if replicas > 1 else ''} of it serve{'' if replicas > 1 else 's'} "
        f"{best.requests_per_s * replicas:.3g}/s"
    )
    return [f"{rate:g} requests/s come and {served}: the queue grows without end; {needed} replicas hold."]


def _instead(best: ConfigReport, other: ConfigReport) -> list[str]:
    """What differs in time and memory, where the engine runs another plan; nothing where nothing does."""
    change = other.tpot_s / best.tpot_s - 1 if best.tpot_s else 0.0
    if abs(change) < 5e-4 and abs(other.hbm_bytes - best.hbm_bytes) < 1e8:
        return []
    return [
        f"as it runs here, TPOT {render(other.tpot_s, 's')} ({change:+.1%}), {render(other.hbm_bytes, 'bytes')} of HBM."
    ]


def _refused(report: ServeReport, file: SavedPlan) -> Infeasible:
    said = f"The plan {file.plan} cannot be served: {' '.join(report.notes)} {report.advice}".strip()
    return Infeasible(re.sub(r"--engine (?=\w)", "--to ", said))


def _question(question: ExportQuestion, file: SavedPlan, engine: str) -> ServeQuestion:
    values = {
        name: getattr(file.plan, name)
        for name in ServingPlan.__dataclass_fields__
        if not file.named or name in file.named or name == "tensor"
    }
    if not file.whole:
        values.pop("tensor", None)
    text = ",".join(f"{name}={value}" for name, value in values.items() if value != "")
    return ServeQuestion(
        model=file.model,
        on=file.slice,
        plan=text or f"tensor={file.plan.tensor}",
        engine=engine,
        price=question.price,
        force=question.force,
        batch=str(file.batch or ""),
        **said_by(file),
    )


def _with_flags(file: SavedPlan, question: ExportQuestion) -> SavedPlan:
    """A serving plan's file with what the flags say."""
    words = {"model": written(question.model), "slice": written(question.on)}
    traffic: dict[str, Any] = {
        name: length.tokens(Listener())
        for name, length in (("prompt", question.prompt), ("output", question.output))
        if length.strip()
    }
    named = words["model"] or file.model
    if "prompt" in traffic and named and not question.force:
        model, output = load_model(named), traffic.get("output", file.traffic.output)
        prompt = shortened_prompt(str(question.prompt), traffic["prompt"], output, model.context, model.name)
        traffic["prompt"] = prompt[0]
    if traffic:  # other requests than those of the file's use case
        used = ("longest", "use_case", "users", "turn_prompt", "turn_output", "router")
        traffic |= {name: getattr(SavedTraffic(), name) for name in used}
    said = msgspec.structs.replace(file.traffic, **traffic, rate=question.rate.strip() or file.traffic.rate)
    batch = parse_count(question.batch.removesuffix("seq"), "the batch") if question.batch.strip() else file.batch
    kept = {name: value for name, value in words.items() if value}
    return replace(file, traffic=said, batch=batch, **kept)


def engine_for(target: Target, named: str, plan: ServingPlan) -> str:
    """The engine that judges: the plan's own where the target runs it, the target's otherwise. That of wide expert
    parallelism is one for plans that go beyond a server, as `--engine auto` has it, or that were made for such an
    engine."""
    first = named.partition(",")[0].strip()
    if first in target.runs:
        plain = server_of(first)
        if rules(first).wide and not plan.is_wide and plain in target.runs:
            return plain + named.strip().removeprefix(first)
        return named
    wide = next((one for one in target.runs if one.endswith("-ep")), "")
    spread = plan.chips > NODE or first.endswith("-ep")
    return wide if wide and plan.is_wide and spread else target.runs[0]


def expectation(best: ConfigReport, role: str) -> str:
    """What is expected, with its band."""
    if role == "prefill":
        return f"prefill pool: TTFT {_band(best.ttft_s, best.ttft_low_s, best.ttft_high_s)} without the hand-over."
    first = "" if role else f"TTFT {_band(best.ttft_s, best.ttft_low_s, best.ttft_high_s)}, "
    pool = "decode pool: " if role else ""
    return (
        f"{pool}{first}TPOT {_band(best.tpot_s, best.tpot_low_s, best.tpot_high_s)}, "
        f"{best.output_tokens_per_s_per_chip:,.0f} output tokens/s a chip "
        f"with {best.batch} requests in flight, {render(best.hbm_bytes, 'bytes')} of "
        f"{render(best.hbm_limit_bytes, 'bytes')} of HBM needed, with engine {best.engine}."
    )


def _band(value: float, low: float | None, high: float | None) -> str:
    between = (
        f" ({render(low, 's')} to {render(high, 's')} in four of five runs of this kind)"
        if low is not None and high is not None
        else ""
    )
    return f"{render(value, 's')}{between}"


def _numbers(best: ConfigReport) -> dict[str, float | None]:
    return {"ttft_s": best.ttft_s, "tpot_s": best.tpot_s, "hbm_bytes": best.hbm_bytes}
