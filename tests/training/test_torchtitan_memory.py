"""What torchtitan's modes hold, added up by hand from what its source keeps."""

import dataclasses

import msgspec
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.training.cost.evaluation import judge_one, make_job, make_setting
from dragonscale.training.memory.section_memory import saved_tensor_bytes, section_memory
from dragonscale.training.plan.plan import AXES
from dragonscale.training.plan.plan_file import parse_plan


def kept(stack: str, plan: str, tokens: int = 8192) -> dict[str, float]:
    """Bytes that a layer of Llama 3 8B keeps, by tensor, for each token of a microbatch."""
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 8, tokens, stack)
    words = parse_plan(plan)
    setting = make_setting(job, words, True, {})
    mesh = lay_wires({name: getattr(words, name) for name in AXES}, job.slice, AXES).mesh
    block = next(section for section in setting.sections if section.name == "block")
    found = saved_tensor_bytes(setting.local(block, 1, mesh), words)
    return {name: size / tokens for name, size in found if size}


def test_what_checkpointing_op_by_op_keeps():
    """Every other matmul of Q K V O U G D, attention and the input; over `tensor` what is scattered too, and without a
    compiler the last matmul's output, before it is scattered (whole) and after."""
    d, keys, hidden = 2 * 4096, 2 * 1024, 2 * 14336
    compiled = {"R": d, "Q": d, "V": keys, "O": d, "U": hidden}
    assert kept("torchtitan", "fsdp8 selective") == compiled
    split = {name: size / 4 for name, size in compiled.items()}
    assert kept("torchtitan", "fsdp2 tp4 selective") == split | {"A": d / 4}
    assert kept("torchtitan-eager", "fsdp8 selective") == compiled | {"M": d}
    assert kept("torchtitan-eager", "fsdp2 tp4 selective") == split | {"A": d / 4, "M": d + d / 4}


def test_a_loss_over_a_split_vocabulary_holds_more_where_it_is_not_compiled():
    def logits(stack: str, plan: str) -> float:
        job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 32, 8192, stack)
        held = judge_one(job, parse_plan(plan)).ledger.memory["logits"]
        return (held / 8192 - 2 * 2 * 4096) / (128256 / parse_plan(plan).tensor)

    assert logits("torchtitan-2024", "fsdp8 block") == pytest.approx(14)
    assert logits("torchtitan-2024", "fsdp2 tp4 block") == pytest.approx(18)
    assert logits("torchtitan-2025", "fsdp2 tp4 block") == pytest.approx(6)


def test_gradients_of_fsdp2_have_memory_of_their_own_all_the_time():
    """Runs that differ in shards alone differ by 16 bytes a parameter, also where the loss is the fullest moment."""
    held = []
    for chips in (8, 128):
        job = make_job(load_model("llama3-8b"), parse_slice(f"h100:{chips}"), 2 * chips, 8192, "torchtitan-2024")
        memory = judge_one(job, parse_plan(f"fsdp{chips} mb2 selective")).ledger.memory
        assert memory["logits"] > memory["gradients"] > 0
        held.append(sum(memory[part] for part in ("optimizer", "gradients")))
    assert (held[0] - held[1]) / (1 / 8 - 1 / 128) == pytest.approx(16 * 8.03e9, rel=1e-3)


@pytest.mark.parametrize(("scattered", "in_flight"), [(2.0, 2.0), (4.0, 6.0)])
def test_gradients_on_their_way_have_a_copy_where_they_are_widened(scattered: float, in_flight: float) -> None:
    """Two bytes as the backward pass makes them; beside those a copy of four where they are scattered in float32."""
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 8, 8192, "torchtitan")
    plan = parse_plan("fsdp8")
    setting = make_setting(job, plan, True, {})
    state = msgspec.structs.replace(setting.stack.state, scatter_bytes=scattered)
    setting = dataclasses.replace(setting, stack=msgspec.structs.replace(setting.stack, state=state))
    mesh = lay_wires({name: getattr(plan, name) for name in AXES}, job.slice, AXES).mesh
    block = next(section for section in setting.sections if section.name == "block")
    layer = section_memory(setting, block, 1, mesh)
    assert layer.reducing == pytest.approx(layer.sharded * layer.used * in_flight)
