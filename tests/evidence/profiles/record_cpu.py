"""Records a profile on virtual CPU devices, and what JAX itself reads in it; run in a process of its own."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def loss(x: jax.Array, w: jax.Array) -> jax.Array:
    """Three layers in a loop, summed."""

    def body(carry: jax.Array, each: jax.Array) -> tuple[jax.Array, None]:
        with jax.named_scope("mlp"):
            return jax.nn.relu(carry @ each), None

    return jnp.sum(jax.lax.scan(body, x, w)[0])


def main(folder: str) -> None:
    """Record three steps, and print what `jax.profiler.ProfileData` finds."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    step = jax.jit(jax.grad(loss, argnums=1), in_shardings=(split, whole), out_shardings=whole)
    x, w = jax.device_put(jnp.ones((64, 128)), split), jax.device_put(jnp.ones((3, 128, 128)), whole)
    compiled = step.lower(x, w).compile()
    compiled(x, w).block_until_ready()
    with jax.profiler.trace(folder):
        for number in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=number + 5):
                compiled(x, w).block_until_ready()
    found = next(Path(folder).rglob("*.xplane.pb"))
    ops: dict[str, list[float]] = {}
    for plane in jax.profiler.ProfileData.from_file(str(found)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    kept = ops.setdefault(f"{stats['device_ordinal']} {stats['hlo_op']}", [0, 0.0])
                    kept[0] += 1
                    kept[1] += event.duration_ns
    print(json.dumps({"path": str(found), "ops": ops, "text": compiled.as_text()}))


if __name__ == "__main__":
    main(sys.argv[1])
