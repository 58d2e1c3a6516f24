"""One training step: layers put into stages, what hides under what, and how long it takes.

Per microbatch, a layer's forward pass is its kernels and the activation moves that do not hide; its weights are gathered
meanwhile (ZeRO-3) and only what is longer than the layer shows. Backward is the same with twice the products, the
recomputation that the remat policy asks for, and the scattering of gradients. Stages then run their microbatches under a
schedule; the gradients' reduction over `data` hides under the last backward pass; the optimizer updates each chip's
share. The terms add up to the step, hidden and exposed parts apart.
"""

from dataclasses import dataclass, field
from typing import Any

from dragonscale.collectives.profile import Profile, expected_time
from dragonscale.hardware import Slice
from dragonscale.models.program import Program, Section
from dragonscale.numbers import Number, maximum, minimum
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.cost import Timer
from dragonscale.training.layers import EXACT, Layer, layer_costs
from dragonscale.training.memory import Held, section_bytes, working_set
from dragonscale.training.placement import Wires
from dragonscale.training.plan import Plan
from dragonscale.training.reading import read_section
from dragonscale.training.rules import Rules
from dragonscale.training.stack import Stack
from dragonscale.training.stages import Deal, bubble, deal_layers, held_microbatches


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
        return sum(term.exposed for term in self.terms.values())

    @property
    def hbm_bytes(self) -> Number:
        return sum(self.memory.values())

    def add(self, name: str, seconds: Number, exposed: Number, sent: Number = 0.0, flops: Number = 0.0) -> None:
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


@dataclass(frozen=True)
class Pass:
    """One layer's forward or backward in one microbatch: kernels by part, and moves with their exposed seconds."""

    kernels: Number
    recomputed: Number
    weight_part: Number
    moves: dict[str, tuple[Number, Number, Number]]

    @property
    def seconds(self) -> Number:
        return self.kernels + self.recomputed + sum(exposed for _, exposed, _ in self.moves.values())


RECOMPUTED = {"none": (), "selective": ("scores", "pointwise"), "matmuls": ("scores", "pointwise")}


def _recompute(layer: Layer, remat: str) -> Number:
    """Seconds of the forward kernels that run again in the backward pass."""
    if remat in ("block",):
        return layer.work.total("forward")
    again = RECOMPUTED.get(remat, ())
    return sum(seconds for (part, phase), seconds in layer.work.seconds.items() if phase == "forward" and part in again)


_AXIS_TERMS = {"tensor": "tensor collectives", "context": "context collectives", "expert": "expert all-to-all"}


def _moves(layer: Layer, phase: str, stack: Stack, again: bool) -> dict[str, tuple[Number, Number, Number]]:
    """Activation moves of a phase: seconds, exposed seconds and bytes by term. `again` repeats the forward ones, as the
    recomputation of a whole block does."""
    found: dict[str, tuple[Number, Number, Number]] = {}
    hidden = {"tensor": stack.tensor_overlap, "context": stack.context_overlap, "expert": stack.expert_overlap}
    for (when, what, axes), seconds in layer.travel.seconds.items():
        if what != "activation" or (when != phase and not (again and when == "forward")):
            continue
        axis = next((name for name in ("expert", "context", "tensor") if name in axes), "tensor")
        name = _AXIS_TERMS[axis]
        old = found.get(name, (0.0, 0.0, 0.0))
        sent = layer.travel.sent[(when, what, axes)]
        found[name] = (old[0] + seconds, old[1] + seconds * (1 - hidden[axis]), old[2] + sent)
    return found


def forward_pass(layer: Layer, stack: Stack) -> Pass:
    """A layer's forward pass, with the gathering of its weights."""
    kernels = layer.work.total("forward") + stack.layer_seconds
    moves = _moves(layer, "forward", stack, again=False)
    busy = kernels + sum(exposed for _, exposed, _ in moves.values())
    return Pass(kernels, 0.0, 0.0, moves | _weights(layer, "forward", busy, stack))


def backward_pass(layer: Layer, stack: Stack, remat: str) -> Pass:
    """A layer's backward pass, with recomputation, the gathering of weights and the scattering of gradients."""
    kernels = layer.work.total("dgrad", "wgrad") + 2 * stack.layer_seconds
    again = _recompute(layer, remat)
    moves = _moves(layer, "backward", stack, again=remat == "block")
    busy = kernels + again + sum(exposed for _, exposed, _ in moves.values())
    return Pass(kernels, again, layer.work.total("wgrad"), moves | _weights(layer, "backward", busy, stack))


def _weights(layer: Layer, phase: str, busy: Number, stack: Stack) -> dict[str, tuple[Number, Number, Number]]:
    """ZeRO-3's gathers (and in the backward pass its scatters): they hide under the layer as far as it is long."""
    seconds = layer.travel.total(phase, "weight")
    sent = sum(value for (when, what, _), value in layer.travel.sent.items() if when == phase and what == "weight")
    if phase == "backward":
        scattered = [key for key in layer.travel.seconds if key[1] == "gradient" and key[2] == ("fsdp",)]
        seconds = seconds + sum(layer.travel.seconds[key] for key in scattered)
        sent = sent + sum(layer.travel.sent[key] for key in scattered)
    exposed = maximum(seconds - stack.weight_overlap * busy, 0.0)
    return {"fsdp collectives": (seconds, exposed, sent)}


def evaluate(setting: Setting, numbers: dict[str, Any], wires: Wires) -> Step:
    """A batch of plans that share their words: `numbers` has the mesh axes, microbatch and virtual as arrays."""
    words, stack = setting.words, setting.stack
    rules = Rules(sequence=words.sequence, sharded_weights=words.zero == 3)
    mesh = Mesh(wires.axes)
    replicas = mesh.size("data", "fsdp", "expert")
    microbatches = setting.batch / (replicas * numbers["microbatch"])
    base = {"b": numbers["microbatch"] * replicas, "t": float(setting.sequence), "s": float(setting.sequence)}
    deal = deal_layers(setting.program.order, numbers["pipe"], numbers["virtual"])
    layers: dict[str, Layer] = {}
    held: dict[str, Held] = {}
    sizes_of: dict[str, dict[str, Number]] = {}
    for section in setting.program.sections:
        sizes = _sizes(section, base, mesh)
        sizes_of[section.name] = sizes
        layers[section.name] = layer_costs(read_section(section, rules), sizes, wires, setting.timer, setting.profile)
        held[section.name] = section_bytes(section, sizes, mesh, words, rules, stack)
    step = Step()
    _add_time(step, setting, numbers, layers, deal, microbatches, wires)
    _add_memory(step, setting, numbers, layers, held, deal, microbatches, sizes_of, mesh, rules)
    return step


def _sizes(section: Section, base: dict[str, Number], mesh: Mesh) -> dict[str, Number]:
    """Dims with the microbatch; KV heads are copied where there are fewer than tensor shards."""
    sizes = section.dims | base
    if "k" in sizes:
        sizes["k"] = maximum(sizes["k"], mesh.size("tensor"))
    if section.compress is not None:
        sizes["m"] = sizes["s"] / section.compress
    return sizes


def _rank_seconds(passes: dict[str, Pass], counts: dict[str, Any], end: str) -> Number:
    total = sum(counts[kind] * passes[kind].seconds for kind in counts)
    return total + (passes[end].seconds if end else 0.0)


def _add_time(
    step: Step,
    setting: Setting,
    numbers: dict[str, Any],
    layers: dict[str, Layer],
    deal: Deal,
    microbatches: Number,
    wires: Wires,
) -> None:
    stack, words = setting.stack, setting.words
    forward = {name: forward_pass(layer, stack) for name, layer in layers.items()}
    backward = {
        name: backward_pass(layer, stack, "none" if name in ("embed", "head") else words.remat)
        for name, layer in layers.items()
    }
    pipe, virtual = numbers["pipe"], numbers["virtual"]
    ranks = {"embed": deal.first, "head": deal.last, "": deal.fullest}
    busy = {end: _rank_seconds(forward, c, end) + _rank_seconds(backward, c, end) for end, c in ranks.items()}
    alone = pipe == 1
    both_ends = busy["embed"] + forward["head"].seconds + backward["head"].seconds
    slowest = maximum(busy["embed"], busy["head"], busy[""])
    slowest = alone * both_ends + (1 - alone) * slowest
    counts = deal.fullest
    per_f = sum(counts[kind] * forward[kind].seconds for kind in counts)
    per_b = sum(counts[kind] * backward[kind].seconds for kind in counts)
    per_w = sum(counts[kind] * backward[kind].weight_part for kind in counts)
    _add_rank_terms(step, forward, backward, counts, microbatches, layers)
    plain = per_f + per_b
    step.add("embedding, head and uneven stages", microbatches * (slowest - plain), microbatches * (slowest - plain))
    waiting = bubble(words.schedule, pipe, virtual, per_f, per_b, per_w)
    step.add("pipeline bubble", waiting, waiting)
    _add_sends(step, setting, numbers, layers, microbatches, wires)
    _add_reduction(step, setting, layers, deal, per_b)
    _add_update(step, setting, layers, wires, deal)


def _add_rank_terms(
    step: Step,
    forward: dict[str, Pass],
    backward: dict[str, Pass],
    counts: dict[str, Any],
    microbatches: Number,
    layers: dict[str, Layer],
) -> None:
    """Kernels by part and moves by axis of the fullest rank's layers."""
    for kind, number in counts.items():
        times = number * microbatches
        for (part, phase), seconds in layers[kind].work.seconds.items():
            flops = layers[kind].work.flops[(part, phase)]
            step.add(_kernel_term(part), times * seconds, times * seconds, flops=times * flops)
        overhead = forward[kind].kernels + backward[kind].kernels - layers[kind].work.total("forward", "dgrad", "wgrad")
        step.add("launches", times * overhead, times * overhead)
        again = backward[kind].recomputed
        step.add("recomputation", times * again, times * again)
        for moved in (forward[kind].moves, backward[kind].moves):
            for name, (seconds, exposed, sent) in moved.items():
                step.add(name, times * seconds, times * exposed, sent=times * sent)


def _kernel_term(part: str) -> str:
    return {"scores": "attention scores", "pointwise": "pointwise", "indexer": "attention matmuls"}.get(
        part, f"{part} matmuls"
    )


def _add_sends(
    step: Step, setting: Setting, numbers: dict[str, Any], layers: dict[str, Layer], microbatches: Number, wires: Wires
) -> None:
    """Activations from stage to stage, and their gradients back; those of the warm-up are waited for."""
    mesh = Mesh(wires.axes)
    pipe, virtual = numbers["pipe"], numbers["virtual"]
    d = setting.program.sections[0].dims["d"]
    size = numbers["microbatch"] * setting.sequence * d * 2 / (mesh.size("context") * mesh.size("tensor"))
    group = wires.group(("pipe",))
    if setting.profile is None:
        from dragonscale.collectives import collective_time

        one = collective_time("permute", size, group, EXACT).lower
    else:
        one = expected_time("permute", size, group, setting.profile, EXACT)
    crossing = 2 * one * virtual * (pipe > 1)
    step.add(
        "pipeline sends",
        crossing * microbatches,
        crossing * minimum(pipe - 1, microbatches),
        sent=2 * size * virtual * microbatches * (pipe > 1),
    )


def _add_reduction(step: Step, setting: Setting, layers: dict[str, Layer], deal: Deal, backward: Number) -> None:
    """The gradients' sum over copies of the model, once a step, under the last backward pass."""
    stack = setting.stack
    seconds: Number = 0.0
    sent: Number = 0.0
    for kind, number in (*deal.fullest.items(), ("embed", 1), ("head", 1)):
        travel = layers[kind].travel
        for key, value in travel.seconds.items():
            if key[1] == "gradient" and not (key[2] == ("fsdp",) and setting.words.zero == 3):
                seconds = seconds + number * value
                sent = sent + number * travel.sent[key]
    exposed = maximum(seconds - stack.gradient_overlap * backward, 0.0)
    step.add("gradient reduction", seconds, exposed, sent=sent)


UPDATE_BYTES = 30.0
"""Bytes an Adam update moves per parameter: gradient, two moments and master copy read (16), written back with the weight
(14)."""


def _add_update(step: Step, setting: Setting, layers: dict[str, Layer], wires: Wires, deal: Deal) -> None:
    mesh = Mesh(wires.axes)
    rules = Rules(sequence=setting.words.sequence, sharded_weights=setting.words.zero == 3)
    share: Number = 0.0
    for kind, number in (*deal.fullest.items(), ("embed", 1)):
        section = layers[kind].reading.section
        share = (
            share
            + number
            * section_bytes(
                section, section.dims | {"b": 1, "t": 1, "s": 1, "m": 1}, mesh, setting.words, rules, setting.stack
            ).parameters
        )
    update = setting.timer.memory(share * UPDATE_BYTES) + setting.stack.step_seconds
    step.add("optimizer", update, update)


def _add_memory(
    step: Step,
    setting: Setting,
    numbers: dict[str, Any],
    layers: dict[str, Layer],
    held: dict[str, Held],
    deal: Deal,
    microbatches: Number,
    sizes_of: dict[str, dict[str, Number]],
    mesh: Mesh,
    rules: Rules,
) -> None:
    """The first rank, which holds the most microbatches, with the embedding; and the head where it is the only rank."""
    words = setting.words
    alone = numbers["pipe"] == 1
    copies = 2.0 if words.schedule == "dualpipe" else 1.0
    counts = deal.first
    ends = (("embed", 1), ("head", alone))

    def summed(name: str) -> Number:
        blocks = sum(counts[kind] * getattr(held[kind], name) for kind in counts)
        return blocks + sum(times * getattr(held[end], name) for end, times in ends)

    flight = held_microbatches(words.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    step.memory["weights"] = copies * summed("weights")
    step.memory["gradients"] = copies * summed("gradients")
    step.memory["optimizer"] = summed("optimizer")
    step.memory["activations"] = flight * sum(counts[kind] * held[kind].activations for kind in counts)
    largest = maximum(*[held[kind].gathered for kind in counts], 0.0)
    step.memory["gathered weights"] = 2 * largest
    working = [working_set(layers[kind].reading.section, sizes_of[kind], mesh, rules) for kind in counts]
    step.memory["working set"] = maximum(*working, 0.0) if words.remat != "none" else 0.5 * maximum(*working, 0.0)
    head = sizes_of["head"]
    logits = head["b"] * head["t"] / mesh.size("data", "fsdp", "expert", "context") * head["v"] / mesh.size("tensor")
    step.memory["logits"] = alone * logits * (2 + 4)
    step.memory["framework"] = setting.stack.reserve_bytes + 0 * logits
