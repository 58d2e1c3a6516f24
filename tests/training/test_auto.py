"""The stack that is taken where none is named."""

from dataclasses import replace

import pytest

from dragonscale.hardware import parse_slice
from dragonscale.hardware.catalogue import chip_names, load_chip
from dragonscale.models import load_model
from dragonscale.training.auto import auto_choices, auto_stack
from dragonscale.training.evaluation import make_job, moved
from dragonscale.training.legal import trains_in
from dragonscale.training.legality import family, rules
from dragonscale.training.stack import change, stacks


@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "deepseek-v3"])
def test_the_stack_of_every_chip_trains_on_it(chip: str, model: str) -> None:
    known = load_chip(chip)
    name = auto_stack(parse_slice(f"{chip}:{known.default_slice}"), load_model(model))
    assert trains_in(known, rules(name, family(known)))


def test_the_table_names_known_stacks_with_reasons() -> None:
    assert {one.stack for one in auto_choices()} <= set(stacks())
    assert all(one.why and (one.source or one.stack == "generic") for one in auto_choices())


@pytest.mark.parametrize(
    ("on", "model", "dtype", "expected"),
    [
        ("v5p:8x8x8", "llama3-70b", "bf16", "maxtext"),
        ("h100:8", "llama3-8b", "bf16", "torchtitan"),
        ("h100:8", "llama3-8b", "fp8", "megatron-core"),
        ("h100:16384", "llama3-405b", "bf16", "megatron-2024"),
        ("h800:2048", "deepseek-v3", "bf16", "megatron-core"),
        ("gb200:64", "deepseek-v3", "bf16", "megatron-bridge"),
        ("a100:64", "llama3-8b", "bf16", "torchtitan"),
        ("v100:64", "gpt2-xl", "bf16", "megatron-2021"),
        ("mi300x:8", "llama3-8b", "bf16", "torchtitan"),
        ("mi300x:64", "mixtral-8x7b", "bf16", "megatron-core"),
    ],
)
def test_what_people_run(on: str, model: str, dtype: str, expected: str) -> None:
    assert auto_stack(parse_slice(on), load_model(model), dtype) == expected


def test_a_job_moved_to_other_chips_has_their_stack_and_keeps_what_was_asked() -> None:
    job = make_job(load_model("mixtral-8x7b"), parse_slice("v5p:4x4x4"), 256, 4096, "auto")
    asked = change(job.stack, "experts", skew=job.stack.experts.skew * 1.5)
    there = moved(replace(job, stack=asked), parse_slice("h100:64"))
    assert there.stack.name == "megatron-core"
    assert there.stack.experts.skew == pytest.approx(1.5 * stacks()["megatron-core"].experts.skew)
    named = make_job(job.model, job.slice, 256, 4096, "maxtext")
    assert moved(named, parse_slice("h100:64")).stack.name == "maxtext"
