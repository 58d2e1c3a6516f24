"""The log of a training run against its plan: the step, MFU and memory that were measured beside those that were
expected.

The plan is read as `dscale train --plan` reads it. What the log says of the batch, the sequence and the chips is what
ran: the plan is judged at that batch, and a log of another number of chips is no log of this plan.

The result of a load test against its plan: TTFT, TPOT and throughput that were measured beside those of the same
traffic simulated.

The load generator is simulated with the server: as many clients, who all start at once, or requests at the same rate;
prompts and outputs of the measured lengths; as many requests. So a queue at the start is in both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dragonscale.commands.foreign import foreign_plan, serving_file_of, told
from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.questions.validate import ServingScoreQuestion, TrainingScoreQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import SimulateAsked, read_question
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.train.ask_train import understood
from dragonscale.commands.train.measured import measured_row
from dragonscale.commands.train.plans import plan_row
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import Measured, PlanReport
from dragonscale.commands.validate.validate_records import MeasureRow, RunScore, measure, slice_for
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.logs.load_test import LoadTest, MeasuredTimes
from dragonscale.evidence.logs.reading import read_load_test, read_training_log
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.training_log import LoggedStep, SettledStep, TrainingLog, settled
from dragonscale.evidence.memory import peak_of
from dragonscale.exports.model_names import preset_named
from dragonscale.listener import Listener
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.physics.hardware.driver_names import nearest_chip
from dragonscale.physics.units import render
from dragonscale.serving.engine.plan_file import SavedPlan, read_serving_plan
from dragonscale.serving.space.bands import ServedBand, ServedKind, band_of, is_moe
from dragonscale.simulation.fleet_sizing.simulated_run import Latency
from dragonscale.training.advice.assessment import assess
from dragonscale.training.advice.plan_advice import PlanAnswer
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.search.error_bands import kind_name


def ask_trained(question: TrainingScoreQuestion, text: LogText, listener: Listener) -> RunScore:
    """Score a log."""
    log = read_training_log(text)
    training = understood(_train_question(question, log, text))
    for note in training.notes:
        listener.note(note)
    plan, job = training.job.plan, training.job.on_slice()
    assert plan is not None
    # another number of chips is another plan
    if log.chips and log.chips != job.slice.chips:
        raise InputError(
            f"{text.shown} is of a run on {log.chips:,} chips, and the plan is for {job.slice.chips:,} ({job.slice}); "
            "give the plan that ran."
        )
    step = settled(log, lambda logged: _seconds(logged, job))
    if step is None:
        raise InputError(f"{text.shown} of {log.software} holds no step with a time.")
    return _train_score(training, job, plan, log, step).came_from(training, listener.notes)


def _train_question(question: TrainingScoreQuestion, log: TrainingLog, text: LogText) -> TrainQuestion:
    """The plan as a question to `dscale train`; what is not given is taken from the log where it says it."""
    plan = question.plan if written(question.plan).strip() else log.plan
    if not plan:
        raise InputError(
            f"{text.shown} of {log.software} does not say how the run was split; give the plan that ran: --plan "
            'plan.toml, --plan "tp8 pp4 dp16", or the config or command that was run.'
        )
    # the last batch: it may grow during a run
    batch = next((logged.batch for logged in reversed(log.steps) if logged.batch), log.batch)
    flags: dict[str, Any] = {
        "model": question.model or (log.model if not written(question.plan) else ""),
        "on": slice_for(question.on, log.chip if not written(question.plan) else "", log.chips),
        "batch": question.batch or (f"{batch}seq" if batch else ""),
        "seq": question.seq or (str(log.seq) if log.seq else ""),
    }
    return TrainQuestion(plan=plan, stack=question.stack or "auto", alone=True, force=True, **flags)


def _seconds(step: LoggedStep, job: Job) -> float | None:
    """The time of a step, from what was logged of it."""
    if step.seconds is not None:
        return step.seconds
    if step.tokens:  # tokens per second and chip
        return job.tokens / (step.tokens * job.slice.chips)
    if step.samples:
        return job.batch / step.samples
    return None


def _train_score(understood: TrainRequest, job: Job, plan: Plan, log: TrainingLog, step: SettledStep) -> RunScore:
    assessed = assess(job, plan, understood.job.tokens, force=True)
    planned = plan_row(PlanAnswer(assessed))
    compared = measured_row(assessed, step.seconds)
    rows = [*_times(planned, compared, step), *_memory(job, plan, log)]
    notes = [*log.notes, *step.notes, *_own(log, step, compared), *_unexpected(planned)]
    run = (
        "training",
        log.software,
        job.model.name,
        str(job.slice),
        short_plan(planned.plan),
        f"the stack {planned.stack}",
    )
    workload = f"{job.batch:,} sequences of {job.sequence:,} tokens a step"
    counted = (step.counted, step.skipped, step.starts)
    details = {"band": planned.band, "suspects": compared.suspects, "notes": notes}
    return RunScore(*run, workload, rows, compared.within_band, compared.text, *counted, **details)


def _times(planned: PlanReport, compared: Measured, step: SettledStep) -> list[MeasureRow]:
    """The step, and MFU and throughput, which follow from it: their bands are that of the step turned round."""
    low, high = planned.step_low_s, planned.step_high_s
    rate, mfu = planned.tokens_per_s_per_chip, planned.own_mfu
    fewest, largest = planned.step_s / high, planned.step_s / low
    spread = None
    if step.counted > 2:
        spread = (step.low, step.high)
    return [
        measure("step", "s", step.seconds, planned.step_s, (low, high), spread),
        measure("MFU", "share", mfu / compared.ratio, mfu, (mfu * fewest, mfu * largest)),
        measure("tokens/s a chip", "count", rate / compared.ratio, rate, (rate * fewest, rate * largest)),
    ]


def _memory(job: Job, plan: Plan, log: TrainingLog) -> list[MeasureRow]:
    if log.memory_bytes is None:
        return []
    expected = peak_of(judge_one(job, plan), job, log.memory_counter)
    return [measure(f"memory ({log.memory_counter})", "bytes", log.memory_bytes, expected)]


def _own(log: TrainingLog, step: SettledStep, compared: Measured) -> list[str]:
    """What the trainer says of itself, which counts FLOPs in its own way."""
    figures: list[str] = []
    if step.flops:
        figures.append(f"{render(step.flops, 'FLOP/s')} a chip")
    if log.mfu:
        figures.append(f"{log.mfu:.1%} MFU")
    if not figures:
        return []
    ours = f"by the planner's count of the model's FLOPs it is {compared.mfu:.1%} MFU"
    return [f"{log.software} itself says {' and '.join(figures)}; {ours}."]


def _unexpected(planned: PlanReport) -> list[str]:
    """Why the planner would not have let the plan run."""
    reasons = [*planned.problems, *planned.illegal]
    if reasons:
        return [f"It ran, and by the planner's count it should not have: {shorten(reasons[0], 300)[1:-1]}."]
    return []


# The fraction of the load generator's concurrency limit that must be under way on average for that limit, and not the
# rate, to make the traffic.
CLOSED_LOOP = 0.8
# Coefficients of variation of lengths: below the first all are taken as the same, below the second as uniform.
FIXED_CV = 0.1
UNIFORM_CV = 0.4
# Requests that are simulated at most: more change no mean.
MAX_REQUESTS = 20_000


def ask_served(question: ServingScoreQuestion, text: LogText, listener: Listener) -> RunScore:
    """Score a load test."""
    test = read_load_test(text)
    if not test.requests or not test.prompt or not test.output:
        raise InputError(f"{text.shown} of {test.software} holds no request that was answered.")
    simulated = _simulate_question(question, test, text, listener)
    _check_device(test, simulated.on, text)
    understood = read_question(simulated)
    if test.kv_tokens:  # the room that the tested server had for its cache
        understood = replace(understood, job=understood.job.with_kv_tokens(test.kv_tokens))
    for note in understood.notes:
        listener.note(note)
    total = max(understood.job.source.requests, 1)
    report, _ = run_simulation(understood, lambda done: listener.step(done, total))
    return _score(understood, report, test).came_from(question, listener.notes)


def _check_device(test: LoadTest, on: Any, text: LogText) -> None:
    """Refuse times of other chips than those of the plan. A device that is no chip of the catalogue may be taken for
    one."""
    recorded_on, here = nearest_chip(test.device), test.device.lower() == "cpu"
    slice_ = on if isinstance(on, Slice) or not on else parse_slice(written(on))
    # times of a CPU say nothing of a chip
    if here or (recorded_on and slice_ and recorded_on != slice_.chip.kin):
        other = ""
        if recorded_on and slice_:
            other = f", or give --on {recorded_on}:{slice_.chips}"
        raise InputError(
            f"{text.shown} was recorded on {shorten(test.device)} and the plan is of {slice_ or 'chips'}, so there is "
            f"nothing to compare it with; record a run on the plan's chips{other}."
        )


def _simulate_question(
    question: ServingScoreQuestion, test: LoadTest, text: LogText, listener: Listener
) -> SimulateQuestion:
    """The load test as a question to `dscale simulate`."""
    plan = written(question.plan).strip() or test.plan
    if not plan:
        raise InputError(
            f"{text.shown} of {test.software} does not say how the model was served; give the plan that was tested: "
            '--plan serving.toml, --plan tp8, or the command that started the server ("vllm serve …").'
        )
    foreign = foreign_plan(plan, question.model or preset_named(test.model), question.on)
    if foreign is not None:
        for note in told(foreign):
            listener.note(note)
    saved = read_serving_plan(plan) if foreign is None else serving_file_of(foreign)
    named = question.model or saved.model or preset_named(test.model)
    if not named:
        raise InputError(f"Neither the plan nor {text.shown} names the model; give --model llama3-70b.")
    if saved.model and test.model and preset_named(test.model) != preset_named(saved.model) and not question.model:
        listener.note(f"The load test names {test.model} and the plan {saved.model}, which is taken.")
    flags: dict[str, Any] = {"plan": plan} if foreign is None else _foreign_words(saved)
    if not saved.engine and not question.engine and test.engine:
        flags["engine"] = "trtllm" if test.engine == "trt" else test.engine
    return SimulateQuestion(
        named,
        on=slice_for(question.on or saved.slice or test.slice, test.device, saved.plan.chips),
        warmup=0.0,
        max_rate=False,
        **({"engine": question.engine} if question.engine else {}),
        **_traffic(test),
        **flags,
    )


def _foreign_words(saved: SavedPlan) -> dict[str, Any]:
    """A plan in another engine's words, by the flags of `dscale simulate`."""
    launch, drafts, pool = saved.launch, saved.speculation, saved.prefill
    flags: dict[str, Any] = {"plan": str(saved.plan), "engine": saved.engine, "replicas": saved.replicas or None}
    flags |= {name: getattr(launch, name) for name in ("max_seqs", "token_budget", "memory_fraction")}
    if drafts.drafts:
        flags |= {"drafts": drafts.drafts, "accept": drafts.acceptance, "draft": drafts.draft}
    if pool.slice:
        flags |= {"prefill_on": pool.slice, "prefill_plan": pool.plan, "prefill_replicas": pool.replicas or None}
    return flags


def _traffic(test: LoadTest) -> dict[str, Any]:
    """How requests came and how long they were."""
    if test.trace:
        return {"trace": test.trace, **test.launch}
    flags: dict[str, Any] = {
        **test.launch,
        "requests": str(min(test.requests, MAX_REQUESTS)),
        "prompt": str(max(round(test.prompt), 1)),
        "output": str(max(round(test.output), 1)),
    }
    under_way = test.mean_clients
    full = under_way is not None and under_way >= CLOSED_LOOP * (test.clients or 0)
    if test.clients and (test.rate is None or full):
        flags |= {"clients": test.clients, "ramp": "0s"}
    elif test.rate is None:
        flags |= {"arrivals": "at-once"}
    else:
        flags |= {"rate": f"{test.rate:.6g}/s"}
        if abs(test.burst - 1) > 0.01:
            flags |= {"arrivals": "gamma", "burst": test.burst}
    spread = test.spread or 0.0
    if spread < FIXED_CV:
        flags["lengths"] = "fixed"
    elif spread < UNIFORM_CV:
        flags["lengths"] = "uniform"
    else:
        flags |= {"lengths": "lognormal", "cv": round(spread, 3)}
    return flags


def _score(understood: SimulateAsked, report: SimulateReport, test: LoadTest) -> RunScore:
    deployment = understood.job.deployment
    kind = ServedKind(deployment.chip.name, deployment.engine.name, is_moe(deployment.model))
    bands = {name: band_of(kind, name) for name in ("ttft", "tpot", "tokens")}
    times = {"ttft": test.ttft, "tpot": test.tpot, "e2e": test.e2e}
    rows: list[MeasureRow] = []
    for name, measured_times in times.items():
        rows += _latencies(name, measured_times, report.latency, bands.get(name))
    if test.output_tokens_per_s:
        expected = report.rates.output_tokens_per_s
        # at a given rate throughput is that rate, and says nothing of the server
        saturated = test.rate is None or "clients" in report.traffic
        band = bands["tokens"] if saturated else None
        around = band and band.around(expected)
        rows.append(measure("output tokens/s", "count", test.output_tokens_per_s, expected, around))
    if not rows:
        raise InputError(f"The result of {test.software} holds no TTFT, TPOT or throughput.")
    notes = list(test.notes)
    if test.spread is None:
        notes.append("The result does not say how lengths vary; they are taken as all alike.")
    verdicts = [row.inside for row in rows if row.inside is not None]
    pool = report.fleet[0]
    where = pool.slice + (f" x {pool.replicas}" if pool.replicas > 1 else "")
    run = ("serving", test.software, report.model, where, pool.plan, f"the engine {pool.engine}")
    inside = all(verdicts) if verdicts else None
    details = {"failed": test.failed, "band": _rests(bands), "notes": notes}
    return RunScore(*run, _workload(report, test), rows, inside, _text(rows), test.requests, **details)


def _latencies(
    name: str, times: MeasuredTimes, latency: Mapping[str, Latency], band: ServedBand | None
) -> Iterator[MeasureRow]:
    """The mean with its band, where measured runs give one; the percentiles that are known beside it."""
    for part, label in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99")):
        measured, expected = getattr(times, part), getattr(latency[f"{name}_s"], part)
        if measured is not None and expected:
            around = band.around(expected) if part == "mean" and band else None
            yield measure(f"{label} {name.upper()}", "s", measured, expected, around)


def _workload(report: SimulateReport, test: LoadTest) -> str:
    traffic = report.traffic
    if test.trace:
        lengths = f"{test.prompt:,.0f} and {test.output:,.0f} tokens on average"
        if test.clients:
            came = f"of {test.clients} clients"
        else:
            came = "as they came"
        return f"{test.requests:,} requests {came}, of {lengths}"
    if "clients" in traffic:
        came = f"{traffic['clients']} clients"
    else:
        came = traffic.get("rate") or "all at once"
    return f"{test.requests:,} requests ({came}) of {traffic['prompt']} and {traffic['output']} tokens"


def _text(rows: list[MeasureRow]) -> str:
    """Which numbers lie in their band, and by how much others miss it."""
    out = [row for row in rows if row.inside is False]
    if not out:
        return "Every number with a band lies in it: no gap to explain."
    ends = [row.shown(row.high if row.ratio > 1 else row.low) for row in out]
    misses = [
        f"{row.name} is {row.ratio:.2f}x what is expected, and the band ends at {end}"
        for row, end in zip(out, ends, strict=True)
    ]
    look = "Look first at whether the server ran with the plan's limits and formats, and without other load."
    return f"{'; '.join(misses)}. {look}"


def _rests(bands: dict[str, ServedBand]) -> str:
    names = {"ttft": "TTFT", "tpot": "TPOT", "tokens": "tokens per second"}
    parts = [f"{names[name]} on {band.runs:,} {kind_name(band.name)}" for name, band in bands.items()]
    return f"Bands of four in five rest on published runs: {', '.join(parts)}."
