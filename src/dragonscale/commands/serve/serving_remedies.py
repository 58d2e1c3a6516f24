"""Sentences about why nothing meets the targets, and what would."""

from collections.abc import Sequence

from dragonscale.commands.advised import MEETS, Advice
from dragonscale.commands.serve.config import violations
from dragonscale.commands.serve.format_notes import quantize_text
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.models.transformer import Transformer
from dragonscale.physics.units import render
from dragonscale.serving.advice.remedies import ACCEPTED, ServingChange, ServingRemedy, remedies
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.speculation import has_heads

# Flags that leave all formats open.
FORMAT_FLAGS: dict[str, str] = dict.fromkeys(("weights", "compute", "kv_dtype", "attention", "dtype"), "")


def missed(job: ServeAsked, nearest: Config) -> list[Advice]:
    """What the nearest configuration lacks, and changes that would meet the targets, each computed."""
    lacking = " and ".join(violations(job, nearest))
    where = f"{nearest.plan} on {nearest.piece}, batch {nearest.batch}"
    sentences = [Advice(f"Nothing meets the targets. The nearest is {where}: {lacking}.")]
    # an empty flag leaves open what was asked for
    changes = remedies(job, nearest)
    sentences += [_sentence(job, remedy) for remedy in changes]
    if not any(remedy.suffices for remedy in changes):
        chips = "chip of the catalogue" if job.everywhere else "other chip with a price"
        sentences.append(Advice(f"No {chips} does, in the formats that were asked for: ask for less."))
    return sentences


def _sentence(job: ServeAsked, remedy: ServingRemedy) -> Advice:
    """A change that would meet the targets, with its flags and the configuration that it brings."""
    config = remedy.config
    text = f"{config.piece} with {config.plan}, batch {config.batch:,}"
    match remedy.change:
        case ServingChange.BATCH:
            flags = {"batch": str(config.batch), "on": job.written_slice(str(config.piece))}
            return Advice(f"A batch of {config.batch:,} would ({config.plan} on {config.piece}).", flags, MEETS)
        case ServingChange.DRAFTS:
            return _drafts_sentence(job, remedy)
        case ServingChange.PLAN:
            return Advice(f"Another plan would: {text}.", {"plan": "", "batch": ""}, MEETS)
        case ServingChange.SLICE:
            return Advice(f"More chips would: {text}.", {"on": str(config.piece), "batch": ""}, MEETS)
        case ServingChange.FORMATS:
            return Advice(f"Other formats would: {text}.", {**FORMAT_FLAGS, "batch": ""}, MEETS)
        case ServingChange.QUANTIZE:
            narrow = config.plan.weights
            text = f"Quantised to {narrow} it would: {text} ({quantize_text(job.model, narrow)})."
            return Advice(text, {"quantize": narrow, "batch": ""}, MEETS)
        case ServingChange.CHIP:
            flags = {"plan": "", "on": str(config.piece), "batch": ""}
            return Advice(f"The cheapest other chip that would: {text}.", flags, MEETS)


def _drafts_sentence(job: ServeAsked, remedy: ServingRemedy) -> Advice:
    """What speculative decoding would do for a time per token that is missed."""
    config = remedy.config
    tpot = render(float(config.state.tpot), "s")
    decoding = f"{tpot} with {config.plan} on {config.piece}, batch {config.batch:,}"
    if not remedy.suffices:
        return Advice(f"Not even speculative decoding would (--accept {ACCEPTED}): TPOT {decoding}.")
    drafts = f"drafts of {config.drafts} by {drafter(job.model)}"
    text = f"With speculative decoding (--accept {ACCEPTED}) it would: {decoding}, {drafts}."
    return Advice(text, {"accept": str(ACCEPTED)}, MEETS)


def drafter(model: Transformer) -> str:
    """What drafts where no model is named."""
    if has_heads(model):
        return f"the MTP module of {model.name}"
    return f"an EAGLE or MTP head ({model.name} has none of its own; train or download one)"


def left_out(job: ServeAsked, configs: Sequence[Config], chosen: Sequence[Config]) -> list[str]:
    """The chips of several on which nothing fits, those that are dearer than what is shown, and those on which nothing
    meets the targets."""
    if not job.compares_chips:
        return []
    by_chip: dict[str, list[Config]] = {}
    for config in configs:
        by_chip.setdefault(config.piece.chip.name, []).append(config)
    shown = {config.piece.chip.name for config in chosen}
    unfit: list[str] = []
    dearer: list[str] = []
    missing: list[str] = []
    for chip, slice_ in job.targets:
        if chip.name in shown:
            continue
        name = str(slice_ or chip.name)
        of_chip = by_chip.get(chip.name)
        if of_chip is None:
            unfit.append(name)
        elif any(config.meets for config in of_chip):
            if of_chip[0].usd_per_h is not None:
                dearer.append(name)
        elif job.goals or job.pace is None:
            missing.append(name)
        else:  # a pace that nobody asked for: how near the chip comes to it
            rate = max(float(1 / config.state.tpot) for config in of_chip)
            missing.append(f"{name} ({rate:.2g} at most)")

    sentences: list[str] = []
    if unfit:
        sentences.append(f"Nothing fits on {', '.join(unfit)}.")
    if dearer and not job.top_asked:
        sentences.append(f"Dearer than these: {', '.join(dearer)} (--top {job.top} shows all).")
    if missing and (job.goals or job.pace is None):
        sentences.append(f"Nothing meets the targets on {', '.join(missing)}.")
    elif missing and job.pace is not None:
        sentences.append(f"No user gets {1 / job.pace:.3g} tokens/s on {', '.join(missing)}.")
    return sentences
