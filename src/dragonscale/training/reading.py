"""A section of a model read as a training step: the kernels each chip runs and the moves between chips.

For every line, forward and backward, the operands are brought from the layouts of `Rules` to the layout the line
computes in, and the result back; `reshard` says with which collectives. A tensor that several lines need in the same
form is moved once, and partial gradients of one tensor are added before they are reduced. The result has no sizes in
it: `dragonscale.training.cost` puts in numbers, arrays or symbols.
"""

from dataclasses import dataclass, replace

from dragonscale.models.program import Op, Section
from dragonscale.notation import Array, Einsum
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import Step, reshard
from dragonscale.training.rules import BATCH, Layout, Rules, wanted

_OPEN = Mesh({"data": 2, "fsdp": 3, "expert": 5, "context": 7, "tensor": 11})
"""Sizes without a common factor, so that no exchange of equal axes is mistaken for the general case."""

POINTWISE = ("norm", "bias", "act", "add", "conv", "mix", "route", "join", "pool")


@dataclass(frozen=True)
class Kernel:
    """A matrix multiplication, attention, or pointwise pass on one chip, by its layouts.

    `phase` is forward, dgrad (the gradient of the activation) or wgrad (of the weight).
    """

    part: str
    phase: str
    function: str
    arrays: tuple[Array, ...]
    op: Op


@dataclass(frozen=True)
class Move:
    """A collective. `what` is weight, gradient or activation: weights and gradients can travel any time, activations
    are waited for."""

    part: str
    phase: str
    what: str
    step: Step


@dataclass(frozen=True)
class Reading:
    """One section under the rules."""

    section: Section
    kernels: tuple[Kernel, ...]
    moves: tuple[Move, ...]
    rules: Rules


def read_section(section: Section, rules: Rules) -> Reading:
    """All kernels and moves of one pass through a section, forward and backward; each section is read once."""
    key = (section.name, section.ops, rules)
    if key not in _READ:
        _READ[key] = _read(section, rules)
    return replace(_READ[key], section=section)


_READ: dict[tuple[object, ...], "Reading"] = {}


def _read(section: Section, rules: Rules) -> Reading:
    kernels: list[Kernel] = []
    moves: dict[tuple[object, ...], Move] = {}
    written: dict[str, int] = {}

    def add(move: Move) -> None:
        """Each value is moved once in each form; a name that is written anew is another value."""
        if not move.step.free:
            name = move.step.before.name
            version = written.get(name.removeprefix("d"), 0)
            moves.setdefault((move.phase, move.what, move.step.kind, move.step.axes, name, version), move)

    for op in section.ops:
        if op.function == "einsum":
            _read_einsum(op, rules, kernels, add)
        elif op.function in ("attend", "score"):
            _read_attention(op, rules, kernels, add)
        elif op.function in ("dispatch", "combine"):
            _read_routing(op, rules, kernels, add)
        elif op.function == "lookup":
            _read_lookup(op, rules, add)
        elif op.function != "cache" and op.output is not None:
            if op.function == "join":
                _read_join(op, rules, add)
            arrays = tuple(rules.activation(array) for array in (*op.inputs, op.output) if "b" in array.names)
            for phase in ("forward", "dgrad"):
                kernels.append(Kernel(op.part, phase, op.function, arrays, op))
        if op.output is not None:
            written[op.output.name] = written.get(op.output.name, 0) + 1
    for op in section.ops:
        for weight in op.weights:
            _reduce_gradient(op, weight, rules, add)
    return Reading(section, tuple(kernels), tuple(moves.values()), rules)


def _bring(array: Array, target: Array, op: Op, phase: str, what: str, add) -> None:
    for step in reshard(array, target, _OPEN):
        add(Move(op.part, phase, what, step))


def _read_einsum(op: Op, rules: Rules, kernels: list[Kernel], add) -> None:
    split = rules.computing(op)
    line = op.einsum
    local = {array.name: wanted(_stored(array, op, rules), split) for array in (*op.inputs, *op.weights)}
    for array in (*op.inputs, *op.weights):
        stored = _stored(array, op, rules)
        weight = array in op.weights
        _bring(stored, local[array.name], op, "forward", "weight" if weight else "activation", add)
    assert op.output is not None
    raw = op.output.with_layout(split, _summed(line, split))
    _bring(raw, rules.activation(op.output), op, "forward", "activation", add)
    kernels.append(Kernel(op.part, "forward", "matmul", (*local.values(), raw), op))
    _read_gradients(op, rules, split, local, kernels, add)


def _stored(array: Array, op: Op, rules: Rules) -> Array:
    return rules.weight(array) if array in op.weights else rules.activation(array)


def _summed(line: Einsum, split: Layout) -> tuple[str, ...]:
    return tuple(axis for index in line.contracted for axis in split.get(index, ()))


def _read_gradients(op: Op, rules: Rules, split: Layout, local: dict[str, Array], kernels: list[Kernel], add) -> None:
    """dA = dC·B and dB = A·dC, laid out like A and B; the weight's own reduction comes later."""
    assert op.output is not None
    upstream = replace(op.output, name=f"d{op.output.name}")
    here = upstream.with_layout(split)
    _bring(rules.activation(upstream), here, op, "backward", "activation", add)
    for array in op.weights:
        _bring(rules.weight(array), local[array.name], op, "backward", "weight", add)
    for array in op.inputs:
        gradient = replace(array, name=f"d{array.name}")
        others = tuple(other for name, other in local.items() if name != array.name)
        kept = set(array.names)
        summed = tuple(
            axis for index, axes in split.items() if index not in kept and index in op.einsum.indices for axis in axes
        )
        raw = gradient.with_layout(split, summed)
        _bring(raw, rules.activation(gradient), op, "backward", "activation", add)
        kernels.append(Kernel(op.part, "dgrad", "matmul", (here, *others, raw), op))
        if op.weights:
            _bring(rules.activation(array), local[array.name], op, "backward", "activation", add)
    for array in op.weights:
        others = tuple(other for name, other in local.items() if name != array.name)
        kernels.append(Kernel(op.part, "wgrad", "matmul", (*others, here, local[array.name]), op))


def _reduce_gradient(op: Op, weight: Array, rules: Rules, add) -> None:
    """A weight's gradient is a partial sum over every axis that splits the tokens and not the weight itself."""
    if len(weight.dims) == 1:
        return  # vectors ride along in the same messages
    here, stored = rules.used(weight), rules.state(weight)
    split = rules.computing(op) if op.function == "einsum" else {"b": BATCH, "t": ("context",)}
    axes = tuple(axis for name in ("b", "t", "x") for axis in split.get(name, ()) if axis not in here.axes)
    local = replace(here, name=f"d{weight.name}", partial=axes)
    _bring(local, replace(stored, name=local.name), op, "gradient", "gradient", add)
    if 1 <= rules.zero < 3:
        _bring(stored, here, op, "update", "weight", add)


def _read_join(op: Op, rules: Rules, add) -> None:
    """What is laid end to end must lie alike: a part without heads is gathered to where the heads are."""
    assert op.output is not None
    layout = {dim.name: dim.axes for dim in rules.activation(op.output).dims}
    for array in op.inputs:
        held, there = rules.activation(array), array.with_layout(layout)
        spare = tuple(axis for axis in rules.activation(op.output).axes if axis not in there.axes)
        _bring(held, there, op, "forward", "activation", add)
        gradient = replace(there, name=f"d{array.name}", partial=spare)
        _bring(gradient, replace(held, name=f"d{array.name}"), op, "backward", "activation", add)


def _read_attention(op: Op, rules: Rules, kernels: list[Kernel], add) -> None:
    """Keys and values are needed whole along the sequence: gathered over `context`, their gradients scattered back."""
    arrays = tuple(rules.activation(array) for array in op.inputs)
    for array in arrays:
        if "s" in array.names:
            whole = array.with_layout({dim.name: () if dim.name == "s" else dim.axes for dim in array.dims})
            _bring(array, whole, op, "forward", "activation", add)
            _bring(array, whole, op, "backward", "activation", add)
            gradient = replace(whole, name=f"d{array.name}", partial=("context",))
            _bring(gradient, replace(array, name=f"d{array.name}"), op, "backward", "activation", add)
    for phase in ("forward", "dgrad"):
        kernels.append(Kernel(op.part, phase, op.function, arrays, op))


def _read_routing(op: Op, rules: Rules, kernels: list[Kernel], add) -> None:
    """Tokens go to their experts and back: an AllToAll each way, and again for the gradients."""
    routed = next(
        array for array in (*op.inputs, op.output) if array is not None and "x" in array.names and "d" in array.names
    )
    axes = ("expert", "tensor") if rules.folded else ("expert",)
    there = rules.activation(routed)
    home = there.with_layout(
        {
            dim.name: ("data", "fsdp", "expert") if dim.name == "b" else () if dim.name == "x" else dim.axes
            for dim in there.dims
        }
    )
    before, after = (home, there) if op.function == "dispatch" else (there, home)
    for phase, name in (("forward", routed.name), ("backward", f"d{routed.name}")):
        step = Step("all_to_all", axes, replace(before, name=name), replace(after, name=name))
        add(Move(op.part, phase, "activation", step))
        kernels.append(Kernel(op.part, "forward" if phase == "forward" else "dgrad", op.function, (there, there), op))


def _read_lookup(op: Op, rules: Rules, add) -> None:
    """Rows of a table split over the vocabulary: each chip finds some of its tokens, the sum is scattered."""
    assert op.output is not None
    table = rules.weight(op.weights[0])
    _bring(table, wanted(table, {"v": ("tensor",)}), op, "forward", "weight", add)
    raw = op.output.with_layout({"b": ("data", "fsdp", "expert"), "t": ("context",)}, ("tensor",))
    rest = rules.activation(op.output)
    _bring(raw, rest, op, "forward", "activation", add)
    gradient = replace(rest, name=f"d{rest.name}")
    _bring(gradient, replace(raw, name=gradient.name, partial=()), op, "backward", "activation", add)
