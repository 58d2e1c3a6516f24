"""A question as it is asked elsewhere: on the command line, in Python, in TOML, so that nobody has to type it again.

Every text says the same question and no more: what is as it would be without saying is left out. A config that was
dropped on the page becomes the name of a file, and the file itself comes along to be kept beside the command.

>>> given = {"model": "llama3-70b", "on": "h100:64", "batch": "4Mi", "seq": "8192", "top": 5, "plan": "tp8 pp4"}
>>> command_line("train", given)
"dscale train llama3-70b --on h100:64 --batch 4Mi --seq 8192 --plan 'tp8 pp4'"
>>> print(python_text("train", given))
import dragonscale as ds
<BLANKLINE>
answer = ds.train("llama3-70b", on="h100:64", batch="4Mi", seq=8192, plan="tp8 pp4")
print(answer)
>>> print(toml_text("serve", {"model": "llama3-8b", "on": "h100:1", "cached": 0.5})["text"])
[[serve]]
model = "llama3-8b"
on = "h100:1"
cached = 0.5
<BLANKLINE>
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dragonscale.commands.questions.flag import Field, Items, Text, Thing
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.faces.cli.mcp.tools import PlannerTool, tools
from dragonscale.tables import toml_value
from dragonscale.training.plan.plan import short_plan
from dragonscale.web.page_request import PageRequest

_GRIDS = ("train", "serve")
"""Questions that `dscale sweep` takes as tables."""
_FUNCTIONS = {"models": "model", "export": "export", "import": "import_plan"}
"""Functions of the library that are called otherwise than their command."""


def texts_panel(request: PageRequest) -> dict[str, Any]:
    """The question as the command line, Python and TOML say it, and the file that goes with it."""
    of, filled, file = _asked(request)
    written = toml_text(of, filled)
    return {"cli": command_line(of, filled), "python": python_text(of, filled), "toml": written, "file": file}


def _recommending(request: PageRequest, of: str, what: str, none: str) -> Any:
    """The answer that has a plan to be saved or compiled."""
    if of not in _GRIDS:
        raise InputError(f"An answer of {of} has no plan to {what}; train and serve have.")
    record = request.ask(of, request.fields)
    if not (record.plans if of == "train" else record.configs):
        raise InputError(f"Nothing fits, so there is {none}.")
    return record


def recommended_words(of: str, record: Any) -> dict[str, str]:
    """The first plan of an answer, where it runs and with which batch, as commands take them."""
    if of == "train":
        work = record.workload
        filled = {"plan": short_plan(record.plans[0].plan), "on": record.slice}
        return filled | {"batch": f"{work.sequences}seq", "seq": str(work.seq)}
    best = record.configs[0]
    return {"plan": best.plan, "on": best.copy_slice, "batch": str(best.batch)}


def plan_panel(request: PageRequest) -> dict[str, Any]:
    """The plan that the answer recommends as the file that `--save` writes."""
    of, filled, file = _asked(request)
    record = _recommending(request, of, "save", "no plan to save")
    if of == "train":
        from dragonscale.commands.train.ask_train import recommended
        from dragonscale.training.plan.plan_file import training_file_text as text_of
    else:
        from dragonscale.commands.serve.recommended import recommended
        from dragonscale.serving.engine.plan_file import serving_plan_text as text_of
    saved: Any = recommended(record.asked, record)
    if file is not None:
        saved = replace(saved, model=f"./{filled['model']}")
    use = "dscale train --plan plan.toml --alone" if of == "train" else "dscale simulate plan.toml"
    return {"name": "plan.toml", "text": text_of(saved), "use": use, "file": file}


def verify_panel(request: PageRequest) -> dict[str, Any]:
    """The fields of `dscale verify` for the plan that the answer recommends, and the command."""
    of, filled, _ = _asked(request)
    record = _recommending(request, of, "compile", "nothing to compile")
    if of == "train" and not record.plans[0].verifiable:
        raise InputError("Our own program does not run this plan yet, so the compiler cannot witness it.")
    work, fields = record.workload, {"plan": "", "model": request.fields.get("model", "")}
    fields |= recommended_words(of, record)
    if of == "train":
        fields |= {"program": "train", "stack": record.plans[0].stack}
    else:
        fields |= {"seq": str(work.prompt + work.output), "program": "decode"}
    flags = (fields | {"model": filled.get("model", "")}).items()
    line = [word for name, value in flags if name != "plan" and value for word in (f"--{name}", value)]
    return {"fields": fields, "cli": shlex.join(["dscale", "verify", fields["plan"], *line])}


def _asked(request: PageRequest) -> tuple[str, dict[str, Any], dict[str, str] | None]:
    """The command, its fields with a file's name in place of what was dropped, and that file."""
    of, filled = request.text("of", "train"), dict(request.fields)
    if of.replace(" ", "_") not in tools():
        raise unknown("question", of, tools())
    name = filled.get("model")
    if not isinstance(name, str) or name not in request.dropped:
        return of, filled, None
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip(".-") or "config"
    file = {"name": f"{safe.removesuffix('.json')}.json", "text": request.dropped[name]}
    return of, filled | {"model": file["name"]}, file


def said(tool: PlannerTool, values: Mapping[str, Any]) -> list[tuple[Field[Any, Any], Any]]:
    """The fields that are not as they would be without saying, in the order of the help, checked and
    as they are kept."""
    fields = {field.name: field for field in tool.fields()}
    for name in values:
        if name not in fields:
            raise unknown(f"field of {tool.command.name} called", name, fields)
    read_values = {name: fields[name].taken(value) for name, value in values.items()}
    for name, value in read_values.items():
        texts = value if isinstance(value, tuple) else (value,)
        if any(not isinstance(text, str | int | float | bool | None) for text in texts):
            raise InputError(f"{name} is {shorten(value)}; it takes text.")
    return [
        (field, read_values[name])
        for name, field in fields.items()
        if name in read_values and not _plain(field, read_values[name])
    ]


def _plain(field: Field[Any, Any], value: Any) -> bool:
    """Whether a value is the one that a field has without it."""
    if field.required:
        return False
    return value == field.default or (value in ("", None, ()) and field.default in ("", None, ()))


def _tool(command: str) -> PlannerTool:
    return tools()[command.replace(" ", "_")]


def command_line(command: str, values: Mapping[str, Any]) -> str:
    """The command that asks it, quoted for a shell: places first, then flags."""
    places: list[str] = []
    flags: list[str] = []
    for field, value in said(_tool(command), values):
        if field.place:
            places += [_word(entry) for entry in value] if isinstance(field, Items) else [_word(value)]
        elif field.switch:
            flags.append(field.flag if value else field.flag.replace("--", "--no-", 1))
        elif (word := _word(value)).startswith("-"):
            flags.append(f"{field.flag}={word}")
        else:
            flags += [field.flag, word]
    dashed = any(place.startswith("-") for place in places)
    arguments = [*flags, "--", *places] if dashed else [*places, *flags]
    return shlex.join(["dscale", *command.split(), *arguments])


def _word(value: Any) -> str:
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def python_text(command: str, values: Mapping[str, Any]) -> str:
    """A short program that asks it."""
    first, *rest = command.split()
    arguments = [json.dumps(word) for word in rest]
    for field, value in said(_tool(command), values):
        if isinstance(field, Items):
            arguments += [repr(entry) for entry in value]
        elif field.place:
            arguments.append(_literal(field, value))
        else:
            arguments.append(f"{field.name}={_literal(field, value)}")
    call = f"ds.{_FUNCTIONS.get(first, first)}({', '.join(arguments)})"
    return f"import dragonscale as ds\n\nanswer = {call}\nprint(answer)"


def _literal(field: Field[Any, Any], value: Any) -> str:
    """A value in Python; a text of digits is a number where the function takes one."""
    if isinstance(value, str) and isinstance(field, Text) and not field.base and value.isascii() and value.isdigit():
        return value if str(int(value)) == value else repr(value)
    if isinstance(value, str):
        # JSON's quotes are what most people type; what it escapes otherwise than Python is left to repr
        quoted = json.dumps(value, ensure_ascii=True)
        return quoted if "\\" not in quoted else repr(value)
    return repr(value)


def toml_text(command: str, values: Mapping[str, Any]) -> dict[str, str]:
    """A file that asks it: a table for `dscale sweep`, or defaults of one's own in `dragonscale.toml`."""
    pairs = said(_tool(command), values)
    if command in _GRIDS:
        lines = [f"[[{command}]]", *(f"{field.name} = {toml_value(value)}" for field, value in pairs)]
        return {"name": "question.toml", "text": "\n".join(lines) + "\n", "use": "dscale sweep question.toml"}
    places = {field.name: value for field, value in pairs if isinstance(field, Thing | Text | Items) and field.place}
    table = [f"{field.name} = {toml_value(value)}" for field, value in pairs if not field.place]
    lines = [f"[{command.replace(' ', '_')}]", *table]
    use = command_line(command, places)
    return {"name": "dragonscale.toml", "text": "\n".join(lines) + "\n", "use": use}


PANELS = {"texts": texts_panel, "plan": plan_panel, "verify": verify_panel}
