"""Whose words a text is in, and what plan they say.

The comment of an export keeps what flags have no word for: the slice, the batch that was planned. Someone who edits a
flag leaves the comment as it is, so a flag counts, and what of the comment contradicts it is dropped with a note. Names
that the software does not have get the nearest that it has.

>>> found = read_plan(
...     "vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 2 --max-num-seqs 64", Given(slice="h100:2")
... )
>>> found.target, found.file.plan.tensor, found.file.model
('vllm', 2, 'llama3-8b')
"""

from dataclasses import replace

from dragonscale.errors import InputError, nearest
from dragonscale.exports.engines.checkpoints import plain_name
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import key_tables, load_keys
from dragonscale.exports.launchers.unwrap import unwrapped
from dragonscale.exports.software import software
from dragonscale.exports.target import Target, of_kind
from dragonscale.exports.terms import load_terms
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.serving.engine.plan_file import SavedPlan

TERMS = load_terms("edited")
_INNER = {"llm-d": "vllm", "vllm-tpu": "vllm"}
"""Targets whose words are those of another."""


def as_edited(found: Imported, source: Source, given: Given) -> Imported:
    """The import as its flags have it."""
    if isinstance(found.file, SavedPlan):
        file, notes = found.file, list(found.notes)
        file = _slice(_batch(file, source, notes), given, notes)
        pods, each = source.launch.get("pods", (1, 0))
        piece = parse_slice(file.slice) if each and file.slice and not is_chip(file.slice) else None
        if piece is not None and piece.chip.kind == "gpu" and each < piece.chip.host_chips:
            notes.append(TERMS.say("apart", pods=pods, each=each, plural="s" if each > 1 else "", chip=piece.chip))
        found = replace(found, file=file, notes=tuple(notes))
    return replace(found, unknown=tuple(_meant(name, found) for name in found.unknown))


def _batch(file: SavedPlan, source: Source, notes: list[str]) -> SavedPlan:
    """Without the header's batch where the limit of sequences is another than the one that was written for it."""
    kept, limit = source.kept, file.launch.max_seqs
    planned = kept.get("launch", {}).get("max_seqs")
    if not limit or not file.batch or file.batch != kept.get("batch") or limit == planned:
        return file
    ranks = f" x {file.plan.data} data ranks" if file.plan.data > 1 else ""
    notes.append(TERMS.say("batch", limit=limit, ranks=ranks, file=file))
    return replace(file, batch=0)


def _slice(file: SavedPlan, given: Given, notes: list[str]) -> SavedPlan:
    """On as many chips as the flags are for, where the header's slice has another number."""
    if given.slice or not file.slice or is_chip(file.slice):
        return file
    piece, chips = parse_slice(file.slice), file.plan.chips
    if piece.chips == chips:
        return file
    if piece.chip.kind == "tpu":
        notes.append(TERMS.say("tpu_slice", chips=chips, file=file, piece=piece))
        return file
    own = f"{piece.chip.name}:{chips}"
    notes.append(TERMS.say("slice", chips=chips, own=own, file=file))
    return replace(file, slice=own)


def _meant(name: str, found: Imported) -> str:
    """An unknown name, with the one that was probably meant."""
    engine = found.file.engine.partition(",")[0].partition("-")[0] if isinstance(found.file, SavedPlan) else ""
    tables = {found.target, _INNER.get(found.target, ""), engine} & key_tables()
    keys = [(first, key.also) for table in sorted(tables) for first, key in load_keys(table).keys.items()]
    names = [spelling for first, also in keys for spelling in (first, *also)]
    near = nearest(name.replace("_", "-") if name.startswith("-") else name, names)
    return f"{name} (did you mean {near}?)" if near and near != name else name


SOFTWARE = ("training", "serving")


def recognised(source: Source) -> Target | None:
    """The target whose words a text is in; None where it is nobody's."""
    for kind in SOFTWARE:
        for target in of_kind(kind):
            if software(target).recognises(source):
                return target
    return None


def read_plan(given: str, beside: Given | None = None) -> Imported:
    """The plan that a file, a folder or a pasted command says."""
    source = unwrapped(Source.of(given))
    target = recognised(source)
    if target is None:
        if source.table is not None and "plan" in source.table:
            here = "`dscale export` writes it for other software"
            raise InputError(f"{source.shown} is a plan of dscale already; {here}.")
        names = ", ".join(one.title for kind in SOFTWARE for one in of_kind(kind))
        raise InputError(
            f"{source.shown} is neither a config nor a command of {names}; runs of reinforcement learning are read by "
            "`dscale rl --plan`."
        )
    said = beside or Given()
    found = as_edited(software(target).read(source, said), source, said)
    other = _other_model(source, target, said) if said.model and isinstance(found.file, SavedPlan) else ""
    if not other:
        return found
    note = f"The command serves {other}; it is judged for {said.model}, which was given."
    return replace(found, notes=(*found.notes, note))


def _other_model(source: Source, target: Target, given: Given) -> str:
    """The model that a command names, where that is another than the one that was given; empty where it is the same or
    not known."""
    try:
        file = software(target).read(source, replace(given, model="")).file
    except InputError:  # a model that only who gave another knows
        return ""
    named, wanted = plain_name(file.model), plain_name(given.model)
    return "" if named.partition("?")[0] == wanted.partition("?")[0] else named
