"""What an import comes to: a plan file's content, and what was made of the words it was read from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.exports.source import Source
from dragonscale.physics.hardware import Slice, load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.units import parse
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.plan_file import TABLES, SavedPlan
from dragonscale.training.plan import Plan
from dragonscale.training.plan_file import TrainingFile


@dataclass(frozen=True)
class Given:
    """What the user says beside the file: it wins over what the file says."""

    model: str = ""
    slice: str = ""


@dataclass(frozen=True)
class Imported:
    """A plan as its file holds it. `notes` say how it was read; `ignored` are options that change nothing that is
    planned (paths, logging, seeds); `unplanned` those that would and that the planner has no word for; `unknown` names
    that the software's version does not have."""

    target: str
    version: str
    file: TrainingFile | SavedPlan
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unplanned: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def slice_given(source: Source, given: Given, chips: int = 0) -> Slice | None:
    """The slice that is said: by the user, or by the header of an export. A chip alone takes the number of chips that
    the config is for; of TPUs, the smallest torus of so many."""
    text = given.slice or str(source.kept.get("slice", ""))
    if not text:
        return None
    if chips and is_chip(text):
        return parse_slice(f"{chips}x{text}" if load_chip(text).kind == "tpu" else f"{text}:{chips}")
    return parse_slice(text)


def slice_counted(source: Source, given: Given, chips: int) -> Slice | None:
    """`slice_given` for software that runs on as many chips as it is started on: a chip alone says nothing of their
    number, where the config does not say it either."""
    text = given.slice or str(source.kept.get("slice", ""))
    if text and not chips and is_chip(text):
        raise needs("how many chips it is for", f"them by --on, such as {text}:8", source)
    return slice_given(source, given, chips)


def needs(what: str, how: str, source: Source) -> InputError:
    """That a config does not say something that a plan needs."""
    return InputError(f"{source.shown} does not say {what}; give {how}.")


def training_file(
    source: Source, given: Given, plan: Plan, batch: int, seq: int, model: str, stack: str
) -> TrainingFile:
    """A training plan's file, with what the header of an export keeps; a stack of the header counts where it is one of
    the software's own (`megatron-2024` for `megatron-core`)."""
    kept = source.kept
    words: dict[str, Any] = {name: str(kept.get(name, "")) for name in ("slice", "tokens", "price", "documents")}
    words["slice"] = given.slice or words["slice"]
    numbers: dict[str, Any] = {name: float(kept.get(name, 0) or 0) for name in ("skew", "capacity")}
    return TrainingFile(
        plan,
        model=given.model or model or str(kept.get("model", "")),
        stack=str(kept.get("stack", "")) or stack,
        batch=batch,
        seq=seq,
        named=frozenset(PLAN_FIELDS),
        **words,
        **numbers,
    )


def run_tokens(kept: str, steps: int, step: int) -> str:
    """The tokens of a run of so many steps, as a plan file writes them: those of the header where they come to these
    steps.

    >>> run_tokens("15T", 3_576_279, 4_194_304), run_tokens("", 375_000, 4_194_304), run_tokens("15T", 7, 1001)
    ('15T', '1.572864T', '7007')
    """
    text = kept.strip()
    if not steps or not step:
        return kept
    if text and text != "chinchilla" and max(round(parse(text, "count", "the tokens") / step), 1) == steps:
        return kept
    for mark, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        short = f"{steps * step / size:.12g}{mark}"
        if steps * step >= size and len(short) < 12 and parse(short, "count", "the tokens") == steps * step:
            return short
    return str(steps * step)


PLAN_FIELDS = tuple(Plan.__dataclass_fields__)
SERVING_FIELDS = tuple(ServingPlan.__dataclass_fields__)


def serving_file(
    source: Source, given: Given, plan: ServingPlan, model: str, engine: str, **said: Mapping[str, Any] | int
) -> SavedPlan:
    """A serving plan's file, with what the header of an export keeps. `said` are tables (`launch`, `traffic`, …) and
    counts that the config itself says; they win over the header."""
    kept = source.kept
    tables: dict[str, Any] = {}
    for name, record in TABLES.items():
        own = said.get(name, {})
        values = {**kept.get(name, {}), **(own if isinstance(own, Mapping) else {})}
        tables[name] = msgspec.convert({key: value for key, value in values.items() if value is not None}, record)
    counts = {name: int(said.get(name) or kept.get(name, 0) or 0) for name in ("batch", "replicas")}  # pyright: ignore[reportArgumentType]
    piece = given.slice or str(kept.get("slice", ""))
    piece = str(slice_given(source, given, plan.chips)) if is_chip(piece) else piece
    return SavedPlan(
        plan,
        model=given.model or model or str(kept.get("model", "")),
        slice=piece,
        engine=str(kept.get("engine", "")) or engine,
        named=frozenset(SERVING_FIELDS),
        **counts,
        **tables,
    )


def left_over(names: Iterable[str], harmless: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that were not read, as those that change nothing and those that would."""
    fine = set(harmless)
    every = [*dict.fromkeys(names)]
    return tuple(one for one in every if one in fine), tuple(one for one in every if one not in fine)


def with_slice(imported: Imported, piece: Slice | None) -> Imported:
    """The same on a slice."""
    if piece is None:
        return imported
    return replace(imported, file=replace(imported.file, slice=str(piece)))
