"""What `dscale validate` answers: how far predictions are from measured runs."""
