"""A space of plans in few operations per plan: what plans have in common is computed once.

`PlanRows` holds each distinct mesh and microbatch once and costs its layers once; every combination of words and
`virtual` then puts the same layers into stages, all remat policies at a time. All of it is done by the functions that
`dragonscale.training.cost.evaluation.judge` is made of: no formula stands here, and a plan judged alone gives the same
numbers.

A layer's kernels depend only on the shapes that are left on a chip, its moves on the mesh, its state on neither the
microbatch nor the remat policy. `alike` finds rows that agree in some numbers; whatever is costed for the distinct ones
is spread back over all (`spread`). What is worked out for rows stays with them (`PlanRows.keep`), under a key that
names what it depends on, as long as their block is searched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy

from dragonscale.models.program import Section
from dragonscale.physics.hardware import Torus
from dragonscale.physics.numbers import maximum
from dragonscale.physics.sharding.placement import Wires, lay_wires
from dragonscale.plan.finite import check_terms
from dragonscale.training.cost.evaluation import Job, make_setting
from dragonscale.training.cost.layer_passes import StepParts, bound_passes, layer_passes
from dragonscale.training.cost.overlap import LayerPass, SectionSums, sum_lines
from dragonscale.training.cost.section_lines import offload_seconds, section_lines
from dragonscale.training.cost.step_time import lower_seconds, step_time, straggling
from dragonscale.training.memory.peak_memory import fullest_bytes, host_memory_lines, outer_ranks
from dragonscale.training.memory.section_memory import SectionMemory, section_memory
from dragonscale.training.memory.xla_memory import xla_memory_lines, xla_section
from dragonscale.training.plan.expert_load import uneven
from dragonscale.training.plan.plan import AXES, SOME_LAYERS, Plan, layer_policies, layers_of
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stages import StageLayers, stage_layers

SHAPE = ("expert", "context", "tensor", "microbatch")
"""What decides the shapes that are left on a chip."""
STATE = ("fsdp", "expert", "context", "tensor", "pipe")
"""What decides a chip's share of the state."""


def take(value: Any, part: Any) -> Any:
    """The rows `part` (a slice or indices) of every array in a record; rows are the last axis."""
    if isinstance(value, numpy.ndarray):
        # One value that stands for all rows stays so.
        if not value.ndim or value.shape[-1] == 1:
            return value
        return value[..., part]
    if isinstance(value, dict):
        return {key: take(item, part) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(take(item, part) for item in value)
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ not in ("Slice", "Chip"):
        return replace(value, **{item.name: take(getattr(value, item.name), part) for item in fields(value)})
    return value


def alike(degrees: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, Any]:
    """Places of the first row of each distinct tuple of some numbers, and for each row which of them it is like.

    >>> first, place = alike({"tensor": numpy.array([8, 4, 8])}, ("tensor",))
    >>> first.tolist(), place.tolist()
    ([1, 0], [1, 0, 1])
    """
    key = numpy.zeros(len(degrees[names[0]]), numpy.int64)
    for name in names:
        values, code = numpy.unique(degrees[name], return_inverse=True)
        key = key * len(values) + code
    # One integer per row, as digits in a mixed base: equal keys are equal tuples.
    _, first, which = numpy.unique(key, return_index=True, return_inverse=True)
    return first, which


@dataclass
class Shapes:
    """The distinct shapes that are left on a chip over all blocks of one structure: what depends on nothing else is
    found once for all of them, and `cache` holds it."""

    degrees: dict[str, Any]
    wires: Wires
    cache: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def keep(self, key: tuple[Any, ...], cost: Callable[[Any, Wires], Any]) -> Any:
        """What `cost` says of every shape, kept under a key."""
        if key not in self.cache:
            self.cache[key] = cost(self.degrees["microbatch"], self.wires)
        return self.cache[key]


def shapes_of(job: Job, blocks: list[dict[str, Any]]) -> tuple[Shapes, list[Any]]:
    """The shapes of some blocks, and for each block which of them its rows have."""
    whole: dict[str, Any] = {}
    for name in blocks[0]:
        whole[name] = numpy.concatenate([block[name] for block in blocks])  # (rows of all blocks,)
    distinct, which = alike(whole, SHAPE)
    degrees = take(whole, distinct)
    ends = numpy.cumsum([len(block["pipe"]) for block in blocks])[:-1]
    return Shapes(degrees, lay_wires(degrees, job.slice, AXES)), numpy.split(which, ends)


@dataclass
class PlanRows:
    """Distinct meshes and microbatches of one structure as arrays: whether experts spread over `tensor` (`folded`), and
    the dims that these meshes do not divide. `cache` holds what was worked out for them so far; `shapes`, if given, are
    those of all blocks, and `which` of them each row has."""

    job: Job
    degrees: dict[str, Any]
    folded: bool = True
    undivided: dict[str, Any] = field(default_factory=dict)
    shapes: Shapes | None = None
    which: Any = None
    wires: Wires = field(init=False)
    cache: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wires = lay_wires(self.degrees, self.job.slice, AXES)

    def __len__(self) -> int:
        return len(self.degrees["pipe"])

    def keep(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is kept under a key, made when it is first asked for."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def setting(self, plan: Plan, detail: bool = False) -> Setting:
        """The setting of these rows under the words of a plan; with `detail` for bounds too."""
        return make_setting(self.job, plan, self.folded, self.undivided, detail)

    def spread(self, names: tuple[str, ...], cost: Callable[[Any, Wires], Any], key: tuple[Any, ...] = ()) -> Any:
        """What `cost` says of (microbatches, wires), asked once for rows that are alike in some numbers; of shapes,
        under a key that names all else it depends on, once for all blocks."""
        # What depends on shapes alone is costed once for all blocks; everything else once for the rows of this block.
        if names == SHAPE and key and self.shapes is not None:
            return take(self.shapes.keep(key, cost), self.which)
        distinct, which = self.keep(("alike", *names), lambda: alike(self.degrees, names))
        wires = self.keep(("wires", *names), lambda: take(self.wires, distinct))
        return take(cost(self.degrees["microbatch"][distinct], wires), which)

    def uneven_bytes(self, plan: Plan, chosen: "Chosen", places: Any) -> Any:
        """Bytes of the fullest chip at some places of chosen rows, where the load of experts is uneven."""
        setting = self.setting(plan)
        setting = replace(setting, stack=uneven(setting.stack))
        memory = {section.name: _held(self, setting, section) for section in setting.sections}
        there = take(take((memory, _saved(self, setting, layer_policies(plan.remat)[0])), chosen.places), places)
        return _rank(setting, take(chosen, places), *there)


@dataclass(frozen=True)
class Chosen:
    """Some rows (a slice or places), with the number of chunks per rank of each: what plans of one batch have in common
    apart from their words."""

    degrees: dict[str, Any]
    wires: Wires
    layers: StageLayers
    microbatches: Any
    places: Any

    def __len__(self) -> int:
        return len(self.degrees["pipe"])


def choose(rows: PlanRows, places: Any, virtual: Any, layout: str = "") -> Chosen:
    """Rows to be judged with `virtual` chunks per rank (an array as long as the places)."""
    degrees, wires = take((rows.degrees, rows.wires), places)
    degrees = {name: numpy.broadcast_to(values, len(virtual)) for name, values in degrees.items()}
    layers = stage_layers(rows.job.model.program().order, degrees["pipe"], virtual, layout)
    copies = wires.mesh.size("data", "fsdp", "expert")
    microbatches = float(rows.job.batch) / (copies * degrees["microbatch"])
    return Chosen(degrees | {"virtual": virtual}, wires, layers, microbatches, places)


@dataclass(frozen=True)
class Costs:
    """Every section's sums and passes, what a chip holds of it, and for each remat policy what it saves. Passes that
    depend on the policy are stacked: an array has a line for each."""

    sums: dict[str, SectionSums]
    forward: dict[str, LayerPass]
    backward: dict[str, LayerPass]
    memory: dict[str, SectionMemory]
    saved: tuple[dict[str, Any], ...]

    def at(self, places: Any) -> "Costs":
        """The costs of some of the rows."""
        return take(self, places)


@dataclass(frozen=True)
class Judged:
    """What a search compares, as arrays with a line for each remat policy: the expected step (never below its lower
    bound, where that was asked for) and the bytes of the fullest chip."""

    seconds: Any
    hbm_bytes: list[Any]
    possible: Any

    def with_layers(self, chosen: Chosen, lines: list[int], word: str, limit: float) -> tuple[Chosen, "Judged"]:
        """Rows with some layers of a chunk recomputed: as many as the word says, or, of rows that leave no room without
        recompute and do with all of it, as many as are enough. Time and bytes are read off the line between both
        (`lines` of what was judged): times within a percent, bytes rather too many, since another moment may be the
        fullest; what is listed is judged alone."""
        whole = sum(chosen.layers.fullest.values()) / chosen.degrees["virtual"]  # layers of one chunk
        layers = numpy.full(len(chosen), float(layers_of(word)))
        none_line, block_line = lines  # of no recompute, and of recompute of whole layers
        if word == SOME_LAYERS:
            none, block = self.hbm_bytes[none_line], self.hbm_bytes[block_line]
            # Bytes fall on a line from no recompute to all of it: where it crosses the limit. Rows on which recompute
            # saves nothing divide by zero and are sorted out below.
            with numpy.errstate(all="ignore"):
                layers = numpy.broadcast_to(numpy.ceil((none - limit) / (none - block) * whole), len(chosen))
        places = numpy.flatnonzero((layers >= 1) & ((layers < whole) | (word != SOME_LAYERS)))
        share = numpy.minimum(layers / whole, 1.0)[places]

        def between(values: Any) -> Any:
            none = numpy.broadcast_to(values[none_line], len(chosen))[places]
            block = numpy.broadcast_to(values[block_line], len(chosen))[places]
            return none + share * (block - none)

        recomputed = take(chosen, places)
        recomputed.degrees[SOME_LAYERS] = layers[places].astype(int)
        possible = numpy.broadcast_to(self.possible, len(chosen))[places]
        return recomputed, Judged([between(self.seconds)], [between(self.hbm_bytes)], possible)


def judge_rows(
    rows: PlanRows, plan: Plan, remats: tuple[str, ...], chosen: Chosen, expected: Costs, bounds: list[Costs]
) -> Judged:
    """Chosen rows under some words and each of some remat policies, from what `cost_rows` found for them."""
    setting = rows.setting(plan)
    time = step_time(setting, chosen.degrees, _parts(chosen, expected), chosen.wires)
    stragglers = straggling(setting.stack, setting.slice, plan, chosen.degrees)
    seconds = time.seconds * stragglers
    if not numpy.isfinite(seconds).all():  # each term is looked at only where their sum says that one is wrong
        of = f"plans with {plan} on {setting.slice}"
        check_terms({**time.exposed, "stragglers": stragglers}, chosen.wires.possible, of)
    if bounds:
        least = []  # by policy
        for remat, costs in zip(remats, bounds, strict=True):
            least.append(lower_bounds(rows, replace(plan, remat=remat), chosen, costs))
        seconds = maximum(seconds, numpy.stack(least))
    hbm_bytes = []  # by policy
    for remat, saved in zip(remats, expected.saved, strict=True):
        policy_setting = setting.with_remat(remat)
        sizes = _rank(policy_setting, chosen, expected.memory, saved)
        # Sizes are infinite where the host lacks memory, never unknown.
        check_terms({"memory": numpy.where(numpy.isnan(sizes), sizes, 0.0)}, chosen.wires.possible, f"remat={remat}")
        hbm_bytes.append(sizes)
    shape = (len(remats), len(chosen))  # (policies, rows)
    return Judged(numpy.broadcast_to(seconds, shape), hbm_bytes, chosen.wires.possible)


def _parts(chosen: Chosen, costs: Costs) -> StepParts:
    return StepParts(costs.sums, costs.memory, chosen.layers, chosen.microbatches, costs.forward, costs.backward)


def _rank(setting: Setting, chosen: Chosen, memory: dict[str, SectionMemory], saved: dict[str, Any]) -> Any:
    """Bytes of the fullest chip under one remat policy; no number of bytes will do where the host lacks memory."""
    size = _chip(setting, chosen, memory, saved)
    there = host_memory_lines(setting, memory, chosen.layers, chosen.degrees, chosen.microbatches)
    if not there:
        return size
    return numpy.where(sum(line.bytes for line in there) > setting.slice.chip.host_memory, numpy.inf, size)


def _chip(setting: Setting, chosen: Chosen, memory: dict[str, SectionMemory], saved: dict[str, Any]) -> Any:
    layout = (chosen.layers, chosen.degrees, chosen.microbatches)
    if setting.stack.memory.allocator == "caching":
        saved_memory = {name: replace(section, activations=saved[name]) for name, section in memory.items()}
        return fullest_bytes(outer_ranks(setting, saved_memory, *layout))
    return sum(line.bytes for line in xla_memory_lines(setting, saved, *layout))


def lower_bounds(rows: PlanRows, plan: Plan, chosen: Chosen, bound: Costs) -> Any:
    """The lower bounds of chosen rows."""
    return lower_seconds(rows.setting(plan), chosen.degrees, _parts(chosen, bound), chosen.wires)


def cost_rows(rows: PlanRows, plan: Plan, remats: tuple[str, ...], bound: bool = False) -> Costs:
    """What all rows cost under some words and each of some remat policies, whatever the schedule:
    expected, or at best."""
    setting = rows.setting(plan, detail=bound)
    sums: dict[str, SectionSums] = {}
    memory: dict[str, SectionMemory] = {}
    for section in setting.sections:
        sums[section.name] = _sums(rows, setting, section, remats, bound)
        memory[section.name] = _held(rows, setting, section)
    saved = tuple(_saved(rows, setting, remat) for remat in remats)
    copies = rows.degrees["data"] * rows.degrees["fsdp"] * rows.degrees["expert"]
    rounds = rows.degrees["pipe"], float(rows.job.batch) / (copies * rows.degrees["microbatch"])
    passes = []  # (forward, backward) by policy
    for remat in remats:
        here = setting.with_remat(remat)
        if setting.stack.memory.kept_moves:  # moving what a policy keeps takes time
            for section in setting.sections:
                memory[section.name] = replace(memory[section.name], activations=_kept(rows, here, section))
        least = bound_passes(sums, here.plan, here.tuning.passes) if bound else None
        passes.append(least or layer_passes(here, sums, memory, *rounds))
    forward: dict[str, LayerPass] = {}
    backward: dict[str, LayerPass] = {}
    for name in sums:
        forward[name] = _stacked([pair[0][name] for pair in passes])
        backward[name] = _stacked([pair[1][name] for pair in passes])
    if not bound:
        sums = {name: _once(section_sums) for name, section_sums in sums.items()}
    return Costs(sums, forward, backward, memory=memory, saved=saved)


def _sums(rows: PlanRows, setting: Setting, section: Section, remats: tuple[str, ...], bound: bool) -> SectionSums:
    """A section's sums: kernels once for each shape on a chip, moves of activations too (under switches, where the axes
    that carry them lie the same whatever is above them), moves of weights once for each mesh. Kernels and activations
    serve all ZeRO stages."""
    policies = remats if "block" in section.name else ("none",)
    reading, quantity = setting.reading(section), "bound_s" if bound else "expected_s"
    # On a torus the wires of an axis depend on the sizes of all axes.
    torus = isinstance(setting.slice.chip.network, Torus)
    shared = (bound, *_words(setting.plan, section))
    stored = (bound, section.name, setting.plan.dtype, setting.plan.zero, _fold(setting.plan, section))

    def summed(kind: str, names: tuple[str, ...]) -> SectionSums:
        def cost(microbatch: Any, wires: Wires) -> SectionSums:
            lines = section_lines(setting, section, microbatch, wires, (kind,))
            return sum_lines(lines, reading, setting.stack, policies, quantity)

        return rows.spread(names, cost, (kind, policies, *shared))

    def offload(microbatch: Any, wires: Wires) -> Any:
        return offload_seconds(setting, section, microbatch, wires.mesh)

    def run() -> SectionSums:
        kernels = summed("kernels", SHAPE)
        kernels.offload = rows.spread(SHAPE, offload, ("offload", setting.plan.offload, *shared))
        return kernels.merged(summed("activations", (*AXES, "microbatch") if torus else SHAPE))

    return rows.keep(("run", *shared), run).merged(rows.keep(("moved", *stored), lambda: summed("state", AXES)))


def _fold(plan: Plan, section: Section) -> str:
    """How experts are spread, where there are any."""
    return plan.fold if "e" in section.dims else ""


def _words(plan: Plan, section: Section) -> tuple[object, ...]:
    """The words of a plan that decide what a section's kernels and activations are."""
    return (section.name, plan.dtype, plan.sequence, plan.context_by, _fold(plan, section))


def _loads(setting: Setting, section: Section) -> tuple[object, ...]:
    """The same, with how uneven the load of its experts is."""
    return (*_words(setting.plan, section), setting.stack.experts.skew if "e" in section.dims else 1.0)


def _held(rows: PlanRows, setting: Setting, section: Section) -> SectionMemory:
    """What a chip keeps of a section: state once for each way to lay it out, workspace once for each
    shape on a chip."""
    plan = setting.plan
    stored = (section.name, plan.dtype, plan.optimizer, plan.zero, _fold(plan, section))
    state = rows.keep(("state", *stored), lambda: _bytes(rows, setting, section, STATE))
    live = rows.keep(("live", *_loads(setting, section)), lambda: _bytes(rows, setting, section, SHAPE))
    passing = {name: getattr(live, name) for name in ("activations", "workspace", "logits", "layer_input")}
    return replace(state, **passing)


def _bytes(rows: PlanRows, setting: Setting, section: Section, names: tuple[str, ...]) -> SectionMemory:
    def cost(microbatch: Any, wires: Wires) -> SectionMemory:
        return section_memory(setting, section, microbatch, wires.mesh)

    plan = setting.plan
    return rows.spread(names, cost, ("bytes", plan.optimizer, plan.remat, *_loads(setting, section)))


def _saved(rows: PlanRows, setting: Setting, remat: str) -> dict[str, Any]:
    """What each section saves under a remat policy: bytes, or the parts that XLA's buffers are counted by."""
    here, saved = setting.with_remat(remat), {}
    for section in setting.sections:
        if setting.stack.memory.allocator == "xla":
            saved[section.name] = _xla_parts(rows, here, section)
        else:
            saved[section.name] = _kept(rows, here, section)
    return saved


def _xla_parts(rows: PlanRows, setting: Setting, section: Section) -> Any:
    def parts(microbatch: Any, wires: Wires) -> Any:
        return xla_section(setting, section, microbatch, wires.mesh)

    plan = setting.plan
    key = ("parts", plan.remat, *_loads(setting, section), plan.zero)
    return rows.keep(key, lambda: rows.spread((*AXES, "microbatch"), parts))


def _kept(rows: PlanRows, setting: Setting, section: Section) -> Any:
    """Bytes of activations that a layer keeps under the plan's remat policy."""
    key = ("saved", setting.plan.remat, *_loads(setting, section))
    return rows.keep(key, lambda: _bytes(rows, setting, section, SHAPE).activations)


def _once(sums: SectionSums) -> SectionSums:
    """The sums that are still asked for once the passes are made: what travels once a step."""
    return SectionSums({key: value for key, value in sums.seconds.items() if key[1] in ("gradient", "update")})


def _stacked(passes: list[LayerPass]) -> LayerPass:
    """Passes under several remat policies as one, a line for each, their moves added up."""
    exposed_s = []  # of all moves together, by policy
    for layer_pass in passes:
        exposed_s.append(sum((exposed for _, exposed in layer_pass.moves.values()), 0.0))
    stacked: dict[str, Any] = {"moves": {"moves": (0.0, _lines(exposed_s))}}
    for quantity in fields(LayerPass):
        if quantity.name != "moves":
            stacked[quantity.name] = _lines([getattr(layer_pass, quantity.name) for layer_pass in passes])
    return LayerPass(**stacked)


def _lines(values: list[Any]) -> Any:
    """Values of several policies: one where all have the same, else a line for each."""
    # Most values do not depend on the policy: one array then serves all of them.
    start = values[0]
    if all(value is start or numpy.array_equal(value, start) for value in values):
        return start
    return numpy.stack(numpy.broadcast_arrays(*values))
