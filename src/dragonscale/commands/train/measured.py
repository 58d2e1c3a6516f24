"""A measured step laid beside the expected one: how it was written, what published runs of the model took, and what
could have made the difference."""

import math
import re
from dataclasses import dataclass

from dragonscale.commands.given import read_part
from dragonscale.commands.train.train_records import Measured, PlanReport, PublishedRow, SuspectRow
from dragonscale.errors import InputError, shorten
from dragonscale.physics.units import parse, render
from dragonscale.training.advice.explanations import Suspect, slowest_behind, suspects
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.search.published_runs import PublishedRun, runs_of_model
from dragonscale.training.search.run_kinds import family

MAX_SUSPECTS = 5
MAX_PUBLISHED = 3
ALIKE = 0.1
"""Rates of runs this near each other are called the same."""
_CHIP = r"\s*(?P<chip>(?:/|\bper\b)\s*(?:chip|[gt]pu|device))?\s*"
_TOKEN_RATE = re.compile(rf"(?i)\s*(?P<number>[\d.,]+\s*[kMG]?)\s*tok(?:en)?s?\s*/\s*s(?:ec)?{_CHIP}")
_FLOP_RATE = re.compile(rf"(?i)\s*(?P<number>[\d.,]+)\s*(?P<prefix>[GTPE])FLOPs?(?:\s*/\s*s(?:ec)?)?{_CHIP}")
_MFU = re.compile(r"(?i)(?P<share>.*%)\s*(?:MFU)?\s*")


@dataclass(frozen=True)
class ReportedStep:
    """The seconds of a measured step, and how a rate was read; empty where there was nothing to read."""

    seconds: float
    note: str = ""


def measured_step(text: str, job: Job, dtype: str = "bf16") -> ReportedStep:
    """A measured step as it is reported: a time, an MFU of the peak of the plan's format, tokens per second, or the
    model's FLOP/s. Rates are of one chip; what no chip could do is of the whole run.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.training.cost.evaluation import make_job
    >>> job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192)
    >>> texts = ("8.2s", "38%", "8k tok/s", "8k tok/s/GPU", "64k tok/s", "376 TFLOP/s", "376 TFLOP/s/GPU", "3 PFLOP/s")
    >>> [f"{measured_step(text, job).seconds:.3g}" for text in texts]
    ['8.2', '8.97', '8.19', '8.19', '8.19', '8.97', '8.97', '9']
    """
    chips, peak = job.slice.chips, job.slice.chip.peak(dtype)
    stripped = text.strip()
    note = ""
    if mfu := _MFU.fullmatch(stripped):
        hint = f"an MFU is a part of the {dtype} peak, such as 38%"
        seconds = job.model_flops / (chips * peak) / read_part(mfu["share"], "--measured", hint, 1e-9, 1.0)
    elif rate := _TOKEN_RATE.fullmatch(stripped):
        least = job.model_flops / (chips * peak)
        every = job.tokens / (parse(rate["number"], "count", "the measured rate") or math.nan)
        seconds = every / chips if rate["chip"] or every / chips > least else every
        run = job.tokens / seconds
        note = f"--measured {stripped} is read as {run / chips:,.0f} tokens/s a chip, {run:,.0f} in all."
    elif rate := _FLOP_RATE.fullmatch(stripped):
        number = parse(f"{rate['number']}{rate['prefix'].upper()}FLOP/s", "FLOP/s", "the measured rate")
        each = number if rate["chip"] or number <= peak else number / chips
        seconds = job.model_flops / (chips * each) if 0 < each <= peak else math.nan
        note = (
            f"--measured {stripped} is read as {render(each, 'FLOP/s')} of one chip, counting the model's FLOPs with "
            "causal attention and without recompute; software that counts all of attention reports more."
        )
    else:
        seconds = math.nan if stripped[:1] == "-" else parse(text, "s", "the measured step")
    if not 0 < seconds < 1e7:
        raise InputError(
            f"--measured is {shorten(text)}; write a time (8.2s), an MFU (38%), tokens (11k tok/s) or FLOPs "
            f"(420 TFLOP/s) a second of one chip, which has a {dtype} peak of {render(peak, 'FLOP/s')}."
        )
    return ReportedStep(seconds, note)


def against_measured(job: Job, plan: Plan, given: PlanReport, seconds: float) -> Measured:
    """A measured step beside the expected one: whether it lies in the band, else what published runs of the model on
    that chip took, and candidates for the difference."""
    ratio = seconds / given.step_s
    within = given.step_low_s <= seconds <= given.step_high_s
    slower = seconds > given.step_s and not within
    rows = _candidates(suspects(job, plan, seconds), given, seconds) if slower else []
    band = f"{render(given.step_low_s, 's')} to {render(given.step_high_s, 's')}"
    measured = f"{render(seconds, 's')} ({given.own_mfu / ratio:.1%} MFU)"
    start = f"Measured {measured} is {ratio:.2f}x the {render(given.step_s, 's')} expected"
    published: list[PublishedRow] = []
    if seconds < given.lower_s:
        sentences = [
            f"{start}, and below the {render(given.lower_s, 's')} that the datasheet allows: check what was timed, "
            "and the batch."
        ]
    elif within:
        sentences = [f"{start}, within the band of {band}: no gap to explain."]
    else:
        rate = job.tokens / seconds / job.slice.chips
        runs = _nearest_first(job, plan, rate)
        published = [_published_row(run) for run in runs[:MAX_PUBLISHED]]
        sentences = [f"{start}, outside the band of {band}.", *_beside_published(job, plan, runs, rate)]
        if slower:
            sentences += _of_candidates(job, plan, given, rows, seconds)
        else:
            sentences.append(f"This software does something better than the stack {given.stack} is taken to.")
    return Measured(
        step_s=seconds,
        expected_s=given.step_s,
        ratio=ratio,
        within_band=within,
        mfu=given.mfu / ratio,
        suspects=rows,
        text=" ".join(sentences),
        published=published,
    )


def _candidates(tried: list[Suspect], given: PlanReport, seconds: float) -> list[SuspectRow]:
    """What could have made a step slower, the nearest first. What would be slower than measured even at the fast end of
    its band, did not happen."""
    rest = seconds - given.step_s
    likely = [one for one in tried if one.seconds * given.step_low_s <= seconds * given.step_s]
    return [
        SuspectRow(one.cause, one.look, one.seconds, (one.seconds - given.step_s) / rest)
        for one in likely[:MAX_SUSPECTS]
    ]


def _of_candidates(job: Job, plan: Plan, given: PlanReport, rows: list[SuspectRow], seconds: float) -> list[str]:
    """What candidates explain, in sentences."""
    if not rows:
        sentences = ["None of the causes that were tried explains any of it; a profile shows where the time went."]
    else:
        most = max(row.explains for row in rows)
        sentences = [
            "What could explain it is below, each candidate by itself, the nearest first; which of them happened, a "
            "profile shows."
        ]
        if most < 0.5:
            sentences.append(f"None of them alone explains more than {most:.0%} of the difference.")
    if job.slice.hosts > 1:
        behind = slowest_behind(job, plan, given.step_s, seconds)
        sentences.append(f"A straggler {behind:.0%} slower would also explain it.")
    return sentences


def _nearest_first(job: Job, plan: Plan, rate: float) -> list[PublishedRun]:
    """Published runs of the model on its chip: those of the same software and format first, then of the nearest
    rate."""

    def distance(run: PublishedRun) -> tuple[bool, bool, float]:
        other_format = run.parsed_plan.dtype != plan.dtype
        return not _same_software(job, run), other_format, abs(math.log(run.tokens_per_s_per_chip / rate))

    return sorted(runs_of_model(job), key=distance)


def _same_software(job: Job, run: PublishedRun) -> bool:
    return family(run.stack) == family(job.stack.name)


def _published_row(run: PublishedRun) -> PublishedRow:
    return PublishedRow(
        source=run.source,
        plan=short_plan(run.parsed_plan),
        chips=run.chips,
        step_s=run.step_s,
        tokens_per_s_per_chip=run.tokens_per_s_per_chip,
    )


def _beside_published(job: Job, plan: Plan, runs: list[PublishedRun], rate: float) -> list[str]:
    """What published runs of the model on that chip, the nearest first, say of a measured rate."""
    if not runs:
        return []
    shown = runs[:MAX_PUBLISHED]
    listed = "; ".join(run.text for run in shown)
    if len(runs) == 1:
        which = "A published run"
    elif len(runs) > len(shown):
        which = f"The nearest {len(shown)} of {len(runs)} published runs"
    else:
        which = f"{len(runs)} published runs"
    sentences = [f"{which} of this model on {job.slice.chip.kin}, beside {rate:,.0f} measured here: {listed}."]
    if any(_ran_alike(job, plan, run, rate) for run in shown):
        sentences.append(
            f"One of them ran within {ALIKE:.0%} of this rate, so it is the prediction that may be off for that "
            "software."
        )
    return sentences


def _ran_alike(job: Job, plan: Plan, run: PublishedRun, rate: float) -> bool:
    """Whether a run of the same software in the same format was as fast as a measured rate."""
    same_kind = _same_software(job, run) and run.parsed_plan.dtype == plan.dtype
    return same_kind and abs(run.tokens_per_s_per_chip / rate - 1) <= ALIKE
