"""The same job on fewer and more chips: which slices to try, and where single schemes stop scaling.

`scheme_curve` keeps a scheme fixed while the chips grow; `crossover` says from where on its wires take longer than its
compute at datasheet rates.
"""

import itertools
from dataclasses import dataclass, replace

import numpy

from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.slices import possible_shapes
from dragonscale.training.cost.evaluation import Job, first, judge_one
from dragonscale.training.plan.plan import Plan

GROWTH = 2


def slice_sizes(chip: Chip, most: int, least: int = 1, fine: bool = False) -> list[Slice]:
    """Slices of a chip that can be had, smallest first: powers of two of GPUs (in whole nodes beyond one), compact
    boxes of TPUs. With `fine`, three times powers of two as well, and boxes of every size."""
    if not isinstance(chip.network, Torus):
        node = chip.network.levels[0].degree
        factors = (1, 3) if fine else (1,)
        sizes = {2**power for power in range(24) if 2**power <= min(node, most)} | {min(node, most)}
        sizes |= {node * part * 2**power for part in factors for power in range(24)}
        return [Slice(chip, (size,)) for size in sorted(sizes) if least <= size <= most]
    best: dict[int, Slice] = {}
    for shape in possible_shapes(chip):
        piece = Slice(chip, shape)
        old = best.get(piece.chips)
        if old is None or max(shape) < max(old.shape):
            best[piece.chips] = piece
    if chip.dcn is not None and best:
        pod = best[max(best)]
        best |= {pod.chips * pods: replace(pod, pods=pods) for pods in (2, 4, 8, 16, 32)}
    chosen = [piece for size, piece in sorted(best.items()) if least <= size <= most]
    return chosen if fine else _thinned(chosen)


def _thinned(pieces: list[Slice]) -> list[Slice]:
    """Powers of two where there are any, so that batches and heads divide."""
    powers = [piece for piece in pieces if piece.chips & (piece.chips - 1) == 0]
    return powers or pieces


def parts_of(piece: Slice, fewest: int = 16) -> list[Slice]:
    """Smaller slices of the same chip, down to one in `fewest`, largest last."""
    smaller = slice_sizes(piece.chip, piece.chips - 1, max(1, piece.chips // fewest)) if piece.chips > 1 else []
    return [part for part in smaller if part.chips < piece.chips]


def around(piece: Slice, below: int = 3, above: int = 2) -> list[Slice]:
    """A slice with some smaller and larger ones, smallest first."""
    larger = [one for one in slice_sizes(piece.chip, piece.chips * GROWTH**above) if one.chips > piece.chips]
    return [*parts_of(piece, GROWTH**below), piece, *larger[:above]]


def between(least: Slice, most: Slice) -> list[Slice]:
    """A slice, a larger one of the same chip, and what lies between them.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [one.chips for one in between(parse_slice("h100:64"), parse_slice("h100:496"))]
    [64, 128, 256, 496]
    """
    inner = slice_sizes(least.chip, most.chips - 1, least.chips + 1)
    return [least, *inner, most]


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
    """A scheme spread over all chips of a job, or None where it cannot be: `tensor` takes up to so many ways, and each
    chip's share of the batch passes at once, so that weights are gathered as seldom as possible."""
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


def scheme_curve(job: Job, scheme: str, pieces: list[Slice]) -> list[Point]:
    """A scheme on growing slices with the same batch."""
    points: list[Point] = []
    for piece in pieces:
        here = replace(job, slice=piece)
        plan = scheme_plan(here, scheme)
        if plan is None:
            continue
        verdict = judge_one(here, plan)
        wires = {name: first(seconds) for name, seconds in verdict.wires_s.items()}
        compute = first(verdict.compute_s)
        busiest = max(wires, key=lambda name: wires[name], default="")
        most = wires.get(busiest, 0.0)
        points.append(Point(piece.chips, job.tokens / piece.chips, compute, most, first(verdict.seconds), busiest))
    return points


def crossover(points: list[Point]) -> float | None:
    """The number of chips from which a scheme's wires take longer than its compute, interpolated; None if never."""
    for before, after in itertools.pairwise(points):
        low, high = before.wires_s / before.compute_s, after.wires_s / after.compute_s
        if low <= 1 < high:
            part = -numpy.log(low) / (numpy.log(high) - numpy.log(low)) if low > 0 else 1.0
            return float(before.chips * (after.chips / before.chips) ** part)
    return float(points[0].chips) if points and points[0].wires_s > points[0].compute_s else None
