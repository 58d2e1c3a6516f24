"""One folder a command: a question is read, worked out and answered.

Each package here answers one question of `dragonscale.app.questions` with a record (`record.py`). The command line,
notebooks and web pages render the same records; none of them does arithmetic of its own. Every key that has a unit ends
in it (`lower_s`, `hbm_bytes`).
"""
