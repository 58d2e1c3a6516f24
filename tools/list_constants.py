"""The tables of shipped constants on the validation pages, and beside them what refits said of exactly these constants.

    python -m tools.list_constants         # seconds: `make docs` and `make validation` run it
    make refits                            # fits and scores anew, and writes tools/refits.json

What ships is read from `stacks.toml` and `engines.toml` as it is now. What a refit found (`tools.fit_stacks`,
`tools.fit_engines`) is kept in `tools/refits.json` with a fingerprint of the settings that it started from. Where these
have changed since, its numbers are of something else: the page shows dashes for a stack or engine, and says so under a
table of all of them."""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.serving.engine.engine import engines
from dragonscale.training.plan.stack import stacks
from tools.refit import FreeConstant, Refit, free_constants, get, lines_of

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tools" / "refits.json"
PAGES = {kind: ROOT / "docs" / f"validation-{kind}.md" for kind in ("training", "inference", "serving")}
BLOCKS = {"training": ("errors",), "inference": ("errors",), "serving": ("errors", "halves")}
"""Tables of all runs of a page at the shipped constants, or with some of them settled anew."""
ERRORS = ("shipped", "refitted", "every second left out", "chips left out", "sources left out")
CHANGED = "Constants have changed since these errors were computed; `make refits` computes them anew."
_TOLD = ("name", "why", "base", "measured", "title", "release", "defaults_release", "length_flag", "checks_length")
"""Fields of a stack or engine that say something about it and change no prediction."""


class RefitLine(msgspec.Struct):
    """Errors of one kind of number (TPOT, TTFT; empty where there is one kind), each a median and a mean, in the order
    of `ERRORS`."""

    what: str
    runs: int
    errors: list[str]


class KeptRefit(msgspec.Struct):
    """What a fit found of the stack or engine with this fingerprint; constants by their paths."""

    fingerprint: str
    refitted: dict[str, float]
    lines: list[RefitLine]


class KeptTable(msgspec.Struct):
    """A table of all runs of a page, with the fingerprints of the stacks or engines that these runs are of."""

    text: str
    fingerprints: dict[str, str] = {}


class KeptPage(msgspec.Struct):
    """All of a page."""

    refits: dict[str, KeptRefit] = {}
    tables: dict[str, KeptTable] = {}


def read_kept() -> dict[str, KeptPage]:
    """What fits have found, by page."""
    found = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, KeptPage]) if KEPT.exists() else {}
    return {kind: found.get(kind, KeptPage()) for kind in PAGES}


def write_kept(kept: dict[str, KeptPage]) -> None:
    """Keep what fits have found."""
    text = json.dumps(msgspec.to_builtins(kept), indent=1, ensure_ascii=False)
    KEPT.write_text(f"{text}\n", encoding="utf-8")


def keep(
    kind: str, refits: Sequence[Refit], blocks: Mapping[str, str], names: Iterable[str], write: bool, some: bool = False
) -> None:
    """Show what fits found and, if asked, keep it and write the pages. `blocks` are tables of runs of the stacks or
    engines called `names`; `some` of these were refitted, not all."""
    each = {name: fingerprint(records_of(kind)[name]) for name in sorted(names)}
    new = KeptPage({one.name: _kept(kind, one) for one in refits}, {})
    new.tables = {name: KeptTable(text, each) for name, text in blocks.items()}
    for name, text in tables(kind, new).items():
        if refits or name in blocks:
            print(f"\n{text}")
    if write:
        kept = read_kept()
        before = kept[kind].refits if some or not refits else {}
        kept[kind] = KeptPage({**before, **new.refits}, {**kept[kind].tables, **new.tables})
        write_kept(kept)
        main()


def _kept(kind: str, found: Refit) -> KeptRefit:
    free = found.responses.free
    refitted = {one.path: float(value) for one, value in zip(free, found.constants, strict=True)}
    lines = [RefitLine(*line) for line in lines_of(found)]
    return KeptRefit(fingerprint(records_of(kind)[found.name], free), refitted, lines)


def records_of(kind: str) -> dict[str, Any]:
    """The stacks or engines that a page is of, as they ship."""
    return stacks() if kind == "training" else engines()


def free_of(kind: str) -> dict[str, tuple[FreeConstant, ...]]:
    """Which of their constants are free."""
    return free_constants("stacks" if kind == "training" else "engines")


def fingerprint(record: Any, free: Sequence[FreeConstant] = ()) -> str:
    """Of the settings of a stack or engine that are not the defaults, and of the bounds of what is free: a setting that
    is added with a default changes none."""
    own, plain = msgspec.to_builtins(record), msgspec.to_builtins(type(record)())
    said = {name: _differing(value, plain[name]) for name, value in own.items() if name not in _TOLD}
    bounds = [[one.path, one.low, one.high] for one in free]
    text = json.dumps(
        [{name: value for name, value in said.items() if value not in (None, {})}, bounds], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _differing(value: Any, plain: Any) -> Any:
    if isinstance(value, dict) and isinstance(plain, dict):
        found = {name: _differing(one, plain.get(name)) for name, one in value.items()}
        return {name: one for name, one in found.items() if one is not None}
    return None if value == plain else value


def current(kind: str, name: str, kept: KeptPage) -> KeptRefit | None:
    """What a fit found of a stack or engine as it ships; none if it has changed since."""
    found, free = kept.refits.get(name), free_of(kind)[name]
    same = found is not None and found.fingerprint == fingerprint(records_of(kind)[name], free)
    return found if same else None


def constants_table(kind: str, kept: KeptPage) -> str:
    """Every free constant of the stacks or engines that were fitted for a page: its bounds, as
    shipped, and refitted."""
    lines = ["| | constant | bounds | shipped | refitted |", "|---|---|---|---|---|"]
    for name, free in free_of(kind).items():
        if name not in kept.refits:
            continue
        found, label = current(kind, name, kept), f"`{name}`"
        for one in free:
            value = f"{found.refitted[one.path]:.3g}" if found else "–"
            shipped = get(records_of(kind)[name], one.path)
            lines.append(f"| {label} | `{one.path}` | {one.low:g} to {one.high:g} | {shipped:g} | {value} |")
            label = ""
    return "\n".join(lines)


def errors_table(kind: str, kept: KeptPage) -> str:
    """Median and mean errors at the shipped constants, at the refitted ones, and on runs that were left out."""
    lines = [f"| | runs | {' | '.join(ERRORS)} |", "|---" * (len(ERRORS) + 2) + "|"]
    for name in (one for one in free_of(kind) if one in kept.refits):
        found = current(kind, name, kept)
        for line in kept.refits[name].lines:
            errors = line.errors if found else ["–" for _ in ERRORS]
            label = f"`{name}`" + (f", {line.what}" if line.what else "")
            lines.append(f"| {label} | {line.runs} | {' | '.join(errors)} |")
    return "\n".join(lines)


def tables(kind: str, kept: KeptPage) -> dict[str, str]:
    """The tables of a page by the names of their places."""
    found = {"held out": errors_table(kind, kept), "constants": constants_table(kind, kept)}
    for name in BLOCKS[kind]:
        if name in kept.tables:
            table, known = kept.tables[name], records_of(kind)
            same = [one in known and fingerprint(known[one]) == own for one, own in table.fingerprints.items()]
            found[name] = table.text if same and all(same) else f"{table.text}\n\n{CHANGED}"
    return found


def page(kind: str, text: str, kept: KeptPage) -> str:
    """A page with its tables as they are now."""
    for name, table in tables(kind, kept).items():
        text = with_block(text, name, table)
    return text


def with_block(text: str, name: str, table: str) -> str:
    """A page with a table between `<!-- name -->` and `<!-- end -->`."""
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"The page has no place called {name!r}.")
    return pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def main() -> int:
    """Write the tables of all pages."""
    kept = read_kept()
    for kind, path in PAGES.items():
        path.write_text(page(kind, path.read_text(encoding="utf-8"), kept[kind]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
