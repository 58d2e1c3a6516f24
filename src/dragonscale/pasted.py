"""Texts that anyone may have pasted: while one is read, no word of it names a file.

On a command line a model, a chip or a config may be a path, and readers look for it. A page that reads what its
visitors paste must not: `without_files` says so to every reader below it, whichever way a text takes to them.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_NAMED: ContextVar[bool] = ContextVar("named_files", default=True)


@contextlib.contextmanager
def without_files() -> Iterator[None]:
    """While this holds, no text names a file or a folder: for commands and configs that anyone may have pasted."""
    before = _NAMED.set(False)
    try:
        yield
    finally:
        _NAMED.reset(before)


def may_name_files() -> bool:
    """Whether a text that looks like a path is taken for one.

    >>> with without_files():
    ...     may_name_files()
    False
    """
    return _NAMED.get()
