"""The same job on fewer and more chips: which slices to try, and the best plan of each.

Curves over the batch and the crossovers of single schemes follow from the same evaluation: `scheme_curve` keeps a
scheme fixed while the chips grow and says where its wires take longer than its compute at datasheet rates.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.hardware import Chip, Slice, Torus
from dragonscale.hardware.slices import check_slice, possible_shapes
from dragonscale.training.evaluation import NUMBERS, WIRES, Job, first, judge, judge_one
from dragonscale.training.plan import Plan

GROWTH = 2


def slice_sizes(chip: Chip, most: int, least: int = 1) -> list[Slice]:
    """Slices of a chip that can be had, smallest first: powers of two (and whole nodes) of GPUs, compact boxes of TPUs."""
    if not isinstance(chip.network, Torus):
        node = chip.network.levels[0].degree
        sizes = {2**power for power in range(24) if 2**power <= min(node, most)} | {min(node, most)}
        sizes |= {node * 2**power for power in range(24) if node * 2**power <= most}
        return [Slice(chip, (size,)) for size in sorted(sizes) if size >= least]
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
    return _thinned(chosen)


def _thinned(pieces: list[Slice]) -> list[Slice]:
    """Powers of two where there are any, so that batches and heads divide; else every slice that is half as large again."""
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


@dataclass(frozen=True)
class Point:
    """One scheme on some chips: bounds of compute and of the busiest wires, and the expected step."""

    chips: int
    tokens_per_chip: float
    compute_s: float
    wires_s: float
    step_s: float
    busiest: str


SCHEMES = {
    "data": ("data",),
    "fsdp": ("fsdp",),
    "fsdp + tensor": ("fsdp", "tensor"),
    "context": ("context",),
    "pipe": ("pipe",),
}


def scheme_plan(job: Job, scheme: str, tensor: int = 8, remat: str = "block") -> Plan | None:
    """A scheme spread over all chips of a job, or None where it cannot be: `tensor` takes up to so many ways, and each
    chip's share of the batch passes at once, so that weights are gathered as seldom as possible."""
    axes = SCHEMES[scheme]
    chips = job.piece.chips
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
        here = replace(job, piece=piece)
        plan = scheme_plan(here, scheme)
        if plan is None:
            continue
        verdict = judge_one(here, plan)
        wires = {name: first(verdict.bound.terms[name].seconds) for name in WIRES if name in verdict.bound.terms}
        compute = sum(first(term.seconds) for name, term in verdict.bound.terms.items() if name not in WIRES)
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


def batch_curve(job: Job, plan: Plan, factors: tuple[int, ...] = (1, 2, 4, 8, 16)) -> list[tuple[int, Any]]:
    """The same plan with larger batches (more microbatches): tokens of the batch and the step's verdict."""
    if any(getattr(plan, name) < 1 for name in NUMBERS):
        raise InputError(f"The plan {plan} has a size below 1.")
    found = []
    for factor in factors:
        larger = replace(job, batch=job.batch * factor)
        numbers = {name: numpy.array([getattr(plan, name)]) for name in NUMBERS}
        found.append((larger.tokens, judge(larger, plan, numbers)))
    return found


def exists(piece: Slice) -> bool:
    """Whether a slice can be had."""
    try:
        check_slice(piece)
    except InputError:
        return False
    return True
