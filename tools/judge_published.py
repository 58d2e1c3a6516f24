"""Published commands and configs, read and judged: docs/data/published.tsv, which docs/published.md shows on the site.

    python -m tools.judge_published

reads `tests/exports/published/*.toml` and writes a row for each run: what it is read as, what is expected of it, and
what the planner would change. Searches are bounded as `dscale train --plan` bounds them; the whole takes some minutes.
"""

import csv
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.target import TARGETS
from dragonscale.physics.units import render
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.plan.plan_file import TrainingFile

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "tests" / "exports" / "published"
PAGE, DATA = ROOT / "docs" / "published.md", ROOT / "docs" / "data" / "published.tsv"
BEGIN, END = "<!-- judged -->\n", "<!-- /judged -->"
COLUMNS = ("kind", "software", "run", "read as", "plan", "expected", "what the planner says")


def rows(kind: str) -> list[list[str]]:
    """The cells of every run of a kind of target."""
    judged: list[list[str]] = []
    for target in (target for target in TARGETS.values() if target.kind == kind):
        path = PUBLISHED / f"{target.name}.toml"
        for run in tomllib.loads(path.read_text(encoding="utf-8"))["run"] if path.exists() else []:
            judged.append([kind, *_cells(target.title, run)])
            print(*judged[-1], file=sys.stderr)
    return judged


def _cells(title: str, run: dict[str, Any]) -> list[str]:
    read = read_plan(run["text"], Given(run.get("model", ""), run["on"]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "run.toml")
        file = read.file
        try:
            if isinstance(file, TrainingFile):  # what a config leaves to its script
                file = replace(file, batch=file.batch or run.get("batch", 0), seq=file.seq or run.get("seq", 0))
            expected, better = _training(file, path) if isinstance(file, TrainingFile) else _serving(run, path)
        except InputError as error:
            expected, better = str(error).replace("|", "/"), ""
    plan = short_plan(file.plan) if isinstance(file, TrainingFile) else str(file.plan).replace(",", " ")
    if isinstance(file, TrainingFile) and file.method:
        plan += f" {file.method}" + (f" rank {file.lora_rank}" if file.lora_rank else "")
    cells = [title, f"{run['name']} ({run['source']})", f"{file.model} on {file.slice}", f"`{plan}`", expected, better]
    return [" ".join(cell.split()) for cell in cells]


def _training(file: TrainingFile, path: Path) -> tuple[str, str]:
    from dragonscale.training.plan.plan_file import save_training_file

    save_training_file(file, path)
    report = ds.train(plan=str(path))
    given = report.plans[0]
    if not given.feasible:
        return f"does not run: {'; '.join(given.problems)}", report.comparison
    band = f"{render(given.step_low_s, 's')} to {render(given.step_high_s, 's')}"
    return f"{render(given.step_s, 's')} a step ({band}), MFU {given.mfu:.1%}", report.comparison


def _serving(run: dict[str, Any], path: Path) -> tuple[str, str]:
    path.with_suffix(".sh").write_text(run["text"], encoding="utf-8")
    words = {"model": run["model"]} if run.get("model") else {}
    report = ds.serve(plan=run["text"], on=run["on"], **words, **run.get("traffic", {}))
    if not report.configs:
        return f"does not run: {' '.join(report.notes)}", report.comparison
    best = report.configs[0]
    return (
        (
            f"TTFT {render(best.ttft_s, 's')}, TPOT {render(best.tpot_s, 's')}, "
            f"{best.output_tokens_per_s_per_chip:,.0f} tok/s a chip"
        ),
        report.comparison,
    )


def page(text: str) -> str:
    """The page with a table for training and one for serving, from what is kept."""
    with DATA.open(encoding="utf-8", newline="") as file:
        judged = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    head = f"| {' | '.join(COLUMNS[1:])} |\n|{'---|' * len(COLUMNS[1:])}"
    parts = []
    for kind in ("training", "serving"):
        lines = [" | ".join(row[name] for name in COLUMNS[1:]) for row in judged if row["kind"] == kind]
        parts.append("\n".join([f"## {kind.capitalize()}\n\n{head}", *(f"| {line} |" for line in lines)]))
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + "\n" + "\n\n".join(parts) + "\n\n" + text[end:]


def main() -> int:
    """Judge every run and keep what came of it."""
    lines = [COLUMNS, *rows("training"), *rows("serving")]
    DATA.write_text("\n".join("\t".join(line) for line in lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
