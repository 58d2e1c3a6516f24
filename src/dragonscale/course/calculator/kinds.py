"""Whether a value is what a function takes: a number, a word, a chip, a slice, several of them."""

import inspect
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from dragonscale.errors import InputError, shorten

_CALLED = {
    "Transformer": "a model",
    "Chip": "a chip",
    "Rates": "a chip",
    "Slice": "a slice such as v5e:4x4",
    "Mesh": "a slice such as v5e:4x4",
    "Switches": "a slice of GPUs such as h100:64",
    "Scheme": "a scheme",
    "FatTree": "what fat_tree(…) gives",
    "str": "a word",
    "bool": "true or false",
    "Options": "what only Python has a word for",
    "TreeSwitch": "what only Python has a word for",
}


def check_kind(function: str, parameter: inspect.Parameter, called: str, taken: Any, given: Any) -> None:
    """Refuse what a function does not take, by the kind that its parameter has."""
    if parameter.annotation is parameter.empty or fits(parameter.annotation, taken):
        return
    told = getattr(given, "name", "") or (
        "several values" if isinstance(given, tuple | Mapping) else shorten(str(given))
    )
    raise InputError(f"{function} takes {_wanted(parameter.annotation)} for {called}, and is given {told}.")


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
    return _CALLED.get(getattr(kind, "__name__", ""), "a number")
