"""Serving: prefill and decode steps read from shardings, what fits, which configuration is best, and why."""
