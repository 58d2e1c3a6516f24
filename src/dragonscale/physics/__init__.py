"""What the rest stands on: units, numbers, formulas, notation, chips, collectives, kernels, rooflines, sharding."""
