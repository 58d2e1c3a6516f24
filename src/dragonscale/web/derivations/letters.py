"""What the letters of a plan's formulas stand for and where their numbers come from, by the table `letters.toml`."""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.plan.letters import Letters
from dragonscale.tables import Strict
from dragonscale.web.derivations.pieces import Piece, fact_origin, letter


class StackRule(Strict, frozen=True):
    """How the planner works a term out (`training.passes`, `training.step`), and the stack's constants in that."""

    rule: str
    constants: tuple[str, ...]


class LetterTable(Strict, frozen=True):
    """Letters of models, workloads and mesh axes in words; rates by the chip's facts; rules of stacks by term."""

    model: dict[str, str]
    work: dict[str, str]
    axes: dict[str, str]
    rates: dict[str, tuple[str, str]]
    rules: dict[str, StackRule]


@functools.cache
def letter_table() -> LetterTable:
    text = Path(__file__).with_name("letters.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), LetterTable)


def letters_of(letters: Letters, chip: Chip, model: str, work: Mapping[str, str] | None = None) -> Iterator[Piece]:
    """A row for each letter; one that has a number behind its name is another size of the same kind."""
    table, config = letter_table(), f"the model's config ({model})"
    works = table.work | dict(work or {})
    for name, value in letters.values.items():
        bare, number = name.rstrip("0123456789") or name, f"{value:,.6g}"
        if name in letters.fitted:
            yield letter(name, number, *letters.fitted[name])
        elif name in works or bare in works:
            origin = "the plan" if bare in ("mb", "virtual") else "the workload that was asked"
            yield letter(name, number, works.get(name, works.get(bare, "")), origin)
        elif bare in table.model or bare.startswith("L_"):
            yield letter(name, number, table.model.get(bare, f"layers of the kind {bare[2:]}"), config)
        elif bare in table.axes:
            yield letter(name, number, table.axes[bare], "the plan")
        elif name.startswith(("C", "W", "t_")):
            yield _rate(name, value, chip)
        else:
            yield letter(name, number, f"the model's dim {name}", config)


def _rate(name: str, value: float, chip: Chip) -> Piece:
    """A rate of the chip, with the source that its file names."""
    kind, _, rest = name.partition("_")
    unit = {"C": "FLOP/s", "t": "s"}.get(kind, "bytes/s")
    if kind == "C":
        path, what = f"matrix.{rest or 'bf16'}", f"peak of the matrix unit in {rest or 'bf16'}"
    elif rest in letter_table().rates:
        path, what = letter_table().rates[rest]
    elif f"memory.{rest}.bandwidth" in chip.facts:
        path, what = f"memory.{rest}.bandwidth", f"bandwidth of {rest}"
    else:
        key = "latency" if kind == "t" else "bandwidth"
        path, what = f"levels.{rest}.{key}", f"{key} between a {rest} and what is under it, one way"
    return letter(name, render(value, unit), what, fact_origin(chip, path))
