"""Profiles that were recorded on an H200 (`tools.record_profiles`), read as anyone's: steps, parts, FLOPs, what each op
is."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.evidence.profiles.opening import newest
from dragonscale.evidence.profiles.roles import SECTIONS
from dragonscale.evidence.xla.compiled import read_matmuls
from dragonscale.evidence.xla.hlo_text import read_module
from tests.evidence.profiles.recordings import RECORDED, recorded

XPLANES = ("jax_train", "jax_gemma", "jax_moe", "jax_prefill", "jax_decode")
TORCH = ("torch_train", "torch_compiled", "torch_modules")
ALL = (*(f"{name}.xplane.pb.gz" for name in XPLANES), *(f"{name}.trace.json.gz" for name in (*TORCH, "jax_train")))


@cache
def read(name: str) -> Any:
    return ds.profile(str(recorded(name)))


def facts(name: str) -> dict[str, Any]:
    """What was run, and how long its steps took with no profiler around them."""
    return json.loads((RECORDED / f"{name.partition('.')[0]}.json").read_text())


@pytest.mark.parametrize("name", ALL)
def test_steps_are_found_and_their_parts_add_up(name: str) -> None:
    report, told = read(name), facts(name)
    if name != "jax_train.trace.json.gz":  # which calls its device GPU
        assert report.device == "NVIDIA H200"
        assert report.chip == "h200"
    assert report.steps.count == told["steps"]
    # the profiler costs a decode step 15%, a training step nothing
    assert report.step_s == pytest.approx(told["step_s"], rel=0.2 if "decode" in name else 0.08)
    assert sum(part.seconds for part in report.parts) == pytest.approx(report.step_s, rel=0.01)
    idle = sum(part.seconds for part in report.parts if part.name == "idle")
    assert sum(group.exposed_s for group in report.groups) + idle == pytest.approx(report.step_s, rel=0.01)


@pytest.mark.parametrize("name", ALL)
def test_device_time_is_known_by_kind_and_part(name: str) -> None:
    report = read(name)
    busy = sum(group.exposed_s for group in report.groups)
    assert report.attributed_kind >= 0.97
    # a program's own name is no part of a model, whatever is said of it
    known = sum(group.exposed_s for group in report.groups if group.section in SECTIONS)
    assert known / busy >= 0.9
    assert report.attributed_section >= 0.9


@pytest.mark.parametrize("name", XPLANES)
def test_matmul_flops_are_those_of_the_compiled_program(name: str) -> None:
    report = read(f"{name}.xplane.pb.gz")
    programs = report.analysis.recording.programs
    module = next(each for key, each in programs.items() if key.startswith(("jit_step", "jit_serving_step")))
    matmuls, unknown = read_matmuls(module)
    assert not unknown
    assert report.matmul_flops == pytest.approx(sum(each.flops_each * each.times for each in matmuls), rel=1e-3)


def test_a_program_in_a_profile_is_the_one_xla_prints() -> None:
    """The module that lies in the profile as a message has the matmuls of the text that XLA wrote of it."""
    text = gzip.decompress((RECORDED / "jax_train.hlo.txt.gz").read_bytes()).decode()
    printed, kept = (
        sorted((each.flops_each, each.times, each.op_name) for each in read_matmuls(module)[0])
        for module in (read_module(text), read("jax_train.xplane.pb.gz").analysis.recording.programs["jit_step"])
    )
    assert printed == kept


@pytest.mark.parametrize(
    "name", ["jax_train.xplane.pb.gz", "torch_train.trace.json.gz", "torch_compiled.trace.json.gz"]
)
def test_matmul_flops_are_those_of_the_model(name: str) -> None:
    """6 FLOPs for each weight of a matmul and token; attention forward 4 for each query, key and
    channel, backward 10."""
    model, told = facts(name)["model"], facts(name)
    wide, heads, size = model["hidden_size"], model["num_attention_heads"], model["head_dim"]
    shared, layers = model["num_key_value_heads"], model["num_hidden_layers"]
    layer = wide * size * (2 * heads + 2 * shared) + 3 * wide * model["intermediate_size"]
    weights = layers * layer + wide * model["vocab_size"]
    tokens = told["batch"] * told["seq"]
    attention = 14 * layers * tokens * told["seq"] * heads * size
    assert read(name).matmul_flops == pytest.approx(6 * weights * tokens + attention, rel=1e-3)


@pytest.mark.parametrize("name", TORCH)
def test_matmul_flops_are_those_pytorch_counts(name: str) -> None:
    assert read(f"{name}.trace.json.gz").matmul_flops == pytest.approx(facts(name)["matmul_flops"], rel=1e-3)


def test_a_decode_step_of_a_small_model_waits_for_its_host() -> None:
    report = read("jax_decode.xplane.pb.gz")
    assert next(part.share for part in report.parts if part.name == "idle") > 0.5
    assert "host" in report.gaps[0].cause


def test_no_matmul_is_faster_than_the_chip() -> None:
    for name in ALL:
        for group in read(name).groups:
            # attention counts the keys that a causal mask hides, and kernels leave them out
            if group.kind in ("matmul", "grouped matmul") and group.fraction is not None:
                assert group.fraction <= 1.0, (name, group)


def test_attention_in_blocks_of_scores_is_attention() -> None:
    """Soft-capped scores have no flash kernel: the matmuls of a layer's attention are laid beside the ledger's line all
    the same."""
    report, told = read("jax_gemma.xplane.pb.gz"), facts("jax_gemma")
    model, groups = told["model"], report.groups
    heads, size = model["num_attention_heads"], model["head_dim"]
    forward = sum(each.flops for each in groups if (each.kind, each.phase) == ("attention", "forward"))
    scores = 4 * model["num_hidden_layers"] * told["batch"] * told["seq"] ** 2 * heads * size
    assert 0.4 * scores < forward <= 1.01 * scores  # blocks that a mask hides whole are left out
    assert "scores" in {role.what for role in report.analysis.roles if role.kind == "attention"}


@pytest.mark.parametrize("name", TORCH)
def test_a_causal_mask_halves_what_pytorch_computes(name: str) -> None:
    rates = [each.flops_per_s for each in read(f"{name}.trace.json.gz").groups if each.kind == "attention"]
    assert rates
    assert all(rate < 450e12 for rate in rates)  # cuDNN reaches 350 to 400 with heads of 64


@pytest.mark.parametrize("name", TORCH)
def test_elementwise_ops_of_pytorch_have_a_roofline(name: str) -> None:
    """By the shapes of their operators: an activation and its gradient run near the memory's rate, and nothing runs
    above it."""
    groups = [
        each for each in read(f"{name}.trace.json.gz").groups if each.kind in ("elementwise", "copy", "reduction")
    ]
    near = next(each.fraction for each in groups if (each.section, each.phase) == ("mlp", "backward"))
    assert near is not None
    assert 0.6 < near < 1.0
    assert all(each.fraction is None or each.fraction < 1.05 for each in groups)


def test_experts_that_see_every_token_are_told() -> None:
    """XLA expands a grouped matmul over all 8 experts on this GPU: seven eighths of half the step are for nothing."""
    report = read("jax_moe.xplane.pb.gz")
    grouped = sum(each.exposed_s for each in report.groups if each.kind == "grouped matmul")
    waste = next(each for each in report.waste if "experts" in each.what)
    assert waste.seconds == pytest.approx(7 / 8 * grouped, rel=0.02)
    assert report.savings[0].seconds == waste.seconds
    assert any("all 8 experts" in note for note in report.notes)
    assert not any("experts" in each.what for each in read("jax_train.xplane.pb.gz").waste)


def test_a_part_that_only_the_order_of_kernels_tells_is_called_a_guess() -> None:
    """JAX's trace of CUDA graphs names nothing; its xplane, from the same run, names every op."""
    trace, whole = read("jax_train.trace.json.gz"), read("jax_train.xplane.pb.gz")
    assert trace.guessed_section > 0.8
    assert whole.guessed_section == 0
    assert "of 90.2% the part is a guess" in " ".join(str(trace).split())
    assert "guess" not in str(whole)
    assert [text for text in trace.unknown if "xplane.pb" in text]
    assert [text for text in read("torch_train.trace.json.gz").unknown if "with_stack=True" in text]
    # a kernel that says its part itself is no guess where its neighbours say the same
    assert 0.2 < read("torch_modules.trace.json.gz").guessed_section < 0.3


def test_the_xplane_beside_a_trace_is_read_in_its_place(tmp_path: Path) -> None:
    trace, beside = tmp_path / "host.trace.json.gz", tmp_path / "host.xplane.pb"
    trace.write_bytes(recorded("jax_train.trace.json.gz").read_bytes())
    assert newest(trace) == trace
    beside.write_bytes(b"")
    assert newest(trace) == beside
    assert newest(beside) == beside
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert newest(other) == other


def test_a_program_and_its_profile_count_causal_attention_alike() -> None:
    """XLA counts every score, and half of them are computed."""
    program = ds.hlo(str(RECORDED / "jax_train.hlo.txt.gz"), on="h200")
    profile = read("jax_train.xplane.pb.gz")
    assert program.matmul_flops == pytest.approx(profile.matmul_flops, rel=1e-3)
    assert program.computed_flops == pytest.approx(profile.computed_flops, rel=1e-3)
    assert program.computed_flops < 0.96 * program.matmul_flops
    assert "are computed, half of causal attention's" in " ".join(str(program).split())
