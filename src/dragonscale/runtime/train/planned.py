"""What the planner expects of a run, to stand beside what was measured.

The step time is of the slice that the plan was made for; the MFU is measured only where the devices are chips that
Dragonscale knows, against their datasheet. Bytes of state are the plan's own split of weights and optimizer state and
must be what the devices hold, wherever it runs.
"""

from dataclasses import dataclass, replace

import msgspec

from dragonscale.models.flops import Workload, training_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, load_chip, parse_slice
from dragonscale.physics.hardware.driver_names import chip_named
from dragonscale.physics.numbers import first_number
from dragonscale.plan.ledger import Ledger
from dragonscale.runtime.experts import expands
from dragonscale.runtime.train.settings import Order
from dragonscale.training.cost.evaluation import Job, judge_one, problems, tuned
from dragonscale.training.plan.stack import change, load_stack


@dataclass(frozen=True)
class PlannedStep:
    """The expectation, with its lower bound, for one chip of a slice; `state_bytes` are those of the master weights and
    the optimizer; `problems` says why the planner would refuse it, `remarks` what the run does otherwise."""

    slice: str
    step_s: float
    lower_s: float
    mfu: float
    hbm_bytes: float
    state_bytes: float
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class TrainResult(msgspec.Struct):
    """What came of a run. Times are medians over the steps after the first, which also compiles; `planned` is the
    planner's step on the slice that was named, none without one."""

    model: str
    plan: str
    devices: int
    device_kind: str
    parameters: int
    first_step: int
    last_step: int
    steps: int
    stopped: str
    loss: float | None
    compile_s: float | None
    step_s: float | None
    tokens_per_s: float | None
    flops_per_s_per_device: float | None
    mfu: float | None
    state_bytes_per_device: int
    capacity: float | None
    """Expert capacity factor (0: none are dropped); null of a model without experts."""
    planned: PlannedStep | None
    eval_loss: float | None = None
    """The last loss on data that was held out."""
    peak_bytes_per_device: int | None = None
    """The most memory that was ever taken on a device, where it is counted (GPUs, TPUs)."""


def judged_here(order: Order, model: Transformer, kind: str) -> PlannedStep | None:
    """The planner's verdict on the slice that the order names, else on as many GPUs of the kind there are (a count of
    them is a slice)."""
    chip = chip_of(kind)
    here = f"{chip.name}:{order.plan.chips}" if chip is not None and chip.kind == "gpu" else ""
    return planned(order if order.slice or not here else replace(order, slice=here), model)


def planned(order: Order, model: Transformer) -> PlannedStep | None:
    """The planner's verdict, if the order names a slice whose chips have a rate for what the run multiplies in. Experts
    have the room that the run gives them."""
    if not order.slice or lacks_rate(order):
        return None
    stack = load_stack("dragonscale")
    if order.run.capacity is not None:
        stack = change(stack, "experts", capacity=order.run.capacity)
    job = tuned(Job(model, parse_slice(order.slice), order.run.batch, order.run.seq, stack), order.tuning)
    plan = replace(order.plan, dtype=order.run.dtype)
    verdict = judge_one(job, plan)
    seconds = first_number(verdict.seconds)
    return PlannedStep(
        slice=order.slice,
        step_s=seconds,
        lower_s=first_number(verdict.lower),
        mfu=job.model_flops / (seconds * job.slice.flops),
        hbm_bytes=first_number(verdict.hbm_bytes),
        state_bytes=verdict.ledger.memory.get("weights and optimizer", 0.0) + _hosted_state(verdict.ledger),
        problems=tuple(problems(job, plan, verdict)),
        remarks=_expanded(order, model),
    )


def _hosted_state(ledger: Ledger) -> float:
    return sum(first_number(line.bytes) for line in ledger.hosted if line.part == "optimizer")


def _expanded(order: Order, model: Transformer) -> tuple[str, ...]:
    """That the step is of other matmuls than the plan's."""
    if order.run.capacity != 0 or not expands(model.program()):
        return ()
    return (
        "With --capacity 0 no token is dropped, and XLA on this GPU multiplies every row by all experts; the planned "
        "step is of rows times their own experts, as with --capacity 1.",
    )


def lacks_rate(order: Order) -> str:
    """That chips of the named slice have no matrix rate for the run's dtype, in a sentence; empty where they have."""
    chip = parse_slice(order.slice).chip if order.slice else None
    if chip is None or chip.rate(order.run.dtype) is not None:
        return ""
    return f"{chip.title} has no known matrix rate for {order.run.dtype}, so the step has no planned time."


def step_flops(model: Transformer, order: Order) -> float:
    """FLOPs of a step as the MFU counts them."""
    work = Workload(order.run.batch, order.run.seq, order.run.seq)
    return float(sum(training_flops(model.program().sections, work).values()))


def chip_of(kind: str) -> Chip | None:
    """The chip behind a device's own name, if it is known."""
    named = chip_named(kind)
    return load_chip(named) if named else None
