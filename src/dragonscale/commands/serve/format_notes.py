"""Notes on formats and on what no engine runs: what was made of the checkpoint's formats, what narrower ones cost in
quality, what was left out, what was forced."""

from collections.abc import Sequence
from dataclasses import replace

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.models.catalogue import published_fp8
from dragonscale.models.transformer import Transformer
from dragonscale.serving.advice.refusals import Possible, chip_refusal, job_refusal
from dragonscale.serving.engine.checkpoint import bits, is_quantized, stored_in, told
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import WIDE, quality, rules
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.legal import stored_note

# Formats whose quality is known from the Llama 3.1 family (Kurtic and others, arXiv 2411.02355).
LLAMA_STUDIED = ("fp8", "int8", "int4")

# Refusals that are shown in full where many chips were asked for.
MAX_REFUSALS = 3


def refused_notes(job: ServeAsked, allowed: Possible, is_nothing: bool) -> list[str]:
    """Refusals as notes: of everything that was asked for, or of some of the chips."""
    if is_nothing:
        return [f"Not possible: {text}, or add --force." for text in allowed.refusals[:MAX_REFUSALS]]
    if job.everywhere and len(allowed.refusals) > MAX_REFUSALS:
        names = ", ".join(chip.name for chip in allowed.refused_chips)
        return [f"Left out, because no engine runs that there: {names}."]
    return [f"Left out: {text}." for text in allowed.refusals]


def forced_notes(job: ServeAsked) -> list[str]:
    """What was forced that no engine runs."""
    if not job.force:
        return []
    unforced = replace(job, force=False)
    refusals = [job_refusal(unforced), *(chip_refusal(unforced, chip) for chip, _ in job.targets)]
    return [f"Forced: {text}." for text in dict.fromkeys(refusals) if text][:MAX_REFUSALS]


def format_notes(job: ServeAsked, configs: Sequence[Config]) -> list[str]:
    """What was made of the checkpoint's formats, what narrower ones cost in quality, and that an engine is archived."""
    notes: list[str] = []
    # chips by what becomes of the checkpoint's formats there, so that one sentence names all that do the same
    chips_by_change: dict[str, list[str]] = {}
    for config in configs:
        chip, plan = config.piece.chip, config.plan
        row = rules(config.engine)
        if row.archived:
            notes.append(f"{row.archived}; {row.instead} is what runs today (--engine {row.instead}).")
        notes.append(stored_note(chip, plan))
        if is_quantized(plan.weights, job.model):
            notes.append(_quality_note(job.model, plan))
        elif not job.has_fixed_formats:
            change = told(Formats(plan.weights, plan.compute), job.model)
            chips_by_change.setdefault(change, []).append(chip.name)
        if not job.has_fixed_formats:
            notes.append(_cache_note(job.model, row.name, plan))
    for change, chips in chips_by_change.items():
        if change:
            notes.append(f"On {', '.join(chips)} {job.model.name} is {change}.")
    return list(filter(None, dict.fromkeys(notes)))


def quality_of(model: Transformer, dtype: str) -> str:
    """What a narrower format costs in quality, and that it was measured on another family where it was."""
    is_llama = model.name.lower().startswith("llama")
    if dtype.removesuffix("_block") in LLAMA_STUDIED and not is_llama:
        return f"{quality(dtype)}; measured on Llama 3.1, not on {model.name}"
    return quality(dtype)


def quantize_text(model: Transformer, dtype: str) -> str:
    """How to ask for a narrower format, what it costs in quality, and as what the model is published in it."""
    text = f"--quantize {dtype}; {quality_of(model, dtype)}"
    if dtype == "fp8" and published_fp8(model.name):
        text += f"; {published_fp8(model.name)}, as {model.name}-fp8 here"
    return text


def _quality_note(model: Transformer, plan: ServingPlan) -> str:
    alone = f" (weights only, multiplied in {plan.compute})" if plan.compute in WIDE else ""
    text = f"{plan.weights}{alone} is narrower than the checkpoint's {stored_in(model)}"
    cost = quality_of(model, plan.weights)
    return f"{text}: {cost}." if cost else f"{text}; what it costs in quality is not known here."


def _cache_note(model: Transformer, engine: str, plan: ServingPlan) -> str:
    """Whose choice a narrow KV cache is that nobody asked for; empty for a wide one."""
    if bits(plan.kv) >= bits("bf16"):
        return ""
    if is_quantized(plan.weights, model):
        why = f"taken along with {plan.weights} weights"
    elif model.quantization.kv:
        why = "as the checkpoint says"
    else:
        why = f"which {engine} is run with for {plan.weights} weights"
    return f"The KV cache is in {plan.kv}, {why}; --kv-dtype bf16 keeps it wide."
