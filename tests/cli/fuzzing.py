"""Command lines made at random from the application's own flags, run in this process and judged.

Nothing here knows the commands: they and their flags are read from the application, so a new one is
covered the day it comes. A run fails where a stranger would lose trust: a traceback, a hang, a code
that means nothing, `nan`, infinity or less than nothing in an answer, a terminal's escapes in what is
printed, more than one line on bad input.
"""

import contextlib
import importlib
import io
import json
import os
import random
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from dragonscale.faces.cli.app import run
from dragonscale.faces.cli.table import COMMANDS
from tests.cli.fuzz_files import make_files, spoil
from tests.cli.fuzz_values import USUAL, any_value, good

CODES = (0, 2, 3, 4)
SLOW = ("verify", "scaling", "codesign", "search", "max_rate", "cpu")
"""Flags that ask for minutes of work, or for a compiler."""
STOPS = {
    "dragonscale.evidence.verify.comparing": "verify",
    "dragonscale.app.run.run_train": "prepare_jax",
    "dragonscale.app.run.run_rl": "prepare_jax",
    "dragonscale.app.run.run_serve": "_serve",
    "dragonscale.app.calibrate.ask_calibrate": "bench_with",
    "dragonscale.app.sweep.ask_sweep": "sweep",
    "dragonscale.faces.cli.mcp.server": "serve",
    "dragonscale.web.server.page_serving": "listen",
}
"""What runs compilers, devices, other processes or servers: reached, a command line is well formed."""
MAY_BE_NEGATIVE = re.compile(
    r"bias|gain|growth|change|error|delta|difference|better|worse|saved|slope|score|tau|seed|(^|_)low(er)?_ape"
    r"|^\.(answers\.|names\.)?value$"  # of a calculation
)
_STRANGE = re.compile(r"(?<![\w./-])[-+]?(nan|inf)(?![\w./-])|(?<![\w.])inf(s|B|/s|FLOP)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


class Stopped(BaseException):
    """A command line that was understood, and would now do something that a test cannot."""


class Hang(BaseException):
    """A command line that took too long."""


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
        self.folder, self.dice, self.limit = folder, random.Random(seed), limit
        self.commands, self.files = commands(), make_files(folder)
        # `even` gives every command the same time, and so quick ones many more runs; which are drawn depends on the
        # machine then.
        self.even, self.spent = even, {path: [1, 0.05] for path in self.commands}
        self.originals = {name: path.read_bytes() for name, path in self.files.items() if path.is_file()}

    def draw(self) -> list[str]:
        """A command line; now and then one of its files is spoilt."""
        dice = self.dice
        weights = [runs / seconds if self.even else 1.0 for runs, seconds in self.spent.values()]
        path = dice.choices(list(self.commands), weights)[0]
        flags = self.commands[path]
        # a table of runs says its own model and chips
        usual = [flag for flag in flags if flag.position is not None or (flag.name in USUAL and path[0] != "validate")]
        needed = [flag for flag in flags if flag.required or (flag in usual and dice.random() < 0.95)]
        others = [flag for flag in flags if flag not in needed and flag.name not in SLOW]
        chosen = needed + dice.sample(others, min(len(others), dice.choice([0, 1, 1, 2, 3])))
        wrong = dice.choice(chosen) if chosen and dice.random() < 0.6 else None
        line = list(path)
        for flag in sorted(chosen, key=lambda flag: -1 if flag.position is None else flag.position):
            if flag.position is None and flag.kind is bool:
                line.append(flag.written)
                continue
            offered = flag.offers and flag is not wrong and dice.random() < 0.8
            choose = any_value if flag is wrong else good
            value = dice.choice(flag.offers) if offered else choose(" ".join(path), flag.name, flag.kind, dice)
            line += [self._placed(value)] if flag.position is not None else [f"{flag.written}={self._placed(value)}"]
        return line

    def _placed(self, text: str) -> str:
        for name, path in self.files.items():
            text = text.replace("{" + name + "}", str(path))
        return text

    def cases(self, count: int) -> Iterator[tuple[list[str], str]]:
        """So many command lines, each with what is wrong with its run (nothing, where all is well)."""
        for _ in range(count):
            line, spoilt = self.draw(), ""
            if self.dice.random() < 0.3:
                spoilt = self._spoil(line)
            began = time.monotonic()
            problem = self.judge(line, self.files[spoilt].read_bytes().decode(errors="replace") if spoilt else "")
            spent = self.spent[next(path for path in self.commands if tuple(line[: len(path)]) == path)]
            spent[0], spent[1] = spent[0] + 1, spent[1] + time.monotonic() - began
            if problem and spoilt:
                problem += f"\nwith the file: {self.files[spoilt].read_bytes()!r}"
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

    def judge(self, line: list[str], spoilt: str = "") -> str:
        """What is wrong with the run of a command line, and of a spoilt file; nothing, where all is well."""
        out, err = io.StringIO(), io.StringIO()
        try:
            with _stopping(), _watched(self.limit), warnings.catch_warnings():
                warnings.simplefilter("error")
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(self.folder):
                    code = run(line)
        except Stopped:
            return ""
        except Hang:
            return f"more than {self.limit:g} s"
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            return traceback.format_exc()
        echoed = (
            _STRANGE.search(" ".join(line).replace("=", " ") + spoilt) is not None
        )  # a name of that spelling is given back
        said = out.getvalue()
        if "--color=always" in line:  # colours, and no other escapes, were asked for
            said = re.sub(r"\x1b\[[0-9;]*m", "", said)
        return judged(code, said, err.getvalue(), "--json" in line, echoed)


def judged(code: int, out: str, err: str, as_json: bool, echoed: bool = False) -> str:
    """What is wrong with an answer."""
    if code not in CODES:
        return f"code {code}"
    for text in (out, err):
        if strange := _CONTROL.search(text.replace("\n", "").replace("\t", "")):
            return f"a control character {strange[0]!r} in {text[max(strange.start() - 60, 0) : strange.end() + 60]!r}"
    if code == 2:
        told = [line for line in err.splitlines() if line.startswith("dscale: ")]
        if len(told) != 1 or not err.rstrip().endswith(told[0][-20:].rstrip()):
            return f"not one sentence: {err!r}"
        return "the sentence floods the terminal" if len(told[0]) > 1500 else ""
    if "Traceback" in err or "Warning" in err:
        return f"stderr: {err!r}"
    if as_json and out.strip():
        return wrong_number(json.loads(out))
    if (strange := _STRANGE.search(out)) and not echoed:
        return f"{strange[0]!r} in {out[max(strange.start() - 200, 0) : strange.end() + 60]!r}"
    return ""


def wrong_number(value: Any, path: str = "") -> str:
    """A number in an answer that no answer has."""
    if isinstance(value, dict):
        return next(filter(None, (wrong_number(one, f"{path}.{name}") for name, one in value.items())), "")
    if isinstance(value, list):
        return next(filter(None, (wrong_number(one, path) for one in value)), "")
    if isinstance(value, float) and not -1e300 < value < 1e300:
        return f"{path} is {value}"
    if isinstance(value, int | float) and str(value).startswith("-") and not MAY_BE_NEGATIVE.search(path):
        return f"{path} is {value}"
    return ""


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """Compilers, devices, other processes and servers are not started."""

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    with contextlib.ExitStack() as stack:
        for module, name in STOPS.items():
            with contextlib.suppress(ImportError):
                stack.enter_context(mock.patch.object(importlib.import_module(module), name, stop, create=False))
        yield


@contextlib.contextmanager
def _watched(seconds: float) -> Iterator[None]:
    """Stop what takes longer."""

    def late(*_: Any) -> None:
        raise Hang

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def report(line: list[str], problem: str) -> str:
    """A failure as it can be repeated."""
    shown = " ".join(repr(word if len(word) < 300 else f"{word[:50]}…({len(word)})") for word in line)
    return f"dscale {shown}\n  {problem[-1500:]}"


if __name__ == "__main__":
    import sys
    import tempfile

    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    start, done = time.monotonic(), 0
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    while time.monotonic() - start < seconds:
        with tempfile.TemporaryDirectory() as made:
            began = time.monotonic()
            for line, problem in Fuzzer(Path(made), first, even=True).cases(2000):
                done += 1
                if problem:
                    print(f"[{first}] {report(line, problem)}", flush=True)
            print(f"# seed {first}: {done} cases, {time.monotonic() - began:.0f} s", flush=True)
        first += 1
