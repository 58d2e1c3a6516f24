"""Command lines made at random from the application's own flags, and the same questions as calls of its tools.

Nothing here knows the commands: they and their flags are read from the application, so a new one is
covered the day it comes.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.faces.cli.mcp.results import answered
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.listener import Listener
from tests.fuzz.judging import LONGEST, Judge, control_in, wrong_number
from tests.fuzz.samples import make_files
from tests.fuzz.spoiling import spoil
from tests.fuzz.values import STRANGE_JSON, USUAL, any_value, good

SLOW = ("verify", "scaling", "codesign", "search", "capacity", "cpu", "max_rate", "steps")
"""Flags that ask for minutes of work, or for a compiler."""


@dataclass(frozen=True)
class Flag:
    """A flag or an argument of a command, by the name that values are found by."""

    name: str
    written: str
    kind: Any
    required: bool
    position: int | None
    offers: tuple[str, ...] = ()


def commands() -> dict[tuple[str, ...], list[Flag]]:
    """Every command of the application with its flags."""
    return {tuple(name.split()): [_of_field(field) for field in command.fields()] for name, command in COMMANDS.items()}


def _of_field(field: Any) -> Flag:
    kind = {"Switch": bool, "Whole": int, "Real": float}.get(type(field).__name__, str)
    offers = field.offers if isinstance(field.offers, tuple) else ()
    needed = field.required or field.needed
    return Flag(_plain(field.name), field.flag, kind, needed, 0 if field.place else None, offers)


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_")


class Fuzzer:
    """Draws command lines and runs them in a folder of its own."""

    def __init__(self, folder: Path, seed: int, limit: float = 120.0, even: bool = False) -> None:
        self.folder, self.dice, self.judge = folder, random.Random(seed), Judge(folder, limit)
        self.commands, self.files = commands(), make_files(folder)
        # `even` gives every command the same time, and so quick ones many more runs; which are drawn depends on the
        # machine then.
        self.even, self.spent = even, {path: [1, 0.05] for path in self.commands}
        self.originals = {name: path.read_bytes() for name, path in self.files.items() if path.is_file()}
        self.tools = tools()

    @property
    def ends(self) -> Counter[str]:
        """How the runs ended."""
        return self.judge.ends

    def drawn(self, only: frozenset[tuple[str, ...]] = frozenset()) -> tuple[tuple[str, ...], list[tuple[Flag, Any]]]:
        """A command, and a value for some of its flags."""
        dice = self.dice
        paths = [path for path in self.commands if not only or path in only]
        weights = [self.spent[path][0] / self.spent[path][1] if self.even else 1.0 for path in paths]
        path = dice.choices(paths, weights)[0]
        flags = self.commands[path]
        # a table of runs says its own model and chips
        usual = [flag for flag in flags if flag.position is not None or (flag.name in USUAL and path[0] != "validate")]
        needed = [flag for flag in flags if flag.required or (flag in usual and dice.random() < 0.95)]
        others = [flag for flag in flags if flag not in needed and flag.name not in SLOW]
        chosen = needed + dice.sample(others, min(len(others), dice.choice([0, 1, 1, 2, 3])))
        wrong = dice.choice(chosen) if chosen and dice.random() < 0.6 else None
        pairs: list[tuple[Flag, Any]] = []
        for flag in sorted(chosen, key=lambda flag: -1 if flag.position is None else flag.position):
            if flag.position is None and flag.kind is bool:
                pairs.append((flag, True))
                continue
            offered = flag.offers and flag is not wrong and dice.random() < 0.8
            choose = any_value if flag is wrong else good
            value = dice.choice(flag.offers) if offered else choose(" ".join(path), flag.name, flag.kind, dice)
            pairs.append((flag, self._placed(value)))
        return path, pairs

    def draw(self) -> list[str]:
        """A command line."""
        path, pairs = self.drawn()
        line = list(path)
        for flag, value in pairs:
            named = flag.written if value is True else f"{flag.written}={value}"
            line.append(value if flag.position is not None else named)
        return line

    def _placed(self, text: str) -> str:
        for name, path in self.files.items():
            text = text.replace("{" + name + "}", str(path))
        return text

    def cases(self, count: int) -> Iterator[tuple[list[str], str]]:
        """So many command lines, each with what is wrong with its run (nothing, where all is well); some of them name
        a file that is spoilt."""
        for _ in range(count):
            line, spoilt = self.draw(), ""
            if self.dice.random() < 0.3:
                spoilt = self._spoil(line)
            began = time.monotonic()
            content = self.files[spoilt].read_bytes() if spoilt else b""
            problem = self.judge.line(line, content.decode(errors="replace"))
            if spoilt and not problem and _untouched(line) and self.files[spoilt].read_bytes() != content:
                problem = "the file that was read is not what it was"
            spent = self.spent[next(path for path in self.commands if tuple(line[: len(path)]) == path)]
            spent[0], spent[1] = spent[0] + 1, spent[1] + time.monotonic() - began
            if problem and spoilt:
                problem += f"\nwith the file: {content!r}"
            if spoilt:
                self.files[spoilt].write_bytes(self.originals[spoilt])
            yield line, problem

    def _spoil(self, line: list[str]) -> str:
        """Spoil one of the files that a command line names; its name."""
        named = [name for name in self.originals if any(str(self.files[name]) in word for word in line)]
        if not named:
            return ""
        name = self.dice.choice(named)
        content = self.originals[name]
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            content = spoil(content, self.dice)
        self.files[name].write_bytes(content)
        return name

    def calls(self, count: int) -> Iterator[tuple[list[str], str]]:
        """So many calls of tools, as an agent may write them: values of the wrong type, names that are none."""
        paths = frozenset(path for path in self.commands if "_".join(path) in self.tools)
        for _ in range(count):
            path, pairs = self.drawn(paths)
            takes = {field.name for field in self.tools["_".join(path)].fields()}
            known = [(flag, value) for flag, value in pairs if flag.name in takes or self.dice.random() < 0.02]
            given = {flag.name: self._of_json(flag, value) for flag, value in known}
            if self.dice.random() < 0.1:
                given[self.dice.choice(["explain", "record", "whole", "bach", "", "\x1b"])] = self._of_json(None, True)
            if given and self.dice.random() < 0.05:
                given.pop(self.dice.choice(list(given)))
            name = "_".join(path) if self.dice.random() < 0.99 else self.dice.choice(["trian", "", "run_train", "\x00"])
            began = time.monotonic()
            problem = self.judge.calling(lambda name=name, given=given: self.call(name, given))
            self.spent[path][0] += 1
            self.spent[path][1] += time.monotonic() - began
            yield ["mcp", name, json.dumps(given, default=repr)], problem

    def _of_json(self, flag: Flag | None, value: Any) -> Any:
        """A value as JSON has it: now and then of another type."""
        if self.dice.random() < 0.1:
            return self.dice.choice(STRANGE_JSON)
        if flag is not None and flag.kind in (int, float) and self.dice.random() < 0.8:
            try:
                return flag.kind(value)
            except (ValueError, OverflowError):
                return value
        return value

    def call(self, name: str, given: dict[str, Any]) -> str:
        """What is wrong with the reply to a call; nothing, where all is well."""
        reply = answered(self.tools, name, given, Listener())
        self.judge.ends["2" if reply.failed else "0"] += 1
        if wrong := control_in(reply.text):
            return wrong
        if reply.failed and ("\n" in reply.text or "fault of its own" in reply.text or len(reply.text) > LONGEST):
            return f"not one sentence: {reply.text!r}"
        json.dumps(reply.record, allow_nan=False)
        return wrong_number(reply.record or {})


def _untouched(line: list[str]) -> bool:
    """Whether nothing that a line names is written by it."""
    return not any(word.startswith(("--save", "--out", "--records", "--progress", "--table")) for word in line)
