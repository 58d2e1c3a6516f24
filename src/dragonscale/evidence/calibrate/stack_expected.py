"""What a stack and an engine expect of the cases that are timed, in all and by kind of kernel."""

from collections import defaultdict
from dataclasses import dataclass

import numpy

from dragonscale.evidence.calibrate.stack_cases import Case, ServeCase, TrainCase
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import Engine
from dragonscale.serving.phases import decode, iteration_cost, prefill
from dragonscale.serving.plan import ServingPlan
from dragonscale.training.evaluation import Job, first, judge_one
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack


@dataclass(frozen=True)
class ExpectedCase:
    """Seconds, and where they go."""

    seconds: float
    parts: dict[str, float]

    @property
    def matmul(self) -> float:
        """Seconds of all matmuls."""
        return sum(value for name, value in self.parts.items() if name.endswith("matmul"))

    @property
    def attention(self) -> float:
        """Seconds of attention."""
        return self.parts.get("attention", 0.0)


def expected_case(case: Case, piece: Slice, stack: Stack, engine: Engine) -> ExpectedCase:
    """A case on one chip."""
    return _training(case, piece, stack) if isinstance(case, TrainCase) else _serving(case, piece, engine)


def _training(case: TrainCase, piece: Slice, stack: Stack) -> ExpectedCase:
    job = Job(load_model(case.model), piece, case.microbatch * case.passes, case.seq, stack)
    verdict = judge_one(job, Plan(microbatch=case.microbatch, remat=case.remat))
    parts: defaultdict[str, float] = defaultdict(float)
    for line in verdict.ledger.lines:
        name = line.kind if line.kind in ("matmul", "grouped matmul", "attention", "elementwise") else line.term
        name = f"{line.section} {name}" if line.section in ("embed", "head") else name
        parts[name] += first(line.total("exposed_s"))
    return ExpectedCase(first(verdict.seconds), dict(parts))


def _serving(case: ServeCase, piece: Slice, engine: Engine) -> ExpectedCase:
    deployment = Deployment(load_model(case.model), piece, ServingPlan(), engine)
    asked = decode(case.batch, case.length - 1) if case.kind == "decode" else prefill(case.length, case.batch)
    cost = iteration_cost(deployment, asked)
    parts: defaultdict[str, float] = defaultdict(float)
    for line in cost.lines:
        name = f"head {line.kind}" if line.section == "head" and line.kind == "matmul" else line.kind
        parts[name] += float(numpy.ravel(line.total("exposed_s"))[0])
    for name in ("host", "sampling", "issuing"):
        parts[name] += float(numpy.ravel(getattr(cost, name))[0])
    return ExpectedCase(float(numpy.ravel(cost.expected)[0]), dict(parts))
