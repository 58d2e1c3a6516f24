"""Checkers run inside the environments of other software; here they are data."""

collect_ignore_glob = ["software/*.py"]
