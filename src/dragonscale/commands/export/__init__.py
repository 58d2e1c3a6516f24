"""A plan written down for the software that runs it: `dscale export` and `ds.export`."""
