"""The memory of fine-tuning: of all weights, with LoRA, and with LoRA over 4-bit weights (QLoRA).

An estimate of memory only, and without activations: frozen weights, and 16 bytes for each
parameter that is trained. QLoRA (Dettmers et al. 2023, arXiv:2305.14314) stores the matmuls of the
blocks in 4 bits with their scales, which come to 4.127 bits in its NF4 with double quantization and
to 4.125 in the int4 of `kernels/formats.toml` (a 16-bit scale for 128 weights), which is counted;
embeddings, norms and the head stay in bf16.
"""

from dragonscale.app.estimate.paper import Paper
from dragonscale.app.estimate.question import EstimateAsked
from dragonscale.app.estimate.training import MOMENTS, STATE, STATES, held_by, letters_of
from dragonscale.course.closed_forms.rules_of_thumb import state_bytes
from dragonscale.models.lora import adapted_parameters, adapter_parameters
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.kernels.dtypes import FORMATS, format_name

FINE_TUNING = "fine-tuning memory"
BESIDE = "An estimate of memory alone, and without activations."


def write_finetuning(asked: EstimateAsked, paper: Paper) -> None:
    """Bytes held by each way of fine-tuning; with a chip, the fewest that hold them."""
    assert asked.model is not None
    assert asked.question.lora is not None
    paper.group = FINE_TUNING
    total, _ = letters_of(asked, paper)
    blocks, rank = asked.model.program().sections[1:-1], paper.let("rank", asked.question.lora)
    weights, more = STATES[STATE]
    held = {"full": paper.write("full: 16 bytes a parameter", state_bytes(total, weights, MOMENTS, *more), "bytes")}
    paper.count(
        "LoRA parameters, attention only",
        blocks,
        lambda every: {"attention": adapter_parameters(every, rank).get("attention", 0)},
        "count",
        "lora",
    )
    many = paper.count(
        "LoRA parameters, all matmuls", blocks, lambda every: adapter_parameters(every, rank), "count", "lora"
    )
    trained = state_bytes(paper.let("P_lora", many), weights, MOMENTS, *more)
    held["LoRA"] = paper.write("LoRA: bf16 weights, adapters", state_bytes(total, "bf16", ()) + trained, "bytes")
    narrow = paper.let("P_4bit", float(adapted_parameters(blocks)))
    frozen = narrow * FORMATS[format_name("int4")].weight + state_bytes(total - narrow, "bf16", ())
    held["QLoRA"] = paper.write("QLoRA: 4-bit weights, adapters", frozen + trained, "bytes")
    if asked.chip is not None:
        chip = held_by(asked.chip, paper)
        for name, size in held.items():
            paper.write(f"fewest chips, {name}", chips_to_hold(chip, paper.let(f"held_{name}", size)), "count")
