"""The reference of the library, made from signatures and docstrings: functions, answers, objects.

Signatures are read from the source and not from the running objects, so that the page is the same under every
version of Python.
"""

import ast
import importlib
import inspect
import re
import textwrap
import typing
from functools import cached_property
from typing import Any

import dragonscale
from dragonscale.commands.record import Record
from tools.reference_cli import cell

HEAD = """# Which functions and records does the library have?

Made from signatures and docstrings by `python -m tools.build_docs`; change the code, not this page.
[From Python](python.md) is the page to begin with.
"""
QUESTIONS = """## Functions

Each takes what [the command](reference-cli.md) of its name takes, as text, numbers or objects, and returns the record
that the command prints.
"""
ANSWERS = """## Answers

Every function above returns a `Record`. Its fields are the keys of `--json` (their schemas: [JSON](json.md)).
"""
JAX = """## With JAX

These need the extra `jax`; [the plan as a program](jax.md) shows them.
"""
NEXT = """## Next

- [From Python](python.md): the page to begin with
- [Closed forms](closed-forms.md): the book's formulas by name
- [The commands](reference-cli.md): the same in a terminal
"""


def python_reference() -> str:
    """The page."""
    asked, others = functions(), _others()
    parts = [HEAD, QUESTIONS, *(_entry(name, thing) for name, thing in asked.items())]
    parts += [ANSWERS, *(_entry(kind.__name__, kind) for kind in (Record, *answers()))]
    for home, names in others.items():
        module = importlib.import_module(home)
        about = (inspect.getdoc(module) or "").split("\n\n")[0]
        parts += [f"## {home}\n\n{_prose(about)}\n", *(_entry(name, getattr(dragonscale, name)) for name in names)]
    later = sorted(f"- `ds.{name}` (`{home}`)" for home, names in _JAX_HOMES.items() for name in names)
    parts.insert(
        1,
        summary(
            {"Functions": asked}
            | {home: {name: getattr(dragonscale, name) for name in names} for home, names in others.items()}
        ),
    )
    return "\n".join([*parts, JAX, *later, "", NEXT])


def summary(groups: dict[str, dict[str, Any]]) -> str:
    """Every public name in one line, with a link to its entry."""
    parts = []
    for title, things in groups.items():
        rows = [f"| [`ds.{name}`](#{name.lower()}) | {_sentence(_own_doc(thing))} |" for name, thing in things.items()]
        parts.append("\n".join([f"**{title}**", "", "| name | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _sentence(text: str) -> str:
    """The first sentence of a docstring, for a table."""
    return re.split(r"(?<=[a-z`)\d])[.:] ", _first(text) + " ")[0].rstrip(" .:")


_HOMES: dict[str, tuple[str, ...]] = vars(dragonscale)["_HOMES"]
_JAX_HOMES: dict[str, tuple[str, ...]] = vars(dragonscale)["_JAX_HOMES"]


def functions() -> dict[str, Any]:
    """The functions that answer questions."""
    names = [name for home, names in _HOMES.items() if home.startswith("dragonscale.faces.") for name in names]
    return {name: getattr(dragonscale, name) for name in sorted(names)}


def _others() -> dict[str, list[str]]:
    return {home: sorted(names) for home, names in _HOMES.items() if not home.startswith("dragonscale.faces.")}


def answers() -> list[type]:
    """The records that the functions return, by name."""
    found: set[type] = set()
    for function in functions().values():
        told = inspect.signature(function).return_annotation
        found |= {one for one in (told, *typing.get_args(told)) if isinstance(one, type) and issubclass(one, Record)}
    return sorted(found - {Record}, key=lambda kind: kind.__name__)


def undocumented() -> list[str]:
    """Public names without a docstring of their own, the members of public classes included."""
    missing = []
    public = {name: getattr(dragonscale, name) for name in vars(dragonscale)["__all__"]}
    for name, thing in {**public, **{kind.__name__: kind for kind in (Record, *answers())}}.items():
        missing += [] if _own_doc(thing) else [name]
        if inspect.isclass(thing):
            missing += [
                f"{name}.{member}" for member, value in members(thing).items() if not _told(thing, member, value)
            ]
    return missing


def members(kind: type) -> dict[str, Any]:
    """The public methods and properties that a class itself defines."""
    wanted = (property, cached_property, classmethod, staticmethod)
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, wanted))
    }


def _own_doc(thing: Any) -> str:
    """A docstring that someone wrote: dataclasses make one of the signature."""
    text = (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else inspect.cleandoc(text)


def _told(kind: type, name: str, value: Any) -> str:
    """What is said of a member, by the class or by the one it overrides."""
    own = inspect.getdoc(value.__func__ if isinstance(value, classmethod | staticmethod) else value)
    inherited = next((inspect.getdoc(vars(base)[name]) for base in kind.__mro__[1:] if name in vars(base)), "")
    return own or inherited or ""


def _entry(name: str, thing: Any) -> str:
    """One public name: how it is called, what it is, what it has."""
    record = inspect.isclass(thing) and issubclass(thing, Record)
    lines = [f"### {name}", ""] if record else [f"### {name}", "", "```py", _signature(name, thing), "```", ""]
    lines += [_body(_own_doc(thing)), ""]
    rows = members(thing) if inspect.isclass(thing) else {}
    if record and _fields(thing):
        lines += ["| field | type | |", "|---|---|---|"]
        lines += [f"| `{one}` | `{cell(kind)}` | {_first(about)} |" for one, kind, _, about in _fields(thing)]
        lines.append("")
    if rows:
        lines += ["| member | |", "|---|---|"]
        lines += [f"| `{_member(one, value)}` | {_first(_told(thing, one, value))} |" for one, value in rows.items()]
        lines.append("")
    return "\n".join(lines)


def _first(text: str) -> str:
    """The first paragraph, for a table."""
    return cell(" ".join(text.split("\n\n")[0].split())).replace("](", "]\\(")


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return _wrapped(f"class {name}", _class_fields(thing), "")
    if hasattr(thing, "__signature__"):  # a question's function: its parameters are the fields
        found = inspect.signature(thing)
        told = found.return_annotation
        kinds = " | ".join(one.__name__ for one in typing.get_args(told) or [told])
        back = "" if told is inspect.Signature.empty else f" -> {kinds}"
        return _wrapped(name, [str(one) for one in found.parameters.values()], back)
    node = _parsed(thing)
    return _wrapped(name, _arguments(node), f" -> {ast.unparse(node.returns)}" if node.returns else "")


def _member(name: str, value: Any) -> str:
    if isinstance(value, property | cached_property):
        return cell(name)
    node = _parsed(value.__func__ if isinstance(value, classmethod | staticmethod) else value)
    given = [one for one in _arguments(node) if one.split(":")[0] not in ("self", "cls")]
    return cell(f"{name}({', '.join(one.split(':')[0] for one in given)})")


def _parsed(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _arguments(node: Any) -> list[str]:
    """The parameters of a function as they are written."""
    listed, text, depth = [""], ast.unparse(node.args), 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            listed.append("")
        else:
            listed[-1] += letter
    return [one.strip() for one in listed if one.strip()]


def _class_fields(kind: type) -> list[str]:
    """The fields of a dataclass or a Struct as the parameters that make one."""
    return [f"{name}: {told}{default}" for name, told, default, _ in _fields(kind)]


def _fields(kind: type) -> list[tuple[str, str, str, str]]:
    """Name, type, default and description of each field, inherited ones first; a string below a field describes it."""
    bases = [base for base in kind.__mro__[:0:-1] if _has_fields(base)]
    inherited = [field for base in bases for field in _own_fields(base)]
    return [*inherited, *_own_fields(kind)]


def _has_fields(base: type) -> bool:
    """Whether a base is one of our records, and not what all answers have in common."""
    return base.__module__.startswith("dragonscale.") and base.__module__ != "dragonscale.commands.record"


def _own_fields(kind: type) -> list[tuple[str, str, str, str]]:
    """The fields that a class declares itself."""
    found: list[tuple[str, str, str, str]] = []
    body = _parsed(kind).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told = ast.unparse(node.annotation).strip("'")
            value = after.value if isinstance(after, ast.Expr) else None
            about = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            if not told.startswith("ClassVar") and not node.target.id.startswith("_"):
                found.append((node.target.id, told, _given(node.value), about))
    return found


def _given(value: ast.expr | None) -> str:
    if value is None:
        return ""
    text = ast.unparse(value)
    return f" = {text}" if len(text) < 40 else " = …"


def _wrapped(name: str, parts: list[str], back: str) -> str:
    """A signature on one line, or its parameters on several."""
    whole = f"{name}({', '.join(parts)}){back}" if parts or not name.startswith("class") else name
    if len(whole) <= 100:
        return whole
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} {part}," if lines[-1] else f"{part},"
        lines[-1:] = [joined] if len(joined) <= 96 else [lines[-1], f"{part},"]
    return f"{name}(\n" + "\n".join(f"    {line}" for line in lines) + f"\n){back}"


def _body(text: str) -> str:
    """A docstring as Markdown: a list of parameters as a table, doctests as blocks of their own."""
    text, _, told = text.partition("Parameters\n")
    shown = _prose(text.strip())
    if not told:
        return shown
    rows = re.findall(r"^    (\w+): (.*?)(?: \(default (.*)\))?\n((?:        .*(?:\n|$))*)", told + "\n", re.MULTILINE)
    table = ["| parameter | takes | default | |", "|---|---|---|---|"]
    table += [
        f"| `{name}` | {cell(kind)} | {f'`{cell(default)}`' if default else ''} | {cell(' '.join(about.split()))} |"
        for name, kind, default, about in rows
    ]
    return f"{shown}\n\n" + "\n".join(table)


def _prose(text: str) -> str:
    """Paragraphs as they are; what begins with `>>>` is code."""
    parts = []
    for part in text.split("\n\n"):
        code = part.lstrip().startswith(">>>")
        parts.append(f"```pycon\n{textwrap.dedent(part)}\n```" if code else part.replace("](", "]\\("))
    return "\n\n".join(parts)
