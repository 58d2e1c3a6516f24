"""JAX in the tests' own process only ever traces, on the CPU; what compiles or runs sharded has a
process of its own."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
