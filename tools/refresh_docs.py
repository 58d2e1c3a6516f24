"""Examples in the README and docs: find them, run them, and put the real output back in.

An example is a line `$ dscale …` in a ```console block, followed by what it prints; `| grep PATTERN` keeps the lines
that match. `python -m tools.refresh_docs` rewrites every page (or those named) with fresh output; the tests only compare.
"""

import contextlib
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from dragonscale.cli import main

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


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


def run_example(command: str) -> str:
    """What a command prints: stdout, then stderr, trailing blanks removed. Files of `examples/` are found from anywhere.

    With `| grep PATTERN` (an extended pattern, as `grep -E` reads it) only the lines of stdout that match.
    """
    words = shlex.split(command)[1:]
    pattern = None
    if "|" in words:
        place = words.index("|")
        (tool, *flags, pattern), words = words[place + 1 :], words[:place]
        assert tool == "grep", f"only grep may follow a command: {command}"
        assert set(flags) <= {"-E"}, f"grep takes -E alone: {command}"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([str(ROOT / word) if word.startswith("examples/") else word for word in words])
    if pattern is not None:
        return "\n".join(line for line in out.getvalue().splitlines() if re.search(pattern, line))
    return (out.getvalue() + err.getvalue()).rstrip("\n")


def refreshed(text: str) -> str:
    """A page with every example's output replaced by the real one."""

    def fresh(match: re.Match[str]) -> str:
        parts = re.split(r"^\$ ", match[1], flags=re.MULTILINE)
        new = [parts[0]]
        for part in parts[1:]:
            lines = part.split("\n")
            count = next(place for place, line in enumerate(lines) if not line.endswith("\\")) + 1
            command = " ".join(line.rstrip("\\").strip() for line in lines[:count])
            shown = "\n".join(lines[:count])
            output = run_example(command) if command.startswith("dscale ") else "\n".join(lines[count:]).rstrip("\n")
            new.append(f"$ {shown}\n{output}\n")
        return "```console\n" + "".join(new) + "```"

    return _BLOCK.sub(fresh, text)


def broken_links(page: Path) -> list[str]:
    """Links of a page to files that do not exist."""
    targets = [link for link in _LINK.findall(page.read_text()) if "://" not in link]
    return [link for link in targets if not (page.parent / link).exists()]


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        text = page.read_text()
        fresh = refreshed(text)
        page.write_text(fresh)
        print(f"{'refreshed' if fresh != text else 'unchanged'} {page.relative_to(ROOT)}")
