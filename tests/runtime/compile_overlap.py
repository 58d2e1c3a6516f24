"""Compile collective matmuls for eight H100s that are not there: lines on stdin, their compiled texts as JSON on
stdout."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding

from dragonscale.evidence.xla.gpu_target import devices
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.runtime.collective_matmul import collective_matmul

SIZES = {"B": 4096, "D": 4096, "F": 8192}


def main() -> None:
    mesh = Mesh(numpy.array(devices(load_chip("h100"), 8)).reshape(2, 4), ("X", "Y"))
    for text in sys.stdin.read().splitlines():
        shapes = [
            jax.ShapeDtypeStruct(
                tuple(SIZES[name] for name in array.names),
                jnp.bfloat16,
                sharding=NamedSharding(mesh, to_partition_spec(array)),
            )
            for array in parse_einsum(text).operands
        ]
        print(json.dumps(jax.jit(collective_matmul(text, mesh)).lower(*shapes).compile().as_text()))


if __name__ == "__main__":
    main()
