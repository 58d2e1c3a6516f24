"""Lines of a pass of few tokens on one NVIDIA GPU, computed together with what is before them: XLA takes kernels of a
microsecond or two for each, which between matmuls of ten is a lot.

A norm adds up the parts of the matmul before it and the residual stream itself; what a gate lets through is computed by
the matmul that makes both.
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.models.program import Op
from dragonscale.runtime.expert_lines import is_last
from dragonscale.runtime.experts import ExpertRows
from dragonscale.runtime.lines import gated
from dragonscale.runtime.one_pass import SectionPass
from dragonscale.runtime.serve.gpu_matmul import MOST, Gate, few_gated
from dragonscale.runtime.serve.gpu_slots import gated_experts_of_few

ADDED = 32
"""Parts that a norm adds up, as many as were tried on an H200; more (slots of biased experts) are for XLA to sum."""


def fused(op: Op, run: SectionPass, interpret: bool = False) -> bool:
    """Computes a line of a kind that is better computed so, and says whether it did."""
    makers = {"norm": normed_sum, "act": gated_product}
    return makers[op.function](op, run, interpret)


def normed_sum(op: Op, run: SectionPass, interpret: bool = False) -> bool:
    """A norm of what a matmul was just added to; nobody reads that sum as the lines made it."""
    name = op.inputs[0].name
    residual, parts = run.added.get(name, (None, None))
    if residual is None or parts is None or run.numerics.norm != "rms" or len(op.weights) != 1:
        return False
    tokens, width = parts.shape[1:]
    if tokens > MOST or residual.size != tokens * width or parts.shape[0] > ADDED:
        return False
    shape = jax.ShapeDtypeStruct((tokens, width), residual.dtype)
    total, normed = pl.pallas_call(
        functools.partial(_kernel, eps=run.numerics.eps, offset=run.numerics.offset),
        grid=(tokens,),
        out_shape=[shape, shape],
        compiler_params=gpu.CompilerParams(num_warps=16 if width > 2048 else 8, num_stages=1),
        interpret=interpret,
        name="normed_sum",
    )(residual.reshape(tokens, width), parts, run.weight(op.weights[0], op))
    run.renew(name, total.reshape(residual.shape))
    run.put(op, normed.reshape(residual.shape))
    return True


def _kernel(residual: Any, parts: Any, weight: Any, total: Any, normed: Any, *, eps: float, offset: float) -> None:
    token, width, dtype = pl.program_id(0), residual.shape[1], total.dtype
    lanes = jnp.arange(pl.next_power_of_2(width))
    real = {} if lanes.size == width else {"mask": lanes < width, "other": 0}
    mask = {} if lanes.size == width else {"mask": lanes < width}
    own = gpu.load(weight.at[lanes], **real).astype(jnp.float32) + offset  # all loads are under way before the sum
    more: Any = sum(gpu.load(parts.at[at, token, lanes], **real).astype(jnp.float32) for at in range(parts.shape[0]))
    new = gpu.load(residual.at[token, lanes], **real) + more.astype(dtype)
    gpu.store(total.at[token, lanes], new, **mask)
    wide = new.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.sum(wide * wide) / width + eps)
    gpu.store(normed.at[token, lanes], (wide * scale * own).astype(dtype), **mask)


def gated_product(op: Op, run: SectionPass, interpret: bool = False) -> bool:
    """What a gate lets through, where it and what it gates are one matmul, of tokens or of their experts."""
    lines = [
        [one for one in run.section.ops if one.output is not None and one.output.name == array.name]
        for array in op.inputs
    ]
    if len(lines) != 2 or any([line.function for line in own] != ["einsum"] for own in lines):
        return False
    gate, made = (own[0] for own in lines)
    key = run.joined(made)
    names = [line.weights[0].name for line in (made, gate)]
    if key is None or sorted(key.split("+")) != sorted(names):
        return False
    turned, rows, weight = key.split("+") != names, run.tensors[made.inputs[0].name], run.weights[key]

    def through(*halves: jax.Array) -> jax.Array:
        gate, own = (each.astype(jnp.float32) for each in (halves if turned else reversed(halves)))
        return gated(gate, own, run.numerics)

    if isinstance(rows, ExpertRows):
        return _gated_experts(op, run, rows, weight, through, interpret)
    found = few_gated(run.operand(made.inputs[0], made), weight, through, interpret)
    if found is not None:
        run.put(op, found, run.wanted(op.inputs[0], op))
    return found is not None


def _gated_experts(op: Op, run: SectionPass, rows: ExpertRows, weight: Any, gate: Gate, interpret: bool) -> bool:
    """Of experts that multiply all tokens; the weights that tokens give them are multiplied in where nothing but the
    last matmul is between this and their sum."""
    if rows.slots is None or rows.values.dtype != jnp.bfloat16:
        return False
    last = [one for one in run.section.ops if op.output is not None and op.output.name in (a.name for a in one.inputs)]
    straight = len(last) == 1 and is_last(last[0], run.section)
    times = rows.scale if straight else None
    values = gated_experts_of_few(rows.values, weight, rows.slots, gate, times, interpret)
    run.put(op, replace(rows, values=values, scale=None if straight else rows.scale))
    return True
