"""The comment that every exported file begins with: what it is for, what to expect, what differs, what made it.

Its last line holds what the plan file says and the target has no word for (the chips, the price, the tokens of the run,
the traffic), so that an import gets it back. What the target does have a word for is never read from it: flags that
were edited count, not the comment.

>>> kept = kept_line({"model": "llama3-8b", "slice": "h100:8", "tokens": ""})
>>> kept
'dscale: {"model": "llama3-8b", "slice": "h100:8"}'
>>> read_kept(f"# {kept}\\nvllm serve …")["slice"]
'h100:8'
"""

import contextlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dragonscale.exports.runs import Run, TrainingRun
from dragonscale.exports.written import PlanDifference
from dragonscale.serving.plan_file import TABLES

MARK = "dscale: "
_KEPT = re.compile(rf"^[^\w\n]*{re.escape(MARK)}(\{{.*\}})\s*$", re.MULTILINE)
WIDTH = 96


def header(run: Run, title: str, differences: Sequence[PlanDifference] = (), comment: str = "#") -> str:
    """The comment, each line after the mark of a comment in the target's language. `title` names the software and
    version."""
    plan = run.file.plan
    lines = [f"{title}: {run.model.name} on {run.slice}{_replicas(run)}, plan {plan}."]
    lines += [f"Expected: {text}" for text in run.expected]
    lines += [f"Differs: {one}." for one in differences]
    lines += [f"To do: {text}" for text in run.notes]
    lines += [f"Made by: {run.command}"] if run.command else []
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False)
    wrapped = [row for line in lines for row in wrapper.wrap(one_line(line))]
    return comments((*wrapped, kept_line(kept_of(run))), comment)


def _replicas(run: Run) -> str:
    """How many replicas there are, where there are several, and their chips."""
    many = 1 if isinstance(run, TrainingRun) else run.file.replicas
    return f" x {many} replicas ({many * run.slice.chips} chips)" if many > 1 else ""


def kept_of(run: Run) -> dict[str, Any]:
    """What of a plan file a target has no word for."""
    file = run.file
    if isinstance(run, TrainingRun):
        names = ("model", "slice", "stack", "tokens", "price", "documents", "skew", "capacity")
        return {name: getattr(file, name) for name in names}
    tables = {name: msgspec.to_builtins(getattr(file, name)) for name in TABLES}
    said = {name: {key: value for key, value in own.items() if value} for name, own in tables.items()}
    words = {name: getattr(file, name) for name in ("model", "slice", "engine", "batch", "replicas")}
    return {**words, **said}


def kept_line(values: Mapping[str, Any]) -> str:
    """What is kept, as one line."""
    return MARK + json.dumps({name: value for name, value in values.items() if value})


def read_kept(text: str) -> dict[str, Any]:
    """What the header of an exported file keeps; nothing where there is none."""
    found = _KEPT.search(text)
    if found is None:
        return {}
    try:
        kept = json.loads(found[1])
        return _checked(kept) if isinstance(kept, dict) else {}
    except (ValueError, RecursionError):
        return {}


def _checked(kept: dict[str, Any]) -> dict[str, Any]:
    """What a header may hold, each of its kind; anything else was not written by an export and is left out."""
    found: dict[str, Any] = {}
    for name, value in kept.items():
        with contextlib.suppress(msgspec.ValidationError):
            if name in TABLES:
                record = msgspec.convert(value, TABLES[name])
                found[name] = {key: one for key, one in msgspec.to_builtins(record).items() if key in value}
            elif name in _KINDS:
                found[name] = msgspec.convert(value, _KINDS[name])
    return found


_WORDS = ("model", "slice", "stack", "engine", "tokens", "price", "documents")
_KINDS: dict[str, type] = {
    **dict.fromkeys(_WORDS, str),
    **dict.fromkeys(("batch", "replicas"), int),
    **dict.fromkeys(("skew", "capacity"), float),
}


def comments(lines: Iterable[str], comment: str = "#") -> str:
    """Lines as a comment."""
    return "".join(f"{comment} {one_line(line)}\n" for line in lines)


def one_line(text: str) -> str:
    """Text without any sign that ends a line (YAML has more of these than a shell): all of it stays a comment."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
