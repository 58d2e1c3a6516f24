"""sgl-jax, SGLang on TPUs: `python -m sgl_jax.launch_server`."""

from dragonscale.exports.engines.sgl_jax.reader import read, recognises
from dragonscale.exports.engines.sgl_jax.writer import write

__all__ = ["read", "recognises", "write"]
