"""The same job on fewer and more chips: which slices to try, and where single schemes stop scaling.

`scheme_curve` keeps a scheme fixed while the chips grow; `crossover` says from where on its wires take longer than its
compute at datasheet rates.
"""

import itertools
from dataclasses import dataclass, replace

import numpy

from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.slices import possible_shapes
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan

# From one size of a slice to the next.
GROWTH = 2


def slice_sizes(chip: Chip, largest: int, smallest: int = 1, fine: bool = False) -> list[Slice]:
    """Slices of a chip that can be had, smallest first: powers of two of GPUs (in whole nodes beyond one), compact
    boxes of TPUs. With `fine`, three times powers of two as well, and boxes of every size."""
    if not isinstance(chip.network, Torus):
        node = chip.network.levels[0].degree
        powers = [2**power for power in range(24)]
        sizes = {min(node, largest)} | {size for size in powers if size <= min(node, largest)}
        for nodes in powers:
            sizes |= {node * nodes, 3 * node * nodes} if fine else {node * nodes}
        return [Slice(chip, (size,)) for size in sorted(sizes) if smallest <= size <= largest]
    by_size: dict[int, Slice] = {}
    for shape in possible_shapes(chip):
        box = Slice(chip, shape)
        other = by_size.get(box.chips)
        if other is None or max(shape) < max(other.shape):  # the most compact box of each size
            by_size[box.chips] = box
    if chip.dcn is not None and by_size:
        pod = by_size[max(by_size)]
        by_size |= {pod.chips * pods: replace(pod, pods=pods) for pods in (2, 4, 8, 16, 32)}
    slices = [slice_ for size, slice_ in sorted(by_size.items()) if smallest <= size <= largest]
    if fine:
        return slices
    # Powers of two where there are any, so that batches and heads divide.
    return [slice_ for slice_ in slices if slice_.chips & (slice_.chips - 1) == 0] or slices


def parts_of(slice_: Slice, fewest: int = 16) -> list[Slice]:
    """Smaller slices of the same chip, down to one in `fewest`, largest last."""
    chips = slice_.chips
    if chips == 1:
        return []
    return [part for part in slice_sizes(slice_.chip, chips - 1, max(1, chips // fewest)) if part.chips < chips]


def around(slice_: Slice, below: int = 3, above: int = 2) -> list[Slice]:
    """A slice with some smaller and larger ones, smallest first."""
    sizes = slice_sizes(slice_.chip, slice_.chips * GROWTH**above)
    larger = [other for other in sizes if other.chips > slice_.chips]
    return [*parts_of(slice_, GROWTH**below), slice_, *larger[:above]]


def between(smallest: Slice, largest: Slice) -> list[Slice]:
    """Two slices of the same chip and the sizes between them.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [slice_.chips for slice_ in between(parse_slice("h100:64"), parse_slice("h100:496"))]
    [64, 128, 256, 496]
    """
    inner = slice_sizes(smallest.chip, largest.chips - 1, smallest.chips + 1)
    return [smallest, *inner, largest]


@dataclass(frozen=True)
class Point:
    """One scheme on some chips: bounds of compute and of the busiest wires, and the expected step."""

    chips: int
    tokens_per_chip: float
    compute_s: float
    wires_s: float
    step_s: float
    busiest: str


SCHEMES = ("data", "fsdp", "fsdp + tensor", "context", "pipe")


def scheme_plan(job: Job, scheme: str, tensor: int = 8, remat: str = "block") -> Plan | None:
    """A scheme spread over all chips of a job, or None where it cannot be: up to `tensor` ways of tensor parallelism,
    and each chip's share of the batch in one microbatch, so that weights are gathered as seldom as possible."""
    axes = scheme.split(" + ")
    chips = job.slice.chips
    sizes = {axes[0]: chips}
    if "tensor" in axes:
        ways = min(tensor, chips)
        sizes = {"fsdp": chips // ways, "tensor": ways}
    plan = replace(Plan(remat=remat), **sizes)
    if job.batch % plan.replicas or plan.pipe > job.model.n_layers or job.sequence % (2 * plan.context):
        return None
    return replace(plan, microbatch=1 if plan.pipe > 1 else job.batch // plan.replicas)


def scheme_curve(job: Job, scheme: str, slices: list[Slice]) -> list[Point]:
    """A scheme on growing slices with the same batch."""
    points: list[Point] = []
    for slice_ in slices:
        job_there = replace(job, slice=slice_)
        plan = scheme_plan(job_there, scheme)
        if plan is None:
            continue
        verdict = judge_one(job_there, plan)
        wires = {name: first_number(seconds) for name, seconds in verdict.wires_s.items()}
        compute = first_number(verdict.compute_s)
        busiest = max(wires, key=lambda name: wires[name], default="")
        points.append(
            Point(
                slice_.chips,
                tokens_per_chip=job.tokens / slice_.chips,
                compute_s=compute,
                wires_s=wires.get(busiest, 0.0),
                step_s=first_number(verdict.seconds),
                busiest=busiest,
            )
        )
    return points


def crossover(points: list[Point]) -> float | None:
    """The number of chips from which a scheme's wires take longer than its compute, interpolated; None if never."""
    for before, after in itertools.pairwise(points):
        low, high = before.wires_s / before.compute_s, after.wires_s / after.compute_s
        if low <= 1 < high:
            part = 1.0
            if low > 0:  # a straight line between logarithms
                part = -numpy.log(low) / (numpy.log(high) - numpy.log(low))
            return float(before.chips * (after.chips / before.chips) ** part)
    if points and points[0].wires_s > points[0].compute_s:
        return float(points[0].chips)
    return None
