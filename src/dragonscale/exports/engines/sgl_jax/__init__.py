"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`."""

from dragonscale.exports.engines.sgl_jax.read_sgl_jax import read, recognises
from dragonscale.exports.engines.sgl_jax.write_sgl_jax import write

__all__ = ["read", "recognises", "write"]
