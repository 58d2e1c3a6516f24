"""What the expressions of problems may name: the functions of the modules here, the closed forms, what other modules
have under the names of `names.toml`, and a few of Python's.

`chips.py` has chips, meshes and collectives, `models.py` models, what runs them and compiled programs; the closed forms
are those of the calculator. A module is loaded when one of its names is called for: a list of problems needs none of
them, and what runs models needs NumPy.
"""

import math
from importlib import import_module, resources
from typing import Any

import msgspec

from dragonscale.errors import unknown

_PYTHON = {
    function.__name__: function
    for functions in (
        (abs, all, any, dict, divmod, enumerate, float, int, len, list, map, max, min, next),
        (range, reversed, round, set, sorted, str, sum, tuple, zip),
        (math.ceil, math.floor, math.log2, math.prod, math.sqrt),
    )
    for function in functions
}
_NAMES = msgspec.toml.decode((resources.files(__name__) / "names.toml").read_bytes(), type=dict[str, tuple[str, ...]])
_HOME = {name: home for home, names in _NAMES.items() for name in names}


def look_up(name: str) -> Any:
    """What a name means that a problem does not define itself.

    >>> look_up("load_chip")("v5e").name, look_up("prod")([2, 3])
    ('v5e', 6)
    """
    if name in _PYTHON:
        return _PYTHON[name]
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    known = {*_PYTHON, *_HOME}
    for home in ("functions.chips", "closed_forms", "functions.models"):
        module = import_module(f"dragonscale.course.{home}")
        known |= {own for own in dir(module) if not own.startswith("_")}
        if name in known:
            return getattr(module, name)
    raise unknown("name", name, known)
