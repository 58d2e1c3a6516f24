"""Sharded arrays: meshes, the algebra of sharded einsums, reshards, and JAX's spelling of them."""
