"""What could make a run slower than expected: one switch of its software, or one habit of its machines, at a time.

Each suspect is the same plan judged with one thing otherwise. Nothing here knows what happened; a suspect whose step
comes near what was measured is a place to look first. What the run's software does by default is no suspect
(`suspects.toml`).

>>> by_default("attention", "megatron-bridge"), by_default("attention", "generic"), by_default("elementwise", "hf")
(True, False, False)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job, degrees_of, first, judge_one
from dragonscale.training.cost.step_time import straggling
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import Stack, change, load_stack, on_chip

UNFUSED = 2.0
"""An elementwise chain of two lines that is not fused is read and written twice as often."""
LAUNCH_S = 10e-6
"""A kernel launched from Python without graphs: 5 to 10 us on current hosts (PyTorch's CUDA graphs notes)."""
SKEW = 1.5
"""The busiest expert's tokens over the mean in runs without a balancing loss."""
SLOW_LINK = 0.5
"""One of two rails, or a link trained at half its width."""


@dataclass(frozen=True)
class Suspect:
    """Something that could have been otherwise, where one would see it, and the step it gives."""

    cause: str
    look: str
    seconds: float


def suspects(job: Job, plan: Plan, measured: float) -> list[Suspect]:
    """What could explain a measured step, nearest first; things that would change the step by less than a hundredth are
    left out."""
    expected = first(judge_one(job, plan).seconds)
    found = []
    for cause, look, other, changed in _others(job, plan):
        seconds = first(judge_one(other, changed).seconds)
        if seconds > 1.01 * expected:
            found.append(Suspect(cause, look, seconds))
    return sorted(found, key=lambda one: abs(one.seconds - measured))


def slowest_behind(job: Job, plan: Plan, expected: float, measured: float) -> float:
    """How far the slowest machine would have to be behind the others to make the whole difference."""
    stack = on_chip(job.stack, job.slice.chip.kind)
    return measured / (expected / first(straggling(stack, job.slice, plan, degrees_of([plan])))) - 1


def _others(job: Job, plan: Plan) -> Iterator[tuple[str, str, Job, Plan]]:
    """Suspects by name, where to look, and the job and plan that they are."""
    for cause, look, stack in _stacks(job, plan):
        yield cause, look, replace(job, stack=stack), plan
    if plan.remat in ("none", "selective", "matmuls"):
        yield "whole blocks recomputed after all", "the recompute flag", job, replace(plan, remat="block")
    if plan.dtype not in ("bf16", "fp16", "fp32"):
        yield f"matmuls in bf16, not {plan.dtype}", "profile: kernel names", job, replace(plan, dtype="bf16")
    yield from _machines(job, plan)


def _stacks(job: Job, plan: Plan) -> Iterator[tuple[str, str, Stack]]:
    stack = job.stack
    hidden = {
        "weight": ("fsdp gathers and scatters not overlapped", plan.fsdp > 1 and plan.zero == 3),
        "gradient": ("the gradient reduction not overlapped", plan.data * plan.fsdp * plan.context > 1),
        "tensor": ("tensor collectives not overlapped", plan.tensor > 1),
        "context": ("context collectives not overlapped", plan.context > 1),
        "expert": ("the expert all-to-all not overlapped", plan.expert > 1),
        "send": ("pipeline sends not overlapped", plan.pipe > 1),
    }
    for switch, (cause, there) in hidden.items():
        if there and getattr(stack.overlap, switch) > 0:
            yield cause, "profile: streams", change(stack, "overlap", **{switch: 0.0})
    kernels = stack.kernels
    if kernels.flash:
        yield from _unless_default("attention", stack, change(stack, "kernels", flash=False))
    wide = change(stack, "kernels", elementwise_passes=UNFUSED * kernels.elementwise_passes)
    yield from _unless_default("elementwise", stack, wide)
    if stack.host.kernel_s < LAUNCH_S:
        yield from _unless_default("launches", stack, change(stack, "host", kernel_s=LAUNCH_S))
    if job.experts:
        skewed = change(stack, "experts", skew=SKEW * stack.experts.skew)
        yield f"skewed routing ({SKEW:g}x on the busiest expert)", "tokens by expert", skewed


def _unless_default(name: str, stack: Stack, otherwise: Stack) -> Iterator[tuple[str, str, Stack]]:
    """A row of `suspects.toml` with the stack that it makes, unless the stack's software rules it out by default."""
    row = shipped_table("training.advice", "suspects.toml")[name]
    if not by_default(name, stack.name):
        yield row["cause"], row["look"], otherwise


def by_default(name: str, stack: str) -> bool:
    """Whether a stack, or the nearest one that it starts from and that has a row, does better by default."""
    defaults = shipped_table("training.advice", "suspects.toml")[name]["defaults"]
    while stack and stack not in defaults:
        stack = load_stack(stack).base
    return bool(defaults.get(stack, ""))


def _machines(job: Job, plan: Plan) -> Iterator[tuple[str, str, Job, Plan]]:
    chip = job.slice.chip
    levels = [path for path in chip.facts if path.startswith("levels.") and path.endswith(".bandwidth")]
    paths = [path for path in levels if ".node." not in path]
    paths += ["dcn.egress"] if "dcn.egress" in chip.facts and job.slice.pods > 1 else []
    if job.slice.hosts > 1 and paths:
        half = chip.with_facts(**{path: float(chip.facts[path].value) * SLOW_LINK for path in paths})
        slower = replace(job, slice=replace(job.slice, chip=half))
        yield "half the network bandwidth", "all-reduce benchmark", slower, plan
