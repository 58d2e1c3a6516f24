"""The plan against the real compilers: what was planned, what XLA made of it, and where they differ."""
