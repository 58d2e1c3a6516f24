"""Which figures of a chip a problem takes, and the flag that makes a command take the same.

A problem takes a chip's own default facts (`load_chip`). One that works a result of the book out anew on a GPU takes the
book's round figures of every chip that the book has (`book_chip`), states them, and checks with `--source book`.
"""

from functools import cache

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip, load_chip


@cache
def book_chip(name: str) -> Chip:
    """A chip by the book's figures; one that the book does not have, by its own.

    >>> book_chip("h100").peak("bf16"), book_chip("b300") == load_chip("b300")
    (990000000000000.0, True)
    """
    try:
        return load_chip(name).reading("book")
    except InputError:
        return load_chip(name)


def source_of(name: str) -> str:
    """The source of a chip's figures in `book_chip`, for `--source`; none where they are its own."""
    return "book" if book_chip(name) != load_chip(name) else ""
