"""What is known of chips and slices."""
