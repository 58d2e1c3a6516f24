"""Pools of workers that manifests start, read by the module of their engine: the first is the plan's, a second one
prefills for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.launchers.unwrap import labelled, told
from dragonscale.exports.source import Source
from dragonscale.physics.hardware import parse_target
from dragonscale.serving.plan_file import SavedPlan, SavedPrefill, read_serving_plan

Pool = tuple[str, Mapping[str, str], int, int]
"""A command, the labels of its nodes, the chips of one copy, and how many copies there are."""


def pools_read(
    source: Source, given: Given, pools: Sequence[Pool], read: Callable[[Source, Given], Imported]
) -> Imported:
    """The plan of the first pool, with the other as the one that prefills."""
    command, labels, chips, copies = pools[0]
    launch = labelled(source, labels, chips)
    if copies > 1 or source.kept.get("replicas"):
        launch["replicas"] = copies
    back = read(replace(source, text=told(source, {}, command), launch=launch), given)
    if len(pools) < 2 or not isinstance(back.file, SavedPlan):
        return back
    pool = _prefill(source, given, pools[1], read, back.file)
    notes = tuple(note for note in back.notes if "half of a pair" not in note)  # here is the other one
    return replace(back, file=replace(back.file, prefill=pool), notes=notes)


def _prefill(
    source: Source, given: Given, pool: Pool, read: Callable[[Source, Given], Imported], main: SavedPlan
) -> SavedPrefill:
    command, labels, chips, copies = pool
    said = source.kept.get("prefill", {})
    piece = str(labelled(Source(""), labels, chips).get("slice", "")) or _same_chip(main.slice, chips)
    kept = str(said.get("slice", ""))
    where = kept if kept and kept.rpartition(":")[2] == piece.rpartition(":")[2] else piece
    alone = Source(command + "\n", source.path, source.files)
    plan = read(alone, Given(given.model or main.model, where or given.slice)).file.plan
    text = str(said.get("plan", ""))
    same = bool(text) and read_serving_plan(text).plan == plan
    return SavedPrefill(where, text if same else str(plan), copies)


def _same_chip(piece: str, chips: int) -> str:
    """So many chips of the kind that the other pool has."""
    return f"{parse_target(piece)[0].name}:{chips}" if piece and chips else ""
