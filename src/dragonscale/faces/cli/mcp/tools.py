"""Commands as tools: names, descriptions, JSON Schemas of their parameters, and how one is called.

>>> tool = tools()["explain_roofline"]
>>> tool.schema()["required"], tool.schema()["properties"]["on"]["type"]
(['expression', 'on'], 'string')
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.commands.questions.flag import FILES, Field, Items, Real, Several, Switch, Text, Thing, Whole
from dragonscale.commands.questions.synonyms import FlagReading, names_with_synonyms
from dragonscale.errors import InputError, nearest, shorten
from dragonscale.faces.cli.completion.offers import known_lists
from dragonscale.faces.command import Command
from dragonscale.faces.commands import COMMANDS
from dragonscale.listener import Listener

DETAIL, RECORD, WHOLE = "explain", "record", "whole"
"""Parameters of every tool that say how the answer is given."""
_ABOUT = {
    DETAIL: "Add to the text every term, every part of memory and what stands behind the answer.",
    RECORD: "Add the record of --json, long lists cut to their first entries.",
    WHOLE: "Add the whole record.",
}
EXAMPLES = 6
"""Values that a schema shows of a list that is longer."""
COMMON = {
    "models": ("llama3.3-70b", "llama3-8b", "qwen3-32b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b"),
    "slices": ("h100", "h200", "b200", "a100", "v5p", "v6e"),
    "targets": ("vllm", "sglang", "megatron", "torchtitan", "maxtext", "trl"),
    "dtypes": ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4"),
}
"""What is asked for most, before the rest of a list."""


@dataclass(frozen=True)
class PlannerTool:
    """A command that agents may call."""

    command: Command[Any, Any]

    @property
    def name(self) -> str:
        return self.command.name.replace(" ", "_")

    @property
    def description(self) -> str:
        """What it answers, and a line that asks it, from which the way that values are written can be seen."""
        flags = [f" --{name} " for name in ("save", "out", "plot", "html", "timeline", "table")]
        shown = next((one for one in self.command.examples if not any(flag in one for flag in flags)), "")
        return f"{self.command.about} On the command line: `{shown}`." if shown else self.command.about

    def fields(self) -> tuple[Field[Any, Any], ...]:
        """The parameters: all but those that write files."""
        return tuple(field for field in self.command.asked() if field.group != FILES)

    def schema(self) -> dict[str, Any]:
        """A JSON Schema of the parameters."""
        properties = {field.name: property_of(field) for field in self.fields()}
        properties |= {
            name: {"type": "boolean", "default": False, "description": text} for name, text in _ABOUT.items()
        }
        required = [field.name for field in self.fields() if field.required]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {})

    def call(self, given: Mapping[str, Any], listener: Listener) -> Any:
        """The answer; what is wrong with the parameters is an `InputError`."""
        question = self.question(given)
        for note in self.read(given).notes:
            listener.note(note)
        return self.command.answer(question, listener)

    def read(self, given: Mapping[str, Any]) -> FlagReading:
        """The parameters by the names of fields, where some may be those of other software."""
        words = {name: value for name, value in given.items() if name not in _ABOUT and value is not None}
        return names_with_synonyms(self.fields(), words)

    def question(self, given: Mapping[str, Any]) -> Any:
        """The command's question with these parameters."""
        fields = {field.name: field for field in self.fields()}
        words = self.read(given).values
        for name in words:
            if name not in fields:
                close = nearest(name, fields)
                hint = f"; did you mean {close!r}?" if close else "."
                takes = f"It takes {', '.join(fields)}."
                raise InputError(f"The tool {self.name} has no parameter {shorten(name)}{hint} {takes}")
        for name, field in fields.items():
            if field.required and name not in words:
                raise InputError(f"The tool {self.name} needs {name}: {field.about}")
        return self.command.question(**{name: _taken(fields[name], value) for name, value in words.items()})


def _taken(field: Field[Any, Any], value: Any) -> Any:
    """A value as a question takes it: things are named by text here, never given as objects of JSON."""
    several = value if isinstance(value, list) else [value]
    text = all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in several)
    if isinstance(field, Thing | Items) and not text:
        raise InputError(f"{field.name} takes text, or a list of texts: {field.about}")
    return str(value) if isinstance(field, Thing) and isinstance(value, int | float) else value


def property_of(field: Field[Any, Any]) -> dict[str, Any]:
    """What a schema says of a field."""
    text: dict[str, Any] = {"type": "string"}
    kinds: dict[type, dict[str, Any]] = {
        Switch: {"type": "boolean"},
        Whole: {"type": "integer"},
        Real: {"type": "number"},
        Items: {"type": "array", "items": text},
        Several: {"type": ["string", "array"], "items": text},
        Thing: text,
        Text: {"type": ["string", "number"]} if not field.offers else text,
    }
    schema = dict(next(words for kind, words in kinds.items() if isinstance(field, kind)))
    needed = " Needed, unless a plan file says it." if field.needed else ""
    schema["description"] = field.about + needed
    if isinstance(field.offers, tuple) and field.offers:
        schema["examples"] = list(field.offers)
    elif isinstance(field.offers, str) and (known := _known(field.offers)):
        schema["examples"] = list(dict.fromkeys((*COMMON.get(field.offers, ()), *known)))[:EXAMPLES]
    if not field.required and field.default not in ("", None, ()):
        schema["default"] = field.default
    return schema


@functools.cache
def _known(name: str) -> tuple[str, ...]:
    return known_lists().get(name, ())


def tools() -> dict[str, PlannerTool]:
    """Every command that agents may call, by the name of its tool."""
    every = (PlannerTool(command) for command in COMMANDS.values() if command.tool)
    return {tool.name: tool for tool in every}
