"""Why nothing meets the targets, and what would: another batch, more chips, narrower formats, drafts, other chips; each
computed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.app.serve.config import violations
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.refusals import possible, quality_of
from dragonscale.app.serve.search import excess, search
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.units import render
from dragonscale.serving.checkpoint import bits, is_quantized
from dragonscale.serving.frontier import Config
from dragonscale.serving.speculation import Draft, head_part

ACCEPTED = 0.7
"""Drafts of a trained head that are right, the ones before them right: about what EAGLE reports (arXiv 2401.15077)."""

NOT_EVEN = "Not even speculative decoding would"


def missed(asked: ServeAsked, config: Config) -> list[str]:
    """Why nothing meets the targets: what the nearest configuration lacks, and changes that would do, each computed."""
    lacking = " and ".join(violations(asked, config))
    lines = [
        f"Nothing meets the targets. The nearest is {config.plan} on {config.piece}, batch {config.batch}: {lacking}."
    ]
    found = [text for text in (*_changes(asked, config), _drafted(asked, config), _by_chip(asked)) if text]
    if all(text.startswith(NOT_EVEN) for text in found):
        found.append("No chip of the catalogue does, in any format: ask for less.")
    return [*lines, *found]


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
    return [*lines, f"Nothing meets the targets on {', '.join(misses)}."] if misses else lines


def _met(asked: ServeAsked, **changed: Any) -> list[Config]:
    """What meets the targets after a change: with the batch that was asked for, or else with any."""
    batches = (asked.batch, None) if asked.batch is not None else (None,)
    for batch in batches:
        met = [one for one in search(replace(asked, batch=batch, **changed)) if one.meets]
        if met:
            return met
    return []


def _cheapest(met: Sequence[Config]) -> Config | None:
    """The cheapest, in the widest weights; of its batches the one that makes most."""
    return min(
        met,
        key=lambda one: (
            -bits(one.plan.weights),
            one.chips * float(one.piece.chip.price or math.inf),
            one.chips,
            -one.tokens_per_chip,
        ),
        default=None,
    )


def _changes(asked: ServeAsked, config: Config) -> Iterator[str]:
    """What else on the same chips would do: another batch, another plan, a larger slice, other
    formats, narrower ones."""
    chip, piece = asked.targets[0]
    given = asked.saved is not None
    if asked.batch is not None:
        met = [one for one in search(replace(asked, batch=None)) if one.meets]
        here = [one for one in met if one.piece == config.piece] or met
        if here:
            one = max(here, key=lambda one: (one.batch, one.tokens_per_chip))
            yield f"A batch of {one.batch:,} would ({one.plan} on {one.piece})."
    if given:
        yield _told("Another plan would", _cheapest(_met(asked, saved=None)))
    elif piece is not None and not asked.several:
        larger = [one for one in _met(asked, targets=((chip, None),)) if one.chips > piece.chips]
        yield _told("More chips would", _cheapest(larger))
    if asked.pinned and not given:
        free = replace(asked.question, weights="", compute="", kv_dtype="", attention="", dtype="")
        yield _told("Other formats would", _cheapest(_met(asked, question=free)))
    if not (asked.pinned or given or asked.question.quantize):
        quantized = _met(asked, question=replace(asked.question, quantize="any"))
        one = _cheapest([one for one in quantized if is_quantized(one.plan.weights, asked.model)])
        if one is not None:
            narrow = one.plan.weights
            how = f" (--quantize {narrow}; {quality_of(asked.model, narrow)})"
            yield _told(f"Quantised to {narrow} it would", one, how)


def _told(would: str, one: Config | None, more: str = "") -> str:
    return "" if one is None else f"{would}: {one.piece} with {one.plan}, batch {one.batch:,}{more}."


def _drafted(asked: ServeAsked, config: Config) -> str:
    """What speculative decoding would do for a time per token that is missed."""
    ask = asked.ask
    if ask.tpot is None or float(config.state.tpot) <= ask.tpot or asked.draft is not None or ask.output == 1:
        return ""
    found = search(replace(asked, draft=Draft(ACCEPTED, part=head_part(asked.model))))
    met = [one for one in found if one.meets]
    if not met:
        least = min(found, key=lambda one: excess(ask, one))
        seconds = render(float(least.state.tpot), "s")
        return (
            f"{NOT_EVEN} (--accept {ACCEPTED}): TPOT {seconds} with {least.plan} on {least.piece}, batch "
            f"{least.batch:,}."
        )
    one = max(met, key=lambda one: one.tokens_per_chip)
    return (
        f"With speculative decoding (--accept {ACCEPTED}) it would: {render(float(one.state.tpot), 's')} with "
        f"{one.plan} on "
        f"{one.piece}, batch {one.batch:,}, drafts of {one.drafts} by {drafter(asked)}."
    )


def drafter(asked: ServeAsked) -> str:
    """What drafts where no model is named."""
    name = asked.model.name
    if any(section.name.startswith("mtp") for section in asked.model.extras):
        return f"the MTP module of {name}"
    return f"an EAGLE or MTP head ({name} has none of its own; train or download one)"


def _by_chip(asked: ServeAsked) -> str:
    """Another chip of the catalogue, in the formats that were asked for."""
    if asked.everywhere:
        return ""
    tried = {chip.name for chip, _ in asked.targets}
    others = [
        chip for chip in (load_chip(name) for name in chip_names()) if chip.name not in tried and chip.price is not None
    ]
    asked = possible(replace(asked, saved=None, targets=tuple((chip, None) for chip in others)))[0]
    return _told("The cheapest other chip that would", _cheapest([one for one in search(asked) if one.meets]))
