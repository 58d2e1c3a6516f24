"""A measured step as people write it (`--measured 8.2s`, `38%`, `11k tok/s`, `420 TFLOP/s`, `8 samples/s`,
`2.1 s/it`), and what is said of it beside the expected one."""

import math
import re
from dataclasses import dataclass

from dragonscale.commands.given import read_part
from dragonscale.commands.train.train_records import Measured, PublishedRow, SuspectRow
from dragonscale.errors import InputError, shorten
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import parse, render
from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.flop_counts import flop_count
from dragonscale.training.advice.measured_step import SAME_RATE, ExplainedStep, explain_measured
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.search.published_runs import PublishedRun

MAX_PUBLISHED = 3
MAX_STEP_S = 1e7
# "/GPU", "per chip" …: the rate is of one chip; without it the size of the number tells
_CHIP = r"\s*(?P<chip>(?:/|\bper\b)\s*(?:chip|[gt]pu|device))?\s*"
_TOKEN_RATE = re.compile(rf"(?i)\s*(?P<number>[\d.,]+\s*[kMG]?)\s*tok(?:en)?s?\s*/\s*s(?:ec)?{_CHIP}")
_SAMPLE_RATE = re.compile(
    rf"(?i)\s*(?P<number>[\d.,]+\s*[kMG]?)\s*(?:sample|seq(?:uence)?|example)s?\s*/\s*s(?:ec)?{_CHIP}"
)
_STEP = r"(?:it(?:er(?:ation)?)?|step)"
_STEP_RATE = re.compile(rf"(?i)\s*(?P<number>[\d.,]+)\s*{_STEP}s?\s*/\s*s(?:ec)?\s*")
_STEP_TIME = re.compile(rf"(?i)\s*(?P<time>[\d.,]+\s*(?:ms|s|min))(?:ec(?:onds?)?)?\s*/\s*{_STEP}\s*")
_FLOP_RATE = re.compile(rf"(?i)\s*(?P<number>[\d.,]+)\s*(?P<prefix>[GTPE])FLOPs?(?:\s*/\s*s(?:ec)?)?{_CHIP}")
_MFU = re.compile(r"(?i)(?P<share>.*%)\s*(?:MFU)?\s*")


_ITERATION = "An iteration is read as a whole step, with all its accumulation steps."


@dataclass(frozen=True)
class ReportedStep:
    """The seconds of a measured step, and how a rate was read; empty where there was nothing to read."""

    seconds: float
    note: str = ""


def measured_step(text: str, job: Job, dtype: str = "bf16", expected_s: float = 0.0) -> ReportedStep:
    """A measured step as it is reported: a time, an MFU of the peak of the plan's format, tokens, sequences or steps
    per second, or the model's FLOP/s. Rates of tokens and FLOPs are of one chip, and what no chip could do is of the
    whole run; rates of sequences and steps are of the whole run. A number without a unit is what brings it nearest to
    the expected step.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.training.cost.evaluation import make_job
    >>> job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192)
    >>> texts = ("8.2s", "38%", "8k tok/s", "8k tok/s/GPU", "64k tok/s", "376 TFLOP/s", "376 TFLOP/s/GPU", "3 PFLOP/s")
    >>> [f"{measured_step(text, job).seconds:.3g}" for text in texts]
    ['8.2', '8.97', '8.19', '8.19', '8.19', '8.97', '8.97', '9']
    >>> [f"{measured_step(text, job).seconds:.3g}" for text in ("8.2 s/it", "0.125 it/s", "8 samples/s", "1 seq/s/GPU")]
    ['8.2', '8', '8', '8']
    """
    stripped = text.strip()
    if mfu := _MFU.fullmatch(stripped):
        step = _of_mfu(mfu["share"], job, dtype)
    elif rate := _TOKEN_RATE.fullmatch(stripped):
        step = _of_token_rate(stripped, rate, job, dtype)
    elif rate := _SAMPLE_RATE.fullmatch(stripped):
        step = _of_sample_rate(stripped, rate, job)
    elif rate := _STEP_RATE.fullmatch(stripped):
        step = ReportedStep(1 / (parse(rate["number"], "count", "the measured rate") or math.nan), _ITERATION)
    elif time := _STEP_TIME.fullmatch(stripped):
        step = ReportedStep(parse(time["time"].replace(" ", ""), "s", "the measured step"), _ITERATION)
    elif rate := _FLOP_RATE.fullmatch(stripped):
        step = _of_flop_rate(stripped, rate, job, dtype)
    # a negative time is refused below with what can be written, not as a quantity that cannot be parsed
    elif stripped.startswith("-"):
        step = ReportedStep(math.nan)
    elif expected_s and re.fullmatch(r"[\d.,]+", stripped):
        step = _nearest_reading(stripped, job, dtype, expected_s)
    else:
        step = ReportedStep(parse(text, "s", "the measured step"))
    if not 0 < step.seconds < MAX_STEP_S:
        peak = job.slice.chip.peak(dtype)
        raise InputError(
            f"--measured is {shorten(text)}; write a time (8.2s, 8.2 s/it), steps (0.12 it/s) or sequences "
            f"(8 samples/s) a second, an MFU (38%), or tokens (11k tok/s) or FLOPs (420 TFLOP/s) of one chip, which "
            f"has a {dtype} peak of {render(peak, 'FLOP/s')}."
        )
    return step


# What a number without a unit may be, as logs print it.
_UNITS = ("s", "ms", " tok/s/GPU", " tok/s", " TFLOP/s/GPU", "%")


def _nearest_reading(number: str, job: Job, dtype: str, expected_s: float) -> ReportedStep:
    """A number without a unit in the unit that brings it nearest to the expected step, with a note that says so."""
    readings: list[tuple[float, str, ReportedStep]] = []
    for unit in _UNITS:
        try:
            step = measured_step(number + unit, job, dtype)
        except InputError:  # more than the chip can do
            continue
        readings.append((abs(math.log(step.seconds / expected_s)), unit, step))
    if not readings:
        return ReportedStep(math.nan)
    _, unit, step = min(readings)
    return ReportedStep(
        step.seconds, f"--measured {number} has no unit and is read as {number}{unit}. {step.note}".strip()
    )


def _of_mfu(text: str, job: Job, dtype: str) -> ReportedStep:
    count = flop_count(job)
    # against a foreign peak an MFU may be more than 100%
    largest = 1.0 if count is None or not count.foreign_peak else job.slice.chip.peak("bf16") / count.peak
    mfu = read_part(text, "--measured", f"an MFU is a part of the {dtype} peak, such as 38%", 1e-9, max(largest, 1.0))
    if count is None or dtype not in ("bf16", "fp16"):
        return ReportedStep(_seconds_at_peak(job, dtype) / mfu)
    note = (
        f"--measured {text} is read as {count.title} logs an MFU: all of attention counted, of a peak of "
        f"{render(count.peak, 'FLOP/s')}."
    )
    return ReportedStep(count.flops / (mfu * job.slice.chips * count.peak), note)


def _of_token_rate(text: str, rate: re.Match[str], job: Job, dtype: str) -> ReportedStep:
    chips = job.slice.chips
    # seconds of a step if the rate is that of the whole run; infinitely many of a rate of 0
    of_run = job.tokens / (parse(rate["number"], "count", "the measured rate") or math.nan)
    seconds = of_run
    if rate["chip"] or of_run / chips > _seconds_at_peak(job, dtype):
        seconds = of_run / chips  # so slow a run is taken for the rate of one chip
    run_rate = job.tokens / seconds
    note = f"--measured {text} is read as {run_rate / chips:,.0f} tokens/s a chip, {run_rate:,.0f} in all."
    return ReportedStep(seconds, note)


def _of_sample_rate(text: str, rate: re.Match[str], job: Job) -> ReportedStep:
    """Sequences of all chips a second, as `train_samples_per_second` of Hugging Face's trainer; of one with /GPU."""
    per_s = parse(rate["number"], "count", "the measured rate") or math.nan
    if rate["chip"]:
        per_s *= job.slice.chips
    return ReportedStep(job.batch / per_s, f"--measured {text} is read as {per_s:.4g} sequences a second in all.")


def _of_flop_rate(text: str, rate: re.Match[str], job: Job, dtype: str) -> ReportedStep:
    chips, peak = job.slice.chips, job.slice.chip.peak(dtype)
    number = parse(f"{rate['number']}{rate['prefix'].upper()}FLOP/s", "FLOP/s", "the measured rate")
    of_chip = number
    if not rate["chip"] and number > peak:
        of_chip = number / chips  # more than one chip can do is of the whole run
    if not 0 < of_chip <= peak:
        return ReportedStep(math.nan)
    count = flop_count(job)
    if count is not None:
        note = f"--measured {text} is read as {render(of_chip, 'FLOP/s')} of one chip, counted as {count.title} does."
        return ReportedStep(count.flops / (chips * of_chip), note)
    seconds = job.model_flops / (chips * of_chip)
    note = (
        f"--measured {text} is read as {render(of_chip, 'FLOP/s')} of one chip, counting the model's FLOPs with causal "
        "attention and without recompute; software that counts all of attention reports more."
    )
    return ReportedStep(seconds, note)


def _seconds_at_peak(job: Job, dtype: str) -> float:
    """A step in which every chip computes at its peak: an MFU of 100%."""
    return job.model_flops / (job.slice.chips * job.slice.chip.peak(dtype))


def measured_row(expected: PlanAssessment, seconds: float) -> Measured:
    """A measured step beside the expected one: whether it lies in the band, else what published runs of the model on
    that chip took, and candidates for the difference."""
    step = explain_measured(expected, seconds)
    return Measured(
        step_s=seconds,
        expected_s=expected.step_s,
        ratio=step.ratio,
        within_band=step.within_band,
        mfu=expected.mfu / step.ratio,
        suspects=[
            SuspectRow(suspect.cause, suspect.look, suspect.seconds, step.explains(suspect))
            for suspect in step.suspects
        ],
        text=" ".join(_sentences(step)),
        normal_for="" if step.normal_for is None else step.normal_for.when,
        impossible=step.impossible,
        published=list(map(_published_row, step.published[:MAX_PUBLISHED])),
    )


def _sentences(step: ExplainedStep) -> list[str]:
    expected = step.expected
    mfu = (expected.mfu_of_dtype or expected.mfu) / step.ratio
    start = (
        f"Measured {render(step.seconds, 's')} ({mfu:.1%} MFU) is {step.ratio:.2f}x the {render(expected.step_s, 's')} "
        "expected"
    )
    band = f"{render(expected.step_low_s, 's')} to {render(expected.step_high_s, 's')}"
    # what beats the datasheet was measured wrongly, whatever the band says
    if step.impossible:
        lower = render(first_number(expected.verdict.lower), "s")
        return [f"{start}, and below the {lower} that the datasheet allows: check what was timed, and the batch."]
    if step.within_band:
        return [f"{start}, within the band of {band}: no gap to explain."]
    sentences = [f"{start}, outside the band of {band}.", *_beside_published(step)]
    if step.normal_for is not None:
        sentences.append(
            f"It is normal for releases of {step.normal_for.when} ({render(step.normal_for.step_s, 's')} expected, "
            f"--stack {step.normal_for.stack}): a newer release would bring most of it."
        )
    if step.slower:
        return [*sentences, *_candidates(step)]
    stack = expected.job.stack.name
    return [*sentences, f"This software does something better than the stack {stack} is taken to."]


def _candidates(step: ExplainedStep) -> list[str]:
    """What candidates explain of a step that is too slow."""
    if step.suspects:
        largest_share = max(step.explains(suspect) for suspect in step.suspects)
        sentences = [
            "What could explain it is below, each candidate by itself, the nearest first; which of them happened, a "
            "profile shows."
        ]
        if largest_share < 0.5:
            sentences.append(f"None of them alone explains more than {largest_share:.0%} of the difference.")
    else:
        sentences = ["None of the causes that were tried explains any of it; a profile shows where the time went."]
    if step.straggler is not None:
        sentences.append(f"A straggler {step.straggler:.0%} slower would also explain it.")
    return sentences


def _beside_published(step: ExplainedStep) -> list[str]:
    """What published runs of the model on that chip say of the measured rate."""
    runs = step.published
    if not runs:
        return []
    # sorted: the same software and format first, then the nearest rate
    shown = runs[:MAX_PUBLISHED]
    if len(runs) == 1:
        which = "A published run"
    elif len(runs) > len(shown):
        which = f"The nearest {len(shown)} of {len(runs)} published runs"
    else:
        which = f"{len(runs)} published runs"
    chip, rate = step.expected.job.slice.chip.kin, step.tokens_per_s_per_chip
    listed = "; ".join(run.text for run in shown)
    sentences = [f"{which} of this model on {chip}: {listed}. This run makes {rate:,.0f} tokens/s per chip."]
    if any(step.ran_alike(run) for run in shown):
        sentences.append(
            f"One of them ran within {SAME_RATE:.0%} of this rate, so it is the prediction that may be off for that "
            "software."
        )
    return sentences


def _published_row(run: PublishedRun) -> PublishedRow:
    return PublishedRow(
        source=run.source,
        plan=short_plan(run.parsed_plan),
        chips=run.chips,
        step_s=run.step_s,
        tokens_per_s_per_chip=run.tokens_per_s_per_chip,
    )
