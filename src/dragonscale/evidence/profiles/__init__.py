"""Profiles that were recorded elsewhere: where the time of a step went, beside where it should have gone."""
