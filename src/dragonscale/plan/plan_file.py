"""Plans as TOML files: the format that those of training and of serving share.

A file has a table `[plan]` of settings, or is such a table itself; beside it are entries for the job that the plan is
for (texts and counts) and other tables. Unknown names are refused with the nearest known one.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.references import found
from dragonscale.tables import toml_value


def is_plan_path(text: object) -> bool:
    """Whether the text of a plan is the path of a file."""
    return isinstance(text, str) and text.strip().endswith(".toml")


def check_plan_path(path: object) -> None:
    """Refuse to write a plan to a path that commands would not read as a plan's: they know one by its ending.

    >>> check_plan_path("plan.toml")
    >>> check_plan_path("plans/olmo.json")
    Traceback (most recent call last):
    ...
    dragonscale.errors.InputError: A plan is saved as TOML, and 'olmo.json' does not end in .toml; write olmo.toml.
    """
    name = Path(str(path)).name
    if is_plan_path(str(path)) or str(path).startswith("/dev/"):
        return
    better = f"{name}.toml"
    if Path(name).suffix in OTHER_ENDINGS:  # any other dot is part of a name such as llama3.1
        better = str(Path(name).with_suffix(".toml"))
    raise InputError(f"A plan is saved as TOML, and {shorten(name)} does not end in .toml; write {better}.")


OTHER_ENDINGS = (".json", ".yaml", ".yml", ".txt", ".tml", ".TOML")


def names_config(text: str) -> bool:
    """Whether the text of a plan is a command with the config of another software (`axolotl train a.yml`)."""
    return len(text.split()) > 1 and text.strip().endswith((".yaml", ".yml", ".json", ".py"))


SERVERS = ("vllm serve", "sglang serve", "trtllm-serve", "trtllm-serve serve", "ollama run")
"""Commands that start a server with nothing but a model after them, or with none where it is given beside."""


def starts_server(text: str) -> bool:
    """Whether the text of a plan is a command that starts a server and has no flags.

    >>> starts_server("vllm serve Qwen/Qwen3-8B"), starts_server("/usr/bin/vllm serve m"), starts_server("tp8 pp2")
    (True, True, False)
    """
    program, *arguments = text.split() or [""]
    if not arguments:
        return False
    *subcommand, last = [program.rpartition("/")[2], *arguments]
    if " ".join(subcommand) in SERVERS and not last.startswith("-"):
        return True  # the last word is the model
    return " ".join([*subcommand, last]) in SERVERS


def _check_names(table: Iterable[str], known: Sequence[str], what: str) -> None:
    for name in table:
        if name not in known:
            raise unknown(what, name, known)


def settings_table(
    table: Mapping[str, Any], entries: Sequence[str], shown: str, closed: bool = False
) -> dict[str, Any]:
    """The settings of a plan file as they are written. With `closed`, a file without a table [plan] may have no other
    tables than those of `entries`."""
    checked = [name for name, value in table.items() if "plan" in table or (closed and isinstance(value, dict))]
    _check_names(checked, entries, f"entry of the plan file {shown} called")
    if "plan" in table:
        return table_in(table, "plan", shown)
    return {name: value for name, value in table.items() if name not in entries}


def table_in(table: Mapping[str, Any], name: str, shown: str, known: Sequence[str] = ()) -> dict[str, Any]:
    """One of the tables of a plan file; where `known` names are given, others are refused."""
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise InputError(f"In the plan file {shown} {shorten(name)} is not a table of settings.")
    if known:
        _check_names(value, known, f"setting of [{name}] in the plan file {shown} called")
    return value


def texts_in(table: Mapping[str, Any], names: Iterable[str], path: str, numeric: Sequence[str] = ()) -> dict[str, str]:
    """The entries of a plan file for its job, as text; `numeric` ones may be written as numbers. A user's files of
    models and chips are looked for beside the plan's."""
    texts: dict[str, str] = {}
    for name in names:
        value = table.get(name, "")
        if isinstance(value, int | float) and not isinstance(value, bool) and name in numeric:
            # all digits, so that a plan that was saved is read back as it was
            value = f"{value:.17g}" if isinstance(value, float) else str(value)
        if not isinstance(value, str):
            raise InputError(f"In the plan file {shorten(path)} {name} is {shorten(value)}; write it as text.")
        texts[name] = found(value, path) if name in ("model", "slice") else value
    return texts


def plan_text(entries: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The TOML of a plan: the entries that are not empty, then the tables."""
    lines: list[str] = []
    for name, value in entries.items():
        if value:
            lines.append(f"{name} = {toml_value(value)}")
    for title, table in tables.items():
        lines += ["", f"[{title}]", *(f"{name} = {toml_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"
