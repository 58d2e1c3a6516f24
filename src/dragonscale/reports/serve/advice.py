"""What bounds a configuration and what to change; why nothing fits or meets the targets, and what would."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.hardware import Chip, Slice, chip_names, load_chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.transformer import kv_bytes_per_token
from dragonscale.reports.serve.config import first, violations
from dragonscale.reports.serve.question import ServeAsked
from dragonscale.reports.serve.records import ConfigReport, LimitRow
from dragonscale.reports.serve.refusals import possible
from dragonscale.reports.serve.search import parameter_count, search
from dragonscale.serving.capacity import capacity
from dragonscale.serving.checkpoint import bits
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.formats import Formats
from dragonscale.serving.frontier import Config
from dragonscale.serving.legality import quality
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.space import slices_of, smallest_slice, splits
from dragonscale.units import render

NARROWER = {"bf16": "fp8 or int8", "fp16": "fp8 or int8", "fp8": "4-bit", "int8": "4-bit"}


def advice(config: Config, report: ConfigReport, configs: Sequence[Config], limits: Sequence[LimitRow]) -> str:
    """What takes most of the best configuration's step, and what to change."""
    critical = next((row.value for row in limits if row.name == "critical batch"), math.inf)
    remedies = {
        "weight reads": _for_weights(config, critical),
        "cache reads": _for_cache(config),
        "compute": _for_compute(config, critical),
        "collectives": _for_wires(config, report),
        "host": "fewer chips or a larger batch, so that steps outlast the host's work for them",
    }
    text = f"Decoding is bound by {config.bound_by}: {remedies[config.bound_by]}."
    return f"{text} {_next_batch(config, configs)}".rstrip()


def _for_weights(config: Config, critical: float) -> str:
    narrow = NARROWER.get(config.plan.weights)
    change = f"a larger batch shares them (compute takes over at {critical:,.0f} tokens a step)"
    return change + (f", {narrow} weights shorten them (--quantize)" if narrow else "")


def _for_cache(config: Config) -> str:
    narrow = NARROWER.get(config.plan.kv)
    split = "" if config.plan.tensor == 1 else ", or splitting the cache further (--spread batch or sequence)"
    return (f"a cache in {narrow}, " if narrow else "") + f"fewer or shorter sequences{split}"


def _for_compute(config: Config, critical: float) -> str:
    narrow = NARROWER.get(config.plan.compute)
    change = f"below {critical:,.0f} tokens a step loading the weights would bind"
    return (f"matmuls in {narrow}, or faster chips; " if narrow else "only more FLOP/s help; ") + change


def _for_wires(config: Config, report: ConfigReport) -> str:
    plan = config.plan
    wires = [row for row in report.terms if "collectives" in row.name or "exchange" in row.name]
    longest = max(wires, key=lambda row: row.expected_s, default=None)
    if longest is not None and longest.name == "expert exchange":
        return f"the exchange between data={plan.data} places takes most; fewer of them, or an engine with faster exchanges"
    axis = longest.name.split()[0] if longest is not None else "tensor"
    return f"fewer than {axis}={getattr(plan, axis, plan.tensor)} ways, or a larger batch for each message"


def _next_batch(config: Config, configs: Sequence[Config]) -> str:
    """What the next larger batch of the same plan would do."""
    same = [
        one for one in configs if one.piece is config.piece and one.plan == config.plan and one.batch > config.batch
    ]
    if not same:
        return f"{config.batch:,} is the largest batch that fits." if config.batch == config.most else ""
    larger = min(same, key=lambda one: one.batch)
    gain = larger.tokens_per_chip / config.tokens_per_chip - 1
    if gain <= 0:
        return "A larger batch would not make more tokens."
    return (
        f"A batch of {larger.batch:,} would make {gain:+.0%} tokens, each in {render(float(larger.state.tpot), 's')}."
    )


def missed(asked: ServeAsked, config: Config) -> list[str]:
    """Why nothing meets the targets: what the nearest configuration lacks, and changes that would do, each computed."""
    lacking = " and ".join(violations(asked, config))
    lines = [
        f"Nothing meets the targets. The nearest is {config.plan} on {config.piece}, batch {config.batch}: {lacking}."
    ]
    found = [*_changes(asked), _by_chip(asked)]
    found = [text for text in found if text]
    return [*lines, *(found or ["No chip of the catalogue does, in any format: ask for less."])]


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


def _cheapest(configs: Sequence[Config]) -> Config | None:
    """The cheapest that meets the targets, in the widest weights that do."""
    met = [one for one in configs if one.meets]
    return min(
        met,
        key=lambda one: (-bits(one.plan.weights), one.chips * float(one.piece.chip.price or math.inf), one.chips),
        default=None,
    )


def _changes(asked: ServeAsked) -> Iterator[str]:
    """What else on the same chips would do: another batch, another plan, a larger slice, narrower formats."""
    chip, piece = asked.targets[0]
    free = replace(asked.question, weights="", compute="", kv="", attention="", dtype="")
    given = asked.saved is not None
    ways = (
        (asked.batch is not None, {}, "A batch of {batch} would ({plan} on {piece})."),
        (given, {"saved": None}, "Another plan would: {plan} on {piece}, batch {batch}."),
        (
            not (piece is None or asked.several or given),
            {"targets": ((chip, None),)},
            "More chips would: {piece} with {plan}, batch {batch}.",
        ),
        (asked.pinned and not given, {"question": free}, "Other formats would: {plan} on {piece}, batch {batch}."),
        (
            not (asked.pinned or given or asked.question.quantize),
            {"question": replace(asked.question, quantize="any")},
            "Quantised to {weights} it would: {plan} on {piece}, batch {batch} (--quantize {weights}; {quality}).",
        ),
    )
    for open_, changed, text in ways:
        found = _cheapest(search(replace(asked, batch=None, **changed))) if open_ else None
        if found is not None:
            narrow = found.plan.weights
            yield text.format(
                batch=found.batch, plan=found.plan, piece=found.piece, weights=narrow, quality=quality(narrow)
            )


def _by_chip(asked: ServeAsked) -> str:
    """Another chip of the catalogue, in the formats that were asked for."""
    if asked.everywhere:
        return ""
    tried = {chip.name for chip, _ in asked.targets}
    others = [
        chip for chip in (load_chip(name) for name in chip_names()) if chip.name not in tried and chip.price is not None
    ]
    targets = tuple((chip, None) for chip in others)
    if asked.saved is not None or not targets:
        asked = replace(asked, saved=None)
    cheapest = _cheapest(search(possible(replace(asked, targets=targets))[0]))
    if cheapest is None:
        return ""
    return f"The cheapest other chip that would: {cheapest.piece} with {cheapest.plan}, batch {cheapest.batch}."


def unfit(asked: ServeAsked) -> list[str]:
    """Why nothing fits at all: the bytes that are missing, and the smallest slice that holds the model."""
    lines: list[str] = []
    engine = asked.engine_on(asked.targets[0][0])
    most = engine.scheduling.max_sequences
    if asked.batch is not None and asked.batch > most:
        lines.append(f"{engine.name} decodes at most {most:,} sequences at once in each place, not {asked.batch:,}.")
    for chip, piece in asked.targets[:1] if not asked.everywhere else ():
        formats = asked.formats(chip)[-1]
        lines.append(_shortage(asked, chip, piece, formats))
        lines += [text for text in (_holds(asked, chip), _by_batch_fit(asked), _narrower_fit(asked)) if text]
    return lines or [f"No slice of the catalogue holds {asked.model.name} and one sequence."]


def _shortage(asked: ServeAsked, chip: Chip, piece: Slice | None, formats: Formats) -> str:
    """What the largest piece that was looked at lacks."""
    where = piece or slices_of(chip)[-1]
    plan = asked.saved.plan if asked.saved is not None else _widest(asked, where, formats)
    engine = asked.engine_on(chip)
    room = capacity(Deployment(asked.model, where, plan, engine))
    length = asked.ask.prompt + asked.ask.output
    need = first(room.held(float(asked.batch or 1), float(length)))
    sequences = f"{asked.batch} sequences" if (asked.batch or 1) > 1 else "one sequence"
    usable = first(room.usable)
    if need <= usable:
        return f"No batch of {asked.batch or 1} can be split as {plan} on {where}."
    return (
        f"{asked.model.name} does not fit on {where}: {plan} needs {need / 1e9:.1f} GB per chip for the weights and {sequences} of "
        f"{length:,} tokens, {(need - usable) / 1e9:.1f} GB more than the {usable / 1e9:.1f} GB that {engine.name} uses "
        f"of {room.hbm / 1e9:.0f} GB."
    )


def _widest(asked: ServeAsked, piece: Slice, formats: Formats) -> ServingPlan:
    """The plan that splits most: what fits least badly."""
    words: dict[str, Any] = vars(formats)
    plans = [
        replace(plan, **words, spread=asked.spread)
        for plan in splits(asked.model, piece, asked.engine_on(piece.chip).name)
    ]
    if not plans:
        return ServingPlan(tensor=piece.chips, **words)
    engine = asked.engine_on(piece.chip)
    return min(plans, key=lambda plan: first(capacity(Deployment(asked.model, piece, plan, engine)).weights))


def _holds(asked: ServeAsked, chip: Chip) -> str:
    """The smallest slice of the same chip that does hold it."""
    if asked.saved is None:
        found = search(replace(asked, targets=((chip, None),)))
        if found:
            smallest = min(found, key=lambda one: one.chips)
            return f"The smallest slice that holds it is {smallest.piece}, with {smallest.plan}."
    formats = asked.formats(chip)[-1]
    length = asked.ask.prompt + asked.ask.output
    cache = (asked.batch or 1) * length * kv_bytes_per_token(asked.model, formats.kv)
    size = parameter_count(asked) * dtype_bytes(formats.weights) + cache
    ideal = smallest_slice(chip, size / asked.engine_on(chip).memory.share)
    return "" if ideal is None else f"By bytes alone ({size / 1e9:,.0f} GB) it takes at least {ideal}."


def _narrower_fit(asked: ServeAsked) -> str:
    """The widest narrower format in which it fits where it was asked for."""
    if asked.pinned or asked.question.quantize:
        return ""
    found = search(replace(asked, question=replace(asked.question, quantize="any")))
    if not found:
        return ""
    one = max(found, key=lambda config: (bits(config.plan.weights), config.tokens_per_chip))
    narrow = one.plan.weights
    return f"Quantised to {narrow} it fits: {one.plan} on {one.piece} (--quantize {narrow}; {quality(narrow)})."


def _by_batch_fit(asked: ServeAsked) -> str:
    if asked.batch is None:
        return ""
    found = search(replace(asked, batch=None))
    if not found:
        return ""
    return f"The largest batch that fits is {max(one.most for one in found)}."
