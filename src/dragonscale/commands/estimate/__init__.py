"""The back of the envelope: `dscale estimate` and `ds.estimate`."""
