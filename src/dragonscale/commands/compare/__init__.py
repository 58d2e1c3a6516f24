"""Answers side by side: `dscale compare` and `ds.compare`."""
