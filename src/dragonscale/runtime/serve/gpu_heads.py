"""Queries, keys and values of decoding rows on NVIDIA GPUs, from the matmul that makes them to their pages, in one
small Pallas kernel: the sum of the matmul's parts, biases, norms of heads, rotary embeddings, the write.

XLA takes four to six kernels for that, of a microsecond or two each: in a step of one token that is as long as reading
half of a layer's experts. What the lines themselves made of it is then read by nobody, and XLA drops it.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.models.program import Op
from dragonscale.runtime.attention_lines import frequencies, rope_of
from dragonscale.runtime.one_pass import SectionPass
from dragonscale.runtime.serve.paged_attention import PagedKeys, StepRows

KNOWN = (["einsum"], ["einsum", "bias"], ["einsum", "norm"], ["einsum", "bias", "norm"])
"""What lines may do to queries, keys and values before they are turned to their positions."""


@dataclass(frozen=True)
class HeadSizes:
    """Query heads, KV heads and channels of a head; what norms add to a mean square and to their weights."""

    n: int
    k: int
    h: int
    eps: float
    offset: float


def prepared_heads(
    run: SectionPass, paged: PagedKeys, rows: StepRows, interpret: bool = False
) -> tuple[jax.Array, PagedKeys] | None:
    """Queries [T, n, h] of decoding rows, turned, and the cache with their keys and values; None where the layer or its
    cache is of another kind."""
    lines, rope, (_, k, h) = _lines(run), rope_of(run), paged.keys.shape
    same = paged.values is not None and paged.values.shape == paged.keys.shape and paged.key_scale is None
    plain = rope.kind != "none" and rope.part == 1 and not rope.interleaved and h == pl.next_power_of_2(h)
    if rows.shape.tokens or not lines or not same or not plain:
        return None
    parts = run.parts.get(run.joined(lines[0]["einsum"]) or "")
    if parts is None or parts.shape[2] % h or (n := parts.shape[2] // h - 2 * k) < k:
        return None
    angles = rows.positions[:, None].astype(jnp.float32) * frequencies(rope, h)
    turns = [turn(angles) * rope.magnitude for turn in (jnp.cos, jnp.sin)]
    biases, norms = ([_weight(run, own.get(kind)) for own in lines] for kind in ("bias", "norm"))
    cache = jax.ShapeDtypeStruct(paged.keys.shape, paged.keys.dtype)
    sizes = HeadSizes(n, k, h, run.numerics.eps, run.numerics.offset)
    query, keys, values = pl.pallas_call(
        functools.partial(_kernel, sizes=sizes),
        grid=(parts.shape[1], n + 2 * k),
        out_shape=[jax.ShapeDtypeStruct((parts.shape[1], n, h), cache.dtype), cache, cache],
        compiler_params=gpu.CompilerParams(num_warps=1, num_stages=1),
        input_output_aliases={0: 1, 1: 2},
        interpret=interpret,
        name="prepared_heads",
    )(paged.keys, paged.values, parts, biases, norms, turns, rows.writes)
    return query, replace(paged, keys=keys, values=values)


def _lines(run: SectionPass) -> list[dict[str, Op]]:
    """The lines of queries, keys and values by function, if their matmuls are one and the rest is known."""
    attend = next(op for op in run.section.ops if op.function == "attend")
    found = [
        [op for op in run.section.ops if op.output is not None and op.output.name == array.name]
        for array in attend.inputs
    ]
    if any([op.function for op in ops] not in KNOWN for ops in found):
        return []
    key = run.joined(found[0][0])
    together = [ops[0].weights[0].name for ops in found]
    lone = all(len(op.weights) == 1 for ops in found for op in ops)
    if not lone or key is None or key.split("+") != together:
        return []
    return [{op.function: op for op in ops} for ops in found]


def _weight(run: SectionPass, op: Op | None) -> jax.Array | None:
    return None if op is None else run.weight(op.weights[0], op)


def _kernel(
    _keys: Any,
    _values: Any,
    parts: Any,
    biases: Any,
    norms: Any,
    turns: Any,
    writes: Any,
    query: Any,
    keys: Any,
    values: Any,
    *,
    sizes: HeadSizes,
) -> None:
    """A head of a token."""
    token, head, n, k, half, dtype = pl.program_id(0), pl.program_id(1), sizes.n, sizes.k, sizes.h // 2, query.dtype
    lanes = [jnp.arange(half), half + jnp.arange(half)]

    def made(own: Any, kind: int) -> list[jax.Array]:
        """Both halves of the head, the `own`th of its kind."""
        columns = [head * sizes.h + each for each in lanes]
        sums: Any = [
            sum(parts[at, token, each].astype(jnp.float32) for at in range(parts.shape[0])) for each in columns
        ]
        both = [each.astype(dtype) for each in sums]
        if biases[kind] is not None:
            both = [(each + biases[kind][own, at]).astype(dtype) for each, at in zip(both, lanes, strict=True)]
        if norms[kind] is not None:
            wide = [each.astype(jnp.float32) for each in both]
            square = sum(jnp.sum(each * each) for each in wide) / sizes.h
            weights = [norms[kind][at].astype(jnp.float32) + sizes.offset for at in lanes]
            wide = [each * jax.lax.rsqrt(square + sizes.eps) for each in wide]
            both = [(each * weight).astype(dtype) for each, weight in zip(wide, weights, strict=True)]
        return both

    def turned(left: jax.Array, right: jax.Array) -> list[jax.Array]:
        cosine, sine = (turn[token, lanes[0]] for turn in turns)
        left, right = left.astype(jnp.float32), right.astype(jnp.float32)
        return [left * cosine - right * sine, right * cosine + left * sine]

    def put(ref: Any, row: Any, own: Any, both: list[jax.Array]) -> None:
        for at, each in zip(lanes, both, strict=True):
            ref[row, own, at] = each.astype(dtype)

    pl.when(head < n)(lambda: put(query, token, head, turned(*made(head, 0))))
    is_key = (head >= n) & (head < n + k)
    pl.when(is_key)(lambda: put(keys, writes[token], head - n, turned(*made(head - n, 1))))
    pl.when(head >= n + k)(lambda: put(values, writes[token], head - n - k, made(head - n - k, 2)))
