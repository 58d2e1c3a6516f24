"""What a function is given, as it takes it: plain numbers in base units, chips, their rates, meshes, words.

Whether a value is what a function takes: a number, a word, a chip, a slice, several of them.
"""

import inspect
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from dragonscale.course import closed_forms
from dragonscale.course.calculator.measure import Measure, aligned
from dragonscale.course.calculator.shown import exponents_of
from dragonscale.course.calculator.tables import TABLES, UNITS_OF_FORMS
from dragonscale.errors import InputError, shorten
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.slices import Slice
from dragonscale.physics.rooflines import rates_of
from dragonscale.physics.sharding.mesh import natural_mesh


def fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a kind; numbers may be formulas.

    >>> fits(int, 3), fits(tuple[int, ...], (1, 2)), fits(str, 3), fits(str | None, None)
    (True, True, False, True)
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(one, value) for one in args)
    if kind in (Any, int, float):
        return hasattr(value, "free_symbols") or (isinstance(value, int | float) and not isinstance(value, bool))
    if kind is bool:
        return isinstance(value, bool | int | float)
    if kind in (None, types.NoneType):
        return value is None
    if origin is dict:
        return isinstance(value, dict) and all(fits(args[1], one) for one in value.values())
    if origin is not None:
        if not isinstance(value, tuple) or not value:
            return False
        if origin is tuple and Ellipsis not in args:
            return len(value) == len(args) and all(map(fits, args, value))
        return all(fits(args[0], one) for one in value)
    return isinstance(value, kind)


def _wanted(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_wanted(one) for one in args if one is not types.NoneType))
    if origin is dict:
        return "sizes by their letters such as (D=4096, F=16384)"
    if origin is not None:
        count = len(args) if origin is tuple and Ellipsis not in args else 0
        what = "words" if str in args else "numbers"
        return f"{count or 'several'} {what} such as ({', '.join('12345'[: count or 2])})"
    return TABLES.kinds.get(getattr(kind, "__name__", ""), "a number")


CALLED = {"rates": "chip", "slice_": "slice", "group": "slice", "mesh": "slice"}
"""What stands for a parameter that takes an object of the library."""
_SEVERAL = ("tuple", "Sequence", "Iterable")
"""Words in the kind of a parameter that takes several values."""
MOST = 4096
MOST_OF = {"sequences.tokens": 1e15, "sequences.length": 1e9, "fat_tree.chips": 2e6, "best_drafts.most": 256} | {
    f"model.{letter}": 2**30 for letter in "DFNVKHE"
}
"""The largest whole numbers that functions take: most count something that they go through one by one."""


def taken_unit(function: str, parameter: str) -> str:
    """The base unit that a function takes a parameter in."""
    return UNITS_OF_FORMS.taken_by.get(f"{function}.{parameter}", UNITS_OF_FORMS.taken.get(parameter, ""))


def taken_as(function: str, parameter: inspect.Parameter, value: Any) -> Any:
    """A value as the function takes it, if it is of a kind that it takes."""
    taken, kind = _converted(function, parameter, value), parameter.annotation
    if kind is parameter.empty or fits(kind, taken):
        return taken
    several = "several values" if isinstance(value, tuple | Mapping) else shorten(str(value))
    called, told = CALLED.get(parameter.name, parameter.name), getattr(value, "name", "") or several
    raise InputError(f"{function} takes {_wanted(kind)} for {called}, and is given {told}.")


def _converted(function: str, parameter: inspect.Parameter, value: Any) -> Any:
    """A value as the function takes it: a plain number in its base unit, a chip, its rates, a mesh, a word."""
    kind = str(getattr(parameter.annotation, "__name__", parameter.annotation)) + " " + str(parameter.annotation)
    if isinstance(value, Slice | Chip):
        return _place(kind, value, function, parameter.name)
    if isinstance(value, Transformer) and "Transformer" not in kind:
        counts = count_parameters(value)
        if parameter.name not in ("params", "active", "active_params"):
            raise InputError(
                f"{function} takes a number for {parameter.name}, and {value.name} is a model; name a size of it."
            )
        return float(counts.total if parameter.name == "params" else counts.active)
    if isinstance(value, str):
        return closed_forms.read_scheme(value) if "Scheme" in kind else value
    if isinstance(value, tuple):
        if not any(word in kind for word in _SEVERAL):
            raise InputError(
                f"{function} takes one number for {parameter.name}; for several write B=[1, 8]; {function}(B, …)."
            )
        return tuple(_converted(function, parameter, one) for one in value)
    if isinstance(value, dict):
        return {key: _converted(function, parameter, one) for key, one in value.items()}
    if not isinstance(value, Measure):
        return value
    return _number(function, parameter, value, whole="int" in kind.replace("Interval", ""))


def _number(function: str, parameter: inspect.Parameter, value: Measure, whole: bool) -> Any:
    unit = taken_unit(function, parameter.name)
    found = value.settled()
    if any(found.exponents):
        try:
            aligned(found, Measure(1.0, exponents_of(unit)), "=")
        except InputError:
            told = f"takes {unit} for" if unit else "takes a bare number for"
            raise InputError(f"{function} {told} {parameter.name}, and {value} is in {found.unit}.") from None
    number = found.number * 3600 if unit == "USD/h" and any(found.exponents) else found.number
    # sizes, counts, rates, times and prices: no function takes less than nothing of one
    if number < 0 if isinstance(number, int | float) else number.is_negative:
        raise InputError(f"{function} takes no negative {parameter.name}, and is given {value}.")
    if isinstance(number, int | float) and number == int(number) and abs(number) < 2**53:
        most = MOST_OF.get(f"{function}.{parameter.name}", MOST)
        if whole and abs(number) > most:
            raise InputError(f"{parameter.name} of {function} is {number:g}; {most:g} is the most.")
        return int(number)
    if whole and isinstance(number, int | float):
        raise InputError(f"{function} takes a whole number for {parameter.name}, and {value} is none.")
    return number


def _place(kind: str, value: Slice | Chip, function: str, parameter: str) -> Any:
    """A chip or a slice as what the function wants of it."""
    chip = value.chip if isinstance(value, Slice) else value
    if "Rates" in kind:
        return rates_of(chip)
    if "Chip" in kind:
        return chip
    if not any(word in kind for word in ("Mesh", "Switches", "Slice")):
        what, fact = ("slice", "chips") if isinstance(value, Slice) else ("chip", "bf16")
        told = value if isinstance(value, Slice) else chip.name
        raise InputError(f"{function} takes no {what} for {parameter}; take a fact of it, such as {told}.{fact}.")
    if not isinstance(value, Slice):
        raise InputError(f"{function} takes a slice such as {chip.name}:{chip.default_slice or '4x4'} for {parameter}.")
    if "Mesh" in kind:
        return natural_mesh(value)
    if "Switches" in kind:
        mesh = natural_mesh(value)
        return mesh.group(tuple(mesh.axes))
    return value
