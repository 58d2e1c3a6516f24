"""The answer to `dscale train`: plans with their times, memory, what bounds them and what the run costs."""

from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.models.transformer import count_parameters
from dragonscale.training.budget import Budget, run_budget
from dragonscale.training.evaluation import WIRES, Job, Verdict, first, judge_one, problems
from dragonscale.training.plan import Plan
from dragonscale.training.search import Candidate, Found

COMPUTE = ("matmuls", "scores", "pointwise", "recomputation", "optimizer", "copies")
"""Words in the names of terms that are work on the chip itself."""


class Workload(msgspec.Struct):
    batch_tokens: int
    sequences: int
    seq: int
    tokens: float | None
    parameters: int
    dtype: str
    optimizer: str
    stack: str


class TermRow(msgspec.Struct):
    """A line of the bill. `exposed_s` is the part of `expected_s` that the step waits for; exposed parts add up to it."""

    name: str
    lower_s: float
    expected_s: float
    exposed_s: float
    bytes: float
    flops: float


class MemoryRow(msgspec.Struct):
    name: str
    bytes: float


class PlanReport(msgspec.Struct):
    plan: dict[str, Any]
    feasible: bool
    step_s: float
    lower_s: float
    upper_s: float
    mfu: float
    tokens_per_s_per_chip: float
    hbm_bytes: float
    hbm_limit_bytes: float
    bound_by: str
    terms: list[TermRow]
    days: float | None
    cost_usd: float | None
    problems: list[str]
    memory: list[MemoryRow]
    chips: int
    steps: int | None
    chip_hours: float | None
    energy_kwh: float | None
    advice: str


class FrontRow(msgspec.Struct):
    """A plan that no other beats in time, memory and chips."""

    plan: dict[str, Any]
    chips: int
    step_s: float
    hbm_bytes: float


class ScalingRow(msgspec.Struct):
    """The best plan of one slice, or None where nothing fits. `efficiency` compares tokens/s per chip with the first."""

    slice: str
    chips: int
    plan: str | None
    step_s: float | None
    speed: float | None
    efficiency: float | None
    mfu: float | None
    bound_by: str | None


class ChangeRow(msgspec.Struct):
    """One hardware number made better: how much faster the best plan then is."""

    change: str
    fact: str
    factor: float
    step_s: float
    faster: float
    why: str


class Codesign(msgspec.Struct):
    rows: list[ChangeRow]
    advice: str


class TrainReport(msgspec.Struct):
    model: str
    slice: str
    workload: Workload
    searched: int
    search_s: float
    plans: list[PlanReport]
    feasible: int
    infeasible: dict[str, int]
    pareto: list[FrontRow]
    notes: list[str]
    scaling: list[ScalingRow] = []
    codesign: Codesign | None = None


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
    broken = problems(job, plan, verdict)
    chip, step = job.piece.chip, first(verdict.seconds)
    budget = None
    if tokens is not None:
        budget = run_budget(tokens, job.tokens, step, job.piece.chips, chip.price, chip.power)
    terms = term_rows(verdict)
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
        bound_by=bound_by(terms),
        terms=terms,
        problems=broken,
        memory=[MemoryRow(name, first(size)) for name, size in verdict.expected.memory.items()],
        chips=plan.chips,
        advice=advice(job, plan, terms),
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


def is_compute(name: str) -> bool:
    """Whether a term is work on the chip itself, and not waiting for wires, other stages or stragglers."""
    return name not in WIRES and any(word in name for word in COMPUTE)


def bound_by(terms: list[TermRow]) -> str:
    """What takes most of the step: `compute`, or the name of the longest other term where that is more."""
    compute = sum(row.exposed_s for row in terms if is_compute(row.name))
    other = max((row for row in terms if not is_compute(row.name)), key=lambda row: row.exposed_s, default=None)
    return other.name if other is not None and other.exposed_s > compute else "compute"


def advice(job: Job, plan: Plan, terms: list[TermRow]) -> str:
    """What bounds the step, what is lost beside it, and what to change."""
    total = sum(row.exposed_s for row in terms) or 1.0
    compute = sum(row.exposed_s for row in terms if is_compute(row.name))
    others = [row for row in terms if not is_compute(row.name) or row.name == "recomputation"]
    lost = max(others, key=lambda row: row.exposed_s, default=None)
    bound = bound_by(terms)
    start = f"bound by {bound} ({(compute if bound == 'compute' else lost.exposed_s if lost else 0) / total:.0%} of the step)"
    if lost is None or lost.exposed_s < 0.01 * total:
        return f"{start}; only more or faster chips make it shorter."
    return f"{start}; most is lost to {lost.name} ({lost.exposed_s / total:.0%}): {_remedy(job, plan, lost.name)}."


def _remedy(job: Job, plan: Plan, name: str) -> str:
    tokens = job.tokens / job.piece.chips
    remedies = {
        "tensor collectives": f"fewer than tensor={plan.tensor} ways, or more network bandwidth inside the tensor group",
        "context collectives": f"fewer than context={plan.context} ways, or longer sequences",
        "expert all-to-all": f"fewer than expert={plan.expert} ways, or groups that stay inside a node",
        "fsdp collectives": f"more than the {tokens:,.0f} tokens per chip there are, so that gathers hide under compute",
        "gradient reduction": f"more than the {tokens:,.0f} tokens per chip there are, so that it hides under the backward pass",
        "pipeline bubble": "a larger batch (more microbatches per stage), fewer stages, or more chunks per rank",
        "pipeline sends": "fewer stages or chunks per rank",
        "recomputation": "more HBM, or more chips to spread the activations over",
        "stragglers": "fewer or more even machines",
        "waiting for the host": "larger microbatches or fewer ways, so that kernels take longer than their launches",
    }
    return remedies.get(name, "stages of more equal length")


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
            f"No plan is possible: a batch of {job.batch} sequences of {job.sequence} tokens cannot be divided over the "
            f"{job.piece.chips} chips of {job.piece}. Change --batch, --seq or the number of chips."
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


def read_batch(text: str, sequence: int) -> tuple[int, str]:
    """A batch in tokens (`4M`) or sequences (`512seq`) as sequences, and a note where the reading needs one.

    `4M` tokens are no whole number of sequences of 8192; where the binary reading (4Mi) is one, that is what is meant.
    """
    from dragonscale.units import parse_count

    stripped = text.strip()
    for ending in ("sequences", "seqs", "seq"):
        if stripped.endswith(ending):
            return _whole(parse_count(stripped.removesuffix(ending).strip(), "the batch"), text), ""
    tokens = _whole(parse_count(stripped, "the batch"), text)
    if tokens % sequence == 0:
        return tokens // sequence, ""
    if stripped[-1:] in "kKMGBT":
        binary = parse_count(stripped[:-1] + stripped[-1].upper().replace("B", "G") + "i", "the batch")
        if binary % sequence == 0:
            return (
                binary // sequence,
                f"A batch of {stripped} tokens is no whole number of sequences of {sequence}; taken as {stripped}i, "
                f"{binary:,} tokens ({binary // sequence} sequences).",
            )
    lower = max(tokens // sequence, 1)
    raise InputError(
        f"A batch of {shorten(text)} tokens is no whole number of sequences of {sequence}; write {lower * sequence} or "
        f"{(lower + 1) * sequence}, or a number of sequences such as {lower}seq."
    )


def _whole(number: int, text: str) -> int:
    if not 1 <= number <= 10**12:
        raise InputError(f"The batch is {shorten(text)}; it has at least one token and at most 10^12.")
    return number
