"""Constants of kernels and of software stacks, measured on the accelerator at hand."""
