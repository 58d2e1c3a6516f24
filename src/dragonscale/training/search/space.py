"""The discrete space of plans for a job: which sizes each axis may have, and every mesh made of them.

An axis size that cannot divide what it splits is left out from the start: `tensor` divides the heads and hidden dims,
`context` the sequence, `expert` the experts, `data · fsdp · expert` the batch; a pipeline has no more stages than there
are layers. So is what nobody would run unless asked: fewer than `LEAST_TOKENS` of a sequence on a chip, sharded weights
between pods. What is left is complete: every factorization of the chips over the six axes, every microbatch that
divides a replica's share of the batch (powers of two, all of it, or any part of an odd share), every number of chunks
per rank.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import AXES, FOLDS, POLICIES, SCHEDULES, Plan, read_field, read_setting, settings_of
from dragonscale.training.plan.stages import layout_for, layout_problem
from dragonscale.training.search.legal import deals, dim_sizes, shares_kv

SETTINGS = (*AXES, "microbatch", "virtual")
CHOICES = ("remat", "zero", "schedule", "context_by", "fold")
_DIFFERING = frozenset({"differing"})
"""For `Space.named`: the choices that are not the usual ones."""


@dataclass(frozen=True)
class Space:
    """What a search may choose from. `fixed` pins numbers of the plan (`{"tensor": 8}`); words that a search does not
    vary (dtype, optimizer, sequence) are those of `words`; `single` leaves out gradient accumulation: each
    replica's share of the batch passes at once; `force` searches what the stack cannot run, too. `named` are the
    settings that were asked for by name; without it, those that are not the usual ones."""

    remat: tuple[str, ...] = POLICIES
    zero: tuple[int, ...] = (0, 1, 2, 3)
    schedule: tuple[str, ...] = SCHEDULES
    context_by: tuple[str, ...] = ("gather", "ring")
    fold: tuple[str, ...] = FOLDS
    words: Plan = field(default_factory=Plan)
    fixed: dict[str, int] = field(default_factory=dict)
    single: bool = False
    force: bool = False
    named: frozenset[str] = _DIFFERING

    def __post_init__(self) -> None:
        # settled here, not when it is read: a copy that `replace` narrows asks for nothing more than its original
        if self.named is _DIFFERING:
            differing = (name for name in CHOICES if getattr(self, name) != getattr(Space, name))
            object.__setattr__(self, "named", frozenset(differing))


def parse_space(text: str) -> Space:
    """A space with some settings pinned: `tensor=8,remat=block|selective,dtype=fp8`.

    >>> parse_space("tensor=8, remat=block|none").remat
    ('block', 'none')
    """
    fields: dict[str, Any] = {"fixed": {}, "words": Plan()}
    named: set[str] = set()
    for part in settings_of(text):
        name, written = read_setting(part, text)
        named.add(name)
        values: list[Any] = list(dict.fromkeys(read_field(name, option) for option in written.split("|")))
        if name in CHOICES:
            fields[name] = tuple(values)
        elif len(values) > 1:
            raise InputError(f"In {shorten(text)} {name} has several values; only {', '.join(CHOICES)} may.")
        elif name in SETTINGS:
            fields["fixed"][name] = values[0]
        else:
            fields["words"] = replace(fields["words"], **{name: values[0]})
    return Space(**fields, named=frozenset(named))


def select_rows(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Some rows of a table of columns: a slice, indices or a mask."""
    return {name: values[rows] for name, values in table.items()}


def divisors(number: int) -> list[int]:
    """All divisors, smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


def even_chunks(layers: int, stages: int) -> tuple[int, ...]:
    """Numbers of chunks per rank, above one, that deal the layers as evenly as can be: one for each size of a chunk,
    and those that divide with the embedding and the head counted.

    >>> even_chunks(96, 8), even_chunks(126, 16)
    ((2, 3, 4, 6, 12), (2, 3, 4, 8))
    """
    counts = {math.ceil(layers / (stages * size)) for size in range(1, layers // stages + 1)}
    counts |= {count for count in divisors(layers + 2) if layout_for(layers, stages, count) == "ends"}
    return tuple(sorted(count for count in counts if count > 1 and stages * count <= layers + 2))


SPLIT = {"n": "query heads", "f": "hidden dims", "z": "shared experts' hidden dims", "i": "indexer heads"}
"""What `tensor` splits; KV heads are copied where there are fewer of them than degrees of `tensor`."""


def undivided(job: Job, ways: int) -> str:
    """What this degree of `tensor` cannot split evenly; empty if it can."""
    for section in job.model.program().sections:
        for name, title in SPLIT.items():
            if section.dims.get(name, 0) % ways:
                return f"{section.dims[name]} {title}"
        kv = section.dims.get("k", ways)
        if kv % ways and ways % kv:
            return f"{kv} KV heads"
    return ""


def misfits(job: Job, plan: Plan) -> list[str]:
    """Why a plan is not in the space of a job, beside the limits that `evaluation.problems` names."""
    reasons: list[str] = []
    rounds = job.batch // (plan.replicas * plan.microbatch)  # microbatches of a replica
    experts = dim_sizes(job.model, "e")
    if undivided(job, plan.tensor):
        reasons.append(f"tensor={plan.tensor} does not divide the model's {undivided(job, plan.tensor)}")
    # Zigzag order cuts a sequence into two chunks for each chip of `context`.
    shards = plan.context * (plan.tensor if plan.sequence else 1)
    if job.sequence % shards or (plan.context > 1 and job.sequence % (2 * plan.context)):
        over = f"context={plan.context}" + (f" and tensor={plan.tensor}" if plan.sequence else "")
        reasons.append(f"a sequence of {job.sequence} does not divide over {over}")
    if plan.expert > 1 and (not experts or any(count % plan.expert for count in experts)):
        experts_text = "the model has no experts for"
        if experts:
            experts_text = f"{experts[0]} experts do not divide over"
        reasons.append(f"{experts_text} expert={plan.expert}")
    if not numpy.all(deals_heads(job, plan, {name: getattr(plan, name) for name in AXES})):
        ways = f"context={plan.context} x tensor={plan.tensor}"
        heads = min(dim_sizes(job.model, "n"))
        reasons.append(
            f"Ulysses deals heads to {ways} chips, and the model's {heads} query heads do not divide by that"
        )
    reasons += _unspread(job, plan)
    if misdealt := layout_problem(job.model.n_layers, plan.pipe, plan.virtual, plan.layout):
        reasons.append(misdealt)
    if plan.virtual > 1 and (plan.schedule != "interleaved" or plan.pipe == 1):
        reasons.append(f"virtual={plan.virtual} needs a pipeline with schedule=interleaved")
    if plan.schedule == "interleaved" and plan.virtual > 1 and rounds % plan.pipe:
        reasons.append(f"interleaving takes microbatches in rounds of pipe={plan.pipe}, and there are {rounds}")
    if plan.schedule == "dualpipe" and plan.pipe > 1 and (plan.pipe % 2 or rounds % 2 or rounds < 2 * plan.pipe):
        reasons.append(
            f"dualpipe needs an even pipe and microbatches, at least 2 x {plan.pipe}, and there are {rounds}"
        )
    return reasons


def deals_heads(job: Job, settings: Plan, degrees: dict[str, Any]) -> Any:
    """Where query heads divide over the chips that Ulysses deals them to; KV heads divide, or are copied to as many."""
    if settings.context_by != "ulysses":
        return True
    # Each chip of context and tensor gets whole heads.
    ways, deal = degrees["context"] * degrees["tensor"], True
    for section in job.model.program().sections:
        queries, keys = section.dims.get("n", 0), section.dims.get("k", 0)
        deal = deal & (queries % ways == 0) & ((keys % ways == 0) | (ways % max(keys, 1) == 0))
    return deal | (degrees["context"] == 1)


def _unspread(job: Job, plan: Plan) -> list[str]:
    """Why experts cannot be spread as a plan asks."""
    experts = job.experts
    if plan.etp and not experts:
        return ["the model has no experts for etp=true to slice"]
    sliced = plan.etp or plan.expert * plan.tensor > experts
    if plan.fold == "tensor" or plan.context == 1:
        return []
    if not experts:
        return ["the model has no experts to spread over context"]
    if not job.stack.experts.folds:
        return [f"the stack {job.stack.name} does not spread experts over context (fold=context)"]
    ways = plan.expert * plan.context * (1 if sliced else plan.tensor)
    if experts % ways == 0:
        return []
    return [f"{experts} experts do not divide over the {ways} chips that fold=context spreads them over"]


LEAST_TOKENS = 1024
"""Tokens of a sequence that a search leaves on a chip of a `context` axis: with fewer, kernels and messages are too
small to be worth it."""


def axis_sizes(job: Job, space: Space | None = None) -> dict[str, list[int]]:
    """The sizes that each mesh axis may have, apart from what the others take: those that divide what they split, and
    that the stack has."""
    all_sizes, space = divisors(job.slice.chips), space or Space()
    row = rules(job.stack.name, family(job.slice.chip), tuned=job.tuning.tunes)

    def has(name: str, size: int) -> bool:
        return size == 1 or space.force or name in row.axes

    def splits(size: int) -> bool:
        whole = job.sequence % size == 0 or not space.words.sequence
        return whole and not undivided(job, size) and (space.force or shares_kv(job, row, size))

    def cuts(size: int) -> bool:
        enough = job.sequence // size >= LEAST_TOKENS or space.force or size == space.fixed.get("context")
        return size == 1 or (job.sequence % (2 * size) == 0 and enough)

    def stages(size: int) -> bool:
        return size <= job.model.n_layers and (space.force or deals(row, job.model.program().order, size, 1))

    experts = dim_sizes(job.model, "e")

    def deals_experts(size: int) -> bool:
        return size == 1 or (bool(experts) and all(count % size == 0 for count in experts))

    sizes: dict[str, list[int]] = {}
    for name, suits in {"tensor": splits, "context": cuts, "expert": deals_experts, "pipe": stages}.items():
        sizes[name] = [size for size in all_sizes if has(name, size) and suits(size)]
    sizes["fsdp"] = [size for size in all_sizes if has("fsdp", size)]
    return sizes


def meshes(job: Job, space: Space | None = None) -> dict[str, Any]:
    """Every mesh as arrays by axis name."""
    space = space or Space()
    fixed, sizes = space.fixed, axis_sizes(job, space)
    experts = min(dim_sizes(job.model, "e"), default=0)
    # Axis by axis: every partial mesh is combined with every size that divides the chips that are left.
    left = numpy.array([job.slice.chips])
    axes: dict[str, Any] = {}
    for name in ("tensor", "context", "expert", "pipe", "fsdp"):
        allowed = numpy.array([size for size in sizes[name] if size == fixed.get(name, size)], int)
        rows, choice = numpy.nonzero(left[:, None] % allowed[None, :] == 0)
        axes = select_rows(axes, rows) | {name: allowed[choice]}
        left = left[rows] // axes[name]
    axes["data"] = left
    # What no axis by itself can tell: whether batch and sequence divide.
    keep = left == fixed.get("data", left)
    keep &= job.batch % (axes["data"] * axes["fsdp"] * axes["expert"]) == 0
    keep &= job.sequence % (axes["context"] * (axes["tensor"] if space.words.sequence else 1)) == 0
    if job.slice.pods > 1 and not space.force and "data" not in fixed and "fsdp" not in fixed:
        # Between pods only replicas or stages: sharded weights would cross the data centre's network for every layer.
        whole_pods = (axes["data"] * axes["pipe"]) % job.slice.pods == 0
        keep &= whole_pods | ~numpy.any(keep & whole_pods)
    if space.context_by == ("ulysses",):
        keep &= deals_heads(job, Plan(context_by="ulysses"), axes)
    if experts and not space.words.etp:
        ways = axes["expert"] * axes["tensor"]
        row = rules(job.stack.name, family(job.slice.chip), tuned=job.tuning.tunes)
        keep &= (experts % ways == 0) | ((ways > experts) & (row.slices_experts or space.force))
    return {name: axes[name][keep] for name in AXES}


@dataclass(frozen=True)
class Kind:
    """Rows that may stand in one block: alike in whether there is an axis for ZeRO to split state over (`state`), in
    whether experts spread over `tensor` or are sliced by it, in whether they could spread over `context`, and in
    whether there is a `context` axis."""

    state: bool
    folds: bool
    sliced: bool
    context: bool

    def zero_stages(self, space: Space) -> tuple[int, ...]:
        """ZeRO stages that differ: none without an axis to split over; ZeRO-0 over `fsdp` is `data`, and over other
        axes it moves what ZeRO-1 does and holds more."""
        if not self.state:
            return (min(space.zero),)
        return tuple(stage for stage in space.zero if stage > 0) or space.zero

    def words(self, space: Space) -> list[Plan]:
        """ZeRO stages with the ways to bring keys and values together, and experts spread over `context` or not: these
        differ only where there is such an axis."""
        ways = space.context_by if self.context else ("gather",)
        folds = space.fold if self.folds else ("tensor",)
        settings: list[Plan] = []
        for zero, way, fold in product(self.zero_stages(space), ways, folds):
            settings.append(replace(space.words, zero=zero, context_by=way, fold=fold, remat=space.remat[0]))
        return settings


def kinds_of(job: Job, table: dict[str, Any], etp: bool = False) -> Any:
    """A number for the kind of each row; `kind_of` is the kind."""
    state = (table["fsdp"] * table["expert"] * table["context"] > 1).astype(int)
    whole = sliced(job, table) | (etp & bool(job.experts))
    return 8 * state + 4 * _folds(job, table, whole) + 2 * whole + (table["context"] > 1)


def kind_of(number: int) -> Kind:
    """The kind that a number of `kinds_of` stands for."""
    return Kind(bool(number // 8), bool(number // 4 % 2), bool(number // 2 % 2), bool(number % 2))


def _folds(job: Job, table: dict[str, Any], sliced: Any) -> Any:
    """Where whole experts can spread over `context` too."""
    if not job.experts or not job.stack.experts.folds:
        return numpy.zeros(len(table["context"]), bool)
    ways = table["expert"] * table["context"] * numpy.where(sliced, 1, table["tensor"])
    return (table["context"] > 1) & (job.experts % ways == 0)


def sliced(job: Job, table: dict[str, Any]) -> Any:
    """Where there are more chips in `expert` and `tensor` than experts."""
    experts = job.experts
    return (table["expert"] * table["tensor"] > experts) & bool(experts)


def rows_of(job: Job, space: Space) -> dict[str, Any]:
    """Every mesh with every microbatch, sorted by kind (see `kinds_of`) and by the stages of the pipeline."""
    mesh = meshes(job, space)
    pinned = space.fixed.get("microbatch")
    share = job.batch // (mesh["data"] * mesh["fsdp"] * mesh["expert"])
    sizes = numpy.array([pinned] if pinned else divisors(job.batch))
    fits = share[:, None] == sizes[None, :] if space.single else share[:, None] % sizes[None, :] == 0
    if pinned is None:
        # Kernels like powers of two, and so do people; an odd share, or a share in one pass, takes what there is.
        fits &= ((sizes & (sizes - 1)) == 0) | (share[:, None] == sizes[None, :]) | (share[:, None] % 2 == 1)
    # A chip of two devices gives each of them whole sequences, where there are enough.
    devices = job.slice.chip.devices
    if pinned is None and devices > 1:
        fits &= (sizes[None, :] % devices == 0) | (share[:, None] % devices != 0)
    rows, choice = numpy.nonzero(fits)
    table = select_rows(mesh, rows) | {"microbatch": sizes[choice]}
    order = numpy.lexsort((table["pipe"], kinds_of(job, table, space.words.etp)))
    return select_rows(table, order)
