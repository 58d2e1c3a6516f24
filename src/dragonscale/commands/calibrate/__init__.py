"""`dscale calibrate`: the kernels of the device at hand, measured, fitted and checked."""
