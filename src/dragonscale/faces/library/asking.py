"""How a question becomes a function: the question's fields are its parameters, its answer what it returns."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from dragonscale.app.questions.flag import Field, Switch, fields_of
from dragonscale.errors import nearest
from dragonscale.listener import Listener

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


def asking(
    name: str, question: Callable[Params, Any], answer: Callable[[Any, Listener], Answer], about: str
) -> Callable[Params, Answer]:
    """A function of the library. Type checkers read its parameters off the question; so does `help`."""
    fields = fields_of(question) if isinstance(question, type) else ()

    def ask(*given: Params.args, **named: Params.kwargs) -> Answer:
        check_call(name, fields, given, named)
        return answer(question(*given, **named), Listener())

    ask.__name__ = ask.__qualname__ = name
    ask.__module__ = "dragonscale"
    ask.__doc__ = f"{inspect.cleandoc(about)}\n\n{_parameters(fields)}"
    ask.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [_parameter(field) for field in fields],
        return_annotation=inspect.signature(answer).return_annotation,
    )
    return ask


def check_call(name: str, fields: Sequence[Field[Any, Any]], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse a call that Python would refuse, in the name of the function that was called.

    >>> from dragonscale.app.questions.train import TrainQuestion
    >>> check_call("train", fields_of(TrainQuestion), ("llama3-8b",), {"bach": "4M"})
    Traceback (most recent call last):
    TypeError: ds.train() has no parameter 'bach'; did you mean 'batch'?
    """
    names = [field.name for field in fields]
    for one in named:
        if one not in names:
            close = nearest(one, names)
            hint = f"did you mean {close!r}?" if close else f"it takes {', '.join(names)}."
            raise TypeError(f"ds.{name}() has no parameter {one!r}; {hint}")
    if len(given) > len(names):
        raise TypeError(f"ds.{name}() takes {len(names)} parameters at most, and {len(given)} are given.")
    placed = names[: len(given)]
    for one in placed:
        if one in named:
            raise TypeError(f"ds.{name}() is given {one} twice: by its place and by its name.")
    for field in fields:
        if field.required and field.name not in (*placed, *named):
            raise TypeError(f"ds.{name}() needs {field.name}: {field.about}")


def _parameter(field: Field[Any, Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.required else field.default
    return inspect.Parameter(field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _parameters(fields: tuple[Field[Any, Any], ...]) -> str:
    """The fields as a section of a docstring."""
    lines = ["Parameters"]
    for field in fields:
        kind = "bool" if isinstance(field, Switch) else field.value
        told = "" if field.required or field.default in ("", None, False, ()) else f" (default {field.default!r})"
        lines.append(f"    {field.name}: {kind}{told}")
        lines += textwrap.wrap(field.about, 92, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)
