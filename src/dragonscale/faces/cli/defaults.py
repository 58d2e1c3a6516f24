"""Defaults of one's own: `dragonscale.toml` in the folder, or in the home (`~/.config/dragonscale.toml`).

    dtype = "bf16"            # for every command that has the flag
    price = "h100=2.1/h"

    [train]                   # for one command
    stack = "megatron"

Flags of other software (`tensor_parallel_size = 8`) are read as on the command line. A flag there wins over the file,
the folder's file over the home's, a command's table over the rest.
"""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.synonyms import fields_meant, flag_in_python, names_with_synonyms, takes_value
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.faces.command import Command

NAME = "dragonscale.toml"
MOST = 100_000


def default_files() -> list[Path]:
    """The files there are, the weaker first."""
    if os.environ.get("DRAGONSCALE_CONFIG"):
        return [Path(os.environ["DRAGONSCALE_CONFIG"])]
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / NAME
    return [path for path in (home, Path.home() / NAME, Path(NAME)) if path.is_file()]


def with_defaults(command: Command[Any, Any], arguments: Sequence[str]) -> list[str]:
    """The arguments with the flags of the files that were not given added behind them."""
    fields = {field.name: field for field in command.fields() if not field.place}
    taken: dict[str, Any] = {}
    for path in default_files():
        taken |= _values(path, command, fields)
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    typed = {word.partition("=")[0].replace("_", "-") for word in words[:end]}
    added: list[str] = []
    # what the line says by flags of other software wins over the file too, where a file says anything
    meant: set[str] = set()
    if taken:
        meant.update(*(fields_meant(word, command.fields()) for word in typed if word.startswith("-")))
    for name, value in taken.items():
        field = fields[name]
        spellings = {*field.spellings, *(s.replace("--", "--no-", 1) for s in field.spellings)}
        if typed & spellings or name in meant:
            continue
        if field.switch:
            added += [field.flag] if value else [field.flag.replace("--", "--no-", 1)]
        else:
            added.append(f"{field.flag}={value}")
    return [*words[:end], *added, *words[end:]]


def _values(path: Path, command: Command[Any, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """What a file says for a command."""
    values = _read(path)
    flags: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for written, value in values.items():
        (tables if isinstance(value, dict) else flags)[written.replace("-", "_")] = value
    for name in tables:
        if name.replace("_", " ") not in COMMANDS and name not in {one.split()[0] for one in COMMANDS}:
            raise unknown(f"command in {shorten(str(path))} called", name, list(COMMANDS))
    everywhere = {field.name for one in COMMANDS.values() for field in one.fields()} if flags else set()
    flags = names_with_synonyms(command.fields(), flags).values
    for name in flags:
        if name not in everywhere and not _elsewhere(name):
            raise unknown(
                f"flag in {shorten(str(path))} called",
                name,
                everywhere,
                "`dscale COMMAND --help` lists those of a command.",
            )
    own = {name.replace("-", "_"): value for name, value in tables.get(command.name.replace(" ", "_"), {}).items()}
    own = names_with_synonyms(command.fields(), own).values
    for name in own:
        if name not in fields:
            raise unknown(
                f"flag of {command.name} in {shorten(str(path))} called",
                name,
                fields,
                f"`dscale {command.name} --help` lists them.",
            )
    defaults = {name: value for name, value in flags.items() if name in fields} | own
    for name, value in defaults.items():
        if not isinstance(value, str | int | float):
            raise InputError(
                f"In {shorten(str(path))} {name} is {shorten(value)}; write text, a number, true or false."
            )
    return defaults


def _elsewhere(name: str) -> bool:
    """Whether a flag of other software is read by any command."""
    return any(takes_value(flag_in_python(name), command.fields()) is not None for command in COMMANDS.values())


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise InputError(f"The defaults in {shorten(str(path))} cannot be read: {error.strerror}.") from None
    if len(data) > MOST:
        raise InputError(f"The defaults in {shorten(str(path))} are longer than {MOST:,} bytes.")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"The defaults in {shorten(str(path))} are not TOML: {error}.") from None
