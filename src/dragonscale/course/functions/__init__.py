"""What the expressions of problems may call: public names of the modules here, the closed forms, and a few of Python's.

`chips.py` has chips, meshes and collectives, `models.py` models, what runs them and compiled programs; the closed forms
are those of the calculator.
"""

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

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


def look_up(name: str) -> Any:
    """What a name means that a problem does not define itself.

    >>> look_up("load_chip")("v5e").name, look_up("prod")([2, 3])
    ('v5e', 6)
    """
    if name in _PYTHON:
        return _PYTHON[name]
    if not name.startswith("_"):
        for module in _modules():
            if name in dir(module):
                return getattr(module, name)
    public = (known for module in _modules() for known in dir(module) if not known.startswith("_"))
    raise unknown("name", name, {*_PYTHON, *public})


def _modules() -> Iterator[ModuleType]:
    """The modules that have names for problems. Each is loaded where those before it do not have a name: a list of
    problems needs none of them, and what runs models needs NumPy."""
    from dragonscale.course.functions import chips

    yield chips
    from dragonscale.course import closed_forms

    yield closed_forms
    from dragonscale.course.functions import models

    yield models
