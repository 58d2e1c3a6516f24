"""Switches in either position: the words that say a plan's sharding, recompute, graphs and roles, and those that
would say the opposite.

A writer and a reader that share a mistake still read back what they wrote; here the words stand as the software's
manual has them.
"""

from dataclasses import replace

import pytest

from dragonscale.exports.runs import Run
from dragonscale.exports.target import target_named
from dragonscale.serving.engine.engine import adjust
from tests.exports.written_runs import serving_run, training_run, written


def text_of(target: str, run: Run) -> str:
    """Commands and files of a target, without quotes and comments."""
    _, made = written(target_named(target), run)
    commands = [" ".join(map(str, program.words)) for program in made.programs]
    lines = [line for text in (*commands, *made.files.values()) for line in text.split("\n")]
    return "\n".join(line for line in lines if not line.startswith("#")).replace('"', "").replace("'", "")


STACKS = {"megatron": "megatron-core", "accelerate": "hf-fsdp"}
ZERO = [
    ("megatron", 0, "", "--use-distributed-optimizer"),
    ("megatron", 1, "--use-distributed-optimizer", "--use-megatron-fsdp"),
    ("megatron", 2, "--data-parallel-sharding-strategy optim_grads ", "optim_grads_params"),
    ("megatron", 3, "--data-parallel-sharding-strategy optim_grads_params ", "optim_grads "),
    ("torchtitan", 2, "fsdp_reshard_after_forward never", "always"),
    ("torchtitan", 3, "fsdp_reshard_after_forward always", "never"),
    ("accelerate", 2, "fsdp_reshard_after_forward: false", "fsdp_reshard_after_forward: true"),
    ("accelerate", 3, "fsdp_reshard_after_forward: true", "fsdp_reshard_after_forward: false"),
    ("deepspeed", 1, "stage: 1,", "stage3_"),
    ("deepspeed", 2, "stage: 2,", "stage3_"),
    ("deepspeed", 3, "stage: 3,", "allgather_partitions"),
    ("maxtext", 1, "shard_optimizer_over_data: true", "ici_fsdp_parallelism: 16"),
    ("maxtext", 3, "ici_fsdp_parallelism: 16", "shard_optimizer_over_data: true"),
]


@pytest.mark.parametrize(("target", "zero", "says", "never"), ZERO)
def test_stages_of_zero(target: str, zero: int, says: str, never: str) -> None:
    on = "v5p:4x2x2" if target == "maxtext" else "h100:16"
    found = text_of(target, training_run(STACKS.get(target, target), "llama3-8b", f"fsdp=16,zero={zero}", on))
    assert says in found
    assert never not in found


RECOMPUTE = [
    ("megatron", "block", "--recompute-granularity full", "--recompute-modules"),
    ("megatron", "core_attn", "--recompute-granularity selective --recompute-modules core_attn", "granularity full"),
    ("megatron", "none", "", "--recompute"),
    ("torchtitan", "block", "activation-checkpoint:full", "activation-checkpoint:none"),
    ("torchtitan", "none", "activation-checkpoint:none", "activation-checkpoint:full"),
    ("accelerate", "block", "fsdp_activation_checkpointing: true", "fsdp_activation_checkpointing: false"),
    ("accelerate", "none", "fsdp_activation_checkpointing: false", "fsdp_activation_checkpointing: true"),
    ("deepspeed", "block", "--gradient_checkpointing true", "--gradient_checkpointing false"),
    ("deepspeed", "none", "", "--gradient_checkpointing true"),
    ("maxtext", "block", "remat_policy: full", "remat_policy: none"),
    ("maxtext", "none", "remat_policy: none", "remat_policy: full"),
]


@pytest.mark.parametrize(("target", "remat", "says", "never"), RECOMPUTE)
def test_what_is_recomputed(target: str, remat: str, says: str, never: str) -> None:
    on = "v5p:4x2x2" if target == "maxtext" else "h100:16"
    found = text_of(target, training_run(STACKS.get(target, target), "llama3-8b", f"fsdp=16,remat={remat}", on))
    assert says in found
    assert never not in found


@pytest.mark.parametrize(("target", "eager"), [("vllm", "--enforce-eager"), ("sglang", "--disable-cuda-graph")])
def test_graphs_are_turned_off_where_the_engine_has_none(target: str, eager: str) -> None:
    run = serving_run(target, "llama3-70b", "h100:8", "tensor=8")
    assert eager not in text_of(target, run)
    assert eager in text_of(target, replace(run, engine=adjust(run.engine, host={"graphs": False})))


@pytest.mark.parametrize(
    ("target", "prefill", "decode"),
    [
        ("vllm", "kv_role: kv_producer", "kv_role: kv_consumer"),
        ("sglang", "--disaggregation-mode prefill", "--disaggregation-mode decode"),
    ],
)
def test_pools_have_their_roles(target: str, prefill: str, decode: str) -> None:
    run = serving_run(target, "llama3-70b", "h100:8", "tensor=8", pool=True)
    _, made = written(target_named(target), run)
    words = {program.name: " ".join(map(str, program.words)).replace('"', "") for program in made.programs}
    assert prefill in words["prefill"]
    assert decode in words["decode"]


@pytest.mark.parametrize(("plan", "ways"), [("data=2,fsdp=8", 2), ("data=8,fsdp=2", 8)])
def test_copies_of_the_sharded_state_are_the_data_ranks(plan: str, ways: int) -> None:
    for target, words in (
        ("megatron", f"--num-distributed-optimizer-instances {ways}"),
        ("torchtitan", f"data_parallel_replicate_degree {ways} "),
    ):
        assert words in text_of(target, training_run(STACKS.get(target, target), "llama3-8b", f"{plan},zero=3"))


@pytest.mark.parametrize("sequence", [True, False])
def test_sequence_parallelism_is_said_where_it_is(sequence: bool) -> None:
    run = training_run("megatron-core", "llama3-8b", f"fsdp=4,tensor=4,zero=1,sequence={str(sequence).lower()}")
    assert ("--sequence-parallel" in text_of("megatron", run)) == sequence
