"""What `dscale simulate` answers, as records."""
