"""Score the committed sweep again: `python -m tools.rescore_sweep`.

What the compilers made of every program of `docs/data/verify_sweep.toml` is kept
(`tests/evidence/data/verify_made.jsonl.gz`). This lays the planned side of today beside it and writes the table of
`docs/verify.md` and its CSV, without compiling anything.
"""

import gzip
from pathlib import Path

import msgspec

from dragonscale.commands.sweep.sweep_records import SweepReport
from dragonscale.commands.sweep.sweep_tables import save_table
from dragonscale.evidence.verify.comparing import compare
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import Made, Request, flat, score

ROOT = Path(__file__).parents[1]
MADE = ROOT / "tests" / "evidence" / "data" / "verify_made.jsonl.gz"


class Compiled(msgspec.Struct):
    """A request and what a compiler made of it."""

    request: Request
    made: Made


def rescore() -> SweepReport:
    """The whole sweep as a report."""
    known = [msgspec.json.decode(line, type=Compiled) for line in gzip.decompress(MADE.read_bytes()).splitlines()]
    rows = [flat(compare(each.request, plan_of(each.request), each.made)) for each in known]
    plain = [{"command": "verify", **msgspec.to_builtins(row), "answer_s": 0.0, "failed": ""} for row in rows]
    return SweepReport("docs/data/verify_sweep.toml", len(rows), len(rows), 0, 0, 0.0, plain, score(rows))


if __name__ == "__main__":
    report = rescore()
    for path in ("docs/data/verify_sweep.csv", "docs/verify.md"):
        save_table(report, str(ROOT / path))
    assert report.verify is not None
    for spread in report.verify.spreads:
        print(f"{spread.name}: median {spread.median:.2%}, worst {spread.worst:.2%} ({spread.worst_row})")
