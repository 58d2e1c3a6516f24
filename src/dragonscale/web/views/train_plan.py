"""What every panel of a training question needs: the report, its first plan, and the job they are about."""

from dataclasses import replace
from typing import Any

from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import PlanReport, TrainReport
from dragonscale.app.train.slices import chosen_slice
from dragonscale.errors import Infeasible
from dragonscale.physics.units import render
from dragonscale.training.evaluation import Job
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.step_ledger import WIRES
from dragonscale.web.page_request import PageRequest


def first_plan(asked: PageRequest, brief: bool | None = None) -> tuple[TrainReport, PlanReport | None]:
    """The report, and the plan it recommends or judges; in brief a plan that is given is held against no other."""
    report: TrainReport = asked.ask("train", asked.fields, brief)
    return report, report.plans[0] if report.plans else None


def only_too_large(one: PlanReport) -> bool:
    """Whether a chip's memory is all that a plan lacks: what it would hold is then known, how long it takes does not
    matter."""
    return one.hbm_bytes > one.hbm_limit_bytes and len(one.problems) == 1


def job_of(asked: PageRequest, brief: bool | None = None) -> tuple[TrainAsked, Job, Plan]:
    """The question as it was understood, the job on the slice that the report is about, and the first plan."""
    report, one = first_plan(asked, brief)
    if one is None:
        raise Infeasible("There is no plan that could be drawn.")
    understood: TrainAsked = report.asked
    job = understood.job(chosen_slice(understood, report))
    if report.workload.sequences != job.batch:  # where the largest batch was asked for, it is in the answer
        job = replace(job, batch=report.workload.sequences)
    return understood, job, one.plan


def typed_plan(plan: Plan) -> str:
    """A plan as the form takes it: the short form, with the one setting that tables leave out."""
    return short_plan(plan) + (f" fold={plan.fold}" if plan.fold != Plan().fold else "")


def typed_slice(asked: PageRequest, text: str) -> str:
    """A slice as the form takes it: what the field `set` changes of its chip stays in that field."""
    if not asked.fields.get("set"):
        return text
    name, _, topology = text.rpartition(":")
    typed = str(asked.fields.get("on", ""))
    own = (
        typed.partition(":")[0]
        if "," not in typed and name.startswith(typed.partition(":")[0])
        else name.partition("+")[0]
    )
    return f"{own}:{topology}"


def busiest(one: PlanReport) -> tuple[float, str, float]:
    """At datasheet rates: seconds of compute, and the kind of move that takes longest with its seconds."""
    compute = sum(row.lower_s for row in one.terms if row.name not in (*WIRES, "optimizer"))
    wires = {row.name: row.lower_s for row in one.terms if row.name in WIRES}
    name = max(wires, key=lambda term: wires[term], default="")
    return compute, name, wires.get(name, 0.0)


def region_of(one: PlanReport) -> dict[str, Any]:
    """Whether compute or the network bounds a step at datasheet rates, in words, and what the expected
    step waits for."""
    compute, name, seconds = busiest(one)
    if not name or not seconds:
        return {"bound": "compute", "title": "Compute-bound", "text": "Nothing travels between chips."}
    exposed = sum(row.exposed_s for row in one.terms if row.name in WIRES)
    takes = "take" if name.endswith("s") else "takes"
    both = f"At datasheet rates {name} {takes} {render(seconds, 's')} and compute {render(compute, 's')}"
    waits = f"{exposed / one.step_s:.0%} of the expected step waits for the network" if one.step_s else ""
    if seconds > compute:
        return {
            "bound": "communication",
            "title": "Communication-bound",
            "text": f"{both}, too little to hide it; {waits}.",
        }
    return {"bound": "compute", "title": "Compute-bound", "text": f"{both}, enough to hide it; {waits}."}
