"""The inference engine: the plan's model program with continuous batching over a paged cache.

From the inside out: `steps` (what a step of the model takes), `runner` (the compiled programs), `sampling`, `pages` and
`scheduler`, `engine` (the loop). Processes and HTTP around it are in `runtime.server`.
"""
