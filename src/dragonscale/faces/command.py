"""A command, declared once: from it follow flags and help of the command line, completion, the pages of reference, the
tools of agents and the functions of the library.

    @command(TrainQuestion, PLANNING, "training", ("explain", "save"), charts=("time", "memory"))
    def train():
        \"""How to split a training run over chips, how long a step takes, what bounds it, what it costs.

        dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --tokens 15T

        Returns a `TrainReport`: …
        \"""
        from dragonscale.commands.compare.ask_training import ask

        return ask

The docstring has what help says in a sentence, examples that run (none: a function of the library alone), and, where
the library has the function too, its docstring, which begins with the sentence unless it has one of its own. Nothing
that answers is loaded before it is asked.
"""

import contextlib
import functools
import inspect
import operator
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_args, get_origin

from dragonscale.commands.questions.flag import Field, Switch, Thing, fields_of
from dragonscale.commands.questions.shared import ALWAYS, Output
from dragonscale.commands.questions.synonyms import (
    Fields,
    FlagReading,
    explanation,
    flag_in_python,
    names_with_synonyms,
    takes_value,
)
from dragonscale.errors import InputError, nearest
from dragonscale.listener import Listener, without_numeric_warnings

Params = ParamSpec("Params")
Answer = TypeVar("Answer")

PLANNING, PHYSICS, FACTS, PROOF, SHELLS = KINDS = ("Plan", "Understand", "Look up", "Prove and run", "This machine")
"""The groups of the overview, in their order."""
CHARTS = ("plot", "chart", "theme")
"""The flags of `Output` that commands with charts have."""


@dataclass(frozen=True)
class Command(Generic[Params, Answer]):
    """A command: its question, and how to load what answers it."""

    name: str
    question: Callable[Params, Any]
    load: Callable[[], Callable[[Any, Listener], Answer]]
    """Loads the function that takes the question and a `Listener` and returns a `Record`."""
    about: str
    examples: tuple[str, ...]
    details: str
    """What the docstring of the library's function says; empty where there is none."""
    group: str
    page: str
    """The page of the docs."""
    outputs: tuple[str, ...]
    """The flags of `Output` that it takes beyond those of every command."""
    charts: tuple[str, ...]
    """What `--chart` offers."""
    common: tuple[str, ...]
    """The flags of its first screen of help, the most common first; all of them where empty."""
    tool: bool
    """Whether agents may call it (`dscale mcp`): not what runs for long, or is there for its files."""

    def answer(self, question: Any, listener: Listener) -> Answer:
        with without_numeric_warnings():
            return self.load()(question, listener)

    def asked(self) -> tuple[Field[Any, Any], ...]:
        """The fields of the question."""
        return fields_of(self.question) if isinstance(self.question, type) else ()

    def fields(self) -> tuple[Field[Any, Any], ...]:
        """Every flag: those of the question, and how the answer is given."""
        drawn = {"about": f"What --plot draws: {', '.join(self.charts)}.", "offers": self.charts}
        shown = [field for field in fields_of(Output) if field.name in (*self.outputs, *ALWAYS)]
        return (*self.asked(), *(field.but(**drawn) if field.name == "chart" else field for field in shown))

    @functools.cached_property
    def function(self) -> Callable[Params, Answer]:
        """The command as a function of the library. Type checkers read its parameters off the question; so does
        `help`."""
        name, fields, answer = self.load.__name__, self.asked(), self.load()

        def ask(*given: Params.args, **named: Params.kwargs) -> Answer:
            reading, question = read_call(name, fields, given, named), cast(Callable[..., Any], self.question)
            with python_words(fields), without_numeric_warnings():
                return answer(question(**reading.values), heard(reading))

        ask.__name__ = ask.__qualname__ = name
        ask.__module__ = "dragonscale"
        ask.__doc__ = f"{self.details}\n\n{_parameters(fields)}"
        signed = signature_of(fields, inspect.signature(answer).return_annotation)
        ask.__signature__ = signed  # pyright: ignore[reportFunctionMemberAccess]
        ask.__annotations__ = {one.name: one.annotation for one in signed.parameters.values()}
        ask.__annotations__["return"] = signed.return_annotation
        return ask


def command(
    question: Callable[Params, Any],
    group: str,
    page: str,
    outputs: tuple[str, ...] = (),
    charts: tuple[str, ...] = (),
    *,
    name: str = "",
    common: tuple[str, ...] = (),
    tool: bool = True,
) -> Callable[[Callable[[], Callable[[Any, Listener], Answer]]], Command[Params, Answer]]:
    """Declare a command by the function that loads what answers it; `name` where Python has taken the word."""

    def declared(load: Callable[[], Callable[[Any, Listener], Answer]]) -> Command[Params, Answer]:
        about, _, details = inspect.cleandoc(load.__doc__ or "").partition("\n\n")
        examples, _, details = details.partition("\n\n") if details.startswith("dscale ") else ("", "", details)
        return Command(
            name or load.__name__.replace("_", " "),
            question,
            load,
            about.replace("\n", " "),
            tuple(re.sub(r"\n +", " ", examples).splitlines()),
            f"{about}\n\n{details}" if details.startswith("Returns ") else details,
            group,
            page,
            (*outputs, *CHARTS) if charts else outputs,
            charts,
            common,
            tool,
        )

    return declared


def read_call(
    name: str, fields: Sequence[Field[Any, Any]], given: Sequence[Any], named: Mapping[str, Any]
) -> FlagReading:
    """The values of a call by the names of fields, where keywords may be those of other software. What Python would
    refuse is refused in the name of the function that was called.

    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> fields = fields_of(TrainQuestion)
    >>> read_call("train", fields, ("llama3-8b",), {"gpus": "h100:8"})
    FlagReading(values={'model': 'llama3-8b', 'on': 'h100:8'}, notes=('gpus is read as on="h100:8".',))
    >>> read_call("train", fields, ("llama3-8b",), {"bach": "4M"})
    Traceback (most recent call last):
    TypeError: ds.train() has no parameter 'bach'; did you mean 'batch'?
    """
    names = [field.name for field in fields]
    for word in named:
        if word not in names and takes_value(flag_in_python(word), fields) is None:
            close, explained = nearest(word, names), explanation(flag_in_python(word), fields)
            hint = f"did you mean {close!r}?" if close else f"it takes {', '.join(names)}."
            raise TypeError(f"ds.{name}() has no parameter {word!r}; {in_python(explained, fields) or hint}")
    if len(given) > len(names):
        raise TypeError(f"ds.{name}() takes {len(names)} parameters at most, and {len(given)} are given.")
    placed = names[: len(given)]
    for word in placed:
        if word in named:
            raise TypeError(f"ds.{name}() is given {word} twice: by its place and by its name.")
    with python_words(fields):
        reading = names_with_synonyms(fields, dict(zip(names, given, strict=False)) | dict(named))
    for field in fields:
        if field.required and field.name not in reading.values:
            raise TypeError(f"ds.{name}() needs {field.name}: {field.about}")
    return FlagReading(reading.values, tuple(in_python(note, fields) for note in reading.notes))


def heard(reading: FlagReading) -> Listener:
    """A listener that has heard how a call was read."""
    listener = Listener()
    for note in reading.notes:
        listener.note(note)
    return listener


@contextlib.contextmanager
def python_words(fields: Fields) -> Iterator[None]:
    """Refusals in Python's words: `batch=`, where the command line says `--batch`.

    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> with python_words(fields_of(TrainQuestion)):
    ...     raise InputError("--seq is 'x'; give --fix tp8,zero=1 too, or --json.")
    Traceback (most recent call last):
    dragonscale.errors.InputError: seq= is 'x'; give fix="tp8,zero=1" too, or --json.
    """
    try:
        yield
    except InputError as error:
        raise type(error)(in_python(str(error), fields)) from None


def in_python(text: str, fields: Fields) -> str:
    """A sentence with keywords in place of flags."""
    names = {field.flag: field.name for field in fields if not field.place}
    offers = {field.flag: field.offers for field in fields if isinstance(field.offers, tuple)}
    names |= {"--no" + flag[1:]: f"{name}=False, not" for flag, name in names.items()}

    def keyword(match: re.Match[str]) -> str:
        flag, value = match[1], (match[2] or "").strip()
        if flag not in names:
            return match[0]
        if not any(map(str.isdigit, value)) and value not in offers.get(flag, ()):  # the sentence goes on
            return f"{names[flag]}={match[2] or ''}"
        return f'{names[flag]}="{value}"'

    # the odd parts are command lines in backquotes, which stay as a shell takes them
    parts = re.split(r"(`dscale [^`]*`)", text)
    parts[::2] = [
        re.sub(r"(--[a-z][a-z0-9-]*)(?![\w-])( [\w./:%,=*+-]+(?<![.,:]))?", keyword, part) for part in parts[::2]
    ]
    return "".join(parts)


@functools.cache
def _kinds_of_things() -> dict[str, Any]:
    """What may be given where a text would name an object, by what completion offers there."""
    from dragonscale.models import Transformer
    from dragonscale.physics.hardware import Slice
    from dragonscale.serving.engine.plan import ServingPlan
    from dragonscale.training.plan.plan import Plan

    plan = str | os.PathLike[str] | Plan | ServingPlan | Mapping[str, Any]
    sizes = str | Mapping[str, int]
    return {"models": str | os.PathLike[str] | Transformer, "slices": str | Slice | Sequence[str], "files": plan} | {
        "SIZES": sizes,
        "AXES": sizes,
    }


def signature_of(fields: Fields, returns: Any) -> inspect.Signature:
    """The signature of a function whose parameters are these fields; one that gathers takes all places. What must be
    given has no default, also where a plan file may say it instead."""
    parameters, gathered = list[inspect.Parameter](), False
    for field in fields:
        gathered |= field.gathers
        kind = inspect.Parameter.KEYWORD_ONLY if gathered else inspect.Parameter.POSITIONAL_OR_KEYWORD
        kind = inspect.Parameter.VAR_POSITIONAL if field.gathers else kind
        bare = field.required or field.needed or field.gathers
        default = inspect.Parameter.empty if bare else field.default
        parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=_annotation(field)))
    return inspect.Signature(parameters, return_annotation=returns)


def _annotation(field: Field[Any, Any]) -> Any:
    """What a field takes: its declared type, or the objects that its text may name."""
    if isinstance(field, Thing):
        kinds = _kinds_of_things()
        return kinds.get(field.value) or kinds[field.offers if isinstance(field.offers, str) else "files"]
    bases = [base for kind in type(field).__mro__ for base in getattr(kind, "__orig_bases__", ())]
    taken = next(get_args(base)[0] for base in bases if get_origin(base) is Field)
    if field.default is not None and taken is not Any:  # None stands for what the planner chooses
        taken = functools.reduce(operator.or_, (kind for kind in get_args(taken) if kind is not type(None)))
    choices = field.offers if isinstance(field.offers, tuple) and field.offers else ()
    return Literal[choices] | taken if choices else taken


def _parameters(fields: tuple[Field[Any, Any], ...]) -> str:
    """The fields as a section of a docstring."""
    lines = ["Parameters"]
    for field in fields:
        kind = "bool" if isinstance(field, Switch) else field.value
        default = "" if field.required or field.default in ("", None, False, ()) else f" (default {field.default!r})"
        lines.append(f"    {field.name}: {kind}{default}")
        lines += textwrap.wrap(field.about, 92, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)
