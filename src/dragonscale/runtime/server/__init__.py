"""The server around the engine of `runtime.serve`: OpenAI's API over HTTP, text and tokens, and the processes behind
it.

From the outside in: `http` and `routes` (what is asked over HTTP; `protocol` says how), `answers`
(streams), `text` (tokenizer, chat templates), `front` (workers behind a router), `worker` (a process around an engine;
`wire` is what both say, `handover` how keys go from one to another), `building` (an engine of an order).
"""
