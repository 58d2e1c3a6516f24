"""XLA's HLO read and explained: a shape, an instruction, a program."""
