"""The norm behind a residual addition, of a few tokens on one NVIDIA GPU, in one small Pallas kernel: the parts of the
matmul before it added up and to the residual stream, which is then normed. XLA takes three kernels for one token."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.models.program import Op
from dragonscale.runtime.one_pass import SectionPass
from dragonscale.runtime.serve.gpu_matmul import few_parts


def normed_sum(op: Op, run: SectionPass, interpret: bool = False) -> bool:
    """Computes a norm of what a matmul was just added to, and says whether it did; XLA then drops the lines before."""
    added = _matmul_added(op, run)
    residual = run.before.get(op.inputs[0].name)
    if added is None or residual is None or run.numerics.norm != "rms" or len(op.weights) != 1:
        return False
    line, matmul = added
    x, weight = run.operand(matmul.inputs[0], matmul), run.weight(matmul.weights[0], matmul)
    width, tokens = residual.shape[-1], residual.shape[0] * residual.shape[1]
    if not isinstance(weight, jax.Array) or weight.shape[-1] != width or x.size != tokens * (weight.size // width):
        return False
    parts = few_parts(x.reshape(tokens, -1), weight.reshape(-1, width), interpret)
    if parts is None:
        return False
    shape = jax.ShapeDtypeStruct((tokens, width), residual.dtype)
    total, normed = pl.pallas_call(
        functools.partial(_kernel, eps=run.numerics.eps, offset=run.numerics.offset),
        grid=(tokens,),
        out_shape=[shape, shape],
        compiler_params=gpu.CompilerParams(num_warps=8, num_stages=1),
        interpret=interpret,
        name="normed_sum",
    )(residual.reshape(tokens, width), parts, run.weight(op.weights[0], op))
    run.put(line, total.reshape(residual.shape))
    run.put(op, normed.reshape(residual.shape))
    return True


def _matmul_added(op: Op, run: SectionPass) -> tuple[Op, Op] | None:
    """The line that adds a matmul to what is normed, and the matmul, where nothing lies between the two."""
    ops = run.section.ops
    before = ops[: next(at for at, one in enumerate(ops) if one is op)]
    made = [one for one in before if one.output is not None and one.output.name == op.inputs[0].name]
    if not made or made[-1].function != "add" or len(made[-1].inputs) != 2 or made[-1].weights:
        return None
    name = made[-1].inputs[1].name
    lines = [one for one in before if one.output is not None and one.output.name == name]
    plain = len(lines) == 1 and lines[0].function == "einsum" and len(lines[0].inputs) == len(lines[0].weights) == 1
    whole = plain and lines[0].weights[0].name in run.weights and isinstance(run.tensors[name], jax.Array)
    return (made[-1], lines[0]) if whole and made[-1].inputs[0].name == op.inputs[0].name else None


def _kernel(residual: Any, parts: Any, weight: Any, total: Any, normed: Any, *, eps: float, offset: float) -> None:
    token, width, dtype = pl.program_id(0), residual.shape[1], total.dtype
    lanes = jnp.arange(pl.next_power_of_2(width))
    real = {} if lanes.size == width else {"mask": lanes < width, "other": 0}
    mask = {} if lanes.size == width else {"mask": lanes < width}
    more: Any = sum(gpu.load(parts.at[at, token, lanes], **real).astype(jnp.float32) for at in range(parts.shape[0]))
    new = gpu.load(residual.at[token, lanes], **real) + more.astype(dtype)
    gpu.store(total.at[token, lanes], new, **mask)
    wide = new.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.sum(wide * wide) / width + eps)
    own = gpu.load(weight.at[lanes], **real).astype(jnp.float32) + offset
    gpu.store(normed.at[token, lanes], (wide * scale * own).astype(dtype), **mask)
