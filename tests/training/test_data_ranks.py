"""`dp16` and `dp16 z1` mean what those who write them mean, and plans that name both axes what they say."""

import pytest

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.ask_train import understood
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.runtime.train.settings import read_order
from dragonscale.training.cost.evaluation import Verdict, judge_one, make_job
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import TrainingFile, given_settings, parse_plan, save_training_file
from dragonscale.training.plan.stack import stacks
from dragonscale.training.search.data_ranks import read_ranks


def asked(plan: str, stack: str = "megatron") -> TrainRequest:
    words = {"model": "llama3-70b", "on": "h100:512", "batch": "512seq", "seq": "8192"}
    return understood(TrainQuestion(**words, stack=stack, plan=plan, alone=True))


@pytest.mark.parametrize(
    ("stack", "text", "expected", "note"),
    [
        ("megatron", "tp8 pp4 dp16", "pp4 fsdp16 tp8 z1 none 1f1b", "distributed optimizer of megatron-lm's recipes"),
        ("megatron-2024", "tp8 pp4 dp16", "pp4 fsdp16 tp8 z1 none 1f1b", "distributed optimizer"),
        ("megatron", "tp8 dp64", "fsdp64 tp8 z1 none", "distributed optimizer"),
        ("megatron", "tp8", "fsdp64 tp8 z1 none", "The rest of the 512 chips"),
        ("megatron", "tp8 cp2 dp32", "fsdp32 cp2 tp8 z1 none", "distributed optimizer"),
        ("megatron", "tp8 pp4 dp16 z1", "pp4 fsdp16 tp8 z1 none 1f1b", "ZeRO shards over it"),
        ("megatron", "tp8 dp64 z3", "fsdp64 tp8 z3 none", "ZeRO shards over it"),
        ("torchtitan", "tp8 dp64 z2", "fsdp64 tp8 z2 selective", "ZeRO shards over it"),
        ("megatron", "tp8 pp4 dp16 z0", "pp4 dp16 tp8 z0 none 1f1b", ""),
        ("megatron", "tp8 pp4 dp4 fsdp4", "pp4 dp4 fsdp4 tp8 z1 none 1f1b", ""),
        ("megatron", "tp8 pp4 dp16 fsdp1 z1", "pp4 dp16 fsdp1 tp8 z1 none 1f1b", "zero=1 shards nothing over data=16"),
        ("torchtitan", "tp8 dp64", "dp64 tp8 z0 selective", "ZeRO is off by default, so nothing is sharded"),
        ("maxtext", "tp8 dp64", "dp64 tp8 z0 block", "ZeRO is off by default, so nothing is sharded"),
        # torchtitan shards over context whatever it is told: no stage 0 there
        ("torchtitan", "tp8 cp2 dp32", "dp32 fsdp1 cp2 tp8 z3 selective", ""),
    ],
)
def test_data_parallel_ranks_as_they_are_written(stack: str, text: str, expected: str, note: str) -> None:
    found = asked(text, stack)
    assert found.job.plan is not None
    assert short_plan(found.job.plan).replace(" ring", "") == expected
    told = [one for one in found.notes if "data=" in one]
    assert any(note in one for one in told) if note else not told


PLANS = [
    Plan(data=16),
    Plan(data=16, zero=0),
    Plan(data=16, zero=1, tensor=8, pipe=4),
    Plan(data=2, fsdp=8, zero=2),
    Plan(data=4, context=2, zero=1),
    Plan(data=2, expert=8, zero=3),
    Plan(fsdp=16),
    Plan(),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_what_is_printed_is_read_as_it_was(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.toml"
    save_training_file(TrainingFile(plan), path)
    for text in (str(plan), short_plan(plan), str(path)):
        assert parse_plan(text) == plan
        for stack in stacks():
            assert read_ranks(plan, given_settings(text), stack, "nvidia")[0] == plan


def test_our_own_program_reads_them_alike() -> None:
    changes = {"data": "tokens.bin", "steps": 1, "batch": 64, "seq": 128}
    assert read_order("dp8 z1", "llama3-8b", changes=changes).plan == Plan(fsdp=8, zero=1)
    assert read_order("dp8", "llama3-8b", changes=changes).plan == Plan(data=8, zero=0)
    assert read_order("dp4 fsdp2", "llama3-8b", changes=changes).plan == Plan(data=4, fsdp=2)


def verdict(text: str) -> Verdict:
    found = asked(text)
    assert found.job.plan is not None
    return judge_one(found.job.on_slice(), found.job.plan)


def test_the_memory_of_replicas_and_shards_agrees() -> None:
    held = {
        text: first_number(verdict(f"tp8 pp4 {text}").hbm_bytes) for text in ("dp16", "dp16 z1", "fsdp16 z1", "dp16 z0")
    }
    assert held["dp16"] == held["dp16 z1"] == held["fsdp16 z1"] < held["dp16 z0"]
    assert first_number(verdict("tp8 pp4 dp16 fsdp1 z1").hbm_bytes) == pytest.approx(held["dp16 z0"])


@pytest.mark.parametrize("text", ["dp16", "dp16 z0", "dp16 z1", "fsdp16 z1", "dp16 fsdp1 z1"])
def test_a_stage_holds_all_of_its_weights(text: str) -> None:
    """70.6B parameters over 32 chips, 2 bytes each: 4.4 GB, a little more on the fullest stage."""
    assert verdict(f"tp8 pp4 {text}").ledger.memory["weights"] == pytest.approx(70.6e9 / 32 * 2, rel=0.05)


PLAIN = [name for name, stack in stacks().items() if stack.memory.allocator == "caching"]
"""Stacks whose programs are the same whatever the stage where nothing is sharded; what XLA compiles keeps other copies
of weights."""


@pytest.mark.parametrize("stack", PLAIN)
@pytest.mark.parametrize(
    ("chips", "axes", "offload"),
    [(16, {"data": 8, "tensor": 2}, "none"), (16, {"data": 8, "tensor": 2}, "optimizer"), (1, {}, "none")],
)
def test_zero_over_nothing_is_plain_replicas(stack: str, chips: int, axes: dict[str, int], offload: str) -> None:
    job = make_job(load_model("llama3.2-1b"), parse_slice(f"h100:{chips}"), 64, 4096, stack)
    plain, *staged = (judge_one(job, Plan(**axes, zero=zero, offload=offload)) for zero in range(4))
    for one in staged:
        assert one.ledger.memory == pytest.approx(plain.ledger.memory)
        assert first_number(one.seconds) == pytest.approx(first_number(plain.seconds))


def test_expert_ranks_within_data_ranks_are_read_as_megatron_counts_them() -> None:
    """Mixtral's EP8 TP2 DP8 of Megatron-LM runs on 16 GPUs (github.com/NVIDIA/Megatron-LM/issues/756)."""
    question = TrainQuestion(
        "mixtral-8x7b", "h100:16", batch="128seq", seq="2048", plan="ep8 tp2 dp8", stack="megatron-lm"
    )
    plan = understood(question).job.plan
    assert plan is not None
    assert (plan.expert, plan.tensor, plan.data * plan.fsdp, plan.chips, plan.zero) == (8, 2, 1, 16, 1)
