"""What could make a run slower than expected: one switch of its software, or one property of its machines, at a time.

Each suspect is the same plan judged with one thing otherwise. Nothing here knows what happened; a suspect whose step
comes near what was measured is a place to look first. What the run's software does by default is no suspect
(`suspects.toml`).

>>> by_default("attention", "megatron-bridge"), by_default("attention", "generic"), by_default("elementwise", "hf")
(True, False, False)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job, degrees_of, judge_one
from dragonscale.training.cost.step_time import straggling
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change, load_stack, on_chip

UNFUSED = 2.0
"""An elementwise chain of two lines that is not fused is read and written twice as often."""
LAUNCH_S = 10e-6
"""A kernel launched from Python without graphs: 5 to 10 us on current hosts (PyTorch's CUDA graphs notes)."""
SKEW = 1.5
"""The busiest expert's tokens over the mean in runs without a balancing loss."""
SOCKETS = 1 / 3
"""Of a network's bandwidth, below which a fault of cabling is less likely than a transport without RDMA."""
MAX_SLOWDOWN = 100.0
SLOW_LINK = 0.5
"""One of two rails, or a link trained at half its width."""


@dataclass(frozen=True)
class Suspect:
    """A possible cause, where one would see it, and the seconds of the step if it were true."""

    cause: str
    look: str
    seconds: float


def suspects(job: Job, plan: Plan, measured: float) -> list[Suspect]:
    """What could explain a measured step, nearest first; things that would change the step by less than a hundredth are
    left out."""
    expected = first_number(judge_one(job, plan).seconds)
    result: list[Suspect] = []
    for cause in _changes(job, plan):
        seconds = first_number(judge_one(cause.job, cause.plan).seconds)
        if seconds > 1.01 * expected:  # smaller effects are below what a measurement resolves
            result.append(Suspect(cause.cause, cause.look, seconds))
    network = explaining_network(job, plan, measured)
    if network is not None:
        result.append(network)
    return sorted(result, key=lambda suspect: abs(suspect.seconds - measured))


def slowest_behind(job: Job, plan: Plan, expected: float, measured: float) -> float:
    """How far the slowest machine would have to be behind the others to explain the whole difference, as a fraction."""
    stack = on_chip(job.stack, job.slice.chip.kind)
    straggle = first_number(straggling(stack, job.slice, plan, degrees_of([plan])))
    return measured / (expected / straggle) - 1


@dataclass(frozen=True)
class _Change:
    """A suspect before it is judged: the job and the plan as they would be."""

    cause: str
    look: str
    job: Job
    plan: Plan


def _changes(job: Job, plan: Plan) -> Iterator[_Change]:
    """Everything that could have been different."""
    yield from _stack_changes(job, plan)
    if plan.remat in ("none", "selective", "matmuls"):
        block = replace(plan, remat="block")
        yield _Change("whole blocks recomputed after all", "the recompute flag", job, block)
    if plan.dtype not in ("bf16", "fp16", "fp32"):
        wide = replace(plan, dtype="bf16")
        yield _Change(f"matmuls in bf16, not {plan.dtype}", "profile: kernel names", job, wide)
    yield from _machine_changes(job, plan)


def _stack_changes(job: Job, plan: Plan) -> Iterator[_Change]:
    """Switches of the software."""
    stack = job.stack

    def changed(cause: str, look: str, group: str, **switches: float) -> _Change:
        return _Change(cause, look, replace(job, stack=change(stack, group, **switches)), plan)

    def from_table(name: str, group: str, **switches: float) -> Iterator[_Change]:
        """A row of `suspects.toml`, unless the software rules it out by default."""
        row = shipped_table("training.advice", "suspects.toml")[name]
        if not by_default(name, stack.name):
            yield changed(row["cause"], row["look"], group, **switches)

    # By switch of `StackOverlap`: whether the plan has the communication that it hides.
    overlapped = {
        "weight": ("fsdp gathers and scatters not overlapped", plan.fsdp > 1 and plan.zero == 3),
        "gradient": ("the gradient reduction not overlapped", plan.data * plan.fsdp * plan.context > 1),
        "tensor": ("tensor collectives not overlapped", plan.tensor > 1),
        "context": ("context collectives not overlapped", plan.context > 1),
        "expert": ("the expert all-to-all not overlapped", plan.expert > 1),
        "send": ("pipeline sends not overlapped", plan.pipe > 1),
    }
    for switch, (cause, has_moves) in overlapped.items():
        if has_moves and getattr(stack.overlap, switch) > 0:
            yield changed(cause, "profile: streams", "overlap", **{switch: 0.0})
    if stack.kernels.flash:
        yield from from_table("attention", "kernels", flash=False)
    yield from from_table("elementwise", "kernels", elementwise_passes=UNFUSED * stack.kernels.elementwise_passes)
    if stack.host.kernel_s < LAUNCH_S:
        yield from from_table("launches", "host", kernel_s=LAUNCH_S)
    if job.experts:
        cause = f"skewed routing ({SKEW:g}x on the busiest expert)"
        yield changed(cause, "tokens by expert", "experts", skew=SKEW * stack.experts.skew)


def by_default(name: str, stack: str) -> bool:
    """Whether a stack, or the nearest one that it starts from and that has a row, does better by default."""
    defaults = shipped_table("training.advice", "suspects.toml")[name]["defaults"]
    # Up the chain of stacks that this one starts from.
    while stack and stack not in defaults:
        stack = load_stack(stack).base
    return bool(defaults.get(stack, ""))


def _machine_changes(job: Job, plan: Plan) -> Iterator[_Change]:
    """Slower links between nodes."""
    chip = job.slice.chip
    bandwidths = [path for path in chip.facts if path.startswith("levels.") and path.endswith(".bandwidth")]
    paths = [path for path in bandwidths if ".node." not in path]
    if "dcn.egress" in chip.facts and job.slice.pods > 1:
        paths.append("dcn.egress")
    if job.slice.hosts > 1 and paths:
        half = chip.with_facts(**{path: float(chip.facts[path].value) * SLOW_LINK for path in paths})
        slower = replace(job, slice=replace(job.slice, chip=half))
        yield _Change("half the network bandwidth", "all-reduce benchmark", slower, plan)


def explaining_network(job: Job, plan: Plan, measured: float) -> Suspect | None:
    """The bandwidth between nodes at which a step takes what was measured, where that is far below the chip's: sockets
    in place of RDMA or EFA. None where no bandwidth explains it."""
    chip = job.slice.chip
    paths = [path for path in chip.facts if path.startswith("levels.") and path.endswith(".bandwidth")]
    paths = [path for path in paths if ".node." not in path]
    if job.slice.hosts < 2 or not paths:
        return None

    def seconds(part: float) -> float:
        slow = chip.with_facts(**{path: float(chip.facts[path].value) * part for path in paths})
        return first_number(judge_one(replace(job, slice=replace(job.slice, chip=slow)), plan).seconds)

    fast, slow = SOCKETS, 1 / MAX_SLOWDOWN
    if not seconds(fast) < measured < seconds(slow):
        return None
    # the step is faster than measured at `fast` and slower at `slow`
    while fast > 1.05 * slow:
        middle = (fast * slow) ** 0.5
        if seconds(middle) < measured:
            fast = middle
        else:
            slow = middle
    bandwidth = float(chip.facts[paths[0]].value) * fast
    cause = f"sockets, no RDMA: {render(bandwidth, 'bytes/s')} a node"
    return Suspect(cause, "NCCL_DEBUG=INFO", seconds(fast))
