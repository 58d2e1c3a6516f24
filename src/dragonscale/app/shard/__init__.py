"""What a sharded einsum needs."""
