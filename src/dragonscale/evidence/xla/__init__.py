"""XLA as a witness: compile for accelerators that are not there, and read what the compiler decided."""
