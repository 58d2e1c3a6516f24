"""Plans of a training job as an answer prints them: times, memory, what bounds them and what their run costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.advice import advice_text, bound_text, gradients_text, help_row, memory_text
from dragonscale.evidence.xla.gpu_target import compiles_for
from dragonscale.models.lora import PART
from dragonscale.models.transformer import count_parameters, unseen_parameters
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.advice.assessment import PlanAssessment, assess, chips_of_host, mfu_of_dtype
from dragonscale.training.advice.best_plans import largest_gap
from dragonscale.training.advice.flop_counts import flop_count
from dragonscale.training.advice.older_releases import earlier_releases
from dragonscale.training.advice.plan_advice import PlanAnswer, advise
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.cost.optimizer_update import DISK, HOST_UPDATE
from dragonscale.training.plan.builds import unbuilt
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, short_plan
from dragonscale.training.search.allowed_space import advice_against
from dragonscale.training.search.search import Candidate
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import StackSearch

# Of step or memory, by which an earlier release has to differ to be named.
MIN_DIFFERENCE = 0.05
MEMORY_NAMES = {
    "reducing": "gradients in flight",
    "casts": "16-bit copies of weights",
    "placeholders": "zero-filled gradient buffers",
    "update": "optimizer workspace",
}
"""What engineers call the parts of memory whose names in the ledger are short."""


@dataclass(frozen=True)
class Answered:
    """A report, and its first plan as it was assessed; None where there is none."""

    report: records.TrainReport
    first: PlanAnswer | None = None


def workload_of(job: Job, settings: Plan, tokens: float | None) -> records.TrainWorkload:
    """What is trained, in numbers, in the formats of some settings."""
    counts = count_parameters(job.model)
    return records.TrainWorkload(
        batch_tokens=job.tokens,
        sequences=job.batch,
        seq=job.sequence,
        tokens=tokens,
        parameters=counts.total,
        dtype=settings.dtype,
        optimizer=settings.optimizer,
        stack=job.stack.name,
        documents=job.documents,
        stack_why=job.auto,
        numerics=job.numerics,
        method=str(job.tuning),
        adapter_parameters=counts.by_part.get(PART, 0),
        unbuilt=unbuilt(job.stack.name, job.model),
        left_out=unseen_parameters(job.model),
    )


def answer_plan(
    job: Job,
    plan: Plan,
    tokens: float | None = None,
    force: bool = False,
    brief: bool = False,
    space: Space | None = None,
) -> PlanAnswer:
    """A plan assessed, with advice, with the space that it is the best of on other slices too. In brief there is no
    advice, for which more plans have to be judged."""
    assessed = assess(job, plan, tokens, force)
    return PlanAnswer(assessed) if brief else PlanAnswer(assessed, advise(assessed, tokens, space))


def plan_report(
    job: Job, plan: Plan, tokens: float | None = None, force: bool = False, brief: bool = False
) -> records.PlanReport:
    """One plan in full; in brief, without advice."""
    return plan_row(answer_plan(job, plan, tokens, force, brief))


def plan_row(answer: PlanAnswer) -> records.PlanReport:
    """An assessed plan, with advice on it, as it is printed."""
    assessed, advice = answer.assessed, answer.advice
    job, plan, verdict, budget = assessed.job, assessed.plan, assessed.verdict, assessed.budget
    chip = job.slice.chip
    ledger = verdict.ledger
    memory = [records.MemoryRow(MEMORY_NAMES.get(name, name), float(size)) for name, size in ledger.memory.items()]
    # without advice these fields of the JSON are empty
    helps: list[records.Help] = []
    text = gradients = ""
    if advice is not None:
        helps = [help_row(job, speedup) for speedup in advice.speedups]
        gradients = gradients_text(job, advice.numerics)
        if assessed.fits:
            text = advice_text(bound_text(assessed, advice.overhead), helps, advice.other_stacks)
        else:
            text = memory_text(assessed, advice, memory)
    # None where the tokens of the run are not known
    run: dict[str, Any] = dict.fromkeys(("days", "cost_usd", "steps", "chip_hours", "energy_kwh"))
    if budget is not None:
        run = {name: getattr(budget, name) for name in run}
    bf16_peak = chip.peak("bf16")
    # chips without bf16 have the rate of fp16 in its place
    half_format = "bf16" if chip.format("bf16") == "native" else "fp16"
    return records.PlanReport(
        plan=plan,
        feasible=assessed.feasible,
        step_s=assessed.step_s,
        lower_s=first_number(verdict.lower),
        upper_s=first_number(verdict.upper),
        mfu=assessed.mfu,
        tokens_per_s_per_chip=job.tokens / assessed.step_s / job.slice.chips,
        hbm_bytes=assessed.hbm_bytes,
        hbm_limit_bytes=chip.visible,
        tight=assessed.fits and not assessed.roomy,
        host_bytes=first_number(ledger.host_bytes),
        host_chips=chips_of_host(job.slice),
        host_limit_bytes=chips_of_host(job.slice) * chip.host_memory,
        bound_by=assessed.bound.label,
        terms=term_rows(verdict),
        **run,
        problems=assessed.problems,
        illegal=assessed.illegal,
        memory=memory,
        chips=plan.chips,
        stack=job.stack.name,
        runnable=assessed.feasible and not assessed.not_run,
        step_low_s=assessed.step_low_s,
        step_high_s=assessed.step_high_s,
        band_runs=assessed.band.runs,
        band=assessed.band.text,
        large_runs=assessed.large_runs.text if assessed.large_runs else "",
        flops=float(verdict.flops),
        sent_bytes={"+".join(axes): float(sent) for axes, sent in sorted(ledger.sent_bytes.items())},
        advice=text,
        helps=helps,
        gradients=gradients,
        verifiable=not assessed.not_run and job.tuning.method == "full" and compiles_for(chip),
        not_run=assessed.not_run,
        mfu_peak=f"{half_format} peak ({bf16_peak / 1e12:,.4g} TFLOP/s)",
        peak_flops=bf16_peak,
        mfu_of_dtype=assessed.mfu_of_dtype,
        logged_mfu=_logged_mfu(assessed),
        devices=chip.devices,
    )


def _logged_mfu(assessed: PlanAssessment) -> str:
    """The MFU as the job's software logs it; empty where that is the one that is printed."""
    count = flop_count(assessed.job)
    if count is None:
        return ""
    logged = count.mfu(assessed.step_s, assessed.job.slice.chips)
    if not count.foreign_peak:
        return f"{count.title} logs {logged:.1%}"
    own_peak = logged * count.peak / assessed.job.slice.chip.peak("bf16")
    return f"{own_peak:.1%} with all of attention; {count.title} logs {logged:.1%} (of {render(count.peak, 'FLOP/s')})"


def release_rows(assessed: PlanAssessment) -> list[records.ReleaseRow]:
    """A plan under earlier releases of its software, where step or memory differ by more than a twentieth."""
    return [
        records.ReleaseRow(run.stack, run.when, run.step_s, run.hbm_bytes)
        for run in earlier_releases(assessed)
        if abs(run.step_s / assessed.step_s - 1) > MIN_DIFFERENCE
        or abs(run.hbm_bytes / assessed.hbm_bytes - 1) > MIN_DIFFERENCE
    ]


def term_rows(verdict: Verdict) -> list[records.TermRow]:
    """The terms of a step, longest exposed first: groups of the ledger's lines, whose exposed parts add up to the
    step."""
    ledger = verdict.ledger
    lower, expected, exposed, sent, flops = (
        ledger.by("term", amount) for amount in ("bound_s", "expected_s", "exposed_s", "wire_bytes", "flops")
    )
    rows = []
    for name in expected:
        # terms that this plan does not have cost nothing and move nothing
        if expected[name] or lower[name] or sent[name]:
            amounts = (float(by_term[name]) for by_term in (lower, expected, exposed, sent, flops))
            rows.append(records.TermRow(name, *amounts))
    # bars and tables begin with what the step waits for most
    return sorted(rows, key=lambda row: -row.exposed_s)


def single_report(
    job: Job, plan: Plan, tokens: float | None = None, force: bool = False, brief: bool = False
) -> Answered:
    """One given plan, feasible or not."""
    answer = answer_plan(job, plan, tokens, force, brief=brief)
    row = plan_row(answer)
    if not brief:
        row.releases = release_rows(answer.assessed)
    notes = []
    if force:
        notes += [f"Forced: {reason}." for reason in row.illegal]
    notes += [*advice_against(job, plan), *offload_notes(job, plan)]
    devices = job.slice.chip.devices  # of chips that show software several devices, such as TPU v3's two cores
    if plan.microbatch % devices and job.batch // plan.replicas % devices == 0 and plan.context == 1:
        notes.append(
            f"A chip's {devices} devices split a sequence of microbatch={plan.microbatch}; a search takes multiples of "
            f"{devices}."
        )
    front = [records.FrontRow(plan, plan.chips, row.step_s, row.hbm_bytes)]
    report = records.TrainReport(
        model=job.model.name,
        slice=str(job.slice),
        workload=workload_of(job, plan, tokens),
        searched=1,
        search_s=0.0,
        plans=[row],
        feasible=int(row.feasible),
        infeasible={},
        pareto=front if row.feasible else [],
        notes=notes,
    )
    return Answered(report, answer)


def offload_notes(job: Job, plan: Plan) -> list[str]:
    """How the time of a plan that keeps state in the host's memory is estimated."""
    if plan.offload not in HOSTED_STATE:
        return []
    link = render(job.slice.chip.host_link, "bytes/s")
    disk = f", one disk of a node moves {render(DISK, 'bytes/s')}" if plan.offload == "nvme" else ""
    return [
        f"The time of offload={plan.offload} is an estimate that no measured step has confirmed: what goes to the host "
        f"and back travels at {link} a chip, the update runs at {render(HOST_UPDATE, 'bytes/s')} of the host's memory "
        f"for each chip{disk}, and none of it is hidden. DeepSpeed's own estimate of the host's memory adds "
        "half for buffers."
    ]


def stack_row(job: Job, best: Candidate) -> records.StackRow:
    """A stack with its recommended plan."""
    # a candidate of the search knows its step and its memory, nothing else
    mfu = job.model_flops / (best.seconds * job.slice.flops)
    return records.StackRow(
        job.stack.name,
        short_plan(best.plan),
        best.seconds,
        mfu,
        tight=not best.roomy,
        mfu_of_dtype=mfu_of_dtype(job, best.plan, mfu),
    )


def stack_rows(tried: Sequence[StackSearch], explain: bool = True) -> list[records.StackRow]:
    """The stacks that have a plan, that of the answer first; with what makes most of the difference of the second."""
    planned = [(search.job, search.best) for search in tried if search.best is not None]
    rows = [stack_row(job, best) for job, best in planned]
    if explain and len(rows) > 1:
        # only the second stack is explained: it costs two more judgements
        ledger, other = (judge_one(job, best.plan).ledger for job, best in planned[:2])
        rows[1].mostly = largest_gap(ledger, other)
    return rows


def neighbour_row(job: Job, best: Candidate) -> records.Neighbour:
    """A batch or slice near the one asked for, with its best plan."""
    row = stack_row(job, best)
    return records.Neighbour(
        str(job.slice), job.batch, row.plan, row.step_s, mfu=row.mfu, mfu_of_dtype=row.mfu_of_dtype
    )
