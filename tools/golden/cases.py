"""The cases: a line each, so that a difference can be asked again by hand.

A line is `dscale …` (answered with `--json` where the command has it), several joined by ` && ` in one folder, or
`page {…}`, a request of the page.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SEEDS = 20
_FILE = re.compile(r"[\w/-]+\.(toml|json|csv|md|log|pb|gz|txt|yaml|yml|sh|svg|html|hlo|sqlite)\b| [|>] |…|\\$")
"""What an example of the docs cannot be repeated with alone: files that its page wrote, and what a shell does."""


def cases() -> list[str]:
    """Every case once, in a fixed order."""
    lines = [*_documented(), *_combined(), *_exports(), *_pages(), *_problems()]
    return list(dict.fromkeys(lines))


def _table() -> dict:
    return tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))


def _documented() -> Iterator[str]:
    """The commands of README and docs that stand alone; of the many of `calc` every tenth."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = [line for page in pages for line in re.findall(r"^\$ (dscale .*)$", page.read_text(encoding="utf-8"), re.M)]
    alone = [line for line in shown if not _FILE.search(line) and not line.startswith(("dscale run", "dscale verify"))]
    calc = [line for line in alone if line.startswith("dscale calc")]
    yield from (line for line in alone if not line.startswith("dscale calc"))
    yield from calc[::10]


def _combined() -> Iterator[str]:
    """Rows of `cases.toml`: a line, or a line with places to fill in from lists."""
    table = _table()
    yield from table["lines"]
    for row in table["each"]:
        lines = [row["line"]]
        for name, values in row.items():
            if name != "line":
                lines = [line.replace(f"{{{name}}}", value) for line in lines for value in values]
        yield from lines


def _exports() -> Iterator[str]:
    """Each target by each launcher, for the plans that are listed for its kind."""
    table = _table()["exports"]
    for group in table["groups"]:
        for target in group["targets"]:
            for launcher in ("", *(f",{name}" for name in table["launchers"])):
                for plan in group["plans"]:
                    yield f"{plan} --save plan.toml && dscale export plan.toml --to {target}{launcher}"


def _pages() -> Iterator[str]:
    for request in _table()["page"]:
        yield "page " + json.dumps(request)


def _problems() -> Iterator[str]:
    """Every problem with its own numbers and fresh ones, solved."""
    for problem in (HERE / "problems.txt").read_text(encoding="utf-8").split():
        for seed in range(SEEDS):
            yield f"dscale learn {problem} --seed {seed} --solution --hint --progress none.json"


def words_of(command: str) -> list[str]:
    """The arguments of a command, without the leading `dscale`."""
    return shlex.split(command)[1:]
