"""What `dscale sweep` answers, as records."""
