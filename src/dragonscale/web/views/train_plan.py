"""What every panel of a training question needs: the report, its first plan, the job they are about; and the stops of
the form's sliders."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dragonscale.commands.train.answered_slice import chosen_slice
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.errors import Infeasible
from dragonscale.physics.units import render
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.plan.plan import CONTEXTS, OFFLOADS, OPTIMIZERS, POLICIES, SCHEDULES, Plan, short_plan
from dragonscale.web.page_request import PageRequest

STEP = {"step": "step_s", "mfu": "own_mfu"}
"""What stands beside a plan wherever it is listed."""
SEQUENCES = tuple(2**power * step // 2 for power in range(1, 15) for step in (2, 3))
"""Powers of two and one and a half times those, which are searched for the best plan (`views/train_curves.py`)."""
LENGTHS = tuple(2**power for power in range(9, 21))
SHARES = (*range(1, 9), *(2**power * step // 4 for power in range(3, 9) for step in (4, 5, 6, 7)))
CHOICES = {
    "remat": POLICIES,
    "zero": (0, 1, 2, 3),
    "schedule": SCHEDULES,
    "context_by": CONTEXTS,
    "optimizer": OPTIMIZERS,
    "offload": OFFLOADS,
}
"""Words of a plan, for its editor."""


def first_plan(request: PageRequest, brief: bool | None = None) -> tuple[TrainReport, PlanReport | None]:
    """The report, and the plan it recommends or judges; in brief a plan that is given is held against no other."""
    report: TrainReport = request.ask("train", request.fields, brief)
    return report, report.plans[0] if report.plans else None


def only_too_large(plan_report: PlanReport) -> bool:
    """Whether a chip's memory is all that a plan lacks: what it would hold is then known, how long it takes does not
    matter."""
    return plan_report.hbm_bytes > plan_report.hbm_limit_bytes and len(plan_report.problems) == 1


def job_of(request: PageRequest, brief: bool | None = None) -> tuple[TrainRequest, Job, Plan]:
    """The question as it was understood, the job on the slice that the report is about, and the first plan."""
    report, plan_report = first_plan(request, brief)
    if plan_report is None:
        raise Infeasible("There is no plan that could be drawn.")
    understood: TrainRequest = report.asked
    job = understood.job.on_slice(chosen_slice(understood, report))
    if report.workload.sequences != job.batch:  # where the largest batch was asked for, it is in the answer
        job = replace(job, batch=report.workload.sequences)
    return understood, job, plan_report.plan


def typed_plan(plan: Plan) -> str:
    """A plan as the form takes it: the short form, with the one setting that tables leave out."""
    return short_plan(plan) + (f" fold={plan.fold}" if plan.fold != Plan().fold else "")


def typed_slice(request: PageRequest, text: str) -> str:
    """A slice as the form takes it: what the field `set` changes of its chip stays in that field."""
    if not request.fields.get("set"):
        return text
    name, _, topology = text.rpartition(":")
    typed = str(request.fields.get("on", ""))
    chip = typed.partition(":")[0]
    stem = chip if "," not in typed and name.startswith(chip) else name.partition("+")[0]
    return f"{stem}:{topology}"


def busiest(plan_report: PlanReport) -> tuple[float, str, float]:
    """At datasheet rates: seconds of compute, and the kind of move that takes longest with its seconds."""
    compute = sum(row.lower_s for row in plan_report.terms if row.name not in (*WIRES, "optimizer"))
    wires = {row.name: row.lower_s for row in plan_report.terms if row.name in WIRES}
    name = max(wires, key=lambda term: wires[term], default="")
    return compute, name, wires.get(name, 0.0)


def region_of(plan_report: PlanReport) -> dict[str, Any]:
    """Whether compute or the network bounds a step at datasheet rates, in words, and what the expected
    step waits for."""
    compute, name, seconds = busiest(plan_report)
    if not name or not seconds:
        return {"bound": "compute", "title": "Compute-bound", "text": "Nothing travels between chips."}
    exposed = sum(row.exposed_s for row in plan_report.terms if row.name in WIRES)
    takes = "take" if name.endswith("s") else "takes"
    both = f"At datasheet rates {name} {takes} {render(seconds, 's')} and compute {render(compute, 's')}"
    waits = (
        f"{exposed / plan_report.step_s:.0%} of the expected step waits for the network" if plan_report.step_s else ""
    )
    bound, enough = ("communication", "too little") if seconds > compute else ("compute", "enough")
    return {"bound": bound, "title": f"{bound.capitalize()}-bound", "text": f"{both}, {enough} to hide it; {waits}."}


def sliders_panel(request: PageRequest) -> dict[str, Any]:
    """Stops with their text: batches in sequences (with a plan given, those that it divides) and lengths. They do
    not move with what is chosen, so that a slider stays where the hand left it; what was typed in between becomes a
    stop."""
    report, _ = first_plan(request)
    work, chips = report.workload, None
    try:
        _, job, plan = job_of(request)
        share = plan.replicas * plan.microbatch if request.fields.get("plan") else 0
        chips = job.slice.chips
    except Infeasible:
        share = 0
    batches = _with(work.sequences, [share * many for many in SHARES] if share else SEQUENCES)
    seq = work.seq
    return {
        "batch": [{"value": many, "text": _batch(many, seq), "typed": typed_batch(many, seq)} for many in batches],
        "seq": [{"value": many, "text": f"{many:,} tokens"} for many in _with(seq, LENGTHS)],
        "plan": {"usual": vars(Plan()), "choices": CHOICES},
        "at": {"batch": work.sequences, "seq": work.seq, "chips": chips},
    }


def _with(chips: int, stops: Iterable[int]) -> list[int]:
    return sorted({chips, *stops})


def typed_batch(sequences: int, length: int) -> str:
    """A batch as one types it.

    >>> typed_batch(512, 8192), typed_batch(500, 8192)
    ('4Mi', '500seq')
    """
    many, rest = divmod(sequences * length, 2**20)
    return f"{sequences}seq" if rest else f"{many}Mi"


def _batch(sequences: int, length: int) -> str:
    """A batch in words.

    >>> _batch(512, 8192)
    '512 sequences, 4Mi tokens'
    """
    tokens = render(sequences * length, "count", binary=True)
    return f"{sequences:,} sequence{'s' * (sequences != 1)}, {tokens} tokens"
