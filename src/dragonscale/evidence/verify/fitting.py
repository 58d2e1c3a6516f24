"""Where a plan does not fit by the compiler: the fastest plan of the same slice that would.

Plans are taken from the planner's front of time against memory, fastest first, and each is weighed as the verification
weighs memory, with the compiler's excess over that on top.
"""

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.search.headroom import headroom
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space

# The plans that may replace one that does not fit: everything but pipelines.
SPACE = "pipe=1,zero=3,schedule=1f1b"


def fitting_plan(report: VerifyReport) -> tuple[str, float] | None:
    """The fastest plan that would fit with headroom, and the bytes it would take; None where there is none."""
    request = report.request
    job = make_job(load_model(request.model), parse_slice(request.slice), request.batch, request.sequence)
    # compiled over planned bytes, as of the plan that was verified
    ratio = report.peak.ratio if report.peak is not None else None
    excess = max(1.0, ratio or 1.0)
    limit = (1 - headroom(job)) * report.limit_bytes
    for candidate in sorted(search(job, parse_space(SPACE)).front, key=lambda candidate: candidate.seconds):
        plan = str(candidate.plan)
        try:
            planned = plan_of(msgspec.structs.replace(request, plan=plan))
        except InputError:  # the runtime cannot run it
            continue
        size = planned.peak_bytes * excess
        if size <= limit and plan != request.plan:
            return plan, size
    return None
