"""The model, the formats and the split that a row of measured inference runs describes."""

import re
from dataclasses import replace
from typing import Any

from dragonscale.evidence.collective_case import Skip, count
from dragonscale.evidence.score import number
from dragonscale.evidence.training_model import Row, model_of
from dragonscale.hardware.chip import DTYPE_BYTES
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.serving.plan import ServingPlan

MOST_LAYERS = 2000
PARALLEL = r"(?i)gpt-?j|falcon|palm"
"""Models whose blocks add attention and feed-forward to the same input, so that one sum over the chips does for both."""
_DTYPES = {"fp16": "bf16", "fp4": "nvfp4"}
"""Half precision has the rates and bytes of bf16; four bits are NVIDIA's with a scale for every 16."""


def served_model(row: Row) -> Transformer:
    """The model of a row. Its embedding is tied if that fits the stated number of parameters better; blocks whose halves
    run side by side are known by the model's name or said in the notes."""
    if (count(row, "layers") or 0) > MOST_LAYERS:
        raise Skip("more layers than any model has")
    model = model_of(row | {"tied_embeddings": "false"})
    stated = number(row.get("total_params"))
    if stated:
        tied = replace(model, tied=True)
        own, shared = (abs(count_parameters(one).total - stated) for one in (model, tied))
        model = tied if shared < own else model
    if re.search(PARALLEL, row["model"]) or "parallel attn/FFN" in row["notes"]:
        layers = tuple(replace(layer, parallel=True, norms="pre-shared") for layer in model.layers)
        model = replace(model, layers=layers)
    return model


def dtypes_of(row: Row) -> tuple[str, str, str]:
    """Formats of the stored weights, of the products and of the cache; what follows wide ones without being stated is as
    wide."""
    found: list[str] = []
    for column in ("weight_dtype", "act_dtype", "kv_dtype"):
        text = row[column].lower()
        if not text and found and found[-1] == "bf16":
            text = "bf16"
        if not text:
            raise Skip(f"{column} not stated")
        name = _DTYPES.get(text, text)
        if name not in DTYPE_BYTES:
            raise Skip(f"no model of serving in {text[:20]!r}")
        found.append(name)
    return found[0], "fp8_block" if _block_scaled(row) else found[1], found[2]


def _block_scaled(row: Row) -> bool:
    """DeepSeek and its kin scale fp8 by blocks."""
    return bool(row["mla"]) and row["act_dtype"].lower() == "fp8"


def plan_of(
    row: Row, chips: int, dtypes: tuple[str, str, str], latency: bool = False
) -> tuple[ServingPlan | None, tuple[str, ...]]:
    """How the model was split, or None if the source does not say, and what was assumed. A measured latency is taken to be
    that of all chips together."""
    weights, compute, kv = dtypes
    formats: dict[str, Any] = {"weights": weights, "compute": compute, "kv": kv}
    notes = row["notes"]
    if "WS-2D" in notes:
        return _weight_stationary(chips, notes, formats), ("how the chips are split in two",)
    if "WG-XYZ" in notes:
        return ServingPlan(data=chips, **formats), ("gathering the weights hides under the products",)
    tensor, pipe, expert, data = (count(row, column) for column in ("tp", "pp", "ep", "dp"))
    if tensor is None and data is None and chips > 1:
        if not latency:
            return None, ("how the model is split",)
        return ServingPlan(tensor=chips, **formats), ("tensor parallelism",)
    devices = 2 if row["chip"].lower() == "tpu7x" else 1
    tensor, pipe, expert, data = tensor or 1, pipe or 1, expert or 1, data or 1
    if tensor % devices == 0:
        tensor //= devices
    if "attention-DP" in notes:
        tensor, data = 1, tensor * data
    plan = ServingPlan(tensor=tensor, data=data, expert=expert, pipe=pipe, **formats)
    if plan.chips != chips:
        raise Skip("parallel sizes do not multiply to the number of chips")
    return plan, ("presumed" in notes) * ("tensor parallelism",)


def _weight_stationary(chips: int, notes: str, formats: dict[str, Any]) -> ServingPlan:
    """Weights split two ways: a hidden dim of four times the width is cut into 2√n parts and the width into √n/2 (the
    paper's section 3.2.2)."""
    width = 1
    while width * width * 4 < chips:
        width *= 2
    spread = "batch" if "batch-sharded" in notes else "copy"
    return ServingPlan(tensor=chips // width, width=width, spread=spread, **formats)
