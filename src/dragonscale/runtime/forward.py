"""A program of named einsums, computed: every line of a section becomes a line of JAX.

The interpreter knows the functions of a program (`einsum`, `attend`, `norm`, …), never a model. Layers of equal kind are
scanned; what repeats as a pattern (a windowed layer, then a full one) is scanned as a pattern. Between lines, a layout
function may pin how each tensor lies over a mesh.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.models.program import Op, Program, Section
from dragonscale.notation import Array
from dragonscale.runtime import experts
from dragonscale.runtime.attention import Reach, attend_cached, attend_causally
from dragonscale.runtime.numerics import Numerics, Rope
from dragonscale.runtime.parameters import Tree
from dragonscale.runtime.rotary import rotate

Tensors = dict[str, Any]
Pin = Callable[[jax.Array, Array], jax.Array]


def as_is(value: jax.Array, array: Array) -> jax.Array:
    del array
    return value


@dataclass
class Pass:
    """What a pass through a section needs beside its weights. `stored` are the cached arrays of this layer while decoding,
    with `written` how far each sequence has got; `kept` collects what the layer wants cached."""

    section: Section
    numerics: Numerics
    positions: jax.Array
    weights: Tensors
    tokens: jax.Array | None = None
    stored: Tensors | None = None
    pin: Pin = as_is
    kept: Tensors = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


ACTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
}


def run_section(run: Pass) -> Tensors:
    """All lines of a section; the tensors that there are at its end."""
    for op in run.section.ops:
        maker = _MAKERS.get(op.function)
        if maker is None:
            raise InputError(f"There is no JAX yet for {op.function!r}, which the line '{op}' calls.")
        made = maker(op, run)
        if op.output is not None:
            run.tensors[op.output.name] = run.pin(made, op.output) if isinstance(made, jax.Array) else made
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


def _einsum(op: Op, run: Pass) -> Any:
    if op.inputs[0].name == "Qp":  # the part of a latent query that no position turns
        run.tensors["Qp"] = run.tensors["Q"][..., : run.section.dims["p"]]
    operands = [run.tensors[array.name] for array in op.inputs]
    if operands and isinstance(operands[0], experts.Rows):
        return experts.multiply(operands[0], run.weights[op.weights[0].name])
    dtype = operands[0].dtype
    return jnp.einsum(subscripts(op), *operands, *(run.weights[array.name].astype(dtype) for array in op.weights))


def _norm(op: Op, run: Pass) -> jax.Array:
    x = run.tensors[op.inputs[0].name]
    names = [array for array in op.weights if not array.name.endswith("_bias")]
    axes = tuple(range(-len(names[0].dims), 0)) if names else (-1,)
    wide = x.astype(jnp.float32)
    if run.numerics.norm == "layer" and names and "qnorm" not in names[0].name and "knorm" not in names[0].name:
        wide = wide - wide.mean(axes, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(axes, keepdims=True) + run.numerics.eps)
    if names:
        wide = wide * (run.weights[names[0].name].astype(jnp.float32) + run.numerics.offset)
    for array in op.weights:
        if array.name.endswith("_bias"):
            wide = wide + run.weights[array.name].astype(jnp.float32)
    return wide.astype(x.dtype)


def _bias(op: Op, run: Pass) -> Any:
    x = run.tensors[op.inputs[0].name]
    if isinstance(x, experts.Rows):
        own = run.weights[op.weights[0].name].astype(x.values.dtype)
        return x.having(x.values + own[x.experts])
    for array in op.weights:
        x = x + run.weights[array.name].astype(x.dtype)
    return x


def _act(op: Op, run: Pass) -> Any:
    first, *rest = (run.tensors[array.name] for array in op.inputs)
    function = ACTS[run.numerics.act]
    if isinstance(first, experts.Rows):
        gated = function(first.values) * rest[0].values if rest else function(first.values)
        return first.having(gated)
    if not rest:
        return function(first)
    if op.part in ("mlp", "experts") or (op.output is not None and op.output.name == "Hs"):
        return function(first) * rest[0]
    gate = jax.nn.sigmoid(rest[0].astype(jnp.float32)).astype(first.dtype)
    return first * gate.reshape(*gate.shape, *[1] * (first.ndim - gate.ndim))


def _add(op: Op, run: Pass) -> jax.Array:
    total = run.tensors[op.inputs[0].name]
    for array in op.inputs[1:]:
        total = total + run.tensors[array.name]
    for array in op.weights:  # learnt positions
        total = total + run.weights[array.name].astype(total.dtype)[run.positions]
    return total


def _lookup(op: Op, run: Pass) -> jax.Array:
    assert run.tokens is not None
    table = run.weights[op.weights[0].name]
    return table[run.tokens] * jnp.asarray(run.numerics.embed_scale, table.dtype)


def _rope_of(run: Pass) -> Rope:
    near = run.section.span is not None and run.numerics.near_rope is not None
    return run.numerics.near_rope if near and run.numerics.near_rope is not None else run.numerics.rope


def _cache(op: Op, run: Pass) -> None:
    """What decoding remembers: keys turned to their positions, then kept (or added to what was kept before)."""
    for array in op.inputs:
        value = run.tensors[array.name]
        if array.name in ("K", "Kr"):
            value = run.tensors[array.name] = rotate(value, run.positions, _rope_of(run))
        run.kept[array.name] = value
        if run.stored is not None:
            run.tensors[array.name] = run.kept[array.name] = _written(run.stored[array.name], value, run.positions)


def _written(stored: jax.Array, value: jax.Array, positions: jax.Array) -> jax.Array:
    """New tokens put at their places of each sequence."""
    rows = jnp.arange(stored.shape[0])[:, None]
    return stored.at[rows, positions].set(value.astype(stored.dtype))


def _join(op: Op, run: Pass) -> jax.Array:
    """Tensors end to end along their last dim; those without heads are copied to all."""
    parts = [run.tensors[array.name] for array in op.inputs]
    most = max(part.ndim for part in parts)
    shape = next(part.shape for part in parts if part.ndim == most)
    wide = [
        part
        if part.ndim == most
        else jnp.broadcast_to(part[..., None, :], (*part.shape[:-1], shape[-2], part.shape[-1]))
        for part in parts
    ]
    return jnp.concatenate(wide, -1)


def _absorbed_inputs(run: Pass) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Latent attention without expansion: the query's own part went through the key expansion, its rotary part turns, and
    the latents are keys and values of one head that all share."""
    dims = run.section.dims
    rotary = rotate(run.tensors["Q"], run.positions, _rope_of(run), dims["p"])[..., dims["p"] :]
    latent, shared = run.tensors["C"], run.tensors["Kr"]
    query = jnp.concatenate([run.tensors["Qa"], rotary], -1)
    return query, jnp.concatenate([latent, shared], -1)[:, :, None], latent[:, :, None]


def _attend(op: Op, run: Pass) -> jax.Array:
    dims, numerics = run.section.dims, run.numerics
    if op.inputs[0].name == "Ql":
        query, key, value = _absorbed_inputs(run)
        scale = numerics.attention_scale or (dims["p"] + dims["r"]) ** -0.5
        return attend_cached(query, key, value, run.positions, Reach(run.section.span), scale)
    query, key, value = (run.tensors[array.name] for array in op.inputs)
    first = dims["p"] if "r" in dims and "p" in dims else 0
    query = rotate(query, run.positions, _rope_of(run), first)
    scale = numerics.attention_scale or query.shape[-1] ** -0.5
    reach = Reach(run.section.span, run.section.chunk)
    sinks = run.weights[op.weights[0].name] if op.weights else None
    if run.stored is None:
        return attend_causally(query, key, value, run.positions, reach, scale, numerics.attention_cap, sinks)
    return attend_cached(query, key, value, run.positions, reach, scale, numerics.attention_cap, sinks)


def _route(op: Op, run: Pass) -> experts.Chosen:
    logits = run.tensors[op.inputs[0].name]
    correction = next((run.weights[a.name] for a in op.weights if a.name == "w_score"), None)
    return experts.choose(logits, run.section.dims["x"], run.numerics.routing, correction)


def _dispatch(op: Op, run: Pass) -> experts.Rows:
    x, chosen = (run.tensors[array.name] for array in op.inputs)
    return experts.dispatch(x, chosen, run.section.dims["e"])


def _combine(op: Op, run: Pass) -> jax.Array:
    rows, chosen = (run.tensors[array.name] for array in op.inputs)
    return experts.combine(rows, chosen)


_MAKERS: dict[str, Callable[[Op, Pass], Any]] = {
    "einsum": _einsum,
    "norm": _norm,
    "bias": _bias,
    "act": _act,
    "add": _add,
    "lookup": _lookup,
    "cache": _cache,
    "join": _join,
    "attend": _attend,
    "route": _route,
    "dispatch": _dispatch,
    "combine": _combine,
}


@dataclass(frozen=True)
class Stretch:
    """Layers that are scanned together: a pattern of sections, repeated; `starts` is how many of each were used before."""

    pattern: tuple[str, ...]
    times: int
    starts: tuple[int, ...]


def stretches(order: tuple[str, ...]) -> list[Stretch]:
    """The order of layers as few patterns, each repeated as often as possible.

    >>> [(s.pattern, s.times) for s in stretches(("a", "a", "a", "b", "c", "b", "c"))]
    [(('a',), 3), (('b', 'c'), 2)]
    """
    found: list[Stretch] = []
    used: dict[str, int] = {}
    at = 0
    while at < len(order):
        best, times = 1, 1
        for size in range(1, min(12, len(order) - at) + 1):
            pattern, repeats = order[at : at + size], 1
            while order[at + repeats * size : at + (repeats + 1) * size] == pattern:
                repeats += 1
            if repeats > 1 and size * repeats > best * times:
                best, times = size, repeats
        pattern = order[at : at + best]
        starts = []
        for place, name in enumerate(pattern):
            starts.append(used.get(name, 0) + pattern[:place].count(name))
        found.append(Stretch(pattern, times, tuple(starts)))
        for name in pattern:
            used[name] = used.get(name, 0) + times
        at += best * times
    return found


def layer_weights(params: Tree, stretch: Stretch) -> list[Tensors]:
    """The weights of a stretch's layers, one entry for each place of the pattern, stacked (or listed) over its repeats."""
    chosen = []
    for name, start in zip(stretch.pattern, stretch.starts, strict=True):
        every = stretch.pattern.count(name)
        stop = start + every * stretch.times
        chosen.append({own: value[start:stop:every] for own, value in params[name].items()})
    return chosen


def unstacked(params: Tree) -> Tree:
    """The same weights with a list of arrays for each stack of layers. A loop over lists reads every weight in place, where a
    scan may copy each layer's out of its stack first: decoding, which does little else than read weights, wants lists."""
    return {
        name: own
        if name in ("embed", "head")
        else {key: [value[i] for i in range(value.shape[0])] for key, value in own.items()}
        for name, own in params.items()
    }


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], jax.Array)


def over_layers(layer: Any, carry: Any, stacked: Any, times: int) -> tuple[Any, Any]:
    """A scan over stacks of layers, or a loop where they are lists; what comes out of each layer is stacked or listed likewise."""
    if not any(_is_list(leaf) for leaf in jax.tree.leaves(stacked, is_leaf=_is_list)):
        return jax.lax.scan(layer, carry, stacked)
    made = []
    for place in range(times):
        carry, out = layer(carry, jax.tree.map(operator.itemgetter(place), stacked, is_leaf=_is_list))
        made.append(out)
    return carry, jax.tree.map(lambda *each: list(each), *made)


def embed(
    params: Tree, program: Program, tokens: jax.Array, positions: jax.Array, numerics: Numerics, pin: Pin = as_is
) -> jax.Array:
    """Tokens to the residual stream."""
    section = program.sections[0]
    return run_section(Pass(section, numerics, positions, params["embed"], tokens, pin=pin))["R"]


def head(params: Tree, program: Program, residual: jax.Array, numerics: Numerics, pin: Pin = as_is) -> jax.Array:
    """The residual stream to logits."""
    section = program.sections[-1]
    positions = jnp.zeros(residual.shape[:2], jnp.int32)
    shared = {**params["embed"], **params["head"]}
    run = Pass(section, numerics, positions, shared, pin=pin, tensors={"R": residual})
    logits = run_section(run)["Y"].astype(jnp.float32)
    return numerics.logits_cap * jnp.tanh(logits / numerics.logits_cap) if numerics.logits_cap else logits


def forward(
    params: Tree,
    program: Program,
    tokens: jax.Array,
    numerics: Numerics,
    pin: Pin = as_is,
    remat: Callable[[Any], Any] | None = None,
    dtype: Any = None,
) -> jax.Array:
    """Logits [b, t, v] of whole sequences."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    residual = embed(params, program, tokens, positions, numerics, pin)
    residual = residual if dtype is None else residual.astype(dtype)
    sections = {section.name: section for section in program.sections}

    def body(stretch: Stretch) -> Any:
        def layer(carry: jax.Array, weights: list[Tensors]) -> tuple[jax.Array, None]:
            for name, own in zip(stretch.pattern, weights, strict=True):
                run = Pass(sections[name], numerics, positions, own, pin=pin, tensors={"R": carry})
                carry = run_section(run)["R"]
            return carry, None

        return layer if remat is None else remat(layer)

    for stretch in stretches(program.order):
        residual, _ = over_layers(body(stretch), residual, layer_weights(params, stretch), stretch.times)
    return head(params, program, residual, numerics, pin)


def loss(logits: jax.Array, targets: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """The mean cross-entropy of the next tokens."""
    logits = logits.astype(jnp.float32)
    found = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return found.mean() if weights is None else (found * weights).sum() / jnp.maximum(weights.sum(), 1)
