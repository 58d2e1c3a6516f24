"""What is recommended leaves room in memory: fuller plans are listed, and taken only where nothing else is there."""

from dataclasses import replace

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.inverse import fewest_chips, largest_batch, nearest_possible
from dragonscale.training.advice.targets import compare
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.plan.expert_load import uneven
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.search.headroom import headroom, headroom_text, leaves_room, peaks, room_bytes
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space

QUICK = Space(schedule=("1f1b", "gpipe"))

# Jobs whose fastest plan fills more than 92% of a chip, or nearly.
JOBS = [
    ("llama3.2-3b", "rtx4090:8", 128, 2048, "torchtitan"),
    ("llama3-8b", "h100:8", 128, 8192, "generic"),
    ("llama3-8b", "a100-40gb:16", 128, 4096, "megatron-core"),
    ("llama3-8b", "mi300x:8", 128, 8192, "torchtitan"),
    ("llama3-70b", "h100:64", 128, 8192, "megatron-core"),
    ("gpt3-175b", "h100:128", 256, 2048, "megatron-core"),
    ("llama2-70b", "l40s:64", 64, 4096, "megatron-core"),
    ("llama3-8b", "v5e:4x4", 64, 4096, "maxtext"),
    ("llama3-70b", "tpu7x:4x4x4", 256, 8192, "maxtext"),
    ("mixtral-8x7b", "h100:16", 64, 4096, "megatron-core"),
    ("qwen3-30b-a3b", "h100:16", 256, 4096, "megatron-core"),
    ("deepseek-v2-lite", "h100:8", 64, 4096, "megatron-core"),
    ("qwen3-30b-a3b", "v6e:4x8", 64, 4096, "maxtext"),
]


def job_of(model: str, on: str, batch: int, sequence: int, stack: str) -> Job:
    return make_job(load_model(model), parse_slice(on), batch, sequence, stack)


def with_memory(job: Job, visible: float) -> Job:
    chip = job.slice.chip.with_facts(**{"memory.hbm.visible": visible})
    return replace(job, slice=Slice(chip, job.slice.shape))


@pytest.mark.parametrize("asked", JOBS, ids=lambda asked: f"{asked[0]} {asked[1]}")
def test_a_recommended_plan_leaves_room(asked):
    job = job_of(*asked)
    found = search(job, QUICK, 5)
    room = room_bytes(job)
    for one in (found.best[0], found.runs):
        assert one is not None
        assert one.hbm_bytes <= room
        assert first_number(judge_one(job, one.plan).hbm_bytes) == pytest.approx(one.hbm_bytes, rel=1e-9)
    tight = [one for one in found.front if one.hbm_bytes > room]
    listed = [one for one in found.best if one.hbm_bytes > room]
    assert all(one.seconds < found.best[0].seconds for one in listed)
    assert not tight or tight[0] in listed


def test_without_slack_there_is_room_too():
    job = job_of("llama3-8b", "h100:8", 128, 8192, "generic")
    found = search(job, QUICK, 1, slack=0.0)
    assert found.fastest is not None
    assert found.fastest.hbm_bytes > room_bytes(job)
    assert found.best[0].hbm_bytes <= room_bytes(job)


def test_where_nothing_leaves_room_the_least_full_is_shown():
    job = job_of("llama3-8b", "h100:8", 64, 4096, "torchtitan")
    space = Space(fixed={"fsdp": 8, "microbatch": 1}, zero=(3,))
    plenty = min(one.hbm_bytes for one in search(job, space).front)
    short = with_memory(job, plenty / 0.95)
    found = search(short, space)
    assert found.best[0].hbm_bytes == pytest.approx(plenty)
    assert found.runs is not None
    assert found.runs.hbm_bytes > room_bytes(short)
    assert search(with_memory(job, 1.15 * plenty), space).best[0].roomy
    assert not search(with_memory(job, plenty / 1.01), space).best


def test_of_plans_that_leave_no_room_the_least_full_comes_before_the_fastest():
    """Microbatches of one sequence hold 24.2 GB, of two 26.1 GB and are faster."""
    job = job_of("llama3-8b", "h100:8", 64, 4096, "torchtitan")
    space = Space(fixed={"fsdp": 8}, zero=(3,), remat=("block",))
    one, two = sorted(search(job, space).front, key=lambda found: found.hbm_bytes)[:2]
    short = with_memory(job, two.hbm_bytes / 0.999)
    assert one.hbm_bytes > room_bytes(short)
    assert two.seconds < one.seconds
    assert search(short, space).best[0].plan == one.plan


def test_host_memory_comes_before_a_full_chip():
    job = job_of("llama3-8b", "h100:8", 8, 32768, "generic")
    space = Space(fixed={"fsdp": 8, "microbatch": 1})
    away, kept = (
        first_number(judge_one(job, parse_plan(f"fsdp=8,remat={name}")).hbm_bytes) for name in ("offload", "block")
    )
    short = with_memory(job, kept / 0.95)
    assert away <= room_bytes(short)
    found = search(short, space)
    assert found.best[0].plan.remat == "offload"
    assert found.judged == found.feasible + found.misses["memory"] + found.misses["torus"]


def test_slices_and_batches_are_chosen_with_room():
    job = job_of("llama3-8b", "h100:8", 64, 4096, "torchtitan")
    chip, space = job.slice.chip, replace(QUICK, remat=("block",), zero=(3,))
    for fit in (fewest_chips(job, chip, space), largest_batch(job, space)):
        assert fit is not None
        assert fit.best.hbm_bytes <= room_bytes(fit.job)
    # one slice holds the job only tightly, the other has room and is slower
    held = min(one.hbm_bytes for one in search(job, space).front)
    full = with_memory(job, held / 0.95).slice.chip
    on = [Slice(full, (8,)), parse_slice("a100:8")]
    ranked = compare(lambda piece: replace(job, slice=piece), [(one.chip, one) for one in on], space)
    assert [one.job.slice.chip.name for one in ranked] == ["a100", "h100"]
    assert ranked[0].best is not None
    assert ranked[1].best is not None
    assert ranked[1].best.seconds < ranked[0].best.seconds
    for near in nearest_possible(replace(job, slice=parse_slice("h100:1")), space, 2.0):
        assert near.best.hbm_bytes <= room_bytes(near.job)


def test_a_recommended_moe_has_memory_for_an_uneven_load_of_experts():
    job = job_of("qwen3-235b-a22b", "gb200:64", 1024, 4096, "megatron-bridge")
    space = Space(fixed={"expert": 64, "tensor": 1, "pipe": 1, "context": 1}, zero=(1, 3))
    found = search(job, space)
    crowded = replace(job, stack=uneven(job.stack))
    best, judged = found.best[0], judge_one(job, found.best[0].plan)
    assert best.roomy
    assert leaves_room(job, best.plan, judged)
    assert first_number(judge_one(crowded, best.plan).hbm_bytes) <= room_bytes(job)
    between = [one for one in found.front if one.hbm_bytes <= room_bytes(job) and not one.roomy]
    assert between, "a plan has room with an even load alone"
    for one in between:
        assert first_number(judge_one(crowded, one.plan).hbm_bytes) > room_bytes(job)
        assert not leaves_room(job, one.plan, judge_one(job, one.plan))


def test_headroom_is_what_is_asked_for_or_follows_from_measured_peaks():
    job = job_of("llama3-8b", "h100:8", 128, 8192, "megatron-core")
    over = peaks()["megatron"]["over"]
    assert headroom(job) == pytest.approx(over / (1 + over))
    assert headroom(replace(job, stack=load_stack("llm-foundry"))) == pytest.approx(
        1 - 1 / (1 + peaks()["all"]["over"])
    )
    free = replace(job, headroom=0.3)
    held = [search(one, QUICK, 1).best[0].hbm_bytes / job.slice.chip.visible for one in (free, job)]
    assert held[0] <= 0.7 < held[1] <= 1 - headroom(job)
    assert "30% is left free (--headroom)" in headroom_text(free)
