"""A feed-forward block whose weights never move and are split in two dims: for decoding on many chips.

    W_in[D_X, F_Y], W_out[F_Y, D_X]; In[B, D_XY] -> Out[B, D_XY]

With few tokens, activations are small and weights large, so activations travel: gathered over Y, multiplied, scattered
over X; after the nonlinearity gathered over X, multiplied, scattered over Y. Each chip sends 2(BD/X + BF/Y) elements at
most, which falls as chips are added on both axes (the book's 2D weight-stationary form; Pope et al. 2022). Split in one
dim, as in training, it would be 2BD however many chips there are.

Both matmuls are of one kind: what they sum over arrives shard by shard, what they make leaves shard by shard, and the
rings hide both.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.runtime.rings import RingShard, after, gathering, run, scattering

Nonlinearity = Callable[[jax.Array], jax.Array]


def gather_matmul_scatter(
    x: jax.Array, weights: Sequence[jax.Array], gathered: str, scattered: str, both_ways: bool = False
) -> list[jax.Array]:
    """ReduceScatter(AllGather(x) · weight) for each weight, inside `jax.shard_map`: x[…, d] is gathered along its last
    dim over one axis, and results are split along theirs over the other. All weights share the shards and the ring."""
    size, width = jax.lax.axis_size(scattered), x.shape[-1]
    shards: list[RingShard] = []
    run(gathered, x.ndim - 1, gathering(x, gathered, x.ndim - 1, lambda shard, _: shards.append(shard), both_ways))

    def columns_of(weight: jax.Array, chip: jax.Array, made: jax.Array | None) -> jax.Array:
        columns = weight.shape[1] // size
        total: jax.Array | None = None
        for shard in shards:
            corner = (shard.source * width + shard.start, chip * columns)
            part = jax.lax.dynamic_slice(weight, corner, (shard.value.shape[-1], columns))
            product = jnp.matmul(after(shard.value, made), part, preferred_element_type=jnp.float32)
            total = product if total is None else total + product
        assert total is not None
        return total.astype(x.dtype)

    def product(chip: jax.Array, made: jax.Array | None) -> jax.Array:
        return jnp.concatenate([columns_of(weight, chip, made) for weight in weights], -1)

    whole = sum(weight.shape[1] for weight in weights) // size
    (made,) = run(scattered, x.ndim - 1, scattering(product, whole, scattered, x.ndim - 1, both_ways))
    return jnp.split(made, len(weights), -1)


def weight_stationary_mlp(
    mesh: Mesh,
    rows: str = "X",
    columns: str = "Y",
    act: Nonlinearity = jax.nn.silu,
    gated: bool = True,
    both_ways: bool = False,
) -> Callable[..., jax.Array]:
    """The function of whole arrays (x, up, down) or, if `gated`, (x, gate, up, down), with the model dim D of weights
    split over `rows` and their hidden dim F over `columns`."""
    missing = {rows, columns} - set(mesh.shape)
    if missing or rows == columns:
        axes = dict(mesh.shape)
        raise InputError(f"Weights split over {rows!r} and {columns!r} need a mesh with two such axes, not {axes}.")

    def local(x: jax.Array, *weights: jax.Array) -> jax.Array:
        first, *others = gather_matmul_scatter(x, weights[:-1], columns, rows, both_ways)
        hidden = act(first) * others[0] if others else act(first)
        return gather_matmul_scatter(hidden, weights[-1:], rows, columns, both_ways)[0]

    into, out, model = PartitionSpec(rows, columns), PartitionSpec(columns, rows), PartitionSpec(None, (rows, columns))
    specs = (model, *([into] * (2 if gated else 1)), out)
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=model, check_vma=False)
