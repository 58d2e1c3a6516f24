"""One layer's forward and backward pass in one microbatch: what runs, what travels, and what of it shows.

Kernels run one after the other. Moves of activations are waited for, but for the part that the stack hides inside the
products next to them. Weights of ZeRO-3 are gathered, and their gradients scattered, under the layer as far as it is
long. Where the host issues kernels more slowly than the chip runs them, the rest of the host's time shows.
"""

from dataclasses import dataclass

from dragonscale.numbers import Number, maximum, minimum
from dragonscale.training.layers import Layer
from dragonscale.training.stack import Stack

Moved = dict[str, tuple[Number, Number, Number]]
"""Seconds, exposed seconds and bytes sent, by term."""

RECOMPUTED = {"none": (), "selective": ("scores", "pointwise"), "matmuls": ("scores", "pointwise")}
_AXIS_TERMS = {"tensor": "tensor collectives", "context": "context collectives", "expert": "expert all-to-all"}


@dataclass(frozen=True)
class Pass:
    """A layer's forward or backward pass: kernels, recomputed ones, the weights' part of them (which zero-bubble
    schedules can put off), the host's excess, copies of weights and gradients, and moves."""

    kernels: Number
    recomputed: Number
    weight_part: Number
    host: Number
    copies: Number
    moves: Moved

    @property
    def seconds(self) -> Number:
        """What the pass takes."""
        return (
            self.kernels
            + self.recomputed
            + self.host
            + self.copies
            + sum(exposed for _, exposed, _ in self.moves.values())
        )


def recomputed_seconds(layer: Layer, remat: str, stack: Stack) -> Number:
    """Seconds of the forward kernels that run again in the backward pass."""
    whole = layer.work.total("forward")
    if remat in ("block", "offload"):
        return whole
    again = RECOMPUTED[remat]
    cheap = sum(
        seconds for (part, phase), seconds in layer.work.seconds.items() if phase == "forward" and part in again
    )
    return cheap + (stack.selective_matmuls * (whole - cheap) if remat == "selective" else 0.0)


def _activation_moves(layer: Layer, phase: str, stack: Stack, again: bool) -> Moved:
    """Activation moves of a phase. `again` repeats the forward ones, as the recomputation of a whole block does. Keys
    and values that go round a ring hide under the attention to those that are there already."""
    found: Moved = {}
    hidden = {"tensor": stack.tensor_overlap, "context": stack.context_overlap, "expert": stack.expert_overlap}
    for (when, what, axes), seconds in layer.travel.seconds.items():
        if what != "activation" or (when != phase and not (again and when == "forward")):
            continue
        axis = next((name for name in ("expert", "context", "tensor") if name in axes), "tensor")
        name = _AXIS_TERMS[axis]
        old = found.get(name, (0.0, 0.0, 0.0))
        sent = layer.travel.sent[(when, what, axes)]
        found[name] = (old[0] + seconds, old[1] + seconds * (1 - hidden[axis]), old[2] + sent)
    if layer.reading.rules.ring and "context collectives" in found:
        seconds, _, sent = found["context collectives"]
        kernels = "forward" if phase == "forward" else "dgrad"
        found["context collectives"] = (seconds, maximum(seconds - layer.work.seconds[("scores", kernels)], 0.0), sent)
    return found


def _weight_moves(layer: Layer, phase: str, busy: Number, stack: Stack, sharded: bool) -> Moved:
    """ZeRO-3's gathers (and in the backward pass its scatters): they hide under the layer as far as it is long, and
    what hides still takes a little of the memory's bandwidth and of the cores."""
    seconds = layer.travel.total(phase, "weight")
    sent = sum(value for (when, what, _), value in layer.travel.sent.items() if when == phase and what == "weight")
    if phase == "backward" and sharded:
        scattered = [key for key in layer.travel.seconds if key[1] == "gradient" and "data" not in key[2]]
        seconds = seconds + sum(layer.travel.seconds[key] for key in scattered)
        sent = sent + sum(layer.travel.sent[key] for key in scattered)
    exposed = maximum(seconds - stack.weight_overlap * busy, 0.0)
    exposed = exposed + stack.contention * minimum(seconds, stack.weight_overlap * busy)
    return {"fsdp collectives": (seconds, exposed, sent)}


def _host(layer: Layer, stack: Stack, moves: int, *phases: str) -> Number:
    """The host's seconds to issue some phases."""
    kernels = sum(layer.work.issued.get(phase, 0.0) for phase in phases) + moves
    experts = sum(layer.work.experts.get(phase, 0.0) for phase in phases)
    return stack.host_seconds * (kernels + stack.expert_launches * experts)


def _to_host(layer: Layer, remat: str, busy: Number) -> Moved:
    """Activations on their way to the host's memory and back: they hide under the layer's forward and backward pass as
    far as these are long."""
    key = ("offload", "host", ())
    if remat != "offload" or key not in layer.travel.seconds:
        return {}
    one = layer.travel.seconds[key]
    exposed = maximum(one - layer.work.total("forward"), 0.0) + maximum(one - busy, 0.0)
    return {"host offload": (2 * one, exposed, 2 * layer.travel.sent[key])}


def forward_pass(layer: Layer, stack: Stack, sharded: bool, copies: Number = 0.0) -> Pass:
    """A layer's forward pass, with the gathering of its weights (`sharded`: ZeRO-3) and seconds of other copies."""
    kernels = layer.work.total("forward")
    moves = _activation_moves(layer, "forward", stack, again=False)
    busy = kernels + sum(exposed for _, exposed, _ in moves.values())
    host = maximum(_host(layer, stack, len(moves), "forward") - busy - copies, 0.0)
    return Pass(kernels, 0.0, 0.0, host, copies, moves | _weight_moves(layer, "forward", busy, stack, sharded))


def backward_pass(layer: Layer, stack: Stack, remat: str, sharded: bool, copies: Number = 0.0) -> Pass:
    """A layer's backward pass, with recomputation, the gathering of weights and the scattering of gradients."""
    kernels = layer.work.total("dgrad", "wgrad")
    again = recomputed_seconds(layer, remat, stack)
    whole = remat in ("block", "offload")
    moves = _activation_moves(layer, "backward", stack, again=whole)
    busy = kernels + again + sum(exposed for _, exposed, _ in moves.values())
    phases = ("dgrad", "wgrad", "forward") if whole else ("dgrad", "wgrad")
    host = maximum(_host(layer, stack, len(moves), *phases) - busy - copies, 0.0)
    weights = _weight_moves(layer, "backward", busy, stack, sharded) | _to_host(layer, remat, busy)
    return Pass(kernels, again, layer.work.total("wgrad"), host, copies, moves | weights)
