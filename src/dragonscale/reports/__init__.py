"""Answers as records: one computation, many faces.

Each module here answers one question and returns a plain record. The command line, notebooks and web pages render the
same records; none of them does arithmetic of its own. Every key that has a unit ends in it (`lower_s`, `hbm_bytes`).
"""
