"""Sentences about why nothing fits, and what to change."""

from dataclasses import dataclass

from dragonscale.commands.advised import FITS, Advice
from dragonscale.commands.serve.format_notes import quantize_text
from dragonscale.models.transformer import Transformer
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.unfit import Indivisible, Shortage, Unfit, why_unfit

MEMORY = "Bound by memory."
NOTHING_HOLDS = "Bound by memory; no slice, format or batch that was tried holds it."
DIVISION = "Bound by how the model divides: take a number of chips that divides its heads."


@dataclass(frozen=True)
class UnfitText:
    """Why nothing fits and what would, a sentence each; what bounds it; and both in a line."""

    sentences: list[Advice]
    bound: str
    verdict: str


def unfit(job: ServingJob, brief: bool = False) -> UnfitText:
    """Why nothing fits at all, and what to change. In brief the bytes that a given plan lacks alone."""
    why = why_unfit(job, brief)
    # what is wrong first, then what would fit
    sentences: list[Advice] = []
    if why.division is not None:
        sentences.append(Advice(_division_text(job.model, why.division)))
    if why.sequences is not None:
        limit = f"at most {why.sequences.limit:,} sequences at once in each place, not {why.sequences.batch:,}"
        sentences.append(Advice(f"{why.sequences.engine} decodes {limit}."))
    if why.shortage is not None:
        sentences.append(Advice(_shortage_text(job.model, why.shortage)))
    if why.larger_slice is not None:
        slice_ = why.larger_slice.piece
        text = f"Of the usual sizes the smallest that holds it is {slice_}, with {why.larger_slice.plan}."
        sentences.append(Advice(text, {"on": str(slice_), "plan": ""}, FITS))
    if why.smaller_batch is not None:
        flags = {"batch": str(why.smaller_batch)}
        sentences.append(Advice(f"The largest batch that fits is {why.smaller_batch}.", flags, FITS))
    if why.narrower is not None:
        plan = why.narrower.plan
        where = f"{plan} on {why.narrower.piece} ({quantize_text(job.model, plan.weights)})"
        text = f"Quantised to {plan.weights} it fits: {where}."
        sentences.append(Advice(text, {"quantize": plan.weights}, FITS))
    if not sentences:
        sentences.append(Advice(f"No slice of the catalogue holds {job.model.name} and one sequence."))

    verdict = _verdict(why)
    if why.division is not None:
        return UnfitText(sentences, DIVISION, verdict)
    given_up = brief and job.plan is not None  # what would hold it was not searched
    has_remedy = any(sentence.flags for sentence in sentences)
    return UnfitText(sentences, MEMORY if given_up or has_remedy else NOTHING_HOLDS, verdict)


def _verdict(why: Unfit) -> str:
    """What is missing by how much, and the nearest that fits, in a line."""
    text = "Does not fit"
    if why.division is not None:
        slice_ = why.division.slice_
        text = f"Does not fit {slice_}: the model does not divide over {slice_.chips} chips"
    elif why.shortage is not None and why.shortage.is_memory:
        missing = why.shortage.needed_bytes - why.shortage.usable_bytes
        text = f"Does not fit {why.shortage.slice_}: {missing / 1e9:.1f} GB a chip are missing"
    # the nearest first
    ways: list[str] = []
    if why.smaller_batch is not None:
        ways.append(f"with a batch of {why.smaller_batch}")
    if why.larger_slice is not None:
        ways.append(f"on {why.larger_slice.piece}")
    if why.narrower is not None:
        ways.append(f"with --quantize {why.narrower.plan.weights}")
    if not ways:
        return f"{text}."
    return f"{text}; it fits {' or '.join(ways)}."


def _division_text(model: Transformer, division: Indivisible) -> str:
    """That heads cannot be dealt out over a slice, and what fits on one of nearly its size."""
    chips = division.slice_.chips
    if division.heads_divide:
        text = f"{division.engine} has no way to split {model.name} over {chips} chips"
    else:
        text = f"{model.name} has {division.heads} heads, which {chips} chips do not divide"
    if division.largest_part is not None:
        text += f", and {division.largest_part}, which it can be cut into, is too small"
    fits = " and ".join(f"{config.plan} on {config.piece}" for config in division.neighbours)
    return f"{text}. It fits as {fits}." if fits else f"{text}."


def _shortage_text(model: Transformer, shortage: Shortage) -> str:
    """The bytes that the largest slice lacks."""
    plan, slice_ = shortage.plan, shortage.slice_
    if not shortage.is_memory:
        return f"No batch of {shortage.sequences} can be split as {plan} on {slice_}."
    sequences = f"{shortage.sequences} sequences" if shortage.sequences > 1 else "one sequence"
    missing = shortage.needed_bytes - shortage.usable_bytes
    return (
        f"{model.name} does not fit on {slice_}: {plan} needs {shortage.needed_bytes / 1e9:.1f} GB per chip for the "
        f"weights and {sequences} of {shortage.tokens:,} tokens, {missing / 1e9:.1f} GB more than the "
        f"{shortage.usable_bytes / 1e9:.1f} GB that {shortage.engine} can use there."
    )
