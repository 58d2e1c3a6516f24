"""What was asked for and no engine runs, refused in a sentence that names a legal neighbour unless it is forced; and
why nothing meets the targets, and what would."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.commands.advised import MEETS, Advice
from dragonscale.commands.serve.config import violations
from dragonscale.commands.serve.formats import formats_for
from dragonscale.commands.serve.search import excess, search
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.models.catalogue import published_fp8
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, chip_names, load_chip
from dragonscale.physics.units import render
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.checkpoint import bits, is_quantized, stored_in, told
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import QUANTIZE, WIDE, current_engines, pair_word, pairs, quality, rules
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.restrictions import BOTH, DECODE
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.space.legal import (
    context_refusal,
    engine_refusal,
    format_refusal,
    refusal,
    stored_note,
    wide_refusal,
)
from dragonscale.serving.space.ranking import replicas_for
from dragonscale.serving.steady.speculation import Draft, has_heads, head_part

LLAMA_STUDIED = ("fp8", "int8", "int4")
"""Formats whose quality is known from the Llama 3.1 family (Kurtic and others, arXiv 2411.02355)."""
MOST_TOLD = 3
"""Refusals of single chips that are told in full where many were asked for."""


def asked_refusal(asked: ServeAsked) -> str:
    """Why nothing that was asked for can be had anywhere; empty if something can, or is forced."""
    if asked.question.force:
        return ""
    return context_refusal(asked.model, asked.ask.prompt, asked.ask.output)


def chip_refusal(asked: ServeAsked, chip: Chip) -> str:
    """Why what was asked for is not available on a chip, by none of the engines that are taken for it there."""
    if asked.saved is not None:
        engine = asked.engine_on(chip).name
        role = DECODE if asked.ask.apart else BOTH
        return refusal(engine, chip, asked.model, asked.saved.plan, role=role) or _draft_refusal(asked, engine)
    largest = max(
        (piece.chips for own, piece in asked.targets if piece is not None and own.name == chip.name), default=0
    )
    names = asked.engine_names(chip, (1, largest or NODE + 1))
    found = [_engine_refusal(asked, chip, name, largest) for name in names]
    return found[-1] if all(found) else ""


def _engine_refusal(asked: ServeAsked, chip: Chip, engine: str, chips: int) -> str:
    why = engine_refusal(engine, chip) or wide_refusal(engine, asked.model, chips) or _draft_refusal(asked, engine)
    if why:
        return why
    formats = asked.formats(chip, engine)
    if not formats:
        wanted = asked.question.quantize if asked.question.quantize not in ("", "any") else stored_in(asked.model)
        has = ", ".join(pair_word(*pair) for pair in pairs(engine, chip))
        return f"{engine} has no kernels for {wanted} on {chip.title}, only {has}; {_others(asked, chip, engine)}"
    if asked.pinned or asked.question.kv_dtype:
        plans = (replace(ServingPlan(), **vars(one)) for one in formats)
        return next(filter(None, (format_refusal(engine, chip, asked.model, plan) for plan in plans)), "")
    return ""


def _draft_refusal(asked: ServeAsked, engine: str) -> str:
    wanted = f"with the heads of {asked.model.name}, which --drafts {asked.question.drafts} asks for"
    instead = "leave it out, or give --accept and --draft"
    return f"{engine} does not draft {wanted}; {instead}" if asked.lacks_drafts(engine) else ""


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
        notes += filter(None, [stored_note(chip, plan)])
        if is_quantized(plan.weights, asked.model):
            notes.append(_quality_note(asked, plan))
        elif not asked.pinned:
            made.setdefault(told(Formats(plan.weights, plan.compute), asked.model), []).append(chip.name)
        notes += [] if asked.pinned or asked.saved else _cache_note(asked, row.name, plan)
    notes += [f"On {', '.join(chips)} {asked.model.name} is {text}." for text, chips in made.items() if text]
    return list(dict.fromkeys(notes))


def quality_of(model: Transformer, dtype: str) -> str:
    """What a narrower format costs in quality, and that it was measured on another family where it was."""
    words = quality(dtype)
    elsewhere = dtype.removesuffix("_block") in LLAMA_STUDIED and not model.name.lower().startswith("llama")
    return f"{words}; measured on Llama 3.1, not on {model.name}" if elsewhere else words


def quantize_text(model: Transformer, dtype: str) -> str:
    """How to ask for a narrower format, what it costs in quality, and as what it is published in it."""
    ready = published_fp8(model.name) if dtype == "fp8" else ""
    return f"--quantize {dtype}; {quality_of(model, dtype)}" + (f"; {ready}, as {model.name}-fp8 here" if ready else "")


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
    by = f"taken along with {plan.weights} weights" if is_quantized(plan.weights, asked.model) else by
    return [f"The KV cache is in {plan.kv}, {by}; --kv-dtype bf16 keeps it wide."]


# Why nothing meets the targets, and what would: another batch, more chips, narrower formats, drafts, other chips; each
# computed.


ACCEPTED = 0.7
"""Drafts of a trained head that are right, the ones before them right: about what EAGLE reports (arXiv 2401.15077)."""


def missed(asked: ServeAsked, config: Config) -> list[Advice]:
    """Why nothing meets the targets: what the nearest configuration lacks, and changes that would do, each computed."""
    lacking = " and ".join(violations(asked, config))
    lines = [
        Advice(
            f"Nothing meets the targets. The nearest is {config.plan} on {config.piece}, batch {config.batch}: "
            f"{lacking}."
        )
    ]
    found = [*_changes(asked, config), _drafted(asked, config), _by_chip(asked)]
    lines += [advice for advice in found if advice.text]
    if not any(advice.flags for advice in found):
        chips = "chip of the catalogue" if asked.everywhere else "other chip with a price"
        lines.append(Advice(f"No {chips} does, in the formats that were asked for: ask for less."))
    return lines


def left_out(asked: ServeAsked, configs: Sequence[Config], chosen: Sequence[Config]) -> list[str]:
    """The chips of several on which nothing fits, and those on which nothing meets the targets."""
    if not asked.several:
        return []
    fits, meets, shown = (
        {one.piece.chip.name for one in some} for some in (configs, [one for one in configs if one.meets], chosen)
    )
    names = {chip.name: str(piece or chip.name) for chip, piece in asked.targets if chip.name not in shown}
    misses = [name for chip, name in names.items() if chip in fits and chip not in meets]
    unfits = [name for chip, name in names.items() if chip not in fits]
    lines = [f"Nothing fits on {', '.join(unfits)}."] if unfits else []
    priced = {one.piece.chip.name for one in configs if one.usd_per_h is not None}
    dear = [] if asked.question.top else [name for chip, name in names.items() if chip in meets & priced]
    lines += [f"Dearer than these: {', '.join(dear)} (--top {asked.top} shows all)."] if dear else []
    if not misses:
        return lines
    if asked.goals or asked.pace is None:
        return [*lines, f"Nothing meets the targets on {', '.join(misses)}."]
    users = {chip: max(float(1 / one.state.tpot) for one in configs if one.piece.chip.name == chip) for chip in fits}
    told = [f"{name} ({users[chip]:.2g} at most)" for chip, name in names.items() if name in misses]
    return [*lines, f"No user gets {1 / asked.pace:.3g} tokens/s on {', '.join(told)}."]


def _met(asked: ServeAsked, **changed: Any) -> list[Config]:
    """What meets the targets after a change: with the batch that was asked for, or else with any."""
    batches = (asked.batch, None) if asked.batch is not None else (None,)
    for batch in batches:
        met = [one for one in search(replace(asked, batch=batch, **changed)) if one.meets]
        if met:
            return met
    return []


def _cheapest(ask: Ask, met: Sequence[Config]) -> Config | None:
    """The cheapest, in the widest weights; of its batches the one that makes most. With a rate what costs least is the
    fleet for it: a cheap replica of which it takes many is dear."""
    by_replica = replace(ask, rented=())  # the slice that was asked for is not the one that would be rented

    def order(config: Config) -> tuple[float, ...]:
        price = float(config.piece.chip.price or math.inf)
        replicas = 1 if ask.rate is None else replicas_for(config, by_replica)
        chips = replicas * config.chips
        return -bits(config.plan.weights), chips * price, chips, -config.tokens_per_chip

    return min(met, key=order, default=None)


def _changes(asked: ServeAsked, config: Config) -> Iterator[Advice]:
    """What else on the same chips would do: another batch, another plan, a larger slice, other
    formats, narrower ones."""
    chip, piece = asked.targets[0]
    given = asked.saved is not None
    if asked.batch is not None:
        met = [one for one in search(replace(asked, batch=None)) if one.meets]
        here = [one for one in met if one.piece == config.piece] or met
        if here:
            one = max(here, key=lambda one: (one.batch, one.tokens_per_chip))
            flags = {"batch": str(one.batch), "on": asked.written_slice(str(one.piece))}
            yield Advice(f"A batch of {one.batch:,} would ({one.plan} on {one.piece}).", flags, MEETS)
    if given:
        yield _would("Another plan would", _cheapest(asked.ask, _met(asked, saved=None)), {"plan": ""})
    elif piece is not None and not asked.several:
        larger = [one for one in _met(asked, targets=((chip, None),)) if one.chips > piece.chips]
        yield _would("More chips would", _cheapest(asked.ask, larger), on=True)
    if asked.pinned and not given:
        free = replace(asked.question, weights="", compute="", kv_dtype="", attention="", dtype="")
        unpinned: dict[str, str] = dict.fromkeys(("weights", "compute", "kv_dtype", "attention", "dtype"), "")
        yield _would("Other formats would", _cheapest(asked.ask, _met(asked, question=free)), unpinned)
    if not (asked.pinned or given or asked.question.quantize):
        quantized = _met(asked, question=replace(asked.question, quantize="any"))
        one = _cheapest(asked.ask, [one for one in quantized if is_quantized(one.plan.weights, asked.model)])
        if one is not None:
            narrow = one.plan.weights
            how = f" ({quantize_text(asked.model, narrow)})"
            yield _would(f"Quantised to {narrow} it would", one, {"quantize": narrow}, more=how)


def _would(
    would: str, one: Config | None, flags: dict[str, str] | None = None, *, on: bool = False, more: str = ""
) -> Advice:
    """That a change would meet the targets, with the configuration that does; nothing where none does. With `on` the
    change is the slice."""
    if one is None:
        return Advice("")
    changed = {**(flags or {}), **({"on": str(one.piece)} if on else {}), "batch": ""}
    return Advice(f"{would}: {one.piece} with {one.plan}, batch {one.batch:,}{more}.", changed, MEETS)


def _drafted(asked: ServeAsked, config: Config) -> Advice:
    """What speculative decoding would do for a time per token that is missed; with flags where that is enough."""
    ask = asked.ask
    if ask.step is None or float(config.state.tpot) <= ask.step or asked.draft is not None or ask.output == 1:
        return Advice("")
    found = search(replace(asked, draft=Draft(ACCEPTED, part=head_part(asked.model))))
    met = [one for one in found if one.meets]
    if not met:
        least = min(found, key=lambda one: excess(ask, one))
        return Advice(f"Not even speculative decoding would (--accept {ACCEPTED}): TPOT {_decoding(least)}.")
    one = max(met, key=lambda one: one.tokens_per_chip)
    drafts = f"drafts of {one.drafts} by {drafter(asked)}"
    text = f"With speculative decoding (--accept {ACCEPTED}) it would: {_decoding(one)}, {drafts}."
    return Advice(text, {"accept": str(ACCEPTED)}, MEETS)


def _decoding(one: Config) -> str:
    return f"{render(float(one.state.tpot), 's')} with {one.plan} on {one.piece}, batch {one.batch:,}"


def drafter(asked: ServeAsked) -> str:
    """What drafts where no model is named."""
    name = asked.model.name
    if has_heads(asked.model):
        return f"the MTP module of {name}"
    return f"an EAGLE or MTP head ({name} has none of its own; train or download one)"


def _by_chip(asked: ServeAsked) -> Advice:
    """Another chip of the catalogue, in the formats that were asked for."""
    if asked.everywhere:
        return Advice("")
    tried = {chip.name for chip, _ in asked.targets}
    every = map(load_chip, chip_names())
    others = tuple((chip, None) for chip in every if chip.name not in tried and chip.price is not None)
    asked = possible(replace(asked, saved=None, targets=others))[0]
    met = [one for one in search(asked) if one.meets]
    return _would("The cheapest other chip that would", _cheapest(asked.ask, met), {"plan": ""}, on=True)
