"""What the plan of a request says it will do: bytes held, FLOPs, and every collective."""

from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.verify.planned_flops import planned_flops
from dragonscale.evidence.verify.planned_memory import ALIVE, memory_parts, planned_memory
from dragonscale.evidence.verify.planned_moves import PlannedMove, Work, planned_moves
from dragonscale.evidence.verify.planned_serving import Serving, few_rows, serving_flops, serving_memory, serving_moves
from dragonscale.evidence.verify.request import Request
from dragonscale.evidence.xla import tpu_target
from dragonscale.hardware import parse_slice
from dragonscale.models import load_model
from dragonscale.runtime.meshes import place_of
from dragonscale.runtime.serving_place import exchanges, serving_place, serving_sizes
from dragonscale.serving.capacity import BINARY, memory_bytes
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
    program = model.program()
    prompt = request.program == "prefill"
    place = serving_place(plan, program, prompt, exchanges(plan, program))
    tokens = request.sequence if prompt else 1
    what = Serving(program, place, request.batch, tokens, request.sequence, request.capacity, piece.chip.kind)
    memory = serving_memory(what)
    return Planned(
        axes=serving_sizes(plan, program),
        arguments_bytes=memory["weights"] + memory["cache"] + memory["tokens"],
        memory=memory,
        flops=serving_flops(what),
        moves=tuple(serving_moves(what)),
        problems=_too_large(request, sum(memory.values())),
        few_rows=few_rows(what),
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
