"""The answer to `dscale train`: plans with their times, memory, what bounds them and what the run costs."""

from typing import Any

from dragonscale.models.transformer import count_parameters
from dragonscale.reports.train.advice import advice, bound_by, memory_advice
from dragonscale.reports.train.records import FrontRow, MemoryRow, PlanReport, TermRow, TrainReport, Workload
from dragonscale.training.budget import Budget, run_budget
from dragonscale.training.evaluation import Job, Verdict, first, judge_one, problems
from dragonscale.training.plan import Plan
from dragonscale.training.search import Candidate, Found
from dragonscale.training.space import misfits


def workload_of(job: Job, words: Plan, tokens: float | None) -> Workload:
    parameters = count_parameters(job.model).total
    return Workload(
        job.tokens,
        job.batch,
        job.sequence,
        tokens,
        parameters,
        words.dtype,
        words.optimizer,
        job.stack.name,
    )


PLAN_KEYS = (
    "data", "fsdp", "tensor", "context", "expert", "pipe", "microbatch", "virtual", "remat", "zero", "dtype", "schedule",
    "sequence", "ring", "optimizer",
)  # fmt: skip


def plan_table(plan: Plan) -> dict[str, Any]:
    """A plan's settings by name."""
    return {name: getattr(plan, name) for name in PLAN_KEYS}


def plan_report(job: Job, plan: Plan, tokens: float | None = None) -> PlanReport:
    """One plan in full."""
    verdict = judge_one(job, plan)
    broken = [*problems(job, plan, verdict), *misfits(job, plan)]
    chip, step = job.piece.chip, first(verdict.seconds)
    budget = None
    if tokens is not None:
        budget = run_budget(tokens, job.tokens, step, job.piece.chips, chip.price, chip.power)
    terms = term_rows(verdict)
    memory = [MemoryRow(name, first(size)) for name, size in verdict.expected.memory.items()]
    full = first(verdict.hbm_bytes) > chip.hbm.capacity
    return PlanReport(
        plan=plan_table(plan),
        feasible=not broken,
        step_s=step,
        lower_s=first(verdict.lower),
        upper_s=first(verdict.upper),
        mfu=job.model_flops / (step * job.piece.flops),
        tokens_per_s_per_chip=job.tokens / step / job.piece.chips,
        hbm_bytes=first(verdict.hbm_bytes),
        hbm_limit_bytes=chip.hbm.capacity,
        bound_by=bound_by(terms, plan.pipe),
        terms=terms,
        problems=broken,
        memory=memory,
        chips=plan.chips,
        advice=memory_advice(memory) if full else advice(job, plan, terms),
        **_run(budget),
    )


def _run(budget: Budget | None) -> dict[str, Any]:
    if budget is None:
        return {"days": None, "cost_usd": None, "steps": None, "chip_hours": None, "energy_kwh": None}
    return {
        "days": budget.days,
        "cost_usd": budget.cost_usd,
        "steps": budget.steps,
        "chip_hours": budget.chip_hours,
        "energy_kwh": budget.energy_kwh,
    }


def term_rows(verdict: Verdict) -> list[TermRow]:
    """The terms of a step, longest exposed first; `stragglers` makes their exposed parts add up to the step."""
    rows: list[TermRow] = []
    for name, term in verdict.expected.terms.items():
        least = verdict.bound.terms.get(name)
        values = (term.seconds, term.exposed, term.sent, term.flops)
        seconds, exposed, sent, flops = (first(value) for value in values)
        lower = first(least.seconds) if least is not None else 0.0
        if seconds or exposed or lower:
            rows.append(TermRow(name, lower, seconds, exposed, sent, flops))
    rest = first(verdict.seconds) - first(verdict.expected.seconds)
    if rest > 0:
        rows.append(TermRow("stragglers", 0.0, rest, rest, 0.0, 0.0))
    return sorted(rows, key=lambda row: -row.exposed_s)


def search_report(job: Job, found: Found, words: Plan, tokens: float | None = None) -> TrainReport:
    """The best plans of a search in full."""
    chips = job.piece.chips
    return TrainReport(
        model=job.model.name,
        slice=str(job.piece),
        workload=workload_of(job, words, tokens),
        searched=found.searched,
        search_s=found.seconds,
        plans=[plan_report(job, one.plan, tokens) for one in found.best],
        feasible=found.feasible,
        infeasible={reason: number for reason, number in found.misses.items() if number},
        pareto=[FrontRow(plan_table(one.plan), chips, one.seconds, one.hbm_bytes) for one in found.front],
        notes=[],
    )


def single_report(job: Job, plan: Plan, tokens: float | None = None) -> TrainReport:
    """One given plan, feasible or not."""
    report = plan_report(job, plan, tokens)
    front = [FrontRow(plan_table(plan), plan.chips, report.step_s, report.hbm_bytes)] if report.feasible else []
    return TrainReport(
        job.model.name,
        str(job.piece),
        workload_of(job, plan, tokens),
        1,
        0.0,
        [report],
        int(report.feasible),
        {},
        front,
        [],
    )


def nearest_sentence(job: Job, nearest: Candidate | None, found: Found) -> str:
    """Why nothing is feasible, and by how much the nearest plan misses."""
    if not found.searched:
        return (
            f"No plan is possible: no mesh of the {job.piece.chips} chips of {job.piece} divides {job.batch} sequences of "
            f"{job.sequence} tokens, the heads and hidden dims of {job.model.name} and what is fixed. Change --batch, --seq, "
            f"--fix or the number of chips."
        )
    counts = ", ".join(f"{number:,} by {reason}" for reason, number in found.misses.items() if number)
    text = f"None of {found.searched:,} plans is feasible ({counts})."
    if nearest is None:
        return text
    limit = job.piece.chip.hbm.capacity
    over = nearest.hbm_bytes / limit - 1
    return (
        f"{text} The nearest, {nearest.plan}, needs {nearest.hbm_bytes / 1e9:.1f} GB per chip, {over:.0%} more than the "
        f"{limit / 1e9:.0f} GB there are: use more chips, a narrower optimizer state, or chips with more memory."
    )
