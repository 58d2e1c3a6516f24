"""What one chip holds during a training step."""
