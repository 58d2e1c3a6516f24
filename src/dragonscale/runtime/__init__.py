"""The model program in JAX: the same named einsums, computed. Needs the extra `jax`."""
