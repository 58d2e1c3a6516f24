"""Limits that commands of engines say (sequences, tokens, lengths, shares of memory), and the notes that all engines
have in common."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.exports.engines.schemes import plain_name
from dragonscale.exports.imported import Given, Imported, Source, left_over, serving_file, slice_given, with_slice
from dragonscale.exports.keys import ReadFlags, load_keys
from dragonscale.exports.terms import load_terms
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice, parse_slice, parse_target
from dragonscale.serving.launch import engine_on
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.plan_file import SavedPlan

TERMS = load_terms("checkpoints")


def of_chips(given: Given, chips: int) -> Given:
    """A TPU that is given alone (`v6e`) as the slice of so many chips that the cloud has."""
    alone = bool(given.slice) and parse_target(given.slice)[1] is None
    return replace(given, slice=str(parse_slice(f"{chips}x{given.slice}"))) if alone else given


def launch_read(
    source: Source, given: Given, engine: str, plan: ServingPlan, model: str, **limits: float | None
) -> dict[str, float]:
    """The limits that a command says (`max_seqs`, `token_budget`, `memory_fraction`), as a plan file holds them: what
    the engine would have taken on that chip anyway, or what the planned batch asks for, is not said."""
    kept = source.kept.get("launch", {})
    usual: dict[str, float] = {}
    piece = slice_given(source, given, plan.chips)
    if piece is not None and model:
        launched = engine_on(engine, piece.chip, load_model(model), None, plan.chips, plan)
        usual = {
            "max_seqs": launched.scheduling.max_sequences,
            "token_budget": launched.scheduling.max_tokens,
            "memory_fraction": launched.memory.share,
        }
    if batch := source.kept.get("batch"):
        usual["max_seqs"] = max(-(-int(batch) // plan.data), 1)
    said = {name: value for name, value in limits.items() if value is not None}
    return {name: value for name, value in said.items() if value == kept.get(name) or value != usual.get(name)}


def beyond_context(flag: str, length: object, model: Transformer, refuses: str) -> list[str]:
    """A note on requests that are longer than a model was made for; `refuses` says what the engine does then."""
    text = str(length).strip()
    if not text.isdecimal() or not model.context or int(text) <= model.context:
        return []
    return [f"{flag} is {int(text):,}, and {model.name} was made for {model.context:,} tokens: {refuses}."]


def engine_import(
    target: str,
    source: Source,
    given: Given,
    plan: ServingPlan,
    model: str,
    engine: str,
    read: ReadFlags,
    harmless: Iterable[str],
    limits: Mapping[str, float | None],
    *,
    keys: str = "",
    drafts: Mapping[str, Any] | None = None,
    prefill: Mapping[str, Any] | None = None,
    replicas: int = 0,
    role: str = "",
    notes: Sequence[str] = (),
    later: Sequence[str] = (),
    eager: bool | None = None,
    piece: Slice | None = None,
) -> Imported:
    """The import of a server by what was read of it: `role` is the pool that it says it is of, `later` are notes after
    the one on that, `eager` whether kernels are issued one by one; what is left of the flags was not read."""
    half = [] if prefill else half_of_pair(role, source)
    said: dict[str, Any] = {
        "launch": launch_read(source, given, engine, plan, model, **limits),
        "speculation": drafts or {},
        "prefill": prefill or {},
        "replicas": replicas,
        "traffic": {"output": 1} if half and role == "prefill" else {},
    }
    file = serving_file(source, given, plan, model, engine, **said)
    file = file if eager is None else with_graphs(file, eager)
    ignored, unplanned = left_over(read.values, harmless)
    version, unknown = load_keys(keys or target).version, tuple(read.unknown)
    return with_slice(Imported(target, version, file, (*notes, *half, *later), ignored, unplanned, unknown), piece)


def pool_read(source: Source, plan: ServingPlan, chip: str, replicas: int = 1, usual: str = "") -> dict[str, Any]:
    """The pool that prefills, as a plan file holds it: on the header's slice where it has the same plan, on as many of
    the other pool's chips otherwise, or on `usual`."""
    kept = source.kept.get("prefill", {})
    same = kept.get("slice", "") if str(kept.get("plan", "")) == str(plan) else ""
    where = same or usual or (f"{chip}:{plan.chips}" if chip else "")
    return {"plan": str(plan), "slice": where, "replicas": kept.get("replicas", replicas)}


def with_graphs(file: SavedPlan, eager: bool) -> SavedPlan:
    """A plan's engine with or without graphs of its kernels, as the command says."""
    parts = [one for one in file.engine.split(",") if one.strip() and one.strip() != NO_GRAPHS]
    return replace(file, engine=",".join([*parts, NO_GRAPHS] if eager else parts))


NO_GRAPHS = "host.graphs=false"
"""The setting of an engine whose host issues kernels one by one."""


def half_of_pair(role: str, source: Source) -> list[str]:
    """A note on a command that is one of two pools, where the other is not there."""
    if role not in ("prefill", "decode") or source.kept.get("prefill"):
        return []
    other = "decode" if role == "prefill" else "prefill"
    judged = "it is judged alone, with one token of output" if role == "prefill" else "it is judged alone"
    return [f"This is the {role} half of a pair: give the {other} command too; {judged}."]


def drafts_kept(source: Source, count: int, draft: str, notes: list[str]) -> dict[str, Any]:
    """What is drafted; how often drafts are accepted is nothing that an engine is told, but an export keeps it."""
    kept = source.kept.get("speculation", {})
    if not kept.get("acceptance"):
        by = f" by {draft}" if draft else ""
        notes.append(TERMS.say("drafted", count=count, by=by, plural="s" if count != 1 else ""))
        return {}
    same = plain_name(str(kept.get("draft", ""))) == draft
    return {**kept, "drafts": count, "draft": kept.get("draft", "") if same else draft}
