"""What is imported: a file, a folder or a pasted command, read once and looked at in the ways that targets need.

>>> Source.of("vllm serve meta-llama/Meta-Llama-3-8B -tp 2").command("vllm").words[2]
'meta-llama/Meta-Llama-3-8B'
>>> Source.of('{"zero_optimization": {"stage": 3}}').table
{'zero_optimization': {'stage': 3}}
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.header import read_kept
from dragonscale.exports.shell import ShellCommand, read_commands
from dragonscale.pasted import may_name_files
from dragonscale.tables import read_regular

LONGEST = 1_000_000


@dataclass(frozen=True)
class Source:
    """A text and where it was found; `path` is None of a pasted one. Of a text that was inside a launcher's file,
    `files` are the config files that came with it, and `launch` is what the launcher says of the chips and the
    replicas."""

    text: str
    path: Path | None = None
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    launch: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(given: str) -> "Source":
        """A path that exists, or the text itself."""
        path = as_path(given)
        return Source(given) if path is None else Source.at(path)

    @staticmethod
    def at(path: Path) -> "Source":
        """A file; of a folder the one file in it that an export writes first."""
        if path.is_dir():
            path = _main_file(path)
        try:
            return Source(read_regular(path, "Config", LONGEST).decode("utf-8"), path)
        except OSError as error:
            raise InputError(f"Config {shorten(str(path))} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InputError(f"Config {shorten(str(path))} is not text.") from None

    @property
    def shown(self) -> str:
        """How messages name it."""
        return shorten(str(self.path)) if self.path else shorten(self.text.strip())

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What the header of an export keeps; what a launcher says counts more, as people edit it."""
        return {**read_kept(self.text), **self.launch}

    @cached_property
    def commands(self) -> list[ShellCommand]:
        """The commands of a script or a pasted line; none of a config."""
        return [] if self.table is not None else read_commands(self.text)

    def command(self, *words: str) -> ShellCommand | None:
        """The first command that has one of these among its words: `vllm`, `sglang.launch_server`,
        `pretrain_gpt.py`."""
        for command in self.commands:
            for word in words:
                if any(word == one or one.endswith(("/" + word, "." + word)) for one in command.words):
                    return command
        return None

    @cached_property
    def tables(self) -> list[dict[str, Any]]:
        """The tables of a TOML, YAML or JSON file, one for each document; none of anything else."""
        text = self.text.strip()
        if not text:
            return []
        for read in (_json, _toml, _yaml):
            found = read(text)
            if found:
                return found
        return []

    @property
    def table(self) -> dict[str, Any] | None:
        """The first of its tables."""
        return self.tables[0] if self.tables else None

    def beside(self, name: str) -> "Source | None":
        """A file that it names, from the folder it lies in; None where there is none. Text that was pasted, which may
        be anyone's, reaches only what lies below the current folder."""
        if not name or len(name) > 4000 or "\0" in name:
            return None
        folder, last = self.path.parent if self.path else Path(), name.rpartition("/")[2]
        if last in self.files:
            return replace(self, text=self.files[last])
        if not may_name_files():
            return None
        try:
            path = (folder / name).resolve()
            reached = self.path is not None or path.is_relative_to(Path().resolve())
            return Source.at(path) if reached and path.is_file() else None
        except (OSError, RuntimeError):  # a name too long, links in a circle
            return None


def as_path(given: str) -> Path | None:
    """The file or folder that a text names; None where it names none."""
    if len(given) > 4000 or "\n" in given or "\0" in given or not may_name_files():
        return None
    try:
        path = Path(given.strip()).expanduser()
        return path if given.strip() and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, a home that nobody has
        return None


_MAIN = (".sbatch", ".k8s.yaml", ".sky.yaml", ".sh", ".yaml", ".yml", ".toml", ".py", ".json")


def _main_file(folder: Path) -> Path:
    for ending in _MAIN:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(ending))
        if found:
            return found[0]
    raise InputError(f"The folder {shorten(str(folder))} has no script or config to import ({', '.join(_MAIN)}).")


def _json(text: str) -> list[dict[str, Any]]:
    if not text.startswith("{"):
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [found] if isinstance(found, dict) else []


def _toml(text: str) -> list[dict[str, Any]]:
    try:
        return [tomllib.loads(text)] if re.search(r"^[ \t]*(\[|[\w.-]+[ \t]*=)", text, re.MULTILINE) else []
    except (ValueError, RecursionError):
        return []


def _yaml(text: str) -> list[dict[str, Any]]:
    if not re.search(r"^[\w./\"'-]+[ \t]*:([ \t]|$)", text, re.MULTILINE):
        return []
    return [one for one in safe_yaml(text) if isinstance(one, dict)]


def safe_yaml(text: str) -> list[Any]:
    """The documents of a YAML text with keys as text; none where it is not YAML, or uses aliases: a few lines of them
    stand for more than fits into memory."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast, where it is built
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            return []
        return [_text_keys(one) for one in yaml.load_all(text, Loader=loader)]
    except (
        Exception
    ):  # its constructors raise whatever a malformed tag makes them stumble over (KeyError, IndexError …)
        return []


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _text_keys(one) for key, one in value.items()}
    return [_text_keys(one) for one in value] if isinstance(value, list) else value
