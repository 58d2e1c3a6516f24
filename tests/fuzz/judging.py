"""What is wrong with a run: a traceback, a hang, too much memory, a code that means nothing, `nan`, infinity or less
than nothing in an answer, a terminal's escapes in what is printed, more than one line on bad input, a record that is no
JSON, an input file that is not what it was.

Everything runs in this process, so that hundreds of thousands of inputs are affordable; what would start compilers,
devices, other processes or servers is stopped where it begins.
"""

import contextlib
import importlib
import io
import json
import re
import resource
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from dragonscale.errors import REFUSED, sentence_of
from dragonscale.faces.cli.app import run

CODES = (0, 2, 3, 4)
LONGEST = 1500
"""Characters of a sentence that floods no terminal."""
MEMORY = 1 << 30
"""Bytes by which a process may grow over one input."""
STOPS = {
    "dragonscale.evidence.verify.comparing": "verify",
    "dragonscale.commands.run.run_train": "prepare_jax",
    "dragonscale.commands.run.run_rl": "prepare_jax",
    "dragonscale.commands.run.run_serve": "_serve",
    "dragonscale.commands.calibrate.ask_calibrate": "bench_with",
    "dragonscale.commands.sweep.ask_sweep": "sweep",
    "dragonscale.faces.cli.mcp.server": "serve",
    "dragonscale.web.server.page_serving": "listen",
}
"""What runs compilers, devices, other processes or servers: reached, a command line is well formed."""
MAY_BE_NEGATIVE = re.compile(
    r"bias|gain|growth|change|error|delta|difference|better|worse|saved|slope|correlation|score|tau|seed|(^|_)low(er)?_ape"
    r"|^\.(answers\.|names\.)?value$"  # of a calculation
)
_STRANGE = re.compile(r"(?<![\w./-])[-+]?(nan|inf)(?![\w./-])|(?<![\w.])inf(s|B|/s|FLOP)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


class Stopped(BaseException):
    """A command line that was understood, and would now do something that a test cannot."""


class Hang(BaseException):
    """An input that took too long."""


@dataclass
class Judge:
    """Runs inputs in a folder, and counts how they ended: by exit code, `stopped` or `defect`."""

    folder: Path
    limit: float = 120.0
    ends: Counter[str] = field(default_factory=Counter)

    def line(self, words: Sequence[str], spoilt: str = "") -> str:
        """What is wrong with the run of a command line, whose file may be spoilt; nothing, where all is well."""
        out, err = io.StringIO(), io.StringIO()

        def call() -> str:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(list(words))
            self.ends[str(code)] += 1
            echoed = _STRANGE.search(" ".join(words).replace("=", " ") + spoilt) is not None  # it is given back
            said = out.getvalue()
            if "--color=always" in words:  # colours, and no other escapes, were asked for
                said = re.sub(r"\x1b\[[0-9;]*m", "", said)
            return judged(code, said, err.getvalue(), "--json" in words, echoed)

        return self.calling(call)

    def reading(self, read: Callable[[], object]) -> str:
        """What is wrong with a call that reads something or refuses it in a sentence."""

        def call() -> str:
            try:
                read()
            except REFUSED as error:
                self.ends["2"] += 1
                return judged(2, "", f"dscale: {sentence_of(error)}", False)
            self.ends["0"] += 1
            return ""

        return self.calling(call)

    def calling(self, call: Callable[[], str]) -> str:
        """What is wrong with a call, which judges itself, or with how it ended."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            with _stopping(), _alarm(self.limit), warnings.catch_warnings(), contextlib.chdir(self.folder):
                warnings.simplefilter("error")
                problem = call()
        except Stopped:
            self.ends["stopped"] += 1
            problem = ""
        except Hang:
            problem = f"more than {self.limit:g} s"
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            problem = traceback.format_exc()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        problem = problem or (f"the process grew by {grown / 1e6:.0f} MB" if grown > MEMORY else "")
        self.ends["defect"] += bool(problem)
        return problem


def judged(code: int, out: str, err: str, as_json: bool, echoed: bool = False) -> str:
    """What is wrong with an answer."""
    if code not in CODES:
        return f"code {code}"
    if controls := control_in(out) or control_in(err):
        return controls
    if code == 2:
        told = [line for line in err.splitlines() if line.startswith("dscale: ")]
        if len(told) != 1 or not err.rstrip().endswith(told[0][-20:].rstrip()):
            return f"not one sentence: {err!r}"
        return "the sentence floods the terminal" if len(told[0]) > LONGEST else ""
    if "Traceback" in err or "Warning" in err:
        return f"stderr: {err!r}"
    if as_json and out.strip():
        return wrong_number(json.loads(out))
    if (strange := _STRANGE.search(out)) and not echoed:
        return f"{strange[0]!r} in {out[max(strange.start() - 200, 0) : strange.end() + 60]!r}"
    return ""


def control_in(text: str) -> str:
    """A control character beside tabs and ends of lines."""
    strange = _CONTROL.search(text.replace("\n", "").replace("\t", ""))
    return f"a control character {strange[0]!r} in {text[:200]!r}" if strange else ""


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
def _alarm(seconds: float) -> Iterator[None]:
    """Stop what takes longer: by the time that it computes, or ten times as long by the clock, as the machine may have
    other work."""

    def late(*_: Any) -> None:
        raise Hang

    clocks = {signal.ITIMER_PROF: (signal.SIGPROF, seconds), signal.ITIMER_REAL: (signal.SIGALRM, 10 * seconds)}
    before = {number: signal.signal(number, late) for number, _ in clocks.values()}
    for clock, (_, limit) in clocks.items():
        signal.setitimer(clock, limit, 1.0)
    try:
        yield
    finally:
        for clock in clocks:
            signal.setitimer(clock, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def report(line: Sequence[str], problem: str) -> str:
    """A failure as it can be repeated."""
    shown = " ".join(repr(word if len(word) < 300 else f"{word[:50]}…({len(word)})") for word in line)
    return f"dscale {shown}\n  {problem[-1500:]}"
