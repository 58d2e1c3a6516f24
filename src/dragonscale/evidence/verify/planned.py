"""What the plan of a request says it will do: bytes held, FLOPs, and every collective."""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.verify.planned_flops import planned_flops
from dragonscale.evidence.verify.planned_memory import ALIVE, memory_parts, planned_memory
from dragonscale.evidence.verify.planned_moves import PlannedMove, Work, planned_moves
from dragonscale.evidence.verify.request import Request
from dragonscale.evidence.xla import tpu_target
from dragonscale.hardware import parse_slice
from dragonscale.models import load_model
from dragonscale.plan.ledger import Ledger, LedgerLine
from dragonscale.runtime.meshes import place_of
from dragonscale.serving.capacity import BINARY, memory_bytes
from dragonscale.serving.compiled import few_rows
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.engine import adjust, load_engine
from dragonscale.serving.iteration import decode, prefill
from dragonscale.serving.ledger import iteration_ledger
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.training.evaluation import judge_one, make_job, problems
from dragonscale.training.plan import AXES, parse_plan

RESERVED = 258 * 2**20
"""What a TPU's runtime keeps of its memory for itself, as the compiler says when memory runs out."""


def device_memory(request: Request) -> float:
    """Bytes that a program may take on one of the devices that the compiler sees."""
    piece = parse_slice(request.slice)
    if piece.chip.kind == "gpu":
        return memory_bytes(piece.chip)
    return piece.chip.hbm.capacity * BINARY / tpu_target.cores(piece) - RESERVED


@dataclass(frozen=True)
class Planned:
    """One chip's share of a program. `memory` is the peak by part; `problems` are what the planner finds wrong with the plan;
    `few_rows` says that experts have fewer rows than a GPU's products are made of."""

    axes: dict[str, int]
    arguments_bytes: float
    memory: dict[str, float]
    flops: dict[str, float]
    moves: tuple[PlannedMove, ...]
    problems: tuple[str, ...]
    few_rows: bool = False

    @property
    def peak_bytes(self) -> float:
        """All parts together."""
        return sum(self.memory.values())


def plan_of(request: Request) -> Planned:
    """The planner's side of a request."""
    return _training(request) if request.program == "train" else _serving(request)


def _serving(request: Request) -> Planned:
    model, plan, piece = load_model(request.model), parse_serving_plan(request.plan), parse_slice(request.slice)
    engine = adjust(load_engine("dragonscale"), program={"expert_capacity": request.capacity})
    deployment = Deployment(model, piece, plan, engine)
    prompt = request.program == "prefill"
    step = prefill(request.sequence, request.batch) if prompt else decode(request.batch, request.sequence - 1)
    ledger = iteration_ledger(deployment, step)
    memory = ledger.memory
    tokens = request.batch * (request.sequence if prompt else 1)
    benches = [deployment.bench(section, prompt) for section in deployment.sections]
    return Planned(
        axes={axis: int(size) for axis, size in deployment.axes.items()},
        arguments_bytes=memory["weights"] + memory["cache"] + memory["tokens"],
        memory=memory,
        flops=_flops_by_part(ledger),
        moves=tuple(_move(line) for line in ledger.lines if line.moves and line.wire_bytes > 0),
        problems=_too_large(request, ledger.hbm_bytes),
        few_rows=any(few_rows(tokens, bench) for bench in benches),
    )


def _flops_by_part(ledger: Ledger) -> dict[str, float]:
    """Matmul FLOPs; attention's own stand apart as `scores`."""
    return ledger.by("term", "flops", lambda line: line.flops > 0)


def _move(line: LedgerLine) -> PlannedMove:
    what = line.carries
    return PlannedMove(
        line.kind, line.axes, what, "forward", line.what, line.section, float(line.wire_bytes), int(line.times)
    )


def _too_large(request: Request, peak: float) -> tuple[str, ...]:
    limit = device_memory(request)
    if peak <= limit:
        return ()
    return (
        f"it needs {peak / 1e9:.1f} GB per chip, {peak / limit - 1:.0%} more than the {limit / 1e9:.0f} GB there are",
    )


def _training(request: Request) -> Planned:
    model, plan, piece = load_model(request.model), parse_plan(request.plan), parse_slice(request.slice)
    if plan.pipe > 1:
        raise InputError(
            f"The plan has pipe={plan.pipe}: which stage runs when is decided while it runs, so a compiled pipeline does not "
            "say how often it sends; verify one stage's plan with pipe=1."
        )
    program = model.program()
    place = place_of(plan, program)
    together = plan.replicas * plan.microbatch
    work = Work(together, request.sequence, request.batch // together, capacity=request.capacity)
    parts = memory_parts(program, plan, place, work)
    job = make_job(model, piece, request.batch, request.sequence)
    return Planned(
        axes={axis: getattr(plan, axis) for axis in AXES},
        arguments_bytes=parts.state + parts.tokens,
        memory=planned_memory(parts, ALIVE[piece.chip.kind]),
        flops=planned_flops(program, plan, place, work),
        moves=tuple(planned_moves(program, plan, place, work)),
        problems=tuple(problems(job, plan, judge_one(job, plan))),
    )
