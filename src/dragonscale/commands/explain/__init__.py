"""What `dscale explain` answers, as records."""
