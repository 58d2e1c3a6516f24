"""What `dscale verify` answers, as records."""
