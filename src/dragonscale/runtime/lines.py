"""A program of named einsums, computed: every line of a section becomes a line of JAX.

The interpreter knows the functions of a program (`einsum`, `attend`, `norm`, …), never a model.

Each chip runs the program on its own blocks, inside `jax.shard_map` where there are several. The place (`runtime.place`)
says in which layout a line wants its operands and where its result rests; tensors are brought there as the planner's
reading does it. On one chip nothing moves.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.errors import InputError
from dragonscale.models.program import Op, Section
from dragonscale.notation import Array
from dragonscale.runtime import experts
from dragonscale.runtime.attention import Reach, attend_cached, attend_causally, matching_heads
from dragonscale.runtime.expert_exchange import Way
from dragonscale.runtime.numerics import Numerics, Rope
from dragonscale.runtime.place import WHOLE, Place
from dragonscale.runtime.placed_experts import (
    Mixing,
    among_all,
    from_experts,
    narrowed,
    own_experts,
    to_experts,
    widened,
)
from dragonscale.runtime.ring_attention import ring_attend
from dragonscale.runtime.rotary import rotate
from dragonscale.sharding.step import layout_of

Tensors = dict[str, Any]
Note = Callable[[jax.Array, str], jax.Array]


def unnoted(value: jax.Array, name: str) -> jax.Array:
    del name
    return value


@dataclass(frozen=True)
class Setting:
    """What all passes of a model share: its arithmetic, what it computes in (None: in the weights' own type), where things
    lie, how tokens reach experts, and a function that marks each tensor of the program by its name (which remat policies
    go by)."""

    numerics: Numerics
    dtype: Any = None
    place: Place = WHOLE
    mixing: Mixing = field(default_factory=Mixing)
    note: Note = unnoted


@dataclass
class Routed:
    """Tokens at their experts: what was chosen, the rows as they arrived, the way home, the rows of all slices, and the axes
    over which results are partial sums."""

    chosen: experts.Chosen
    rows: experts.Rows
    way: Way | None
    wide: experts.Rows | None = None
    partial: tuple[str, ...] = ()


@dataclass
class Pass:
    """What a pass through a section needs beside its weights. `positions` are those of all tokens, [b or 1, t]; `stored` are
    the cached arrays of this layer while decoding; `kept` collects what the layer wants cached. `laid` says how
    each tensor lies, `forms` holds those that were brought elsewhere for a line."""

    section: Section
    setting: Setting
    positions: jax.Array
    weights: Tensors
    tokens: jax.Array | None = None
    stored: Tensors | None = None
    kept: Tensors = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)
    laid: dict[str, Array] = field(default_factory=dict)
    forms: dict[tuple[str, Array], jax.Array] = field(default_factory=dict)
    routed: Routed | None = None

    @property
    def numerics(self) -> Numerics:
        return self.setting.numerics

    @property
    def place(self) -> Place:
        return self.setting.place

    def held(self, array: Array) -> Array:
        """How a tensor lies, in the names that this line gives its dims; what comes from elsewhere lies at rest."""
        known = self.laid.get(array.name)
        if known is None:
            return self.place.fit(self.place.at_rest(array), self.section.dims)
        layout = {dim.name: old.axes for dim, old in zip(array.dims, known.dims, strict=True)}
        return array.with_layout(layout, known.partial)

    def operand(self, array: Array, op: Op) -> Any:
        """A tensor as a line wants it; each form is made once."""
        value = self.tensors[array.name]
        if not isinstance(value, jax.Array):
            return value
        held, target = self.held(array), self.wanted(array, op)
        key = (array.name, target.with_layout({dim.name: dim.axes for dim in target.dims}, target.partial))
        if key not in self.forms:
            self.forms[key] = self.place.bring(value, held, target)
        return self.forms[key]

    def wanted(self, array: Array, op: Op) -> Array:
        """How a line has a tensor before it."""
        return self.place.for_line(array, self.held(array), op, self.section.dims)

    def weight(self, array: Array, op: Op, dtype: Any = None) -> jax.Array:
        """A weight as it is used: cast and cut to this chip's own KV heads while it is small, then gathered."""
        value = self.weights[array.name]
        value = value if dtype is None else value.astype(dtype)
        for place, dim in enumerate(array.dims):
            if dim.name == "k" and (axes := self.place.copied("k", self.section.dims)):
                mine = self.place.index(axes) * value.shape[place] // self.place.ways(axes)
                value = jax.lax.dynamic_slice_in_dim(value, mine, 1, place)
        held = self.place.fit(self.place.at_rest(array), self.section.dims)
        return self.place.bring(value, held, self.place.for_line(array, held, op, self.section.dims))

    def put(self, array: Array, value: Any, made: Array | None = None) -> None:
        """A line's result, brought to where it rests."""
        if isinstance(value, jax.Array):
            made = self.place.fit(self.place.at_rest(array), self.section.dims) if made is None else made
            rest = self.place.after_line(made, self.section.dims)
            value = self.setting.note(self.place.bring(value, made, rest), array.name)
            self.laid[array.name] = rest
        elif isinstance(value, experts.Rows):
            value = value.having(self.setting.note(value.values, array.name))
        self.tensors[array.name] = value
        self.forms = {key: form for key, form in self.forms.items() if key[0] != array.name}

    def positions_of(self, array: Array) -> jax.Array:
        """Of the tokens that this chip has of a tensor [b, t, …]."""
        return self.place.part(self.positions, 1, array.dims[1].axes)


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
        maker = COMPUTED.get(op.function)
        if maker is None:
            raise InputError(f"There is no JAX yet for {op.function!r}, which the line '{op}' calls.")
        maker(op, run)
    last = run.section.ops[-1].output
    if last is not None and run.laid[last.name].partial:  # what leaves a section is whole
        rest = run.place.fit(run.place.at_rest(last), run.section.dims)
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


def _einsum(op: Op, run: Pass) -> None:
    assert op.output is not None
    if op.inputs[0].name == "Qp":  # the part of a latent query that no position turns
        run.tensors["Qp"], run.laid["Qp"] = run.tensors["Q"][..., : run.section.dims["p"]], run.laid["Q"]
    if isinstance(run.tensors[op.inputs[0].name], experts.Rows):
        return _expert_product(op, run)
    operands = [run.operand(array, op) for array in op.inputs]
    dtype = operands[0].dtype
    weights = [run.weight(array, op, dtype) for array in op.weights]
    multiply = _wide_einsum if op.part == "head" else jnp.einsum
    value = multiply(subscripts(op), *operands, *weights)
    laid = tuple(
        run.place.for_line(array, run.held(array), op, run.section.dims) for array in (*op.inputs, *op.weights)
    )
    return run.put(op.output, value, run.place.of_line(op, laid, run.section.dims))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _wide_einsum(text: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A product whose result is kept in fp32, as logits are; its gradients are products in the operands' own type."""
    return jnp.einsum(text, x, weight, preferred_element_type=jnp.float32)


def _wide_forward(text: str, x: jax.Array, weight: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _wide_einsum(text, x, weight), (x, weight)


def _wide_backward(text: str, operands: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, ...]:
    _, pull = jax.vjp(functools.partial(jnp.einsum, text), *operands)
    return pull(slope.astype(operands[0].dtype))


_wide_einsum.defvjp(_wide_forward, _wide_backward)


def _expert_product(op: Op, run: Pass) -> None:
    """Rows of tokens times their experts. Where experts are sliced, the rows of a slice's chips are gathered to widen and
    scattered to narrow; if all have the same rows, results are partial sums."""
    assert op.output is not None
    rows: experts.Rows = run.tensors[op.inputs[0].name]
    weight = op.weights[0]
    held = run.place.fit(run.place.at_rest(weight), run.section.dims)
    used = run.place.for_line(weight, held, op, run.section.dims)
    summed, made = (dim.axes for dim in used.dims if not dim.select)
    assert run.routed is not None
    alike = not set(made or summed) & set(run.place.token_axes)  # the chips of a slice have the same rows
    if made and not alike:
        run.routed.wide = run.routed.wide or widened(rows, made)
        rows = run.routed.wide
    last = _is_last(op, run.section)
    done = experts.multiply(rows.weighted() if last else rows, run.weight(weight, op, rows.values.dtype))
    if summed and not alike:
        done = narrowed(done, run.routed.rows, summed)
    elif summed and last:
        run.routed.partial = summed
    elif summed:
        done = done.having(jax.lax.psum(done.values, summed))
    run.put(op.output, done)


def _is_last(op: Op, section: Section) -> bool:
    """Whether an expert product's result goes straight home."""
    assert op.output is not None
    readers = [other for other in section.ops if op.output.name in (array.name for array in other.inputs)]
    return [other.function for other in readers] == ["combine"]


def _norm(op: Op, run: Pass) -> None:
    assert op.output is not None
    x = run.operand(op.inputs[0], op)
    names = [array for array in op.weights if not array.name.endswith("_bias")]
    axes = tuple(range(-len(names[0].dims), 0)) if names else (-1,)
    held = run.wanted(op.inputs[0], op)
    split = tuple(axis for dim in held.dims[axes[0] :] for axis in dim.axes)

    def mean(values: jax.Array) -> jax.Array:
        found = values.mean(axes, keepdims=True)
        return jax.lax.pmean(found, split) if split else found

    wide = x.astype(jnp.float32)
    if run.numerics.norm == "layer" and names and "qnorm" not in names[0].name and "knorm" not in names[0].name:
        wide = wide - mean(wide)
    wide = wide * jax.lax.rsqrt(mean(jnp.square(wide)) + run.numerics.eps)
    if names:
        wide = wide * (run.weight(names[0], op, jnp.float32) + run.numerics.offset)
    for array in op.weights:
        if array.name.endswith("_bias"):
            wide = wide + run.weight(array, op, jnp.float32)
    run.put(op.output, wide.astype(x.dtype), held)


def _bias(op: Op, run: Pass) -> None:
    assert op.output is not None
    x = run.tensors[op.inputs[0].name]
    if isinstance(x, experts.Rows):
        own = run.weight(op.weights[0], op, x.values.dtype)
        return run.put(op.output, x.having(x.values + own[x.experts]))
    x = run.operand(op.inputs[0], op)
    for array in op.weights:
        x = x + run.weight(array, op, x.dtype)
    return run.put(op.output, x, run.wanted(op.inputs[0], op))


def _act(op: Op, run: Pass) -> None:
    assert op.output is not None
    first, *rest = (run.operand(array, op) for array in op.inputs)
    function = ACTS[run.numerics.act]
    if isinstance(first, experts.Rows):
        gated = function(first.values) * rest[0].values if rest else function(first.values)
        return run.put(op.output, first.having(gated))
    if not rest:
        made = function(first)
    elif op.part in ("mlp", "experts") or op.output.name == "Hs":
        made = function(first) * rest[0]
    else:
        gate = jax.nn.sigmoid(rest[0].astype(jnp.float32)).astype(first.dtype)
        made = first * gate.reshape(*gate.shape, *[1] * (first.ndim - gate.ndim))
    return run.put(op.output, made, run.wanted(op.inputs[0], op))


def _add(op: Op, run: Pass) -> None:
    assert op.output is not None
    laid = [run.held(array) for array in op.inputs]
    if laid[0].partial and all(layout_of(one) == layout_of(laid[0]) and one.partial == laid[0].partial for one in laid):
        parts = [run.tensors[array.name] for array in op.inputs]
        return run.put(op.output, sum(parts[1:], parts[0]), laid[0])
    total = run.operand(op.inputs[0], op)
    for array in op.inputs[1:]:
        total = total + run.operand(array, op)
    for array in op.weights:  # learnt positions
        total = total + run.weight(array, op, total.dtype)[run.positions_of(run.held(op.inputs[0]))]
    return run.put(op.output, total, run.wanted(op.inputs[0], op))


def _lookup(op: Op, run: Pass) -> None:
    """Rows of a table that may be split over the vocabulary: each chip finds some of its tokens, the sum is everybody's."""
    assert run.tokens is not None
    assert op.output is not None
    array = op.weights[0]
    table = run.weight(array, op, run.setting.dtype)
    held = run.place.fit(run.place.at_rest(array), run.section.dims)
    split = run.place.for_line(array, held, op, run.section.dims).dims[0].axes
    scale = jnp.asarray(run.numerics.embed_scale, table.dtype)
    if split:
        at = run.tokens - run.place.index(split) * table.shape[0]
        mine = (at >= 0) & (at < table.shape[0])
        found = jnp.where(mine[..., None], table[jnp.where(mine, at, 0)], 0)
    else:
        found = table[run.tokens]
    run.put(op.output, found * scale, run.place.looked_up(op.output, split))


def _rope_of(run: Pass) -> Rope:
    near = run.section.span is not None and run.numerics.near_rope is not None
    return run.numerics.near_rope if near and run.numerics.near_rope is not None else run.numerics.rope


def _cache(op: Op, run: Pass) -> None:
    """What decoding remembers: keys turned to their positions, then kept (or added to what was kept before)."""
    for array in op.inputs:
        value = run.tensors[array.name]
        if array.name in ("K", "Kr"):
            value = run.tensors[array.name] = rotate(value, run.positions_of(run.held(array)), _rope_of(run))
        run.kept[array.name] = value
        if run.stored is not None:
            run.tensors[array.name] = run.kept[array.name] = _written(run.stored[array.name], value, run.positions)


def _written(stored: jax.Array, value: jax.Array, positions: jax.Array) -> jax.Array:
    """New tokens put at their places of each sequence."""
    rows = jnp.arange(stored.shape[0])[:, None]
    return stored.at[rows, positions].set(value.astype(stored.dtype))


def _join(op: Op, run: Pass) -> None:
    """Tensors end to end along their last dim; those without heads are copied to all."""
    assert op.output is not None
    parts = [run.operand(array, op) for array in op.inputs]
    most = max(part.ndim for part in parts)
    shape = next(part.shape for part in parts if part.ndim == most)
    wide = [
        part
        if part.ndim == most
        else jnp.broadcast_to(part[..., None, :], (*part.shape[:-1], shape[-2], part.shape[-1]))
        for part in parts
    ]
    run.put(op.output, jnp.concatenate(wide, -1))


def _absorbed_inputs(run: Pass) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Latent attention without expansion: the query's own part went through the key expansion, its rotary part turns, and
    the latents are keys and values of one head that all share."""
    dims = run.section.dims
    rotary = rotate(run.tensors["Q"], run.positions, _rope_of(run), dims["p"])[..., dims["p"] :]
    latent, shared = run.tensors["C"], run.tensors["Kr"]
    query = jnp.concatenate([run.tensors["Qa"], rotary], -1)
    return query, jnp.concatenate([latent, shared], -1)[:, :, None], latent[:, :, None]


def _attend(op: Op, run: Pass) -> None:
    assert op.output is not None
    dims, numerics = run.section.dims, run.numerics
    if op.inputs[0].name == "Ql":
        query, key, value = _absorbed_inputs(run)
        scale = numerics.attention_scale or (dims["p"] + dims["r"]) ** -0.5
        return run.put(op.output, attend_cached(query, key, value, run.positions, Reach(run.section.span), scale))
    query, key, value = (run.operand(array, op) for array in op.inputs)
    first = dims["p"] if "r" in dims and "p" in dims else 0
    held = run.held(op.inputs[0])
    at = run.positions_of(held)
    query = rotate(query, at, _rope_of(run), first)
    split, kept = held.dims[2].axes, run.held(op.inputs[1]).dims[2].axes
    if split and not kept and not run.place.copied("k", {"k": dims.get("k", dims["n"])}):
        whole = (dims["n"] // key.shape[2], query.shape[2], run.place.index(split))
        key, value = matching_heads(key, *whole), matching_heads(value, *whole)
    scale = numerics.attention_scale or query.shape[-1] ** -0.5
    reach = Reach(run.section.span, run.section.chunk)
    sinks = run.weight(op.weights[0], op) if op.weights else None
    shared = (reach, scale, numerics.attention_cap, sinks)
    if run.stored is not None:
        made = attend_cached(query, key, value, run.positions, *shared)
    elif key.shape[1] < run.positions.shape[1]:
        made = ring_attend(query, key, value, _of_batch(at, query), *shared)
    else:
        made = attend_causally(query, key, value, _of_batch(at, query), _of_batch(run.positions, query), *shared)
    return run.put(op.output, made)


def _of_batch(positions: jax.Array, query: jax.Array) -> jax.Array:
    return jnp.broadcast_to(positions, (query.shape[0], positions.shape[1]))


def _route(op: Op, run: Pass) -> None:
    assert op.output is not None
    logits = run.operand(op.inputs[0], op)
    correction = next((run.weight(a, op) for a in op.weights if a.name == "w_score"), None)
    chosen = experts.choose(logits, run.section.dims["x"], run.numerics.routing, correction)
    run.put(op.output, chosen)
    run.laid[op.output.name] = run.held(op.inputs[0])


def _dispatch(op: Op, run: Pass) -> None:
    assert op.output is not None
    place = run.place
    x, chosen = run.operand(op.inputs[0], op), run.tensors[op.inputs[1].name]
    spread = place.token_axes[
        len(run.held(op.inputs[0]).dims[1].axes) :
    ]  # what experts' tokens are split by beyond their own
    x, chosen = jax.tree.map(lambda each: place.part(each, 1, spread), (x, chosen))
    if gathered := place.gathered_axes:
        x, chosen = jax.tree.map(lambda e: jax.lax.all_gather(e, gathered, axis=0, tiled=True), (x, chosen))
    rows, way = to_experts(x, chosen, run.section.dims["e"], place.expert_axes, run.setting.mixing)
    rows = own_experts(rows, place, place.picked_axes)
    run.routed = Routed(chosen, rows, way)
    run.put(op.output, rows)


def _combine(op: Op, run: Pass) -> None:
    assert op.output is not None
    assert run.routed is not None
    place, routed = run.place, run.routed
    done = among_all(run.tensors[op.inputs[0].name], place, place.picked_axes)
    made = from_experts(done, routed.way, routed.chosen)
    rest = place.fit(place.at_rest(op.output), run.section.dims)
    layout = {dim.name: place.token_axes if dim.name == "t" else dim.axes for dim in rest.dims}
    if place.gathered_axes:
        layout["b"] = ()
    laid = rest.with_layout(layout, (*place.picked_axes, *routed.partial))
    if place.gathered_axes:  # everybody has everybody's tokens: each keeps its own
        home = rest.with_layout(layout_of(rest), tuple(a for a in laid.partial if a not in place.gathered_axes))
        made, laid = place.bring(made, laid, home), home
    run.put(op.output, made, laid)


COMPUTED: dict[str, Callable[[Op, Pass], None]] = {
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
