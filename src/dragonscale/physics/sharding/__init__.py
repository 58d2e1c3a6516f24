"""Sharded arrays: meshes, the algebra of sharded einsums, reshards, chains, and JAX's spelling of them."""

from dragonscale.physics.sharding.algebra import Strategy, backward, book_case, derive, strategies
from dragonscale.physics.sharding.chain import collectives, passes
from dragonscale.physics.sharding.layout import block_of, local_bytes, local_shape, replicated_over, total_bytes
from dragonscale.physics.sharding.mesh import Mesh, make_mesh, natural_mesh, parse_mesh
from dragonscale.physics.sharding.reshard import Step, reshard

__all__ = ["Mesh", "Step", "Strategy", "backward", "block_of", "book_case", "collectives", "derive", "local_bytes"]
__all__ += ["local_shape", "make_mesh", "natural_mesh", "parse_mesh", "passes", "replicated_over", "reshard"]
__all__ += ["strategies", "total_bytes"]
