"""Which checkpoint serves a model in a plan's formats, and what an engine is told about it; and what readers of all
engines share: limits that commands say (sequences, tokens, lengths, shares of memory), pools, drafts, notes.

Three ways lead to narrow weights: the checkpoint has them already, and the engine reads how from its config; the engine
quantises a 16-bit checkpoint while it loads it; or somebody has quantised it before, and that checkpoint is needed.
Names of such checkpoints end in their scheme, in the words of llm-compressor (`W4A16`, `W8A8`, `FP8`, `NVFP4`), as on
the Hub.

>>> scheme_of("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16"), scheme_of("nvidia/Llama-3.3-70B-Instruct-FP4")
('W4A16', 'NVFP4')
>>> scheme_of("Qwen/Qwen3-32B-AWQ"), scheme_of("meta-llama/Llama-3.1-8B"), plain_name("Qwen/Qwen3-32B-AWQ")
('W4A16', '', 'qwen3-32b')
>>> [scheme_of(f"{name}-FP8") for name in ("Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B", "meta-llama/Llama-3.1-405B")]
['FP8-BLOCK', 'FP8', 'FP8-DYNAMIC']
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.exports.imported import Given, Imported, Source, left_over, serving_file, slice_given
from dragonscale.exports.keys import ReadFlags
from dragonscale.exports.model_names import preset_named, served_id
from dragonscale.exports.target import target_named
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import PlanDifference
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset
from dragonscale.models.served_checkpoints import instruct_repository, published_attention, quantised_repository
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_slice, parse_target
from dragonscale.serving.engine.checkpoint import has_latent_cache, multiplied_in, own_formats, stored_in, wide_format
from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.engine.launch import NO_GRAPHS, engine_on
from dragonscale.serving.engine.legality import WIDE, pairs
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan, read_serving_plan

TERMS = load_terms("checkpoints")

SCHEMES: Mapping[str, tuple[str, str]] = {name: (pair[0], pair[1]) for name, pair in TERMS.tables["schemes"].items()}
_SPELT = TERMS.tables["spellings"]
_ENDINGS = "|".join(sorted(map(re.escape, (*SCHEMES, *_SPELT)), key=len, reverse=True))
_ENDING = re.compile(rf"-(?P<scheme>{_ENDINGS})(?:-ATTN-(?P<attention>\w+))?$", re.IGNORECASE)


FormatWords = Mapping[tuple[str, str], str]
"""An engine's words for what it makes of a 16-bit checkpoint while it loads it, by the formats of weights and matmuls.
"""


def scheme_of(name: str) -> str:
    """The scheme that a checkpoint's name ends in; empty where it names none."""
    found = _ENDING.search(name.rstrip("/"))
    if found is None:
        return ""
    word = found["scheme"].upper()
    scheme = _SPELT.get(word, word)
    whose = {"FP8-BLOCK": TERMS.lists["blockwise"], "FP8-DYNAMIC": TERMS.lists["by_row"]} if scheme == "FP8" else {}
    return next((one for one, names in whose.items() if name.lower().startswith(tuple(names))), scheme)


def plain_name(name: str) -> str:
    """The preset that a checkpoint is of, whatever it was quantised to; the name itself where there is none."""
    preset = preset_named(name)
    if preset != name:
        return preset
    bare = _ENDING.sub("", name.rstrip("/")).removeprefix("./")
    preset = preset_named(bare)
    return preset if preset != bare or is_preset(bare) else name


@dataclass(frozen=True)
class ServedCheckpoint:
    """What an engine is given for a model: the word for it, the name that clients use, the word for quantising it on
    loading (empty: the checkpoint says itself), the plan with the formats that come of it, and what is to be said about
    that."""

    word: str
    served: str = ""
    online: str = ""
    wide_attention: bool = False
    """Whether the attention is left out of what is quantised on loading."""
    dtype: str = "bf16"
    plan: ServingPlan = field(default_factory=ServingPlan)
    differences: tuple[PlanDifference, ...] = ()
    notes: tuple[str, ...] = ()


def checkpoint_for(
    engine: str, chip: Chip, model: Transformer, name: str, plan: ServingPlan, online: FormatWords, only: str = ""
) -> ServedCheckpoint:
    """The checkpoint for a plan. `online` says which pairs of formats the engine can make of 16 bits, and its words for
    them; `only` is the one 16-bit format that it runs the model in, where there is one."""
    repo, stored = served_id(name), stored_in(model)
    plan, dtype, differences = _settled(engine, chip, model, plan, only)
    own = own_formats(engine, chip, model)
    if plan.weights == stored and (stored not in WIDE or plan.weights == plan.compute):
        if own is None or own.weights != stored:  # the engine widens it
            return ServedCheckpoint(repo, dtype=dtype, plan=plan, differences=differences)
        same = plan
        if stored not in WIDE:
            # What a checkpoint leaves in 16 bits follows `dtype`.
            compute, attention = (dtype if one in WIDE else one for one in (own.compute, own.attention))
            same = replace(plan, compute=compute, attention=attention)
        return ServedCheckpoint(repo, dtype=dtype, plan=same, differences=(*differences, *_checkpoints_own(plan, same)))
    if plan.weights in WIDE and (stored in WIDE or (own is not None and own.weights in WIDE)):
        return ServedCheckpoint(repo, dtype=dtype, plan=plan, differences=differences)  # `dtype` casts it
    wide_attention = plan.attention in WIDE and plan.attention != plan.compute
    if stored in WIDE and (plan.weights, plan.compute) in online and (not plan.attention or wide_attention):
        word = online[plan.weights, plan.compute]
        return ServedCheckpoint(repo, "", word, wide_attention, dtype, plan, differences)
    published = _published(repo, model, plan)
    if published:
        same = _as_published(engine, chip, published, plan)
        differences = (*differences, *_checkpoints_own(plan, same))
        return ServedCheckpoint(published, repo, dtype=dtype, plan=same, differences=differences)
    return _quantised_before(repo, dtype, model, plan, differences)


def _as_published(engine: str, chip: Chip, published: str, plan: ServingPlan) -> ServingPlan:
    """The plan with the matmuls that an engine has on a chip for a checkpoint whose formats are known."""
    if not is_preset(published):
        return plan
    own = own_formats(engine, chip, load_model(published))
    if own is None or own.weights != plan.weights or own.compute in WIDE:
        return plan
    return replace(plan, compute=own.compute)


def _published(repo: str, model: Transformer, plan: ServingPlan) -> str:
    """The repository that has the model in a plan's formats, with its attention as the plan has it."""
    kept = published_attention(plan.weights, has_latent_cache(model))
    attention = plan.attention or "same"
    if attention in WIDE:
        attention = "wide"
    if attention != (kept or "same"):
        return ""
    return quantised_repository(instruct_repository(repo), plan.weights, plan.compute)


def _quantised_before(
    repo: str, dtype: str, model: Transformer, plan: ServingPlan, differences: tuple[PlanDifference, ...]
) -> ServedCheckpoint:
    """A checkpoint that nobody is known to publish, by the name that it might have."""
    scheme = _scheme(plan.weights, plan.compute)
    attention = plan.attention
    if not attention and published_attention(plan.weights, has_latent_cache(model)) == "wide":
        attention = plan.weights  # unlike in those that are published, so the name has to say it
    ending = f"{scheme}-ATTN-{attention.upper()}" if attention else scheme
    word = f"./{repo.rstrip('/').rsplit('/', 1)[-1]}-{ending}"
    kept = f", its attention in {attention}" if attention else ""
    note = TERMS.say("quantised_before", word=word, repo=repo, plan=plan, kept=kept, scheme=scheme)
    return ServedCheckpoint(word, repo, dtype=dtype, plan=plan, differences=differences, notes=(note,))


def _scheme(weights: str, compute: str) -> str:
    pair = (weights, "bf16" if compute == "fp16" and weights != "fp16" else compute)
    return next((name for name, own in SCHEMES.items() if own == pair), f"{weights}-{compute}".upper())


def _settled(
    engine: str, chip: Chip, model: Transformer, plan: ServingPlan, only: str
) -> tuple[ServingPlan, str, tuple[PlanDifference, ...]]:
    """A plan whose 16-bit formats agree, as engines have one dtype for activations and a cache that is not quantised;
    and which dtype."""
    said: list[PlanDifference] = []
    chosen = plan.compute if plan.compute in WIDE else plan.kv if plan.kv in WIDE else wide_format(engine, chip, model)
    wide = only or chosen
    if plan.kv in WIDE and plan.kv != wide:
        said.append(TERMS.difference("kv", plan=plan, wide=wide))
        plan = replace(plan, kv=wide)
    if plan.wire != "bf16":
        said.append(TERMS.difference("wire", plan=plan, wide=wide))
        plan = replace(plan, wire="bf16")
    if plan.attention and plan.attention == part_format(replace(plan, attention=""), "attention"):
        plan = replace(plan, attention="")
    return plan, wide, tuple(said)


def _checkpoints_own(plan: ServingPlan, own: ServingPlan) -> list[PlanDifference]:
    """That kernels for a checkpoint's own formats are the engine's choice."""
    found: list[PlanDifference] = []
    for name in ("compute", "attention"):
        asked, runs = getattr(plan, name), getattr(own, name)
        if asked != runs:
            what, said = "matmuls" if name == "compute" else "attention", asked or plan.weights
            found.append(TERMS.difference("checkpoint", what=what, asked=said, runs=runs or plan.weights, name=name))
    return found


def formats_read(
    engine: str, chip: Chip | None, model: Transformer, name: str, online: str, words: FormatWords, wide_attention: bool
) -> dict[str, Any]:
    """Weights, compute, attention and the cache's format of a checkpoint by its name and what it is quantised to on
    loading."""
    scheme, stored = scheme_of(name), stored_in(model)
    if chip is None:
        chip = load_chip("h100")
    own = own_formats(engine, chip, model)
    wide, said = wide_format(engine, chip, model), _ENDING.search(name)
    kv = own.kv if own is not None else wide
    if online:
        # Of several pairs by one word the one that the chip has kernels for; an engine's first where it has several.
        made = [pair for pair, word in words.items() if word == online]
        here = [pair for pair in made if pair in pairs(engine, chip)] or made
        weights, compute = here[0]
        return {"weights": weights, "compute": compute, "attention": wide if wide_attention else "", "kv": kv}
    if scheme and SCHEMES[scheme][0] != stored:
        if is_preset(name):  # how its maker published it is known: which parts stay in 16 bits
            published = own_formats(engine, chip, load_model(name))
            if published is not None and published.weights == SCHEMES[scheme][0]:
                formats = {"weights": published.weights, "compute": published.compute}
                return {**formats, "attention": published.attention, "kv": published.kv}
        weights, compute = SCHEMES[scheme]
        if compute in WIDE:
            compute = next((one for one in (compute, wide, *WIDE) if (weights, one) in pairs(engine, chip)), compute)
        elif scheme == "FP8" or (weights, compute) not in pairs(engine, chip):  # "FP8" alone may be scaled by blocks
            compute = (multiplied_in(engine, chip, model, weights) or (weights, compute))[1]
        attention = said["attention"].lower() if said is not None and said["attention"] else ""
        if attention == weights:
            attention = ""
        elif not attention and published_attention(weights, has_latent_cache(model)) == "wide":
            attention = wide
        return {"weights": weights, "compute": compute, "attention": attention, "kv": kv}
    if own is None or own.weights in WIDE:
        return {"weights": wide, "compute": wide, "attention": "", "kv": kv}
    return {"weights": own.weights, "compute": own.compute, "attention": own.attention, "kv": kv}


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
    limits: Mapping[str, float | None],
    *,
    further: Sequence[str] = (),
    drafts: Mapping[str, Any] | None = None,
    prefill: Mapping[str, Any] | None = None,
    replicas: int = 0,
    role: str = "",
    notes: Sequence[str] = (),
    later: Sequence[str] = (),
    eager: bool | None = None,
    piece: Slice | None = None,
    length: object = None,
) -> Imported:
    """The import of a server by what was read of it: `role` is the pool that it says it is of, `later` are notes after
    the one on that, `eager` whether kernels are issued one by one, `length` the longest request that it takes; what is
    left of the flags was not read, and changes
    nothing where it is among the target's harmless options or `further` ones."""
    half = [] if prefill else half_of_pair(role, source)
    said: dict[str, Any] = {
        "launch": launch_read(source, given, engine, plan, model, **limits),
        "speculation": drafts or {},
        "prefill": prefill or {},
        "replicas": replicas,
        "traffic": {"output": 1} if half and role == "prefill" else {},
    }
    file = serving_file(source, given.on(piece), plan, model, engine, **said)
    file = file if eager is None else with_graphs(file, eager)
    own = target_named(target)
    ignored, unplanned = left_over(read.values, [*load_terms(own.keys or target).lists["harmless"], *further])
    told = (*notes, *half, *later)
    unknown = tuple(read.unknown)
    return Imported(target, own.version, file, told, ignored, unplanned, unknown, served_length=length_read(length))


def length_read(length: object) -> int | None:
    """Tokens of the longest request as a flag says them: 0 of one that is to fit the cache, None without a flag.

    >>> length_read("120000"), length_read("auto"), length_read(-1), length_read(None)
    (120000, 0, 0, None)
    """
    text = "" if length is None else str(length).strip()
    if text in ("auto", "-1"):
        return 0
    return int(text) if text.isdecimal() and text.isascii() else None


def pool_read(
    source: Source, plan: ServingPlan, piece: Slice | None, replicas: int = 1, engine: str = ""
) -> dict[str, Any]:
    """The pool that prefills, as a plan file holds it: on the header's slice where it has the same plan, on as many of
    the other pool's chips otherwise; the shape of a slice of TPUs is known where that is as large. `engine` is said
    where it is not that of the other pool."""
    kept = source.kept.get("prefill", {})
    kept_plan = str(kept.get("plan", ""))
    is_same = bool(kept_plan) and read_serving_plan(kept_plan).plan == plan
    same = kept.get("slice", "") if is_same else ""
    alike = "" if piece is None else f"{str(piece).partition(':')[0]}:{plan.chips}"
    if piece is not None and piece.chip.kind == "tpu":
        alike = str(piece) if piece.chips == plan.chips else ""
    text = kept_plan if is_same else str(plan)
    pool = {"plan": text, "slice": same or alike, "replicas": kept.get("replicas", replicas)}
    return pool | ({"engine": engine} if engine else {})


def with_graphs(file: SavedPlan, eager: bool) -> SavedPlan:
    """A plan's engine with or without graphs of its kernels, as the command says."""
    parts = [one for one in file.engine.split(",") if one.strip() and one.strip() != NO_GRAPHS]
    return replace(file, engine=",".join([*parts, NO_GRAPHS] if eager else parts))


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
