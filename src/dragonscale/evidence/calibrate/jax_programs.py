"""The cases as programs in JAX: what each takes and what it computes.

Attention and experts are those of our own program (`runtime/`): what is timed is what it runs. A program holds several
copies of a case on arrays of their own, so that one call keeps the device busy and no copy finds its operands in a
cache.

The bytes of a collective are those of the whole array: what an AllReduce adds up on every device, what an AllGather
leaves on every device and a ReduceScatter starts from on each, what all devices hold together of an AllToAll, what
every device sends its neighbour.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.evidence.calibrate.cases import WIDTHS, BenchCase
from dragonscale.runtime.attention import Reach, Scoring, attend_cached, attend_causally
from dragonscale.runtime.experts import ExpertChoice, combine, dispatch, multiply

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn", "int8": "int8"}
ALIGNED = 4096
"""Elements: arrays of other sizes are read one by one."""
SETS = 4
"""Copies of a collective in a program."""
CHAINED = ("copy", "read", "product")
"""Kinds that a compiler would join into one kernel if nothing held them apart."""


@dataclass(frozen=True)
class JaxProgram:
    """A case: its arrays as (shape, dtype), and the function of them."""

    arrays: tuple[tuple[tuple[int, ...], str], ...]
    compute: Callable[..., Any]

    @property
    def bytes(self) -> float:
        return sum(jnp.dtype(dtype).itemsize * math.prod(shape) for shape, dtype in self.arrays)


def program_of(case: BenchCase) -> JaxProgram:
    """What a case computes on one device."""
    makers = {"copy": _copy, "read": _read, "product": _product, "decode": _decode, "experts": _experts}
    makers |= dict.fromkeys(("attention", "attention_both"), _attention)
    return _matmul(case) if case.kind.startswith("matmul") else makers[case.kind](case)


def copies(program: JaxProgram, count: int, chained: bool) -> Callable[..., Any]:
    """A function of `count` sets of arrays that computes the program on each. Where they are `chained`, the next set
    waits for the last result: kernels one after the other, as layers are, and not joined into one."""
    width = len(program.arrays)

    def work(*arrays: Any) -> list[Any]:
        results, held = [], list(arrays)
        for start in range(0, count * width, width):
            out, after = program.compute(*held[start : start + width]), slice(start + width, start + 2 * width)
            if chained and held[after]:
                out, held[after] = jax.lax.optimization_barrier((out, held[after]))
            results.append(out)
        return results

    return work


def cutting(shape: tuple[int, ...], dtype: str) -> Callable[[Any, Any], Any]:
    """A function that cuts an array out of a pool of random numbers, from some place on."""

    def cut(pool: Any, at: Any) -> Any:
        size = math.prod(shape)
        flat = jnp.resize(pool, (size,)) if size > pool.size else jax.lax.dynamic_slice(pool, (at,), (size,))
        flat = flat * 64 if jnp.issubdtype(jnp.dtype(dtype), jnp.integer) else flat
        return flat.astype(dtype).reshape(shape)

    return cut


def _matmul(case: BenchCase) -> JaxProgram:
    m, n, k = case.sizes
    dtype = _DTYPES[case.dtype]
    result = {"fp8": jnp.bfloat16, "int8": jnp.int32}.get(case.dtype)
    narrow = case.dtype in ("fp8", "int8")  # matrix units read narrow formats along the contraction only
    turned, along = case.kind == "matmul_dw", case.kind == "matmul_dx" or narrow
    left, right = (k, m) if turned else (m, k), (n, k) if along else (k, n)
    contracted = ((0 if turned else 1,), (1 if along else 0,))

    def compute(x: Any, w: Any) -> Any:
        return jax.lax.dot_general(x, w, (contracted, ((), ())), preferred_element_type=result)

    return JaxProgram(((left, dtype), (right, dtype)), compute)


def _copy(case: BenchCase) -> JaxProgram:
    shape = (max(1, case.sizes[0] // 2 // WIDTHS[case.dtype]),)
    return JaxProgram(((shape, _DTYPES[case.dtype]),), lambda x: x + x.dtype.type(1))


def _product(case: BenchCase) -> JaxProgram:
    count = max(1, case.sizes[0] // 3 // WIDTHS[case.dtype])
    shape, dtype = (count // ALIGNED * ALIGNED or count,), _DTYPES[case.dtype]
    return JaxProgram(((shape, dtype), (shape, dtype)), lambda x, y: x * y)


def _read(case: BenchCase) -> JaxProgram:
    width = min(4096, max(1, case.sizes[0] // WIDTHS[case.dtype]))
    shape = (max(1, case.sizes[0] // WIDTHS[case.dtype] // width), width)
    return JaxProgram(((shape, _DTYPES[case.dtype]),), lambda x: x.sum(-1))


def _attention(case: BenchCase) -> JaxProgram:
    batch, tokens, heads, kv_heads, size = case.sizes
    dtype = _DTYPES[case.dtype]
    query, key = ((batch, tokens, heads, size), dtype), ((batch, tokens, kv_heads, size), dtype)

    def forward(q: Any, k: Any, v: Any) -> Any:
        places = jnp.broadcast_to(jnp.arange(tokens), (batch, tokens))
        return attend_causally(q, k, v, places, places, Scoring(Reach(), size**-0.5))

    def both(q: Any, k: Any, v: Any, given: Any) -> Any:
        out, back = jax.vjp(forward, q, k, v)
        return out, back(given)

    if case.kind == "attention_both":
        return JaxProgram((query, key, key, query), both)
    return JaxProgram((query, key, key), forward)


def _decode(case: BenchCase) -> JaxProgram:
    batch, keys, heads, kv_heads, size = case.sizes
    dtype = _DTYPES[case.dtype]

    def compute(q: Any, k: Any, v: Any) -> Any:
        return attend_cached(q, k, v, jnp.full((batch, 1), keys - 1), Scoring(Reach(), size**-0.5))

    return JaxProgram((((batch, 1, heads, size), dtype), *[((batch, keys, kv_heads, size), dtype)] * 2), compute)


def _experts(case: BenchCase) -> JaxProgram:
    tokens, hidden, inner, picks, experts = case.sizes
    dtype = _DTYPES[case.dtype]

    def compute(x: Any, gate: Any, up: Any, down: Any, logits: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(logits * 4, -1), picks)
        choice = ExpertChoice(chosen, weights)
        rows = dispatch(x, choice, experts)
        middle = jax.nn.silu(multiply(rows, gate).values) * multiply(rows, up).values
        return combine(multiply(rows.having(middle), down), choice)

    matrices = [((experts, hidden, inner), dtype)] * 2 + [((experts, inner, hidden), dtype)]
    return JaxProgram((((1, tokens, hidden), dtype), *matrices, ((1, tokens, experts), "float32")), compute)


@dataclass(frozen=True)
class CompiledCollective:
    """A collective ready to run, several times on arrays of its own."""

    call: Callable[[], Any]
    sets: int = SETS


def compiled_collective(case: BenchCase) -> CompiledCollective:
    """A case on random arrays that lie on the devices as they would."""
    size, count = case.sizes
    mesh, split = Mesh(jax.local_devices()[:count], ("x",)), PartitionSpec("x")
    elements = max(count, size // WIDTHS[case.dtype] // count * count)
    # Every device holds a whole array of these bytes, or its part of one.
    whole = case.what not in ("all_gather", "all_to_all")
    shape, dtype = (count, elements if whole else elements // count), _DTYPES[case.dtype]
    make = jax.jit(lambda key: jax.random.normal(key, shape, dtype), out_shardings=NamedSharding(mesh, split))
    arrays = [make(jax.random.key(place)) for place in range(SETS)]
    program = JaxProgram(
        ((shape, dtype),), jax.shard_map(_on_device(case.what, count), mesh=mesh, in_specs=split, out_specs=split)
    )
    compiled = jax.jit(copies(program, SETS, chained=True)).lower(*arrays).compile()
    return CompiledCollective(lambda: compiled(*arrays))


def _on_device(what: str, count: int) -> Callable[[Any], Any]:
    """What one device does with its [1, …] part."""
    around = [(place, (place + 1) % count) for place in range(count)]
    bodies: dict[str, Callable[[Any], Any]] = {
        "all_reduce": lambda part: jax.lax.pcast(jax.lax.psum(part, "x"), "x", to="varying"),
        "all_gather": lambda part: jax.lax.all_gather(part.reshape(-1), "x", tiled=True)[None],
        "reduce_scatter": lambda part: jax.lax.psum_scatter(part.reshape(-1), "x", tiled=True)[None],
        "all_to_all": lambda part: jax.lax.all_to_all(part.reshape(count, -1), "x", 0, 0).reshape(1, -1),
        "permute": lambda part: jax.lax.ppermute(part, "x", around),
    }
    return bodies[what]
