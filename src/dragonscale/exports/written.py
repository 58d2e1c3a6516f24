"""What an export comes to: files, the programs that a launcher starts, the words of their commands, and what the target
does otherwise.

A word is text as it stands, or has places that a launcher or a shell fills in. Text may be anyone's. The path of a
model may hold `$(…)`, quotes or the name of a place, so text is never searched for any of these: what is filled in is a
part of a kind of its own, and a shell expands nothing but a `ShellExpansion`.

>>> print(quoted("a$(touch X)"), quoted("--ip=" + LEADER + ":5000"), quoted(expansion("$RANK")))
'a$(touch X)' '--ip={leader}:5000' "$RANK"
>>> print(quoted(filled("http://" + LEADER + "/$HOME", {LEADER: expansion("${hosts[0]}")})))
"http://${hosts[0]}/\\$HOME"
>>> filled(LEADER + ":80", {LEADER: "node0"})
'node0:80'

YAML is written as people write it by hand: keys in their order, lists of numbers on a line. JSON's scalars are YAML's.

>>> print(
...     yaml_text({"kv_cache_config": {"dtype": "fp8", "enable_block_reuse": True}, "sizes": [1, 2], "off": None}),
...     end="",
... )
kv_cache_config:
  dtype: fp8
  enable_block_reuse: true
sizes: [1, 2]
"off": null
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.plan import Plan


@dataclass(frozen=True)
class HostSlot:
    """Something that a launcher knows of a host."""

    name: str

    def __str__(self) -> str:
        return f"{{{self.name}}}"


@dataclass(frozen=True)
class CopyAddress:
    """The address of a copy of another program. Where a launcher does not know it, its name stands there."""

    program: str
    copy: int
    port: int

    def __str__(self) -> str:
        return f"{self.program}-{self.copy}:{self.port}"


@dataclass(frozen=True)
class ConfigFile:
    """A file of the export, which a launcher may put elsewhere."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ShellExpansion:
    """What the shell puts in place when it runs the command: `$RANK`, `$((8000 + copy))`."""

    text: str

    def __str__(self) -> str:
        return self.text


Part = str | HostSlot | CopyAddress | ConfigFile | ShellExpansion


@dataclass(frozen=True)
class MixedWord:
    """A word that is not all text."""

    parts: tuple[Part, ...]

    def __add__(self, other: "Word") -> "MixedWord":
        return MixedWord((*self.parts, *_parts(other)))

    def __radd__(self, other: str) -> "MixedWord":
        return MixedWord((other, *self.parts))

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


Word = str | MixedWord

RANK, LEADER, HOSTS = (MixedWord((HostSlot(name),)) for name in ("rank", "leader", "hosts"))
"""Words that a launcher fills in: the host's number, the address of the first host, how many there are."""


def address(program: str, copy: int, port: int) -> MixedWord:
    """The word for a copy of another program."""
    return MixedWord((CopyAddress(program, copy, port),))


def config_file(name: str) -> MixedWord:
    """The word for a file of the export."""
    return MixedWord((ConfigFile(name),))


def expansion(text: str) -> MixedWord:
    """A word that the shell expands; the text is ours, never a user's."""
    return MixedWord((ShellExpansion(text),))


def _parts(word: Word | Part) -> tuple[Part, ...]:
    return word.parts if isinstance(word, MixedWord) else (word,)


def changed(word: Word, change: Callable[[Part], Word | Part]) -> Word:
    """A word with what `change` makes of each part that is not text; text alone where nothing else is left. Text is not
    shown to it: text that looks like a place is still text."""
    found = [new for part in _parts(word) for new in _parts(part if isinstance(part, str) else change(part))]
    texts = [part for part in found if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(found) else MixedWord(tuple(found))


def filled(word: Word, values: Mapping[MixedWord, Word]) -> Word:
    """A word with values in place of what they stand for."""
    inside = {key.parts[0]: value for key, value in values.items()}
    return changed(word, lambda part: inside.get(part, part))


def holds(word: Word, mark: MixedWord) -> bool:
    """Whether a word has a place for something."""
    return isinstance(word, MixedWord) and mark.parts[0] in word.parts


def quoted(word: Word) -> str:
    """A word for a shell script: in double quotes where the shell expands a part of it, quoted whole otherwise."""
    if not any(isinstance(part, ShellExpansion) for part in _parts(word)):
        return shlex.quote(str(word))
    return '"' + "".join(map(_inside_quotes, _parts(word))) + '"'


def _inside_quotes(part: Part) -> str:
    return part.text if isinstance(part, ShellExpansion) else re.sub(r'([\\"`$])', r"\\\1", str(part))


@dataclass(frozen=True)
class PlanDifference:
    """Something of a plan that the target cannot say: what was planned, what runs instead, and why.

    `setting` is the plan's name for it; empty where the difference is not one of the plan's settings."""

    planned: str
    instead: str
    why: str = ""
    setting: str = ""

    def __str__(self) -> str:
        because = f" ({self.why})" if self.why else ""
        return f"{self.planned} cannot be said; {self.instead}{because}"


@dataclass(frozen=True)
class LaunchProgram:
    """One command to start on hosts.

    `per` says how often a host runs it: `chip` (a process for each chip, which torchrun starts: `words` begin with the
    script, or the module where `module` is set), `rank` (the same, started by MPI) or `host` (one process). `hosts` are
    those of one copy, `chips` those of a host that it uses. Of `words`, the launcher fills in what is not text: ranks,
    addresses, where files are."""

    name: str
    words: tuple[Word, ...]
    hosts: int
    chips: int
    per: str = "host"
    module: bool = False
    copies: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """A container image that has the software."""
    port: int = 0
    apart: int = 1
    """How far apart the ports of copies on a host are."""
    others: tuple[Word, ...] = ()
    """Words that hosts after the first add: `--headless` of an engine whose first host alone answers requests."""


@dataclass(frozen=True)
class WrittenFiles:
    """Files by name, the main one first, and what they start. `as_run` is the plan that the target runs, where that is
    not the one that was asked for."""

    files: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[LaunchProgram, ...] = ()
    differences: tuple[PlanDifference, ...] = ()
    as_run: Plan | ServingPlan | None = None
    notes: tuple[str, ...] = ()
    routing: tuple[str, ...] = ()
    """What has to be put before the servers, and who has to be told their addresses; for launchers that do neither."""
    addressed: tuple[str, ...] = ()
    """Files that name copies of programs (`prefill-0:8001`), for a launcher to put their addresses there."""

    def with_pool(
        self, other: "WrittenFiles", further: Sequence[LaunchProgram] = (), routing: tuple[str, ...] = ()
    ) -> "WrittenFiles":
        """The same with another pool of servers, and with what stands before both."""
        return replace(
            self,
            files={**self.files, **other.files},
            programs=(*self.programs, *other.programs, *further),
            differences=tuple(dict.fromkeys((*self.differences, *other.differences))),
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
            routing=routing,
        )

    def plus(self, files: Mapping[str, str]) -> "WrittenFiles":
        """The same with more files before the others: a launcher's script is what people start."""
        return replace(self, files={**files, **self.files})


_PLAIN = re.compile(r"(?:[A-Za-z_/]|\.(?=[./]|$))[\w./@+-]*(?::[\w./@+-]+)*")  # .5 and .inf are numbers
_BREAKING = "\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
"""Signs that a reader of YAML refuses, or takes for the end of a line."""
_AS_IT_STANDS = re.compile(rf"(?![ \n])[^{_BREAKING}]*(?<!\n)\n?")
"""Lines that a block keeps: the first shows the indentation, and there is no empty line at the end."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"})


def yaml_text(table: Mapping[str, Any], indent: int = 0) -> str:
    """A table as a YAML document."""
    lines: list[str] = []
    for key, value in table.items():
        lines += _entry(f"{' ' * indent}{yaml_scalar(key)}:", value, indent)
    return "\n".join(lines) + "\n"


def _entry(lead: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, Mapping):
        return [lead, yaml_text(value, indent + 2).rstrip("\n")] if value else [f"{lead} {{}}"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        flat = all(not isinstance(one, Mapping | list | tuple) for one in value)
        if flat and _short(value):
            return [f"{lead} [{', '.join(map(yaml_scalar, value))}]"]
        return [lead, *(_item(one, indent) for one in value)]
    return [f"{lead} {_block(value, indent) or yaml_scalar(value)}"]


def _block(value: Any, indent: int) -> str:
    """Text of several lines as it stands; nothing where a reader of YAML would make another text of that."""
    if not isinstance(value, str) or "\n" not in value or not _AS_IT_STANDS.fullmatch(value):
        return ""
    mark, text = ("|", value[:-1]) if value.endswith("\n") else ("|-", value)
    return "\n".join([mark, *(" " * (indent + 2) + line if line else "" for line in text.split("\n"))])


def _short(value: Sequence[Any]) -> bool:
    several = any(isinstance(one, str) and "\n" in one for one in value)
    return sum(len(str(one)) + 2 for one in value) < 80 and not several


def _item(value: Any, indent: int) -> str:
    pad = " " * indent
    if isinstance(value, Mapping):
        inner = yaml_text(value, indent + 2).rstrip("\n")
        return f"{pad}- {inner[indent + 2 :]}"
    return f"{pad}- {_block(value, indent) or yaml_scalar(value)}"


def _in_quotes(text: str) -> str:
    """Text in double quotes, whose escapes JSON and YAML share.

    >>> print(_in_quotes('a "b"\u2028é'))
    "a \\"b\\"\\u2028é"
    """
    return re.sub(f"[{_BREAKING}]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text, ensure_ascii=False))


def yaml_scalar(value: Any) -> str:
    """One value; text is quoted where YAML would read it as something else."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not value.endswith(":")
        return value if plain else _in_quotes(value)
    if isinstance(value, float):
        text = f"{value:.10g}"
        # YAML 1.1 reads 1e-05 as text: the mantissa needs a point.
        return re.sub(r"^(-?\d+)e", r"\1.0e", text)
    return json.dumps(value)
