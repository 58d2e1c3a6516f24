"""Write the bands of expected step times from measured training runs.

    python -m tools.fit_bands            # print them, and how they hold for sources left out
    python -m tools.fit_bands --write    # and write src/dragonscale/training/errors.toml

How is told in `dragonscale/evidence/training_bands.py`. `generic` is no stack that was measured: every run is judged by
it too."""

import argparse
from collections import defaultdict
from dataclasses import replace

from dragonscale.evidence.rows import attempt
from dragonscale.evidence.training import predict, residual, training_runs
from dragonscale.evidence.training_bands import Residual, best_tail, kinds_of, left_out
from dragonscale.training.bands import LEAST, UNNAMED
from dragonscale.training.evaluation import first
from tools.refit import MEASURED, ROOT

FILE = MEASURED / "training.csv.gz"
TABLE = ROOT / "src" / "dragonscale" / "training" / "errors.toml"
HEAD = """\
# How far measured training runs were from what was expected of them, by kind of run: dense or moe, chip, family of the stack.
# low and high: four of five runs took 1 + low to 1 + high times the expected seconds. tail: the part of the runs that is left
# outside on each side so that this holds for sources that were left out. Written by `python -m tools.fit_bands --write` from
# docs/data/measured/training.csv.gz.

"""


def residuals(stack: str = "") -> list[Residual]:
    """How far every run is from its expected seconds, by its own stack or another."""
    runs, reasons = training_runs(FILE, stack)
    found = [residual(done[0], first(done[1].seconds)) for _, done in attempt(runs, predict, reasons)]
    return [replace(one, kind=replace(one.kind, stack=stack)) for one in found] if stack else found


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the bands of expected step times from measured runs.")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    own = residuals()
    tail = best_tail(own)
    kinds = kinds_of(own, tail)
    held: dict[str, list[bool]] = defaultdict(list)
    for stack in UNNAMED:
        unnamed = residuals(stack)
        kinds |= {name: row for name, row in kinds_of(unnamed, tail).items() if name.endswith(f" {stack}")}
        held[stack] = left_out(unnamed, tail)
    for one, inside in zip(own, left_out(own, tail), strict=True):
        held["all"].append(inside)
        held[one.kind.names[1]].append(inside)
    for name, some in sorted(held.items()):
        print(f"{name:<20} {len(some):4d} runs, {sum(some) / len(some):.0%} inside with their source left out")
    rows = (
        f'"{name}" = {{ runs = {int(row["runs"])}, low = {row["low"]:.3f}, high = {row["high"]:.3f} }}\n'
        for name, row in kinds.items()
        if row["runs"] >= LEAST
    )
    text = f"{HEAD}tail = {tail}\n\n[kinds]\n{''.join(rows)}"
    if options.write:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
