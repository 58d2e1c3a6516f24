"""The model program in JAX: the same named einsums, computed. Needs the extra `jax`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before JAX is imported: its own remarks on start-up
