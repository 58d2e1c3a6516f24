"""Formats of stored tensors, part by part."""

from typing import Any

from dragonscale.models import load_model
from dragonscale.models.checkpoints.stored import StoredTensor, dtype_by_part
from dragonscale.models.count import parameters
from dragonscale.training.advice.inverse import deeper

DTYPES = {"BF16": "bf16", "F8_E4M3": "fp8"}


def test_a_part_has_the_dtype_of_most_of_its_bytes() -> None:
    model = load_model("llama3-8b")
    first, second = list(parameters(model.program().sections))[:2]
    tensors = [
        StoredTensor(first, "BF16", 4, 8),
        StoredTensor(first, "F8_E4M3", 9, 9),
        StoredTensor(first, "I64", 100, 800),  # of no dtype that counts
        StoredTensor(second, "I64", 100, 800),
        StoredTensor("", "BF16", 100, 200),  # of no part
        StoredTensor("elsewhere", "BF16", 100, 200),  # of a part that the model has not
    ]

    def part_of(name: str) -> Any:
        return name

    assert dtype_by_part(model, tensors, part_of, DTYPES) == {first: "fp8"}


def test_a_deeper_model_repeats_what_comes_after_its_first_layers() -> None:
    model = load_model("deepseek-v3")
    dense = model.layers[0]
    assert [layer == dense for layer in model.layers[:4]] == [True, True, True, False]
    for count in (2, 3, 61, 100):
        layers = deeper(model, count).layers
        assert len(layers) == count
        assert sum(layer == dense for layer in layers) == min(count, 3)
