"""The plan of a profile: its ledger for one step or iteration, in the words that profiles are read in."""

from dataclasses import dataclass

from dragonscale.evidence.verify.records import Request
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import load_engine
from dragonscale.serving.iteration import decode, prefill
from dragonscale.serving.ledger import iteration_ledger
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.training.evaluation import Job, judge_one
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.stack import load_stack


@dataclass(frozen=True)
class ExpectedStep:
    """What a plan says of a step on one chip. `model_flops` are those that an MFU counts, of one chip; `software` is
    the stack or engine."""

    request: Request
    ledger: Ledger
    mesh: dict[str, int]
    seconds: float
    model_flops: float | None
    software: str
    piece: Slice

    @property
    def lines(self) -> list[LedgerLine]:
        """Every kernel, move and wait."""
        return self.ledger.lines


def expected_step(request: Request, stack: str, engine: str) -> ExpectedStep:
    """The ledger of a training step under a stack, or of an iteration of an engine."""
    piece = parse_slice(request.slice)
    if request.program == "train":
        job = Job(load_model(request.model), piece, request.batch, request.sequence, load_stack(stack))
        verdict = judge_one(job, parse_plan(request.plan))
        return ExpectedStep(
            request,
            verdict.ledger,
            dict(verdict.axes),
            float(verdict.ledger.total("exposed_s")),
            job.model_flops / piece.chips,
            stack,
            piece,
        )
    deployment = Deployment(load_model(request.model), piece, parse_serving_plan(request.plan), load_engine(engine))
    prompt = request.program == "prefill"
    step = prefill(request.sequence, request.batch) if prompt else decode(request.batch, request.sequence - 1)
    ledger = iteration_ledger(deployment, step)
    mesh = {axis: int(size) for axis, size in deployment.axes.items()}
    return ExpectedStep(request, ledger, mesh, float(ledger.total("exposed_s")), None, engine, piece)
