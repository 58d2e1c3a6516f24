"""What `dscale models` answers: what a model weighs and asks for."""
