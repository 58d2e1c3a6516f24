"""One training step: layers put into stages, what hides under what, and how long it takes.

Stages run their microbatches, layer by layer (see `dragonscale.training.passes`), under a pipeline schedule; the
gradients' reduction over copies of the model hides under the last backward pass; the optimizer updates each chip's share
of the state. The terms add up to the step, hidden and exposed parts apart.
"""

from dataclasses import dataclass, field
from typing import Any

from dragonscale.collectives import collective_time
from dragonscale.collectives.profile import Profile, expected_time, shared_profile
from dragonscale.hardware import Slice
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.program import Program, Section
from dragonscale.numbers import Number, maximum, minimum, where
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.placement import Wires
from dragonscale.training.cost import Timer
from dragonscale.training.layers import EXACT, Layer, layer_costs
from dragonscale.training.memory import Held, rank_bytes, section_bytes
from dragonscale.training.passes import Moved, Pass, backward_pass, forward_pass
from dragonscale.training.plan import Plan
from dragonscale.training.reading import read_section
from dragonscale.training.rules import Rules
from dragonscale.training.stack import Stack
from dragonscale.training.stages import Deal, bubble, deal_layers


@dataclass
class Term:
    """A line of the bill: seconds in all, the part that shows in the step, bytes sent and FLOPs done per chip."""

    seconds: Number = 0.0
    exposed: Number = 0.0
    sent: Number = 0.0
    flops: Number = 0.0


@dataclass
class Step:
    """A step's terms (exposed parts add up to `seconds`) and its memory by part; arrays over plans."""

    terms: dict[str, Term] = field(default_factory=dict)
    memory: dict[str, Number] = field(default_factory=dict)

    @property
    def seconds(self) -> Number:
        """Seconds of the step."""
        return sum(term.exposed for term in self.terms.values())

    @property
    def hbm_bytes(self) -> Number:
        """Bytes on the fullest chip."""
        return sum(self.memory.values())

    def add(self, name: str, seconds: Number, exposed: Number, sent: Number = 0.0, flops: Number = 0.0) -> None:
        """Add to a line of the bill."""
        term = self.terms.setdefault(name, Term())
        term.seconds = term.seconds + seconds
        term.exposed = term.exposed + exposed
        term.sent = term.sent + sent
        term.flops = term.flops + flops


@dataclass(frozen=True)
class Setting:
    """What is the same for every plan of a batch: the model, the machine, the work, and the choices that are words."""

    program: Program
    piece: Slice
    batch: Number
    sequence: int
    words: Plan
    stack: Stack
    timer: Timer
    profile: Profile | None
    folded: bool = True

    @property
    def rules(self) -> Rules:
        """The layouts that the words ask for."""
        return Rules(self.words.sequence, self.words.zero, self.folded, self.words.ring)

    @property
    def ends(self) -> tuple[Section, ...]:
        """What the last stage has beside its layers: the head, and modules that predict further tokens."""
        more = [section for section in self.program.extras if section.name.startswith("mtp")]
        return (self.program.sections[-1], *more)


@dataclass(frozen=True)
class Parts:
    """Every section's costs, and how the layers are dealt out."""

    layers: dict[str, Layer]
    held: dict[str, Held]
    deal: Deal
    microbatches: Number
    forward: dict[str, Pass]
    backward: dict[str, Pass]


def evaluate(setting: Setting, numbers: dict[str, Any], wires: Wires) -> Step:
    """A batch of plans that share their words: `numbers` has the mesh axes, microbatch and virtual as arrays."""
    parts = _read_parts(setting, numbers, wires)
    step = Step()
    add_time(step, setting, numbers, parts, wires)
    step.memory = rank_bytes(
        setting.words, setting.stack, parts.held, parts.deal, numbers, parts.microbatches,
        [section.name for section in setting.ends],
    )  # fmt: skip
    return step


def _read_parts(setting: Setting, numbers: dict[str, Any], wires: Wires) -> Parts:
    words, stack, rules = setting.words, setting.stack, setting.rules
    mesh = Mesh(wires.axes)
    replicas = mesh.size("data", "fsdp", "expert")
    microbatches = setting.batch / (replicas * numbers["microbatch"])
    base = {"b": numbers["microbatch"] * replicas, "t": float(setting.sequence), "s": float(setting.sequence)}
    layers: dict[str, Layer] = {}
    held: dict[str, Held] = {}
    for section in (*setting.program.sections[:-1], *setting.ends):
        sizes = dims_with_microbatch(section, base, mesh)
        reading = read_section(section, rules)
        layers[section.name] = layer_costs(
            reading, sizes, wires, setting.timer, setting.profile,
            reduce_bytes=stack.reduce_bytes, weight_bytes=travelling(words, stack), dedup=stack.expert_dedup,
        )  # fmt: skip
        held[section.name] = section_bytes(section, sizes, mesh, words, rules, stack, setting.piece.chip)
    forward, backward = layer_passes(setting, layers, held)
    deal = deal_layers(setting.program.order, numbers["pipe"], numbers["virtual"])
    return Parts(layers, held, deal, microbatches, forward, backward)


def layer_passes(
    setting: Setting, layers: dict[str, Layer], held: dict[str, Held]
) -> tuple[dict[str, Pass], dict[str, Pass]]:
    """Every section's forward and backward pass; only blocks are recomputed."""
    words, stack, timer = setting.words, setting.stack, setting.timer
    sharded = words.zero == 3
    forward: dict[str, Pass] = {}
    backward: dict[str, Pass] = {}
    for name, layer in layers.items():
        copied = timer.copy(held[name].used * stack.weight_copies / 2 * sharded)
        added = timer.copy(held[name].used * stack.accumulate)
        remat = words.remat if "block" in name else "none"
        forward[name] = forward_pass(layer, stack, sharded, copied)
        backward[name] = backward_pass(layer, stack, remat, sharded, copied + added)
    return forward, backward


def travelling(words: Plan, stack: Stack) -> float:
    """Bytes of a weight on the wire."""
    return min(2.0, dtype_bytes(words.dtype)) if stack.narrow_gathers else 2.0


def dims_with_microbatch(section: Section, base: dict[str, Number], mesh: Mesh) -> dict[str, Number]:
    """Dims with the microbatch; KV heads are copied where there are fewer than tensor shards."""
    sizes = section.dims | base
    if "k" in sizes:
        sizes["k"] = maximum(sizes["k"], mesh.size("tensor"))
    if section.compress is not None:
        sizes["m"] = sizes["s"] / section.compress
    return sizes


def add_time(step: Step, setting: Setting, numbers: dict[str, Any], parts: Parts, wires: Wires) -> None:
    words, deal = setting.words, parts.deal
    both = {name: parts.forward[name].seconds + parts.backward[name].seconds for name in parts.layers}
    last = sum(both[section.name] for section in setting.ends)

    def busy(counts: dict[str, Any]) -> Number:
        return sum(counts[kind] * both[kind] for kind in counts)

    alone = numbers["pipe"] == 1
    ends = maximum(busy(deal.first) + both["embed"], busy(deal.last) + last, busy(deal.fullest))
    if setting.stack.balanced:
        whole = sum(number * both[kind] for kind, number in _layer_counts(setting.program).items())
        largest = maximum(*[both[kind] for kind in deal.fullest])
        ends = minimum(ends, (whole + both["embed"] + last) / numbers["pipe"] + largest)
    slowest = alone * (busy(deal.first) + both["embed"] + last) + (1 - alone) * ends
    counts = deal.fullest
    per_f = sum(counts[kind] * parts.forward[kind].seconds for kind in counts)
    per_b = sum(counts[kind] * parts.backward[kind].seconds for kind in counts)
    per_w = sum(counts[kind] * parts.backward[kind].weight_part for kind in counts)
    _add_rank_terms(step, parts)
    uneven = parts.microbatches * (slowest - per_f - per_b)
    step.add("embedding, head and uneven stages", uneven, uneven)
    waiting = bubble(words.schedule, numbers["pipe"], numbers["virtual"], per_f, per_b, per_w)
    step.add("pipeline bubble", waiting, waiting)
    _add_sends(step, setting, numbers, parts, wires)
    _add_reduction(step, setting, parts, numbers, per_f, per_b)
    _add_update(step, setting, parts)


def _layer_counts(program: Program) -> dict[str, int]:
    return {kind: program.order.count(kind) for kind in dict.fromkeys(program.order)}


def _add_rank_terms(step: Step, parts: Parts) -> None:
    """Kernels by part and moves by axis of the fullest rank's layers."""
    for kind, number in parts.deal.fullest.items():
        times = number * parts.microbatches
        work = parts.layers[kind].work
        for (part, phase), seconds in work.seconds.items():
            step.add(_kernel_term(part), times * seconds, times * seconds, flops=times * work.flops[(part, phase)])
        for one in (parts.forward[kind], parts.backward[kind]):
            step.add("recomputation", times * one.recomputed, times * one.recomputed)
            step.add("waiting for the host", times * one.host, times * one.host)
            step.add("weight and gradient copies", times * one.copies, times * one.copies)
            _add_moves(step, one.moves, times)


def _add_moves(step: Step, moves: Moved, times: Number) -> None:
    for name, (seconds, exposed, sent) in moves.items():
        step.add(name, times * seconds, times * exposed, sent=times * sent)


def _kernel_term(part: str) -> str:
    return {"scores": "attention scores", "pointwise": "pointwise", "indexer": "attention matmuls"}.get(
        part, f"{part} matmuls"
    )


def _add_sends(step: Step, setting: Setting, numbers: dict[str, Any], parts: Parts, wires: Wires) -> None:
    """Activations from stage to stage, and their gradients back; those of the warm-up are waited for, the others as far
    as the stack does not hide them."""
    mesh = Mesh(wires.axes)
    pipe, virtual, microbatches = numbers["pipe"], numbers["virtual"], parts.microbatches
    d = setting.program.sections[0].dims["d"]
    size = numbers["microbatch"] * setting.sequence * d * 2 / (mesh.size("context") * mesh.size("tensor"))
    group = wires.group(("pipe",))
    if setting.profile is None:
        one = collective_time("permute", size, group, EXACT).lower
    else:
        one = expected_time("permute", size, group, shared_profile(setting.profile, group), EXACT)
    crossing = 2 * one * (pipe > 1)
    all_sends = crossing * virtual * microbatches
    warm = crossing * minimum(pipe - 1, microbatches)
    exposed = warm + (1 - setting.stack.send_overlap) * maximum(all_sends - warm, 0.0)
    step.add("pipeline sends", all_sends, exposed, sent=2 * size * virtual * microbatches * (pipe > 1))


def _add_reduction(
    step: Step, setting: Setting, parts: Parts, numbers: dict[str, Any], forward: Number, backward: Number
) -> None:
    """The gradients' sum over copies of the model, and the gathering of weights updated in shares, once a step: under
    the last backward and the next forward pass; with several chunks to a rank, each chunk's while the others run."""
    stack = setting.stack
    passes = where(numbers["virtual"] > 1, minimum(numbers["pipe"], parts.microbatches), 1)
    seconds: dict[str, Number] = {"gradient": 0.0, "update": 0.0}
    sent: Number = 0.0
    ends = [("embed", 1), *((section.name, 1) for section in setting.ends)]
    for kind, number in (*parts.deal.fullest.items(), *ends):
        travel = parts.layers[kind].travel
        for key, value in travel.seconds.items():
            phase, _, axes = key
            if phase == "update" or (phase == "gradient" and not (setting.words.zero == 3 and "data" not in axes)):
                seconds[phase] = seconds[phase] + number * value
                sent = sent + number * travel.sent[key]
    exposed = maximum(seconds["gradient"] - stack.gradient_overlap * backward * passes, 0.0)
    exposed = exposed + maximum(seconds["update"] - stack.gradient_overlap * forward * passes, 0.0)
    total = seconds["gradient"] + seconds["update"]
    hidden = total - exposed
    step.add("gradient reduction", total, exposed + stack.contention * hidden, sent=sent)


UPDATE_BYTES = {"adam": 30.0, "adam-bf16": 22.0, "adafactor": 14.5, "muon": 22.0, "sgd": 14.0}
"""Bytes that an update moves per parameter: the gradient and master copy read, the moments read and written, the master
copy and the weight written."""


def _add_update(step: Step, setting: Setting, parts: Parts) -> None:
    ends = [("embed", 1), *((section.name, 1) for section in setting.ends)]
    counted = (*parts.deal.fullest.items(), *ends[:1])
    share = sum(number * parts.held[kind].parameters for kind, number in counted)
    moved = share * UPDATE_BYTES[setting.words.optimizer] * setting.stack.update_passes
    update = setting.timer.copy(moved) + setting.stack.step_seconds
    step.add("optimizer", update, update)
