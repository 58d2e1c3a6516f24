"""What the letters of a plan's formulas stand for and where their numbers come from, by `letter_meanings.toml`."""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dragonscale.physics.hardware import Chip
from dragonscale.physics.provenance import fact_origin
from dragonscale.physics.units import render
from dragonscale.plan.letters import Letters
from dragonscale.tables import Strict


class LetterTable(Strict, frozen=True):
    """Letters of models, workloads and mesh axes in words; of rates the chip's fact and what it is."""

    model: dict[str, str]
    work: dict[str, str]
    axes: dict[str, str]
    rates: dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Letter:
    """A letter of a formula: its value as text, what it is, and where the value comes from."""

    letter: str
    value: str
    what: str
    origin: str


@functools.cache
def letter_table() -> LetterTable:
    """The table, read once."""
    text = Path(__file__).with_name("letter_meanings.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), LetterTable)


def letter_meanings(
    letters: Letters, chip: Chip, model: str, work: Mapping[str, str] | None = None
) -> Iterator[Letter]:
    """Every letter with its meaning; `work` are words for letters of the workload that go before the table's."""
    table, config = letter_table(), f"the model's config ({model})"
    work_words = {**table.work, **(work or {})}
    for name, value in letters.values.items():
        # a count behind a letter (D2) names another size of the same kind
        bare, text = name.rstrip("0123456789") or name, f"{value:,.6g}"
        if name in letters.fitted:
            what, origin = letters.fitted[name]
            yield Letter(name, text, what, origin)
        elif name in work_words or bare in work_words:
            # how the plan cuts the batch is its own choice; the rest of the workload was asked for
            origin = "the plan" if bare in ("mb", "virtual") else "the workload that was asked"
            yield Letter(name, text, work_words.get(name, work_words.get(bare, "")), origin)
        elif bare in table.model or bare.startswith("L_"):
            yield Letter(name, text, table.model.get(bare, f"layers of the kind {bare[2:]}"), config)
        elif bare in table.axes:
            yield Letter(name, text, table.axes[bare], "the plan")
        elif name.startswith(("C", "W", "t_")):
            yield _rate(name, value, chip)
        else:
            yield Letter(name, text, f"the model's dim {name}", config)


def _rate(name: str, value: float, chip: Chip) -> Letter:
    """A rate or latency of the chip (`C` FLOP/s, `W_leaf` bytes/s, `t_leaf` seconds), cited as the chip's file
    does."""
    kind, _, rest = name.partition("_")  # a dtype after C, otherwise a memory level or a tier of the network
    unit = {"C": "FLOP/s", "t": "s"}.get(kind, "bytes/s")
    if kind == "C":
        dtype = rest or "bf16"
        path, what = f"matrix.{dtype}", f"peak of the matrix unit in {dtype}"
    elif rest in letter_table().rates:
        path, what = letter_table().rates[rest]
    elif f"memory.{rest}.bandwidth" in chip.facts:
        path, what = f"memory.{rest}.bandwidth", f"bandwidth of {rest}"
    else:
        quantity = "latency" if kind == "t" else "bandwidth"
        path, what = f"levels.{rest}.{quantity}", f"{quantity} between a {rest} and what is under it, one way"
    return Letter(name, render(value, unit), what, fact_origin(chip, path))
