"""Examples in the README and docs: find them, run them, and put the real output back in.

An example is a line `$ dscale …` in a ```console block, followed by what it prints; `| grep PATTERN` (`-E`, `-v`, `-A
N`) and `| head -N` keep a part of it, as they do in a shell. A page's examples run one after the other in one empty
folder, so that a later one may read what an earlier one wrote; a block with `title="NAME"` is written there as that
file. `python -m tools.refresh_docs` rewrites every page (or those named) with fresh output, on all cores; the tests
only compare.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dragonscale.faces.cli import main

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_FENCED = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([\w.-]+)"')


@dataclass(frozen=True)
class Example:
    command: str
    output: str


def pages() -> list[Path]:
    """The README, the skill for agents and every page of the docs."""
    return [ROOT / "README.md", ROOT / "SKILL.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(text: str) -> list[Example]:
    """The commands of a page and the output it shows for each."""
    found: list[Example] = []
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1].rstrip() + " " + more.strip()
            if command.startswith("dscale "):
                found.append(Example(command, output.rstrip("\n")))
    return found


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed; `out` is what the filters behind it let through."""

    code: int
    out: str
    err: str


def run_example(command: str) -> str:
    """What a command prints: stdout, then stderr, trailing blanks removed. Files of `examples/` are found from
    anywhere.

    Behind `| grep …` or `| head -N` only what these let through of stdout.
    """
    ran = run_command(command)
    return (ran.out if len(_piped(shlex.split(command))) > 1 else ran.out + ran.err).rstrip("\n")


def run_command(command: str) -> Ran:
    """Run a command of an example in this process."""
    words, *filters = _piped(shlex.split(command)[1:])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(ROOT / word) if word.startswith("examples/") else word for word in words])
    if not filters:
        return Ran(code or 0, out.getvalue(), err.getvalue())
    lines = out.getvalue().splitlines()
    for tool, *rest in filters:
        assert tool in ("grep", "head"), f"only grep and head may follow a command: {command}"
        lines = _grep(lines, rest) if tool == "grep" else lines[: int(rest[-1].lstrip("-n"))]
    return Ran(code or 0, "\n".join(lines), err.getvalue())


def _piped(words: list[str]) -> list[list[str]]:
    """The words of a command and of each filter behind it."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


def _grep(lines: list[str], words: list[str]) -> list[str]:
    """What grep keeps: lines that match an extended pattern, with `-A N` those after each, with `-v` the others.

    >>> _grep(["a", "b", "c", "d", "a"], ["-A", "1", "a"]), _grep(["a", "", "b"], ["-v", "^$"])
    (['a', 'b', '--', 'a'], ['a', 'b'])
    """
    *flags, pattern = words
    after = int(flags[flags.index("-A") + 1]) if "-A" in flags else 0
    assert set(flags) <= {"-E", "-A", "-v", str(after)}, f"grep may have -E, -v and -A N: {words}"
    hits = [place for place, line in enumerate(lines) if bool(re.search(pattern, line)) != ("-v" in flags)]
    kept = sorted({place for hit in hits for place in range(hit, min(hit + after + 1, len(lines)))})
    found: list[str] = []
    for before, place in zip([None, *kept], kept, strict=False):
        if after and before is not None and place > before + 1:
            found.append("--")
        found.append(lines[place])
    return found


def extended(command: str) -> str:
    """A command whose grep says `-E` where its pattern needs it in a real shell.

    >>> extended('dscale chips | grep "a|b"'), extended("dscale chips | grep ab")
    ('dscale chips | grep -E "a|b"', 'dscale chips | grep ab')
    """
    return re.sub(
        r"""\| grep (?!-E)(?=(?:-\S+ (?:\d+ )?)*("[^"]*[|(+?{][^"]*"|'[^']*[|(+?{][^']*'))""", "| grep -E ", command
    )


def refreshed(text: str) -> str:
    """A page with every example's output replaced by the real one."""
    with _empty_folder():
        return _FENCED.sub(_fresh, text)


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own, contextlib.chdir(folder):
        os.environ["DRAGONSCALE_PROGRESS"] = str(Path(own) / "learnt.json")  # nobody has solved anything yet
        yield


def _fresh(block: re.Match[str]) -> str:
    """A block as it should be; one with a title is written as a file, one that is no console block is left as it is."""
    title = _TITLE.search(block["info"])
    if title:
        Path(title[1]).write_text(block["body"], encoding="utf-8")
    if block["info"] != "console":
        return block[0]
    parts = re.split(r"^\$ ", block["body"], flags=re.MULTILINE)
    new = [parts[0]]
    for part in parts[1:]:
        lines = part.split("\n")
        count = next(place for place, line in enumerate(lines) if not line.endswith("\\")) + 1
        command = " ".join(line.rstrip("\\").strip() for line in lines[:count])
        shown = extended("\n".join(lines[:count]))
        output = run_example(command) if command.startswith("dscale ") else "\n".join(lines[count:]).rstrip("\n")
        new.append(f"$ {shown}\n{output}\n" if output else f"$ {shown}\n")
    return "```console\n" + "".join(new) + "```"


def refresh(page: Path) -> tuple[bool, float]:
    """Rewrite a page; whether it changed, and the CPU seconds that it took."""
    start = time.process_time()
    text = page.read_text(encoding="utf-8")
    fresh = refreshed(text)
    if fresh != text:
        page.write_text(fresh, encoding="utf-8")
    return fresh != text, time.process_time() - start


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    # The longest first, so that no core is left with one at the end.
    chosen.sort(key=lambda page: -len(examples(page.read_text(encoding="utf-8"))))
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(chosen))) as pool:
        for page, (changed, seconds) in zip(chosen, pool.map(refresh, chosen), strict=True):
            if changed or seconds > 5:
                print(f"{'refreshed' if changed else 'unchanged'} {page.relative_to(ROOT)} ({seconds:.1f}s)")
