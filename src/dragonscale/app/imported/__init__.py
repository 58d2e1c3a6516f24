"""The words of another software read as a plan: `dscale import` and `ds.import_plan`."""
