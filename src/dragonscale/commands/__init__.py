"""One folder a command: a question is read, worked out and answered.

Each package here answers one question of `dragonscale.commands.questions` with a record (`record.py`). The command
line, notebooks and web pages render the same records; none of them does arithmetic of its own. Every key that has a
unit ends in it (`lower_s`, `hbm_bytes`).
"""
