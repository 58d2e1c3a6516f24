# ruff: noqa: F401  what is imported here is what the package offers
"""Sharded arrays: meshes, the algebra of sharded einsums, reshards, chains, and JAX's spelling of them."""

from dragonscale.physics.sharding.algebra import Strategy, backward, book_case, derive, strategies
from dragonscale.physics.sharding.chain import passes
from dragonscale.physics.sharding.layout import block_of, local_bytes, local_shape, replicated_over
from dragonscale.physics.sharding.mesh import Mesh, make_mesh, natural_mesh, parse_mesh
from dragonscale.physics.sharding.reshard import Step, reshard
