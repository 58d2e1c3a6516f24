"""What `dscale train` answers, as records."""
