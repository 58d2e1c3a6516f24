"""The plan served: continuous batching over a paged cache, behind an OpenAI-compatible server.

From the inside out: `steps` (what a step of the model takes), `runner` (the compiled programs), `sampling`, `pages` and `scheduler`,
`engine` (the loop), `worker` (a process around an engine), `front` (replicas behind a router), `http` (the server).
"""
