"""Functions by name: arithmetic (`max`, `ceil`, `log2`), the closed forms, and questions of one line about models,
formats and collectives. Of letters they give formulas.
"""

import difflib
import inspect
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dragonscale.course import closed_forms
from dragonscale.course.calculator import questions_of_one_line
from dragonscale.course.calculator.arguments import CALLED, taken_as
from dragonscale.course.calculator.measure import Measure, aligned, checked, plain
from dragonscale.course.calculator.names import model_fact
from dragonscale.course.calculator.tables import UNITS_OF_FORMS as UNITS
from dragonscale.course.calculator.tables import spaced
from dragonscale.errors import InputError, nearest, shorten, unknown
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.slices import Slice

ARITHMETIC = ("max", "min", "ceil", "floor", "round", "sqrt", "log2", "ln", "log10", "exp", "abs", "sum")


def arithmetic(name: str, given: list[Any]) -> Measure:
    """Functions of numbers; of letters they give formulas."""
    values = [one for value in given for one in (value if isinstance(value, tuple) else (value,))]
    if not values or not all(isinstance(one, Measure) for one in values):
        raise InputError(f"{name} takes numbers, such as {name}(3{', 5' if name in ('max', 'min', 'sum') else ''}).")
    if name == "sum":
        return sum(values[1:], values[0])
    if name in ("max", "min"):
        return _extreme(name, values)
    digits = 0
    if name == "round" and len(values) == 2:
        last = values.pop()
        digits = plain(last, "a number of digits")
        if last.letters or digits != int(digits):
            raise InputError(f"round takes a whole number of digits, and {last} is none.")
    if len(values) != 1:
        raise InputError(f"{name} takes one number, and {len(values)} are given.")
    value = values[0]
    if name == "sqrt":
        return value ** Measure(0.5)
    if name == "abs":
        return Measure(checked(abs(value.number)), value.exponents)
    settled = value.settled()
    if name in ("ceil", "floor", "round"):
        return Measure(checked(_whole(name, settled.number, int(digits))), settled.exponents)
    number = plain(value, f"what {name} takes")
    if isinstance(number, int | float):
        if name != "exp" and number <= 0:
            raise InputError(f"{name}({number:g}) is not a number.")
        if name == "exp" and abs(number) > 700:
            raise InputError(f"exp({number:g}) is too large a number.")
        return Measure(float(getattr(math, "log" if name == "ln" else name)(number)))
    import sympy

    bases = {"ln": (), "log2": (2,), "log10": (10,)}
    return Measure(checked(sympy.exp(number) if name == "exp" else sympy.log(number, *bases[name])))


def _extreme(name: str, values: list[Measure]) -> Measure:
    first, *rest = values
    for other in rest:
        one, two = aligned(first, other, name)
        if one.letters or two.letters:
            import sympy

            larger = (sympy.Max if name == "max" else sympy.Min)(one.number, two.number)
            first = Measure(checked(larger), one.exponents)
        else:
            first = Measure((max if name == "max" else min)(one.number, two.number), one.exponents)
    return first.settled()


def _whole(name: str, number: Any, digits: int) -> Any:
    if not isinstance(number, int | float):
        import sympy

        if digits:
            raise InputError("round takes a formula to whole numbers only; give its letters values.")
        return (sympy.ceiling if name == "ceil" else sympy.floor)(number if name != "round" else number + 0.5)
    # 16.000000000000004 chips are 16: what is whole but for rounding stays so
    near = round(number)
    if name != "round" and abs(number - near) <= 1e-9 * max(1.0, abs(number)):
        return float(near)
    return float(round(number, digits) if name == "round" else getattr(math, name)(number))


ONE_LINE = UNITS.one_line
CLOSED = tuple(name for name in closed_forms.__all__ if name not in UNITS.library_only)
NAMES = (*ARITHMETIC, *ONE_LINE, *CLOSED)


def function_of(name: str) -> Callable[..., Any]:
    """The function behind a name that is no arithmetic."""
    return getattr(questions_of_one_line if name in ONE_LINE else closed_forms, name)


def result_unit(name: str) -> str:
    """The base unit of what a function gives."""
    ending = next((unit for end, unit in UNITS.endings.items() if name.endswith(end)), "")
    return ONE_LINE[name] if name in ONE_LINE else UNITS.results.get(name, ending)


def wants_word(name: str, parameter: str | int) -> bool:
    """Whether a function takes a word (an axis, a schedule) at this place or under this name."""
    known = list(inspect.signature(function_of(name)).parameters.values())
    if isinstance(parameter, int):
        return parameter < len(known) and known[parameter].annotation is str
    return any(one.name == parameter and one.annotation is str for one in known)


def check_name(name: str) -> None:
    """Refuse a function that is not there, with the nearest that is."""
    if name in UNITS.library_only:
        raise InputError(f"{name} does not answer with a number; it is in Python only, as ds.closed_forms.{name}.")
    if name not in NAMES:
        close = nearest(name, NAMES)
        near = ", ".join(difflib.get_close_matches(name[:100], NAMES, 5, 0.0))
        hint = f"the nearest are {near}; `dscale calc --find {shlex.quote(spaced(name))}` searches by words."
        raise InputError(f"There is no function {shorten(name)}; {f'did you mean {close}?' if close else hint}")


def call(name: str, given: list[Any], named: dict[str, Any]) -> Any:
    """What a function that is no arithmetic gives, as measures."""
    function = function_of(name)
    signature = inspect.signature(function)
    bound = _bound(name, signature, given, named)
    try:
        answer = function(*bound.args, **bound.kwargs)
    except InputError:
        raise
    except (ValueError, ArithmeticError):
        raise InputError(f"{name} has no value with these; it takes {_written(signature)}.") from None
    except KeyError as error:
        if not any(isinstance(one, dict) for one in bound.arguments.values()):
            raise
        raise InputError(f"{name} lacks a size for {error}; it takes {_written(signature)}.") from None
    except TypeError:
        if not any(map(_has_letters, bound.arguments.values())):
            raise
        raise InputError(f"{name} compares what it is given; give the letters values.") from None
    made = measured(answer, result_unit(name))
    if made is None:
        raise InputError(f"{name} has no value with these: {meaning(name)}")
    if isinstance(made, Measure) and not made.letters and not math.isfinite(made.number):
        raise InputError(f"{name} has no finite value with these: {meaning(name)}")
    return made


def regime(name: str, given: list[Any], named: dict[str, Any]) -> str:
    """Which case of its formula a function took, in a sentence; empty where it has one only."""
    if name not in UNITS.regimes:
        return ""
    function = function_of(name)
    bound = _bound(name, inspect.signature(function), given, named)
    return function.__globals__[UNITS.regimes[name]](*bound.args, **bound.kwargs)


def _bound(name: str, signature: inspect.Signature, given: list[Any], named: dict[str, Any]) -> inspect.BoundArguments:
    named = {_own(key, signature): value for key, value in named.items()}
    given = _in_place(signature, given)
    try:
        bound = signature.bind(*given, **named)
    except TypeError:
        raise _wrong_call(name, signature, given, named) from None
    try:
        return _taken(name, signature, bound)
    except InputError as error:
        raise InputError(f"{str(error).removesuffix('.')}; write {call_text(name)}.") from None


def _in_place(signature: inspect.Signature, given: list[Any]) -> list[Any]:
    """What is given, with a chip and a number that stand in each other's place exchanged: chips_to_hold(140GB, v5e)."""
    named = [str(one.annotation) for one in signature.parameters.values()][: len(given)]
    places = [any(kind in text for kind in ("Chip", "Slice", "Rates", "Mesh", "Switches")) for text in named]
    chips = [isinstance(one, Chip | Slice) for one in given]
    wrong = [place for place, (takes, has) in enumerate(zip(places, chips, strict=False)) if takes != has]
    if len(wrong) == 2 and sum(chips) == sum(places) == 1:
        one, two = wrong
        given = [*given]
        given[one], given[two] = given[two], given[one]
    return given


def _taken(name: str, signature: inspect.Signature, bound: inspect.BoundArguments) -> inspect.BoundArguments:
    kinds = signature.parameters
    for key, value in bound.arguments.items():
        if kinds[key].kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[key] = tuple(taken_as(name, kinds[key], one) for one in value)
        elif kinds[key].kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[key] = {own: taken_as(name, kinds[key], one) for own, one in value.items()}
        else:
            bound.arguments[key] = taken_as(name, kinds[key], value)
    return bound


def _has_letters(value: Any) -> bool:
    several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return hasattr(value, "free_symbols") or any(map(_has_letters, several))


def _own(key: str, signature: inspect.Signature) -> str:
    """A parameter's own name where it is called by what it takes."""
    known = signature.parameters
    return next((own for own, word in CALLED.items() if word == key and own in known and key not in known), key)


def _wrong_call(name: str, signature: inspect.Signature, given: list[Any], named: dict[str, Any]) -> InputError:
    known = list(signature.parameters)
    odd = next((key for key in named if key not in known), "")
    if odd:
        return unknown(f"parameter of {name} called", odd, known)
    needed = [
        key
        for key, one in signature.parameters.items()
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    ]
    lacking = [CALLED.get(key, key) for key in needed[len(given) :] if key not in named]
    what = f"lacks {', '.join(lacking)}" if lacking else f"is given {len(given) + len(named)} values"
    return InputError(f"{name} {what}; it takes {_written(signature)}.")


def call_text(name: str) -> str:
    """A function with what it takes, as it is written."""
    return f"{name}({_written(inspect.signature(function_of(name))) if name not in ARITHMETIC else '…'})"


def behind(name: str, given: list[Any], named: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts of chips that a function reckons with, as (chip, fact): the C and W of its formula."""
    chips = [one.chip if isinstance(one, Slice) else one for one in (*given, *named.values())]
    known = inspect.signature(function_of(name)).parameters
    said = dict(zip(known, given, strict=False)) | named
    rate = said.get("dtype", said.get("compute", "bf16"))
    found: list[tuple[str, str]] = []
    for chip in (one for one in chips if isinstance(one, Chip)):
        words = [rate if one == "bf16" else one for one in UNITS.behind[name]]
        found += [(chip.kin, word) for word in words]
    return found


def _written(signature: inspect.Signature) -> str:
    told = []
    for own, one in signature.parameters.items():
        key = CALLED.get(own, own)
        told.append(
            key if one.default is one.empty else f"{key}={one.default if not isinstance(one.default, tuple) else '…'}"
        )
    return ", ".join(told)


def measured(answer: Any, unit: str) -> Any:
    """What a function gave: numbers with their unit, several of them in tuples and tables, other things as they are."""
    if isinstance(answer, bool | str) or answer is None:
        return answer
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return {key: measured(one, unit) for key, one in zip(answer._fields, answer, strict=True)}  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(answer, tuple | list):
        return tuple(measured(one, unit) for one in answer)
    if isinstance(answer, Mapping):
        return {_key(key): measured(one, unit) for key, one in answer.items()}
    if is_dataclass(answer):
        return answer
    if hasattr(answer, "free_symbols") and answer.free_symbols:
        return Measure.of(answer, unit)
    try:
        return Measure.of(float(answer), unit)
    except OverflowError:
        raise InputError("The result is too large a number.") from None
    except (TypeError, ValueError):
        return answer


def _key(key: Any) -> str:
    return "".join(map(str, key)) if isinstance(key, tuple) else str(key)


def parts_of(thing: Any) -> dict[str, Any]:
    """The parts of a result that are numbers, words, or have parts themselves."""
    if isinstance(thing, dict):
        return thing
    if isinstance(thing, tuple):
        return {f"[{place}]": one for place, one in enumerate(thing)}
    if not is_dataclass(thing):
        return {}
    kind = type(thing)
    names = [one.name for one in fields(thing) if not one.name.startswith("_")]
    names += [name for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")]
    found = {}
    for name in (*names, *UNITS.methods.get(kind.__name__, ())):
        unit = UNITS.parts.get(f"{kind.__name__}.{name}", UNITS.parts.get(kind.__name__, ""))
        value = getattr(thing, name)
        try:
            found[name] = measured(value() if name in UNITS.methods.get(kind.__name__, ()) else value, unit)
        except (InputError, ArithmeticError):
            continue  # a part that this result has not: the intensity of what moves no bytes
    return found


def told_parts(thing: Any) -> dict[str, Measure | str]:
    """The parts of a result as an answer lists them: numbers and words, sizes in one line, and things of a kind in a
    line each."""
    found: dict[str, Measure | str] = {}
    for name, part in parts_of(thing).items():
        if isinstance(part, Measure):
            found[name] = part
        elif isinstance(part, str | bool):
            found[name] = str(part)
        elif isinstance(part, tuple) and part and all(isinstance(one, Measure) for one in part):
            found[name] = " x ".join(map(str, part))
        elif isinstance(part, tuple):
            for one in part:
                words = UNITS.listed_with.get(type(one).__name__, ())
                has = parts_of(one)
                if words:
                    found[f"{name}, {has['name']}"] = ", ".join(f"{word} {has[word]}" for word in words)
    return found


def member(thing: Any, field: str | int) -> Any:
    """A part of a result by its name or its place."""
    if isinstance(thing, Transformer):
        return model_fact(thing, str(field)).value
    if isinstance(thing, Measure | str | bool) or thing is None:
        raise InputError(f"{thing} is one value and has no part {shorten(field)}.")
    parts = parts_of(thing)
    if isinstance(field, int) and isinstance(thing, tuple):
        if field >= len(thing):
            raise InputError(f"There are {len(thing)} values, counted from 0; [{field}] is none of them.")
        return thing[field]
    if isinstance(field, int) and isinstance(thing, dict) and field < len(parts):
        return list(parts.values())[field]
    if field not in parts:
        raise unknown("part called", field, map(str, parts))
    return parts[str(field)]


def meaning(name: str) -> str:
    """The first sentence of what is said of a function."""
    return first_sentence(inspect.getdoc(function_of(name)) or "")


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, in one line.

    >>> first_sentence("Bytes of it. More\\n\\nelse")
    'Bytes of it.'
    """
    first = " ".join(text.split("\n\n")[0].split())
    end = first.find(". ")
    return first[: end + 1] if end > 0 else first
