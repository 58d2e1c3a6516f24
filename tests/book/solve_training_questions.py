"""Solutions of the chapter on training: the worked problems on LLaMA-2 13B."""

from typing import Any

from dragonscale.course.closed_forms.crossovers import least_tokens
from dragonscale.course.closed_forms.rooflines import ring_mesh
from dragonscale.course.closed_forms.rules_of_thumb import checkpoint_bytes, sequences, state_bytes
from dragonscale.models import load_model, saved_tensors
from dragonscale.physics.hardware import parse_slice
from tests.book.casebook import solves
from tests.book.solve_training_rules import FSDP, v5p


def feed_forward_widths(given: dict[str, Any]) -> list[int]:
    """Channels of what the matmuls of LLaMA-2 13B's feed-forward half put out."""
    model = load_model("llama2-13b")
    block = model.program().sections[1]
    assert (block.repeat, block.dims["d"], block.dims["f"]) == (given["L"], given["D"], given["F"])
    own = {op.output.name for op in block.ops if op.part == "mlp" and op.output is not None}
    kept = [array for array in saved_tensors(block, "matmuls") if array.name in own]
    return [block.size(array, b=1, t=1, s=1) for array in kept]


@solves("training.q2_memory")
def memory_of_a_run(given: dict[str, Any]) -> dict[str, Any]:
    widths = feed_forward_widths(given)
    assert len(widths) == 3
    return {
        "state_bytes": state_bytes(given["P"]),
        "activation_bytes": checkpoint_bytes(given["B"], widths, given["L"]),
    }


@solves("training.q3_setup")
def slice_of_question_3(given: dict[str, Any]) -> dict[str, Any]:
    piece = parse_slice("v5p:16x16x16")
    assert (piece.chips, piece.chip.hbm.capacity) == (given["chips"], given["HBM"])
    return {"seqs": sequences(given["B"], given["S"]), "hbm_total": piece.hbm}


@solves("training.q3_1_pure_dp")
def data_parallel_13b(given: dict[str, Any]) -> dict[str, Any]:
    return {"feasible": given["state_bytes"] <= v5p(given).hbm.capacity}


@solves("training.q3_2_pure_fsdp")
def sharded_13b(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p(given)
    activations = checkpoint_bytes(given["B"], feed_forward_widths(given), given["L"])
    held = activations + state_bytes(given["P"])
    mesh = ring_mesh({"X": given["N"]}, chip, {"X": 3})
    least = least_tokens(FSDP, {"D": given["D"], "F": given["F"]}, mesh)
    assert least is not None
    return {
        "activation_bytes": activations,
        "total_bytes": held,
        "per_device": held / given["N"],
        "fits": held / given["N"] < chip.hbm.capacity,
        "B_min": least,
        "compute_bound": given["B"] > least,
    }
