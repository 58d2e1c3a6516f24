"""What a training step takes: kernels, moves, overlap, and the ledger of all of them."""
