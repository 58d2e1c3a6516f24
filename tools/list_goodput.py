"""What is published of failures and goodput beside what the planner says of the same runs: the table of
docs/goodput.md.

    python -m tools.list_goodput
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import DAY
from dragonscale.training.cost.goodput import Conditions, Run, run_goodput

ROOT = Path(__file__).parents[1]
RUNS, PAGE = Path(__file__).with_name("goodput_runs.toml"), ROOT / "docs" / "goodput.md"
BEGIN, END = "<!-- runs -->", "<!-- /runs -->"
STATE_BYTES = 14
"""Of a parameter under Adam: weights in bf16, a master copy and two moments in fp32."""


def runs() -> list[dict[str, Any]]:
    """The published runs."""
    return tomllib.loads(RUNS.read_text(encoding="utf-8"))["run"]


def planned(row: dict[str, Any]) -> Run:
    """A run as the planner has it: as many days on a calendar as were published."""
    given = Conditions(**{name: row[name] for name in ("every", "storage", "waits", "restart") if name in row})
    piece, size = parse_slice(row["on"]), STATE_BYTES * row["parameters"]
    share = run_goodput(piece, row["days"] * DAY, size, given).goodput
    return run_goodput(piece, row["days"] * DAY * share, size, given)


def said(row: dict[str, Any]) -> str:
    """What the planner says of it, in the words of its source."""
    run = planned(row)
    hours = 1 / run.rate / 3600
    return row["say"].format(
        failures=run.failures,
        weekly=run.rate * 7 * DAY,
        mtbf=hours,
        mtbf_min=hours * 60,
        goodput=run.goodput,
        lost=1 - run.goodput,
        save=run.save_s,
        saving=run.save_s / (run.interval_s + run.save_s),
    )


def table() -> str:
    """The table in Markdown."""
    rows = [f"| {row['name']} | {row['published']} | {said(row)} |" for row in runs()]
    return "\n".join(["| run | published | the planner |", "|---|---|---|", *rows])


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(f"(?s){BEGIN}.*{END}", f"{BEGIN}\n{table()}\n{END}", page), encoding="utf-8")
