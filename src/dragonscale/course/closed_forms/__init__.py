"""The book's closed forms: formulas one can do on the back of an envelope, on floats, arrays or symbols.

The planner derives its numbers from a program of einsums, its shardings and a chip. These functions do not: each is
a formula of its own, as the book writes it, with what it leaves out said beside it. They answer the quick questions
(how many days, which batch, how many chips) and are what the tests hold the derived numbers against.
`docs/closed-forms.md` goes through them with examples.

>>> import dragonscale as ds
>>> v5e = ds.rates_of(ds.load_chip("v5e"))
>>> round(ds.closed_forms.critical_batch(v5e))
240
>>> ds.closed_forms.state_bytes(70e9) / 1e9
700.0
"""

from importlib import import_module, resources
from typing import Any

import msgspec

NAMES = msgspec.toml.decode((resources.files(__name__) / "names.toml").read_bytes(), type=dict[str, tuple[str, ...]])
"""The functions by the module that holds them."""
_HOME = {name: home for home, names in NAMES.items() for name in names}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
