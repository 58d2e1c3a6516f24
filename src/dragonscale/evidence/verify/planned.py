"""What the plan of a request says it will do: the ledger of our own program, as `dscale train --stack dragonscale` and
`dscale serve --engine dragonscale` have it."""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.verify.request import Request
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.serving.compiled import few_rows
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import adjust, load_engine
from dragonscale.serving.iteration import decode, prefill
from dragonscale.serving.ledger import iteration_ledger
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.training.evaluation import Job, judge_one, problems
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.stack import Stack, change, load_stack
from dragonscale.training.step_ledger import MATMULS


def device_memory(request: Request) -> float:
    """Bytes that a program may take on one of the devices that the compiler sees."""
    piece = parse_slice(request.slice)
    return piece.chip.visible / piece.chip.devices


@dataclass(frozen=True)
class Planned:
    """One chip's share of a program: its ledger, the bytes of its arguments, and what the planner finds wrong with the
    plan; `few_rows` says that experts have fewer rows than a GPU's matmuls are made of."""

    axes: dict[str, int]
    ledger: Ledger
    arguments_bytes: float
    problems: tuple[str, ...]
    few_rows: bool = False

    @property
    def memory(self) -> dict[str, float]:
        """The peak by part."""
        return self.ledger.memory

    @property
    def peak_bytes(self) -> float:
        """All parts together."""
        return float(self.ledger.hbm_bytes)

    @property
    def flops(self) -> float:
        """Matmul FLOPs, attention's included."""
        return float(self.ledger.total("flops", lambda line: line.kind in MATMULS))

    @property
    def moves(self) -> tuple[LedgerLine, ...]:
        """Every collective."""
        return tuple(line for line in self.ledger.lines if line.moves and line.wire_bytes > 0)


def plan_of(request: Request) -> Planned:
    """The planner's side of a request."""
    return _training(request) if request.program == "train" else _serving(request)


def _serving(request: Request) -> Planned:
    model, plan, piece = load_model(request.model), parse_serving_plan(request.plan), parse_slice(request.slice)
    engine = adjust(load_engine("jax-program"), program={"expert_capacity": request.capacity})
    deployment = Deployment(model, piece, plan, engine)
    prompt = request.program == "prefill"
    step = prefill(request.sequence, request.batch) if prompt else decode(request.batch, request.sequence - 1)
    ledger = iteration_ledger(deployment, step)
    memory = ledger.memory
    tokens = request.batch * (request.sequence if prompt else 1)
    benches = [deployment.bench(section, prompt) for section in deployment.sections]
    return Planned(
        axes={axis: int(size) for axis, size in deployment.axes.items()},
        ledger=ledger,
        arguments_bytes=memory["weights"] + memory["cache"] + memory["tokens"],
        problems=_too_large(request, ledger.hbm_bytes),
        few_rows=any(few_rows(tokens, bench) for bench in benches),
    )


def _too_large(request: Request, peak: float) -> tuple[str, ...]:
    limit = device_memory(request)
    if peak <= limit:
        return ()
    return (
        f"it needs {peak / 1e9:.1f} GB per chip, {peak / limit - 1:.0%} more than the {limit / 1e9:.0f} GB there are",
    )


def our_stack(request: Request) -> Stack:
    """Our own program as a stack, with the room that experts have."""
    return change(load_stack("dragonscale"), "experts", capacity=request.capacity)


def training_job(request: Request, stack: Stack) -> Job:
    """The job of a request under a stack."""
    return Job(load_model(request.model), parse_slice(request.slice), request.batch, request.sequence, stack)


def _training(request: Request) -> Planned:
    plan = parse_plan(request.plan)
    if plan.pipe > 1:
        raise InputError(
            f"The plan has pipe={plan.pipe}: which stage runs when is decided while it runs, so a compiled pipeline "
            "does not say how often it sends; verify one stage's plan with pipe=1."
        )
    job = training_job(request, our_stack(request))
    verdict = judge_one(job, plan)
    memory = verdict.ledger.memory
    broken = [text for text in problems(job, plan, verdict) if "per chip" not in text]
    return Planned(
        axes=verdict.axes,
        ledger=verdict.ledger,
        arguments_bytes=memory["weights and optimizer"] + memory["tokens"],
        problems=(*broken, *_too_large(request, verdict.hbm_bytes)),
    )
