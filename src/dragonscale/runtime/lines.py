"""A program of named einsums, computed: every line of a section becomes a line of JAX.

The interpreter knows the functions of a program (`einsum`, `attend`, `norm`, …), never a model. What a line finds and
where it leaves its result is the business of the pass (`runtime.one_pass`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.models.lora import RANK
from dragonscale.models.program import Op
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.reshard_step import layout_of
from dragonscale.runtime import experts
from dragonscale.runtime.attention_lines import attend, cache
from dragonscale.runtime.expert_lines import combine, dispatch, expert_matmul, route
from dragonscale.runtime.narrow import narrow_einsum
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.one_pass import PassSetting, SectionPass, Tensors
from dragonscale.runtime.quantized import Product, Quantized
from dragonscale.runtime.scopes import scope_of
from dragonscale.training.plan.setting import NARROW_PARTS

__all__ = ["ACTS", "COMPUTED", "PassSetting", "SectionPass", "Tensors", "gated", "run_section", "subscripts"]

ACTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
}


def run_section(run: SectionPass) -> Tensors:
    """All lines of a section; the tensors that there are at its end."""
    for op in run.section.ops:
        maker = COMPUTED.get(op.function)
        if maker is None:
            raise InputError(f"There is no JAX yet for {op.function!r}, which the line '{op}' calls.")
        with jax.named_scope(scope_of(op, run.section)):
            maker(op, run)
    last = run.section.ops[-1].output
    if last is not None and run.layouts[last.name].partial:  # what leaves a section is whole
        rest = run.at_rest(last)
        with jax.named_scope(scope_of(run.section.ops[-1], run.section)):
            run.tensors[last.name] = run.place.bring(run.tensors[last.name], run.held(last), rest)
    return run.tensors


def subscripts(op: Op) -> str:
    """The einsum string of a line, a letter for each dim.

    >>> from dragonscale.models.program import parse_op
    >>> subscripts(parse_op("attention: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]"))
    'abc,cde->abde'
    """
    letters: dict[str, str] = {}
    assert op.output is not None

    def of(array: Array) -> str:
        return "".join(letters.setdefault(name, "abcdefghijklmnopqrstuvwxyz"[len(letters)]) for name in array.names)

    inputs = ",".join(of(array) for array in (*op.inputs, *op.weights))
    return f"{inputs}->{of(op.output)}"


def _einsum(op: Op, run: SectionPass) -> None:
    for array in op.inputs:
        if array.name not in run.tensors:
            _take_channels(array, run)
    if isinstance(run.tensors[op.inputs[0].name], experts.ExpertRows):
        return expert_matmul(op, run)
    parts = None
    if (key := run.joined(op)) is not None:
        value = _part_of_joined(op, run, key)
    else:
        operands = [run.operand(array, op) for array in op.inputs]
        weights = [run.weight(array, op, operands[0].dtype) for array in op.weights]
        if run.setting.fp8 and op.part in NARROW_PARTS and len(operands) == len(weights) == 1:
            value = narrow_einsum(subscripts(op), operands[0], weights[0])
        else:
            product = _multiplied(subscripts(op), operands, weights, run.setting, wide=op.part == "head")
            value, parts = product.value, product.parts
    forms = (*(run.wanted(array, op) for array in op.inputs), *(run.used(array, op) for array in op.weights))
    made = run.place.of_line(op, forms, run.section.dims)
    if run.adapters is not None and op.part == ADAPTERS and made.names[-1] == RANK.name:
        value, parts = jnp.where(run.place.part(run.adapters, 1, made.dims[1].axes), jnp.asarray(value), 0), None
    run.put(op, value, made)
    if parts is not None and op.output is not None and not made.partial:
        run.parts[op.output.name] = parts
    return None


def _multiplied(
    text: str, operands: list[jax.Array], weights: list[Any], setting: PassSetting, wide: bool = False
) -> Product:
    """An einsum of which the last operand may be a weight in int8: its result is scaled."""
    multiply: Callable[..., jax.Array] = _wide_einsum if wide else jnp.einsum  # pyright: ignore[reportAssignmentType]
    if not wide and (len(operands), len(weights)) == (1, 1):
        made = setting.multiply(text, operands[0], weights[0])
        if made is not None:
            return made
    if not weights or not isinstance(weights[-1], Quantized):
        return Product(multiply(text, *operands, *weights))
    # No weight is widened before its turn: all of them at once would need their memory in bf16.
    last, first = jax.lax.optimization_barrier((weights[-1].values, operands[0]))
    value = multiply(text, first, *operands[1:], *weights[:-1], last.astype(first.dtype))
    return Product((value * weights[-1].scale).astype(value.dtype))


def _part_of_joined(op: Op, run: SectionPass, key: str) -> jax.Array:
    """A line's part of one matmul with several weights side by side, which the first of their lines computes."""
    if key not in run.products:
        x = run.operand(op.inputs[0], op)
        weight = run.weights[key]
        made = _multiplied(
            "btd,dm->btm", [x], [weight if isinstance(weight, Quantized) else weight.astype(x.dtype)], run.setting
        )
        run.products[key] = made.value
        if made.parts is not None:
            run.parts[key] = made.parts
    at = 0
    for name in key.split("+"):
        line = next(one for one in run.section.ops if any(array.name == name for array in one.weights))
        shape = tuple(run.local_size(dim.name, dim.axes) for dim in run.used(line.weights[0], line).dims[1:])
        if name == op.weights[0].name:
            return run.products[key][..., at : at + math.prod(shape)].reshape(*run.products[key].shape[:2], *shape)
        at += math.prod(shape)
    raise AssertionError(f"{op.weights[0].name} is no part of {key}")


def _take_channels(array: Array, run: SectionPass) -> None:
    """A tensor that no line makes is the leading channels of one with the same dims but for the last: of a latent query
    [b, t, n, h], the part [b, t, n, p] that no position turns."""
    made = (op.output for op in run.section.ops if op.output is not None and op.output.name in run.tensors)
    whole = next(one for one in made if one.names[:-1] == array.names[:-1] and len(one.dims) > 2)
    value = run.tensors[whole.name][..., : run.section.dims[array.names[-1]]]
    run.tensors[array.name], run.layouts[array.name] = value, run.layouts[whole.name]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _wide_einsum(text: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A matmul whose result is kept in fp32, as logits are; its gradients are matmuls in the operands' own type."""
    return jnp.einsum(text, x, weight, preferred_element_type=jnp.float32)


def _wide_backward(text: str, operands: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, ...]:
    _, pull = jax.vjp(functools.partial(jnp.einsum, text), *operands)
    return pull(slope.astype(operands[0].dtype))


_wide_einsum.defvjp(lambda text, *operands: (_wide_einsum(text, *operands), operands), _wide_backward)


def _norm(op: Op, run: SectionPass) -> None:
    if run.setting.fused(op, run):
        return
    x = run.operand(op.inputs[0], op)
    names = [array for array in op.weights if not array.name.endswith("_bias")]
    axes = tuple(range(-len(names[0].dims), 0)) if names else (-1,)
    held = run.wanted(op.inputs[0], op)
    split = tuple(axis for dim in held.dims[axes[0] :] for axis in dim.axes)

    def mean(values: jax.Array) -> jax.Array:
        found = values.mean(axes, keepdims=True)
        return jax.lax.pmean(found, split) if split else found

    wide = x.astype(jnp.float32)
    if run.numerics.norm == "layer" and op.part == "norm":  # norms of queries and keys are RMS everywhere
        wide = wide - mean(wide)
    wide = wide * jax.lax.rsqrt(mean(jnp.square(wide)) + run.numerics.eps)
    if names:
        wide = wide * (run.weight(names[0], op, jnp.float32) + run.numerics.offset)
    for array in op.weights:
        if array.name.endswith("_bias"):
            wide = wide + run.weight(array, op, jnp.float32)
    run.put(op, wide.astype(x.dtype), held)


def _bias(op: Op, run: SectionPass) -> None:
    x = run.tensors[op.inputs[0].name]
    if isinstance(x, experts.ExpertRows):
        own = run.weight(op.weights[0], op, x.values.dtype)
        return run.put(op, x.having(x.values + own[x.experts]))
    x = run.operand(op.inputs[0], op)
    for array in op.weights:
        x = x + run.weight(array, op, x.dtype)
    return run.put(op, x, run.wanted(op.inputs[0], op))


def gated(gate: jax.Array, x: jax.Array, numerics: Numerics) -> jax.Array:
    """What a gate lets through."""
    limit = numerics.gate_limit
    if not limit:
        return ACTS[numerics.act](gate) * x
    gate = jnp.minimum(gate, limit)
    return gate * jax.nn.sigmoid(numerics.gate_slope * gate) * (jnp.clip(x, -limit, limit) + 1)


def _act(op: Op, run: SectionPass) -> None:
    if run.setting.fused(op, run):
        return None
    assert op.output is not None
    first, *rest = (run.operand(array, op) for array in op.inputs)
    function = ACTS[run.numerics.act]
    if isinstance(first, experts.ExpertRows):
        made = gated(first.values, rest[0].values, run.numerics) if rest else function(first.values)
        return run.put(op, first.having(made))
    if not rest:
        made = function(first)
    elif op.part in ("mlp", "experts", "shared") and "d" not in op.output.names:  # a hidden layer behind its gate
        made = gated(first, rest[0], run.numerics)
    else:
        gate = jax.nn.sigmoid(rest[0].astype(jnp.float32)).astype(first.dtype)
        made = first * gate.reshape(*gate.shape, *[1] * (first.ndim - gate.ndim))
    return run.put(op, made, run.wanted(op.inputs[0], op))


def _add(op: Op, run: SectionPass) -> None:
    if op.part == ADAPTERS:
        return _adapted(op, run)
    first, *others = [run.held(array) for array in op.inputs]
    if first.partial and all(layout_of(one) == layout_of(first) and one.partial == first.partial for one in others):
        parts = [run.tensors[array.name] for array in op.inputs]
        return run.put(op, sum(parts[1:], parts[0]), first)
    total = before = run.operand(op.inputs[0], op)
    parts = run.parts.get(op.inputs[-1].name) if len(op.inputs) == 2 and not op.weights else None
    for array in op.inputs[1:]:
        total = total + run.operand(array, op)
    for array in op.weights:  # learnt positions, counted from the beginning of each document
        held = run.held(op.inputs[0])
        total = total + run.weight(array, op, total.dtype)[run.positions_of(held) - run.begins_of(held)]
    run.put(op, total, run.wanted(op.inputs[0], op))
    if parts is not None and op.output is not None:
        run.added[op.output.name] = before, parts
    return None


def _adapted(op: Op, run: SectionPass) -> None:
    """What a matmul made, and what its adapters add to it."""
    own, more = (run.operand(array, op) for array in op.inputs)
    if isinstance(own, experts.ExpertRows):
        return run.put(op, own.having(own.values + more.values * run.setting.adapters))
    return run.put(op, own + more * run.setting.adapters, run.wanted(op.inputs[0], op))


def _lookup(op: Op, run: SectionPass) -> None:
    """Rows of a table that may be split over the vocabulary: each chip finds some of its tokens, the sum is
    everybody's."""
    assert run.tokens is not None
    assert op.output is not None
    array = op.weights[0]
    table = run.weight(array, op, run.setting.dtype)
    split = run.used(array, op).dims[0].axes
    scale = jnp.asarray(run.numerics.embed_scale, table.dtype)
    if split:
        at = run.tokens - run.place.index(split) * table.shape[0]
        mine = (at >= 0) & (at < table.shape[0])
        found = jnp.where(mine[..., None], table[jnp.where(mine, at, 0)], 0)
    else:
        found = table[run.tokens]
    run.put(op, found * scale, run.place.looked_up(op.output, split))


def _join(op: Op, run: SectionPass) -> None:
    """Tensors end to end along their last dim; those without heads are copied to all."""
    parts = [run.operand(array, op) for array in op.inputs]
    most = max(part.ndim for part in parts)
    shape = next(part.shape for part in parts if part.ndim == most)

    def wide(part: jax.Array) -> jax.Array:
        return jnp.broadcast_to(part[..., None, :], (*part.shape[:-1], shape[-2], part.shape[-1]))

    run.put(op, jnp.concatenate([part if part.ndim == most else wide(part) for part in parts], -1))


COMPUTED: dict[str, Callable[[Op, SectionPass], None]] = {
    "einsum": _einsum,
    "norm": _norm,
    "bias": _bias,
    "act": _act,
    "add": _add,
    "lookup": _lookup,
    "cache": cache,
    "join": _join,
    "attend": attend,
    "route": route,
    "dispatch": dispatch,
    "combine": combine,
}
