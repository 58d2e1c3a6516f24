"""Why nothing fits: the bytes that are missing, the smallest slice that holds the model, what divides, and what to
change."""

from dataclasses import replace
from typing import Any

from dragonscale.commands.advised import FITS, Advice
from dragonscale.commands.serve.config import first
from dragonscale.commands.serve.remedies import quantize_text
from dragonscale.commands.serve.search import search
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.engine.checkpoint import bits
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.legal import divisible
from dragonscale.serving.space.space import parts_of, slices_of, splits

MEMORY = "Bound by memory."
NOTHING_HOLDS = "Bound by memory; no slice, format or batch that was tried holds it."
DIVISION = "Bound by how the model divides: take a number of chips that divides its heads."


def unfit(asked: ServeAsked, brief: bool = False) -> tuple[list[Advice], str]:
    """Why nothing fits at all, with the bytes that are missing and the smallest slice that holds the model; and what to
    change. In brief the bytes that a given plan misses alone, without looking for what holds it."""
    chip, piece = asked.targets[0]
    if brief and asked.saved is not None:
        return [Advice(_shortage(asked, chip, piece, asked.formats(chip)[-1]))], MEMORY
    uneven = "" if asked.several else _indivisible(asked, piece)
    if not uneven:
        lines = _too_large(asked)
        return lines, MEMORY if any(one.flags for one in lines) else NOTHING_HOLDS
    return [advice for advice in (Advice(uneven), _narrower_fit(asked)) if advice.text], DIVISION


def _too_large(asked: ServeAsked) -> list[Advice]:
    lines: list[Advice] = []
    engine = asked.engine_on(asked.targets[0][0])
    most = engine.scheduling.max_sequences
    if asked.batch is not None and asked.batch > most:
        text = f"{engine.name} decodes at most {most:,} sequences at once in each place, not {asked.batch:,}."
        lines.append(Advice(text))
    for chip, piece in asked.targets[:1] if not asked.everywhere else ():
        formats = asked.formats(chip)[-1]
        lines.append(Advice(_shortage(asked, chip, piece, formats)))
        changes = (_holds(asked, chip), _by_batch_fit(asked), _narrower_fit(asked))
        lines += [advice for advice in changes if advice.text]
    return lines or [Advice(f"No slice of the catalogue holds {asked.model.name} and one sequence.")]


def _indivisible(asked: ServeAsked, piece: Slice | None) -> str:
    """That a slice has a number of chips that heads cannot be dealt out over, and what its parts lack."""
    if piece is None or asked.saved is not None:
        return ""
    engine = asked.engine_on(piece.chip).name
    if any(True for _ in splits(asked.model, piece, engine)):
        return ""
    heads = divisible(asked.model).heads
    why = f"{asked.model.name} has {heads} heads, which {piece.chips} chips do not divide"
    if heads % piece.chips == 0:
        why = f"{engine} has no way to split {asked.model.name} over {piece.chips} chips"
    parts = [part for part in parts_of(piece) if part.chips < piece.chips]
    small = f", and {parts[-1]}, which it can be cut into, is too small" if parts else ""
    found = sorted(search(replace(asked, targets=((piece.chip, None),))), key=lambda one: (one.chips, one.plan.pipe))
    below = [one for one in found if one.chips < piece.chips][-1:]
    above = [one for one in found if one.chips > piece.chips][:1]
    below = [next(one for one in found if one.chips == below[0].chips)] if below else []
    near = " and ".join(f"{one.plan} on {one.piece}" for one in (*below, *above))
    return f"{why}{small}." + (f" It fits as {near}." if near else "")


def _shortage(asked: ServeAsked, chip: Chip, piece: Slice | None, formats: Formats) -> str:
    """What the largest piece that was looked at lacks."""
    where = piece or slices_of(chip)[-1]
    plan = asked.saved.plan if asked.saved is not None else _widest(asked, where, formats)
    engine = asked.engine_on(chip, chips=where.chips)
    room = capacity(Deployment(asked.model, where, plan, engine))
    length = asked.ask.prompt + asked.ask.output
    need = first(room.held(float(asked.batch or 1), float(length)))
    sequences = f"{asked.batch} sequences" if (asked.batch or 1) > 1 else "one sequence"
    usable = first(room.usable)
    if need <= usable:
        return f"No batch of {asked.batch or 1} can be split as {plan} on {where}."
    return (
        f"{asked.model.name} does not fit on {where}: {plan} needs {need / 1e9:.1f} GB per chip for the weights and "
        f"{sequences} of {length:,} tokens, {(need - usable) / 1e9:.1f} GB more than the {usable / 1e9:.1f} GB that "
        f"{engine.name} can use there."
    )


def _widest(asked: ServeAsked, piece: Slice, formats: Formats) -> ServingPlan:
    """The plan that splits most: what fits least badly."""
    words: dict[str, Any] = vars(formats)
    plans = [
        replace(plan, **words, spread=asked.spread)
        for plan in splits(asked.model, piece, asked.engine_on(piece.chip, chips=piece.chips).name)
    ]
    if not plans:
        return ServingPlan(tensor=piece.chips, **words)
    engine = asked.engine_on(piece.chip, chips=piece.chips)
    return min(plans, key=lambda plan: first(capacity(Deployment(asked.model, piece, plan, engine)).weights))


def _holds(asked: ServeAsked, chip: Chip) -> Advice:
    """The smallest slice of the same chip that does hold it; of a given plan, in its formats and by any other."""
    if asked.saved is not None:
        plan = asked.saved.plan
        words = {"weights": plan.weights, "compute": plan.compute, "kv_dtype": plan.kv, "attention": plan.attention}
        asked = replace(asked, saved=None, question=replace(asked.question, **words, dtype="", quantize=""))
    found = search(replace(asked, targets=((chip, None),)))
    smallest = min(found, key=lambda one: one.chips, default=None)
    if smallest is None:
        return Advice("")
    text = f"Of the usual sizes the smallest that holds it is {smallest.piece}, with {smallest.plan}."
    return Advice(text, {"on": str(smallest.piece), "plan": ""}, FITS)


def _narrower_fit(asked: ServeAsked) -> Advice:
    """The widest narrower format in which it fits where it was asked for."""
    if asked.pinned or asked.question.quantize:
        return Advice("")
    found = search(replace(asked, question=replace(asked.question, quantize="any")))
    if not found:
        return Advice("")
    one = max(found, key=lambda config: (bits(config.plan.weights), config.tokens_per_chip))
    narrow = one.plan.weights
    text = f"Quantised to {narrow} it fits: {one.plan} on {one.piece} ({quantize_text(asked.model, narrow)})."
    return Advice(text, {"quantize": narrow}, FITS)


def _by_batch_fit(asked: ServeAsked) -> Advice:
    if asked.batch is None:
        return Advice("")
    found = search(replace(asked, batch=None))
    if not found:
        return Advice("")
    most = max(one.most for one in found)
    return Advice(f"The largest batch that fits is {most}.", {"batch": str(most)}, FITS)
