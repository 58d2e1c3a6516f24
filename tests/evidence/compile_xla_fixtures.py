"""Compile the small GPU programs whose texts are kept in `data/xla`: python -m tests.evidence.compile_xla_fixtures
FOLDER [NAME...].

Run with the environment of `dragonscale.evidence.xla.gpu_target.ENVIRONMENT`. Each program is for eight H100s as a mesh
of `fsdp=2, tensor=4`; none of them is there.
"""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.evidence.xla.gpu_target import devices
from dragonscale.physics.hardware import load_chip
from tests.evidence.xla_fixtures import BATCH, GPU_MESH, HEAD, HIDDEN, LAYERS, MODEL, TOKENS


def array(mesh: Mesh, shape: tuple[int, ...], *spec: str | None, dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))


def mlp(mesh: Mesh) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A scanned two-matrix MLP, trained for a step with recomputation, under FSDP and tensor parallelism."""

    def layer(h: Any, weights: Any) -> tuple[Any, None]:
        a = jax.nn.relu(jnp.einsum("bd,df->bf", h, weights[0]))
        h = h + jnp.einsum("bf,fd->bd", a, weights[1])
        return jax.lax.with_sharding_constraint(h, NamedSharding(mesh, PartitionSpec("fsdp", None))), None

    def loss(weights: Any, x: Any, y: Any) -> Any:
        h, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
        return jnp.mean((h - y).astype(jnp.float32) ** 2)

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

    weights = (
        array(mesh, (LAYERS, MODEL, HIDDEN), None, "fsdp", "tensor"),
        array(mesh, (LAYERS, HIDDEN, MODEL), None, "tensor", "fsdp"),
    )
    x = array(mesh, (BATCH, MODEL), "fsdp", None)
    return step, (weights, x, x)


def ring(mesh: Mesh) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Causal ring attention over `tensor`: a step whose keys lie wholly in the future is skipped by a conditional."""
    steps = 4
    pairs = [(place, (place + 1) % steps) for place in range(steps)]

    def body(q: Any, k: Any, v: Any) -> Any:
        me = jax.lax.axis_index("tensor")

        def turn(state: Any, step: Any) -> tuple[Any, None]:
            k, v, out = state
            seen = (me - step) % steps <= me
            out += jax.lax.cond(seen, lambda: jax.nn.softmax(q @ k.T, axis=-1) @ v, lambda: jnp.zeros_like(q))
            return (jax.lax.ppermute(k, "tensor", pairs), jax.lax.ppermute(v, "tensor", pairs), out), None

        (_, _, out), _ = jax.lax.scan(turn, (k, v, jnp.zeros_like(q)), jnp.arange(steps))
        return out

    spec = PartitionSpec("tensor")
    x = array(mesh, (TOKENS, HEAD), "tensor", None)
    return jax.shard_map(body, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False), (x, x, x)


def ragged(mesh: Mesh) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A ragged all-to-all over `tensor`."""

    def body(*arguments: Any) -> Any:
        return jax.lax.ragged_all_to_all(*arguments, axis_name="tensor")

    spec = PartitionSpec("tensor")
    x, sizes = array(mesh, (TOKENS, HEAD), "tensor", None), array(mesh, (16,), "tensor", dtype=jnp.int32)
    shapes = (x, x, sizes, sizes, sizes, sizes)
    return jax.shard_map(body, mesh=mesh, in_specs=(spec,) * 6, out_specs=spec, check_vma=False), shapes


def libraries(mesh: Mesh) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A batched product, one of 8-bit floats and a convolution with its two gradients: what cuBLAS and cuDNN are called
    for."""

    def body(q: Any, k: Any, a: Any, b: Any, image: Any, kernel: Any) -> Any:
        def convolved(image: Any, kernel: Any) -> Any:
            out = jax.lax.conv_general_dilated(
                image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            return (out.astype(jnp.float32) ** 2).sum()

        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        small = jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.bfloat16)
        return scores, small, jax.grad(convolved, argnums=(0, 1))(image, kernel)

    heads = array(mesh, (8, 128, 8, 64), "fsdp", None, "tensor", None)
    small = array(mesh, (256, 256), dtype=jnp.float8_e4m3fn)
    return body, (heads, heads, small, small, array(mesh, (8, 16, 16, 32), "fsdp"), array(mesh, (3, 3, 32, 64)))


PROGRAMS = {"mlp": mlp, "ring": ring, "ragged": ragged, "libraries": libraries}


def main() -> None:
    folder, *names = sys.argv[1:]
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    mesh = Mesh(numpy.array(devices(load_chip("h100"), 8)).reshape(tuple(GPU_MESH.values())), tuple(GPU_MESH))
    for name in names or PROGRAMS:
        function, shapes = PROGRAMS[name](mesh)
        text = jax.jit(function).lower(*shapes).compile().as_text()
        assert text is not None
        packed = gzip.compress(text.encode(), mtime=0)
        (Path(folder) / f"h100_{name}.hlo.gz").write_bytes(packed)
        print(name, len(text), len(packed))


if __name__ == "__main__":
    main()
