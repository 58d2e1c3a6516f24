"""What `dscale profile` answers, as records."""
