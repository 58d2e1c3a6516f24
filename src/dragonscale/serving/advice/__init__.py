"""Where serving changes its nature, and what would make a configuration better."""
