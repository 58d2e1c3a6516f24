"""What `dscale serve` answers, as records."""
