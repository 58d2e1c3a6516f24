"""A measured figure of a server as people write it (`--measured 335tok/s`, `5.99 req/s`, `26ms TPOT`), and what is said
of it beside what is expected."""

import re

from dragonscale.commands.record import shared
from dragonscale.commands.serve.bands import bands_for, kind_of
from dragonscale.commands.serve.confirm import sizing_job
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport, ServeReport
from dragonscale.commands.serve.variant_records import CountedRun, MeasuredServing, ServingSuspect
from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse, render
from dragonscale.serving.advice.measured_rate import (
    CountedReading,
    ExplainedRate,
    MeasuredFigure,
    RateSuspect,
    explain_rate,
    figure_of,
)
from dragonscale.serving.space.bands import ServedBand
from dragonscale.simulation.fleet_sizing.offline_run import offline_run

_NUMBER = r"(?P<number>[\d.,]+\s*[kM]?)\s*"
_PER_S = r"\s*(?:/|\bper\b)\s*s(?:ec(?:ond)?)?\b"
_REQUESTS = re.compile(rf"(?i){_NUMBER}(?:(?:req(?:uest)?s?){_PER_S}|rps|qps)")
_TOKENS = re.compile(
    rf"(?i)(?P<before>total|output)?\s*{_NUMBER}(?P<middle>total|output|generated)?\s*(?:tok(?:en)?s?|t){_PER_S}"
    r"\s*(?P<of>.*)"
)
_TIME = re.compile(r"(?i)(?P<before>[a-z][a-z0-9]*)?[\s:=]*(?P<time>[\d.]+\s*(?:us|ms|s|min|h))\s*(?P<after>.*)")
# what a rate of tokens is of, and which latency a time is, by a word that is in them
_RATES = {
    "user": "user",
    "request": "user",
    "seq": "user",
    "stream": "user",
    "chip": "chip",
    "gpu": "chip",
    "tpu": "chip",
}
_TOTALS = ("total", "in and out", "in+out", "prompt")
_TIMES = {"tpot": "tpot", "itl": "tpot", "tok": "tpot", "ttft": "ttft", "first": "ttft", "e2e": "e2e", "latency": "e2e"}
# How a quantity is written after its number.
UNITS = {
    "requests": "requests/s",
    "output": "output tokens/s",
    "total": "tokens/s in and out",
    "user": "tokens/s a user",
    "chip": "output tokens/s a chip",
    "tpot": "a token",
    "ttft": "to the first token",
    "e2e": "a request",
    "run": "for the whole run",
}
# Prompts that offline benchmarks send where nothing is said (`vllm bench throughput` and `serve`: 1000), and so few
# that the tail, in which few requests are left, is much of their time.
USUAL_BENCHMARK = 1000
SHORT_BENCHMARK = 200
# The published runs whose errors are those of a quantity.
_MEASURES = {"tpot": "tpot", "user": "tpot", "ttft": "ttft"}


def read_measured(text: str) -> MeasuredFigure:
    """A measured figure: requests or tokens a second (of all, of a user, of a chip; in and out together), or a time.

    >>> texts = ("5.99req/s", "335 tok/s", "62 tok/s/user", "4.3k tok/s total", "25ms TPOT", "TTFT 0.5s", "48s")
    >>> [(found.name, found.value) for found in map(read_measured, texts)][:4]
    [('requests', 5.99), ('output', 335.0), ('user', 62.0), ('total', 4300.0)]
    >>> [(found.name, found.value) for found in map(read_measured, texts)][4:]
    [('tpot', 0.025), ('ttft', 0.5), ('run', 48.0)]
    """
    stripped = text.strip()
    quantity: MeasuredFigure | None = None
    if match := _REQUESTS.fullmatch(stripped):
        quantity = MeasuredFigure("requests", parse(match["number"], "count", "the measured rate"))
    elif match := _TOKENS.fullmatch(stripped):
        quantity = MeasuredFigure(_rate_name(match), parse(match["number"], "count", "the measured rate"))
    elif match := _TIME.fullmatch(stripped):
        context = f"{match['before'] or ''} {match['after']}".lower()
        name = next((name for word, name in _TIMES.items() if word in context), "run")
        quantity = MeasuredFigure(name, parse(match["time"], "s", "the measured time"))
    if quantity is None or not quantity.value > 0:
        raise InputError(
            f"--measured is {shorten(text)}; write requests (5.99 req/s), output tokens (335 tok/s, 62 tok/s/user, "
            "900 tok/s total for prompts too) or a time (26ms TPOT, 500ms TTFT, 48s for the whole run)."
        )
    return quantity


def _rate_name(match: re.Match[str]) -> str:
    context = " ".join(match[group] or "" for group in ("before", "middle", "of")).lower()
    if any(word in context for word in _TOTALS):
        return "total"
    return next((name for word, name in _RATES.items() if word in context), "output")


def counted_runs(job: ServeAsked, row: ConfigReport) -> list[CountedRun]:
    """The first configuration under prompts that come together: as many as were asked for, one batch of equal ones, or,
    where a measured figure does not say, as many as benchmarks usually send."""
    question = job.question
    # what a slice that was named makes of a rate by itself, beside the fleet that the rate takes
    if job.plan is not None and job.targets[0][1] is not None and job.ask.rate is not None:
        run = offline_run(
            sizing_job(job),
            row.config,
            question.requests or USUAL_BENCHMARK,
            "varied",
            replicas=row.copies,
            rate=job.ask.rate,
        )
        return [CountedRun(**shared(CountedRun, run))] if run is not None else []
    if question.requests:
        loads = [(question.requests, "lognormal")]
    elif job.batch is not None and job.ask.output > 1:
        loads = [(row.batch * row.copies, "fixed")]
    elif question.measured.strip():
        loads = [(USUAL_BENCHMARK, "lognormal")]
    else:
        return []
    sizing = sizing_job(job)
    runs: list[CountedRun] = []
    for requests, lengths in loads:
        run = offline_run(sizing, row.config, requests, lengths, replicas=row.copies)
        if run is not None:
            runs.append(CountedRun(**shared(CountedRun, run)))
    return runs


def loaded_runs(job: ServeAsked, report: ServeReport, rate: str, requests: int | None) -> list[CountedRun]:
    """The first configuration under requests that come at a rate (or, without one, at once), on the chips that there
    are; none where nothing fits."""
    per_s = parse(rate, "count/s", "--rate") if rate.strip() else None
    if per_s is not None and per_s <= 0:
        raise InputError(f"--rate is {shorten(rate)}; it is more than nothing.")
    runs: list[CountedRun] = []
    for row in report.configs[:1]:
        count = requests or USUAL_BENCHMARK
        run = offline_run(sizing_job(job), row.config, count, "varied", replicas=row.copies, rate=per_s)
        if run is not None:
            runs.append(CountedRun(**shared(CountedRun, run)))
    return runs


def measured_report(job: ServeAsked, report: ServeReport, runs: list[CountedRun]) -> MeasuredServing:
    """What was measured beside the first configuration: the verdict, what each way of counting would give, and what
    could explain a slow figure."""
    quantity = read_measured(job.question.measured)
    first = report.first()
    config = first.config
    if quantity.name == "run" and not runs:
        quantity = MeasuredFigure("e2e", quantity.value)
    band = bands_for(kind_of(job, config))[_MEASURES.get(quantity.name, "tokens")]
    readings: list[CountedReading] = []
    if quantity.name != "run":
        readings.append(_steady(job, first, quantity, band))
    for run in runs:
        value = _of_run(run, quantity.name, first)
        if value:
            readings.append(_reading(run.text, value, band, is_rate=quantity.name != "run"))
    explained = explain_rate(job, config, quantity, readings, _short_benchmark(job, first, quantity))
    return MeasuredServing(
        quantity=quantity.name,
        value=quantity.value,
        expected=explained.nearest.expected,
        verdict=explained.verdict,
        slowdown=explained.slowdown,
        text=_text(explained),
        suspects=[ServingSuspect(cause.cause, cause.look, cause.value) for cause in explained.suspects],
        likely=_likely(explained),
    )


def _short_benchmark(job: ServeAsked, first: ConfigReport, quantity: MeasuredFigure) -> list[RateSuspect]:
    """What a benchmark of few prompts would have given, where nobody says how many were sent."""
    if job.batch is not None or job.question.requests:
        return []
    run = offline_run(sizing_job(job), first.config, SHORT_BENCHMARK, "lognormal", replicas=first.copies)
    value = run and _of_run(CountedRun(**shared(CountedRun, run)), quantity.name, first)
    if not value:
        return []
    look = "how many were sent (--requests N): at its end few are left"
    return [RateSuspect(f"a benchmark of only {SHORT_BENCHMARK} prompts", look, value)]


def _steady(job: ServeAsked, first: ConfigReport, quantity: MeasuredFigure, band: ServedBand) -> CountedReading:
    """The steady state of the configuration, as its row has it."""
    value = figure_of(first.config, job, quantity.name, first.copies)
    how = f"in a steady state of {first.batch * first.copies:,} requests in flight"
    if first.batch * first.copies == 1:
        how = "of one request at a time"
    return _reading(how, value, band, is_rate=True)


def _reading(how: str, value: float, band: ServedBand, is_rate: bool) -> CountedReading:
    """A reading with the band of published runs around it; the seconds of a run have that of their rate."""
    if is_rate:
        low, high = band.around(value)
    else:
        low, high = value / (1 + band.high), value / max(1 + band.low, 1e-3)
    return CountedReading(how, value, low, high)


def _of_run(run: CountedRun, name: str, first: ConfigReport) -> float:
    """A quantity of a run that was timed as a whole; 0 of those that it does not have."""
    values = {
        "requests": run.requests_per_s,
        "output": run.output_tokens_per_s,
        "total": run.total_tokens_per_s,
        "chip": run.output_tokens_per_s / (first.chips * first.copies),
        "run": run.seconds,
    }
    if run.lengths == "fixed":  # each request of a batch that starts and ends together has the same rate
        values["user"] = run.output_tokens_per_s / run.requests
        values["e2e"] = run.seconds
    return values.get(name, 0.0)


def _text(explained: ExplainedRate) -> str:
    """The verdict in a sentence or two."""
    quantity, nearest = explained.quantity, explained.nearest
    measured = _figure(quantity, quantity.value)
    band = f"{_number(quantity, nearest.low)} to {_number(quantity, nearest.high)}"
    expected = f"{_number(quantity, nearest.expected)} expected {nearest.how}"
    if explained.verdict == "normal":
        text = f"Normal: {measured} against {expected} ({band})"
    elif explained.verdict == "slow":
        text = f"Slow, {explained.slowdown:.2g}x: {measured} against {expected} ({band})"
    else:
        text = f"Faster than expected, {1 / explained.slowdown:.2g}x: {measured} against {expected} ({band})"
    others = [f"{_number(quantity, reading.expected)} {reading.how}" for reading in explained.readings[1:]]
    if others:
        text += f"; {', '.join(others)}"
    return f"{text}."


def _likely(explained: ExplainedRate) -> str:
    """What could explain a slow figure, the nearest first."""
    if not explained.suspects:
        if explained.verdict == "slow":
            return "none of the usual causes comes near it: look at the client, the lengths and what was timed"
        return ""
    return "; ".join(_suspect_text(explained.quantity, suspect) for suspect in explained.suspects)


def _suspect_text(quantity: MeasuredFigure, suspect: RateSuspect) -> str:
    return f"{suspect.cause} (would be {_number(quantity, suspect.value)}): {suspect.look}"


def _figure(quantity: MeasuredFigure, value: float) -> str:
    return f"{_number(quantity, value)} {UNITS[quantity.name]}"


def _number(quantity: MeasuredFigure, value: float) -> str:
    if not quantity.is_rate:
        return render(value, "s")
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"
