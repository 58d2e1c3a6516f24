"""What the page asks, read as a command's question; nothing that a visitor typed may name a file.

On the command line a model, a chip, a plan or a trace may be a path. On a server that would let a visitor read the
server's files, so here such texts are refused by their look, before anything is opened. What a visitor has in a file
comes as text: a `config.json` dropped on the page travels in the request under a name, and the name is then a model.

>>> question_of("train", {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 8192}).batch
'64seq'
>>> question_of("train", {"model": "/etc/passwd"})
Traceback (most recent call last):
dragonscale.errors.InputError: model is '/etc/passwd', which looks like a file; the page reads none: drop the file on it
instead.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dragonscale.commands.questions.flag import with_values
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.faces.cli.mcp.tools import PlannerTool, tools
from dragonscale.faces.commands import COMMANDS
from dragonscale.models.huggingface import load_config

if TYPE_CHECKING:
    from dragonscale.simulation.trace_files import TraceText

_ENDINGS = "toml|json|jsonl|csv|gguf|safetensors|yaml|yml|py|sh|txt|gz|zip|pb|hlo"
_FILE = re.compile(rf"(^|[\s,=+@:])(~|\.{{1,2}})(/|$)|\\|(^|[\s,=+@:])/|//|/.*/|\.({_ENDINGS})(\W|$)", re.IGNORECASE)
_RATE = re.compile(r"\d+(\.\d+)?\s*[A-Za-z$]*/\s*[a-z]+")
"""`20/s`, `800GB/s`, `2.5/h`: what has a slash and is no path."""
_JOBS = ("verify",)
"""Commands that agents may not call, because they take a compiler; the page's server runs them as jobs."""
LARGEST_CONFIG = 256_000
"""Characters of a config that is dropped on the page."""
LARGEST_TRACE = 900_000
"""Characters of a trace that is dropped on it."""


def looks_like_file(text: str) -> bool:
    """Whether a text could name a file: `org/name` of the Hub and rates such as 20/s cannot.

    >>> [
    ...     looks_like_file(text)
    ...     for text in ("meta-llama/Meta-Llama-3-8B", "h100:64", "network=800GB/s,price=2/h", "tp8 pp4")
    ... ]
    [False, False, False, False]
    >>> [looks_like_file(text) for text in ("../x", "/etc/passwd", "plan.toml", "~/a", "a/b/c", "x=/etc", " /etc")]
    [True, True, True, True, True, True, True]
    """
    return _FILE.search(_RATE.sub("", text)) is not None


def question_of(command: str, fields: Mapping[str, Any], dropped: Mapping[str, str] | None = None) -> Any:
    """The question of a command; `dropped` holds configs as text by the name that a field calls them."""
    commands = tools() | {name: PlannerTool(COMMANDS[name]) for name in _JOBS}
    name = command.replace(" ", "_")
    if name not in commands:
        raise unknown("question", command, commands)
    # names of other software first: what they say is looked at as what it is read as
    fields = commands[name].read(fields).values
    for field, value in fields.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and looks_like_file(text):
                instead = "the page reads none: drop the file on it instead."
                raise InputError(f"{field} is {shorten(text)}, which looks like a file; {instead}")
    question = commands[name].question(fields)
    if "trace" in fields:
        question = with_values(question, trace=dropped_trace(fields["trace"], dropped or {}))
    model = fields.get("model")
    if dropped and isinstance(model, str) and model in dropped:
        question = with_values(question, model=dropped_model(model, dropped[model]))
    return question


def dropped_trace(name: Any, dropped: Mapping[str, str]) -> "TraceText":
    """The trace that was dropped on the page under this name; any other would be a file of the machine that answers."""
    if not isinstance(name, str) or name not in dropped:
        raise InputError(
            f"There is no trace {shorten(name)} on the page; drop a CSV or JSON lines file on the tab Simulate."
        )
    if len(text := dropped[name]) > LARGEST_TRACE:
        raise InputError(f"The trace {shorten(name)} has {len(text):,} characters; at most {LARGEST_TRACE:,} are read.")
    from dragonscale.simulation.trace_files import TraceText  # the simulator is loaded by those who simulate

    return TraceText.named(name, text)


def dropped_model(name: str, text: str) -> Any:
    """The model of a config that was dropped on the page."""
    if len(text) > LARGEST_CONFIG:
        raise InputError(
            f"The config {shorten(name)} has {len(text):,} characters; at most {LARGEST_CONFIG:,} are read."
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"The file {shorten(name)} is not JSON; drop a model's config.json.") from None
    if not isinstance(config, dict):
        raise InputError(f"The file {shorten(name)} holds JSON, but not an object with fields, as a config.json does.")
    return load_config(config, name)
