"""Data files: TOML tables read with one sentence about what is wrong, and the records that such
files share.

Chips, networks, kernels, plans and grids are all TOML. A table is checked against a record in which
an unknown key is an error, and names the sources of its numbers.
"""

import json
import os
import stat
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.pasted import may_name_files

MAX_FILE_BYTES = 1_000_000
Record = TypeVar("Record", bound=msgspec.Struct)


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in which an unknown key is an error."""


class SourceFile(Strict, frozen=True):
    """Where numbers come from."""

    title: str
    date: str
    url: str = ""


def check_regular(path: Path, what: str) -> os.stat_result:
    """Refuse pipes and devices, which may never end; what cannot be found is an OSError.

    >>> check_regular(Path("/dev/zero"), "Trace")
    Traceback (most recent call last):
    dragonscale.errors.InputError: Trace '/dev/zero' is a pipe or a device; a plain file is needed.
    """
    try:
        found = path.stat()
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{what} {shorten(str(path))} cannot be read: {error}.") from None
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise InputError(f"{what} {shorten(str(path))} is a pipe or a device; a plain file is needed.")
    return found


def read_regular(path: Path, what: str, most: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a plain file of at most so many bytes. Pipes and devices, which may never end, are
    not opened at all; what cannot be read is an OSError."""
    found, shown = check_regular(path, what), f"{what} {shorten(str(path))}"
    if found.st_size > most:
        raise InputError(f"{shown} is larger than {most // 1000:,} kB; that is no {what.lower()}.")
    with path.open("rb") as file:  # files of /proc say they are empty and are not
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{shown} is larger than {most // 1000:,} kB; that is no {what.lower()}.")
    return content


def file_version(path: str) -> tuple[int, ...] | None:
    """What changes when a file does, for answers that are kept: which file it is, when it was written, how long it is.
    None if it is not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


YAML = (".yaml", ".yml")


def _yaml_table(text: str) -> dict[str, Any]:
    found = safe_yaml(text)
    if len(found) != 1 or not isinstance(found[0], dict):
        why = "it is no single table of keys and values, or uses aliases"
        with suppress(ValueError):
            why = "it is TOML: call it .toml" if tomllib.loads(text) else why
        raise ValueError(why)
    return found[0]


def read_table(path: Path, what: str) -> dict[str, Any]:
    """A TOML file as nested dictionaries, or a YAML one where it is called so; one sentence about why not."""
    shown = f"{what} {shorten(str(path))}"
    if not may_name_files():
        raise InputError(f"{shown} looks like a file, and none is read here.")
    try:
        text = read_regular(path, what).decode("utf-8")
        table = _yaml_table(text) if path.suffix.lower() in YAML else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{shown} is not text.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{shown} is not valid {'YAML' if path.suffix.lower() in YAML else 'TOML'}: {shorten(str(error), 120)}."
        ) from None
    if not table:
        raise InputError(f"{shown} is empty.")
    return table


def safe_yaml(text: str) -> list[Any]:
    """The documents of a YAML text with keys as text; none where it is not YAML, or uses aliases: a few lines of them
    stand for more than fits into memory."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast, where it is built
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            return []
        return [_text_keys(one) for one in yaml.load_all(text, Loader=loader)]
    except Exception:  # constructors raise whatever a malformed tag makes them stumble over (KeyError, IndexError …)
        return []


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _text_keys(one) for key, one in value.items()}
    return [_text_keys(one) for one in value] if isinstance(value, list) else value


def toml_value(value: str | bool | int | float) -> str:
    """A value as TOML has it, whatever characters a name has.

    >>> print(toml_value('a "b" of\\n'), toml_value(True), toml_value(0.5))
    "a \\"b\\" of\\n" true 0.5
    """
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one control character that JSON allows.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def built_in(directory: Any) -> dict[str, dict[str, Any]]:
    """The TOML files of a package's directory by name, in order."""
    files = sorted((entry for entry in directory.iterdir() if entry.name.endswith(".toml")), key=lambda e: e.name)
    return {e.name.removesuffix(".toml"): tomllib.loads(e.read_text(encoding="utf-8")) for e in files}


def checked(table: dict[str, Any], record: type[Record], what: str, origin: str) -> Record:
    """A table as the record it should be."""
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(record))
        known = f"; it may have {fields}" if "unknown field" in str(error) and " at `" not in str(error) else ""
        raise InputError(f"The {what} {shorten(origin)} is not right: {error}{known}.") from None


def beside(module: str, name: str) -> dict[str, Any]:
    """The TOML file of this name in the folder of a module, given as its `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))
