"""Collectives over all devices of this machine, in JAX: what each does by size.

The bytes of a case are those of the whole array: what an AllReduce adds up on every device, what an AllGather leaves on
every device and a ReduceScatter starts from on each, what all devices hold together of an AllToAll, what every device
sends its neighbour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.calibrate.cases import WIDTHS, BenchCase

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
SETS = 4


@dataclass(frozen=True)
class CompiledCollective:
    """A collective ready to run, several times on arrays of its own."""

    call: Callable[[], Any]
    sets: int = SETS


def compiled_collective(case: BenchCase) -> CompiledCollective:
    """A case on random arrays that lie on the devices as they would."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    size, count = case.sizes
    mesh = Mesh(jax.local_devices()[:count], ("x",))
    split = NamedSharding(mesh, PartitionSpec("x"))
    elements = max(count, size // WIDTHS[case.dtype] // count * count)
    # Every device holds a whole array of these bytes, or its part of one.
    whole = case.what not in ("all_gather", "all_to_all")
    shape = (count, elements) if whole else (count, elements // count)
    make = jax.jit(lambda key: jax.random.normal(key, shape, jnp.dtype(_DTYPES[case.dtype])), out_shardings=split)
    arrays = [make(jax.random.key(place)) for place in range(SETS)]
    one = jax.shard_map(_body(case.what, count), mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))

    def work(*given: Any) -> list[Any]:
        found, held = [], list(given)
        for place in range(SETS):
            out = one(held[place])
            if place + 1 < SETS:  # one after the other, not joined into one
                out, held[place + 1] = jax.lax.optimization_barrier((out, held[place + 1]))
            found.append(out)
        return found

    compiled = jax.jit(work).lower(*arrays).compile()
    return CompiledCollective(lambda: compiled(*arrays))


def _body(what: str, count: int) -> Callable[[Any], Any]:
    """What one device does with its [1, …] part."""
    import jax

    def all_to_all(part: Any) -> Any:
        parts = part.reshape(count, -1)
        return jax.lax.all_to_all(parts, "x", 0, 0).reshape(1, -1)

    def reduce_scatter(part: Any) -> Any:
        return jax.lax.psum_scatter(part.reshape(-1), "x", tiled=True)[None]

    def all_reduce(part: Any) -> Any:
        return jax.lax.pcast(jax.lax.psum(part, "x"), "x", to="varying")

    def all_gather(part: Any) -> Any:
        return jax.lax.all_gather(part.reshape(-1), "x", tiled=True)[None]

    def permute(part: Any) -> Any:
        return jax.lax.ppermute(part, "x", [(place, (place + 1) % count) for place in range(count)])

    return {
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "all_to_all": all_to_all,
        "permute": permute,
    }[what]
