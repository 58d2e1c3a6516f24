"""The names of what the page can ask for, without what answers it."""

OF_FIELDS = ("train", "serve", "simulate", "rl", "roofline", "shard", "collective", "chips", "models")
"""Views whose record is the answer of the command of their name to the request's fields."""
COMMANDS = (*OF_FIELDS, "compare")
"""Views that show the record of the command of their name."""
_OTHERS = ("catalogue", "why", "copied", "judge", "export", "learn")
"""Views that are put together otherwise."""

SLOW = {"train": frozenset({"best_batches", "scaling", "against"})}
"""Panels that search: a server keeps them apart from what is judged at once, so that sliders go on."""


def view_names() -> tuple[str, ...]:
    """Every view."""
    return (*COMMANDS, *_OTHERS)
