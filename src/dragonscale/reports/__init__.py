"""Answers as records: one computation, many faces.

Each package here answers one question of `dragonscale.questions` with a record (`record.py`). The command line,
notebooks and web pages render the same records; none of them does arithmetic of its own. Every key that has a unit ends
in it (`lower_s`, `hbm_bytes`).
"""
