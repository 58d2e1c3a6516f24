"""Constants of kernels and of software stacks, measured on the accelerator at hand: what `dscale calibrate` does.

Kernels: `cases` lists what is timed, `jax_programs` has the programs, `jax_timing` and `torch_timing` run them,
`measuring` goes through the list until the time is up, keeps every measurement as a line of JSON and says what a
profile expects of a measured case and whether it holds, `fitting` settles the constants of a profile,
`own_profile` makes a file of them. Whole steps: `stack_measure`, `stack_fit`.
"""
