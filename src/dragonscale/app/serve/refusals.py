"""What was asked for and no engine runs: refused in a sentence that names a legal neighbour, unless it is forced."""

from collections.abc import Sequence
from dataclasses import replace

from dragonscale.app.serve.formats import formats_for
from dragonscale.app.serve.question import ServeAsked
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.auto import NODE
from dragonscale.serving.checkpoint import bits, is_quantized, stored_in, told
from dragonscale.serving.formats import Formats
from dragonscale.serving.frontier import Config
from dragonscale.serving.legal import context_refusal, engine_refusal, format_refusal, refusal, wide_refusal
from dragonscale.serving.legality import QUANTIZE, WIDE, current_engines, pair_word, pairs, quality, rules
from dragonscale.serving.plan import ServingPlan

LLAMA_STUDY = "arXiv 2411.02355"
"""Its models are the Llama 3.1 family (Kurtic and others, "Give me BF16 or give me death?")."""
MOST_TOLD = 3
"""Refusals of single chips that are told in full where many were asked for."""


def asked_refusal(asked: ServeAsked) -> str:
    """Why nothing that was asked for can be had anywhere; empty if something can, or is forced."""
    if asked.question.force:
        return ""
    return context_refusal(asked.model, asked.ask.prompt + asked.ask.output)


def chip_refusal(asked: ServeAsked, chip: Chip) -> str:
    """Why what was asked for is not available on a chip, by none of the engines that are taken for it there."""
    if asked.saved is not None:
        return refusal(asked.engine_on(chip).name, chip, asked.model, asked.saved.plan)
    largest = max(
        (piece.chips for own, piece in asked.targets if piece is not None and own.name == chip.name), default=0
    )
    names = asked.engine_names(chip, (1, largest or NODE + 1))
    found = [_engine_refusal(asked, chip, name, largest) for name in names]
    return found[-1] if all(found) else ""


def _engine_refusal(asked: ServeAsked, chip: Chip, engine: str, chips: int) -> str:
    why = engine_refusal(engine, chip) or wide_refusal(engine, asked.model, chips)
    if why:
        return why
    formats = asked.formats(chip, engine)
    if not formats:
        wanted = asked.question.quantize if asked.question.quantize not in ("", "any") else stored_in(asked.model)
        has = ", ".join(pair_word(*pair) for pair in pairs(engine, chip))
        return f"{engine} has no kernels for {wanted} on {chip.title}, only {has}; {_others(asked, chip, engine)}"
    if asked.pinned or asked.question.kv_dtype:
        return next((text for text in (_format_refusal(asked, engine, chip, one) for one in formats) if text), "")
    return ""


def _format_refusal(asked: ServeAsked, engine: str, chip: Chip, formats: Formats) -> str:
    return format_refusal(engine, chip, asked.model, replace(ServingPlan(), **vars(formats)))


def _others(asked: ServeAsked, chip: Chip, engine: str) -> str:
    """Engines that do have the formats, or else formats that can be asked for there."""
    able = [name for name in current_engines(chip) if name != engine]
    able = [name for name in able if replace(asked, engine=name).formats(chip)]
    if able:
        return f"take --engine {' or '.join(able)}"
    wide = [weights for weights, compute in pairs(engine, chip) if weights == compute and weights in WIDE]
    asking = [f"--dtype {wide[0]}"] if wide and bits(stored_in(asked.model)) >= bits(wide[0]) else []
    words = [replace(asked.question, quantize=word, dtype="", weights="", compute="") for word in QUANTIZE[:-1]]
    asking += [
        f"--quantize {one.quantize}"
        for one in words
        if bits(one.quantize) <= bits(stored_in(asked.model)) and formats_for(one, engine, chip, asked.model)
    ]
    return f"take {' or '.join(asking)}" if asking else "take another chip"


def possible(asked: ServeAsked) -> tuple[ServeAsked, list[str]]:
    """The question with the chips that can do what it asks, and why the others cannot."""
    if asked.question.force:
        return asked, []
    why = {chip.name: chip_refusal(asked, chip) for chip, _ in asked.targets}
    kept: tuple[tuple[Chip, Slice | None], ...] = tuple(one for one in asked.targets if not why[one[0].name])
    refused = [text for text in dict.fromkeys(why.values()) if text]
    if not kept or len(kept) == len(asked.targets):
        return asked, refused
    return replace(asked, targets=kept), refused


def refused_notes(asked: ServeAsked, refused: list[str], all_: bool) -> list[str]:
    """Refusals as notes: of everything that was asked for, or of some of the chips."""
    if all_:
        return [f"Not possible: {text}, or add --force." for text in refused[:MOST_TOLD]]
    if asked.everywhere and len(refused) > MOST_TOLD:
        names = [chip.name for chip, _ in asked.targets if chip_refusal(asked, chip)]
        return [f"Left out, because no engine runs that there: {', '.join(names)}."]
    return [f"Left out: {text}." for text in refused]


def forced_notes(asked: ServeAsked) -> list[str]:
    """What was forced that no engine runs."""
    if not asked.question.force:
        return []
    plain = replace(asked, question=replace(asked.question, force=False))
    found = [asked_refusal(plain), *(chip_refusal(plain, chip) for chip, _ in asked.targets)]
    return [f"Forced: {text}." for text in dict.fromkeys(found) if text][:MOST_TOLD]


def format_notes(asked: ServeAsked, configs: Sequence[Config]) -> list[str]:
    """What was made of the checkpoint's formats, what narrower ones cost in quality, and that an engine is archived."""
    made: dict[str, list[str]] = {}
    notes: list[str] = []
    for one in configs:
        chip, plan = one.piece.chip, one.plan
        row = rules(one.engine)
        if row.archived:
            notes.append(f"{row.archived}; {row.instead} is what runs today (--engine {row.instead}).")
        if is_quantized(plan.weights, asked.model):
            notes.append(_quality_note(asked, plan))
        elif not asked.pinned:
            made.setdefault(told(Formats(plan.weights, plan.compute), asked.model), []).append(chip.name)
            notes += _cache_note(asked, row.name, plan)
    notes += [f"On {', '.join(chips)} {asked.model.name} is {text}." for text, chips in made.items() if text]
    return list(dict.fromkeys(notes))


def quality_of(model: Transformer, dtype: str) -> str:
    """What a narrower format costs in quality, and that it was measured on another family where it was."""
    words = quality(dtype)
    elsewhere = LLAMA_STUDY in words and not model.name.lower().startswith("llama")
    return f"{words}; measured on Llama 3.1, not on {model.name}" if elsewhere else words


def _quality_note(asked: ServeAsked, plan: ServingPlan) -> str:
    alone = f" (weights only, multiplied in {plan.compute})" if plan.compute in WIDE else ""
    return (
        f"{plan.weights}{alone} is narrower than the checkpoint's {stored_in(asked.model)}: "
        f"{quality_of(asked.model, plan.weights)}."
    )


def _cache_note(asked: ServeAsked, engine: str, plan: ServingPlan) -> list[str]:
    """Whose choice a narrow cache is that nobody asked for."""
    if bits(plan.kv) >= bits("bf16"):
        return []
    by = (
        "as the checkpoint says"
        if asked.model.quantization.kv
        else f"which {engine} is run with for {plan.weights} weights"
    )
    return [f"The KV cache is in {plan.kv}, {by}; --kv-dtype bf16 keeps it wide."]
