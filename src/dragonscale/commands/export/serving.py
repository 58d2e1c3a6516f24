"""A serving plan judged as the target's engine runs it."""

import math
import re
from dataclasses import asdict, replace
from typing import Any

import msgspec

from dragonscale.commands.export.plans import GivenPlan
from dragonscale.commands.export.training import MIN_BYTES, MIN_SLOWDOWN, JudgedPlan, command
from dragonscale.commands.questions.export import ExportQuestion
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.serve_question import ServeAsked, read_question, said_by
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.errors import Infeasible
from dragonscale.exports.judges import engine_for
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.target import Target
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import parse_count, render
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, SavedPrefill, SavedTraffic, read_serving_plan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.space.legal import refusal, shortened_prompt
from dragonscale.training.plan.plan import Plan


def judged_serving(
    question: ExportQuestion, given: GivenPlan, target: Target, as_run: Plan | ServingPlan | None
) -> JudgedPlan:
    """The plan judged under the target's engine; `as_run` is the plan that the target runs instead of the one given."""
    assert isinstance(given.file, SavedPlan)
    file = _with_flags(given.file, question)
    engine = engine_for(target, question.engine.strip() or file.engine, file.plan)
    pool = None
    if file.prefill.slice:
        pool = file.prefill
    # with a pool that prefills, the plan itself is of the replicas that decode
    pool_role = DECODE if pool else BOTH
    understood, config = _judged(question, file, engine, pool_role)
    run = _run(question, understood, file, config, engine)
    if pool is not None:
        run = replace(run, role="decode")
    expected = [expectation(config, run.role), *overload(config, file, understood.ask.rate)]
    expected_numbers = _numbers(config)
    if isinstance(as_run, ServingPlan) and as_run != file.plan:
        _, as_run_config = _judged(question, replace(file, plan=as_run, named=frozenset()), engine, pool_role)
        expected += _instead(config, as_run_config)
        expected_numbers = {**_numbers(as_run_config), "planned_s": config.tpot_s}
    if pool is not None:
        named = question.engine.strip() or pool.engine or file.engine
        prefill, ttft_s = _pool(question, file, engine_for(target, named, read_serving_plan(pool.plan).plan))
        expected += prefill.expected
        expected_numbers["ttft_s"] = ttft_s
        run = replace(run, prefill=prefill)
    return JudgedPlan(replace(run, expected=tuple(expected)), expected_numbers)


def _pool(question: ExportQuestion, file: SavedPlan, engine: str) -> tuple[ServingRun, float]:
    """The replicas that prefill, as a run of their own; and their TTFT."""
    pool = file.prefill
    plan = read_serving_plan(pool.plan)
    traffic = file.traffic
    prefill_file = replace(
        plan,
        model=file.model,
        slice=pool.slice,
        engine=engine,
        batch=plan.plan.data,
        replicas=pool.replicas,
        launch=file.launch,
        # one output token: the others are decoded by the other pool
        traffic=SavedTraffic(traffic.prompt, 1, traffic.cached, longest=traffic.longest),
        prefill=SavedPrefill(),
    )
    understood, config = _judged(question, prefill_file, engine, PREFILL)
    run = _run(question, understood, prefill_file, config, engine)
    return replace(run, role="prefill", expected=(expectation(config, "prefill"),)), config.ttft_s


def _run(
    question: ExportQuestion, understood: ServeAsked, file: SavedPlan, config: ConfigReport, engine: str
) -> ServingRun:
    """A judged configuration as a run to write down."""
    assert understood.plan is not None
    where = understood.targets[0][1] or parse_slice(config.copy_slice)
    # as the plan's file says, on top of the engine's defaults
    limits = LaunchLimits(file.launch.max_seqs, file.launch.token_budget, file.launch.memory_fraction)
    traffic = file.traffic
    if not traffic.prompt:
        traffic = SavedTraffic(understood.ask.prompt, understood.ask.output, traffic.cached, traffic.rate, traffic.ramp)
    file = replace(
        file,
        plan=understood.plan,
        model=written(understood.question.model),
        slice=config.copy_slice,
        engine=engine,
        batch=file.batch or config.batch,
        traffic=traffic,
    )
    return ServingRun(
        file=file,
        model=understood.model,
        fields=model_fields(understood.question.model),
        slice=where,
        engine=engine_on(engine, where.chip, understood.model, limits, where.chips, understood.plan),
        command=command(question),
    )


def _judged(question: ExportQuestion, file: SavedPlan, engine: str, role: str) -> tuple[ServeAsked, ConfigReport]:
    """A plan judged under an engine; refused where the engine does not run it or it does not fit."""
    understood = read_question(_question(question, file, engine))
    if role == DECODE:
        understood = replace(understood, ask=understood.pool_job().ask)
    assert understood.plan is not None
    chip, where = understood.targets[0]
    plan, name = understood.plan, engine.partition(",")[0]
    if not question.force:
        why = refusal(name, where or chip, understood.model, plan, (understood.ask.prompt, understood.ask.output), role)
        if why:
            raise Infeasible(_for_export(f"{name} cannot run {plan}: {why}."))
    report = answer(understood, Listener().step)
    if not report.configs:
        raise _refused(report, file)
    return understood, report.configs[0]


def _for_export(text: str) -> str:
    """A sentence of the planner with the flag by which an export names its engine."""
    return re.sub(r"--engine (?=\w)", "--to ", text)


def overload(config: ConfigReport, file: SavedPlan, rate: float | None) -> list[str]:
    """A note where more requests come than the replicas serve, so that they queue without end."""
    replicas = file.replicas or 1
    served = config.requests_per_s * replicas
    if rate is None or file.prefill.slice or rate <= served:
        return []
    needed = math.ceil(rate / config.requests_per_s)
    if replicas == 1:
        who = "1 replica of it serves"
    else:
        who = f"{replicas} replicas of it serve"
    return [f"{rate:g} requests/s come and {who} {served:.3g}/s: the queue grows without end; {needed} replicas hold."]


def _instead(config: ConfigReport, as_run: ConfigReport) -> list[str]:
    """What differs in time and memory, where the engine runs another plan; nothing where nothing does."""
    slowdown = 0.0
    if config.tpot_s:
        slowdown = as_run.tpot_s / config.tpot_s - 1
    if abs(slowdown) < MIN_SLOWDOWN and abs(as_run.hbm_bytes - config.hbm_bytes) < MIN_BYTES:
        return []
    tpot, memory = render(as_run.tpot_s, "s"), render(as_run.hbm_bytes, "bytes")
    return [f"as it runs here, TPOT {tpot} ({slowdown:+.1%}), {memory} of HBM."]


def _refused(report: ServeReport, file: SavedPlan) -> Infeasible:
    return Infeasible(
        _for_export(f"The plan {file.plan} cannot be served: {' '.join(report.notes)} {report.advice}".strip())
    )


def _question(question: ExportQuestion, file: SavedPlan, engine: str) -> ServeQuestion:
    """The plan as a question to `dscale serve`, with the settings that its file names."""
    settings = asdict(file.plan)
    if file.named:
        settings = {name: value for name, value in settings.items() if name in file.named or name == "tensor"}
    if not file.whole:  # the degree is not said, and is that of the whole slice
        settings.pop("tensor", None)
    return ServeQuestion(
        model=file.model,
        on=file.slice,
        plan=settings if any(value != "" for value in settings.values()) else {"tensor": file.plan.tensor},
        engine=engine,
        price=question.price,
        force=question.force,
        batch=str(file.batch or ""),
        **said_by(file),
    )


def _with_flags(file: SavedPlan, question: ExportQuestion) -> SavedPlan:
    """A serving plan's file with what the flags say."""
    model = written(question.model) or file.model
    lengths: dict[str, int] = {}
    for name, length in (("prompt", question.prompt), ("output", question.output)):
        if length.strip():
            lengths[name] = length.tokens(Listener())
    if "prompt" in lengths and model and not question.force:
        loaded, output = load_model(model), lengths.get("output", file.traffic.output)
        lengths["prompt"], _ = shortened_prompt(
            str(question.prompt), lengths["prompt"], output, loaded.context, loaded.name
        )
    traffic: dict[str, Any] = {**lengths}
    if lengths:  # other requests than those of the file's use case
        for name in ("longest", "use_case", "users", "turn_prompt", "turn_output", "router"):
            traffic[name] = getattr(SavedTraffic(), name)
    rate = question.rate.strip() or file.traffic.rate
    if question.batch.strip():
        batch = parse_count(question.batch.removesuffix("seq"), "the batch")
    else:
        batch = file.batch
    return replace(
        file,
        model=model,
        slice=written(question.on) or file.slice,
        traffic=msgspec.structs.replace(file.traffic, **traffic, rate=rate),
        batch=batch,
    )


def expectation(config: ConfigReport, role: str) -> str:
    """What is expected of a whole deployment (`role` empty) or of one of its pools, with its band."""
    ttft = _band(config.ttft_s, config.ttft_low_s, config.ttft_high_s)
    if role == "prefill":
        return f"prefill pool: TTFT {ttft} without the hand-over."
    start = "decode pool: " if role else f"TTFT {ttft}, "
    return (
        f"{start}TPOT {_band(config.tpot_s, config.tpot_low_s, config.tpot_high_s)}, "
        f"{config.output_tokens_per_s_per_chip:,.0f} output tokens/s a chip "
        f"with {config.batch} requests in flight, {render(config.hbm_bytes, 'bytes')} of "
        f"{render(config.hbm_limit_bytes, 'bytes')} of HBM needed, with engine {config.engine}."
    )


def _band(value: float, low: float | None, high: float | None) -> str:
    """A time with the band around it, where one is known."""
    if low is None or high is None:
        return render(value, "s")
    return f"{render(value, 's')} ({render(low, 's')} to {render(high, 's')} in four of five runs of this kind)"


def _numbers(config: ConfigReport) -> dict[str, float | None]:
    return {"ttft_s": config.ttft_s, "tpot_s": config.tpot_s, "hbm_bytes": config.hbm_bytes}
