"""Plans in torchtitan's words: what is easily said wrong, what is refused, and commands as people write them."""

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan

START = "torchrun --nproc-per-node 8 -m torchtitan.train --module"


def _words(
    plan: str, model: str = "llama3-70b", on: str = "h100:256", seq: int = 8192, batch: int = 512, **more: str
) -> str:
    made = ds.export(plan, model=model, on=on, batch=f"{batch}seq", seq=str(seq), to="torchtitan", **more)
    text = "".join(made.files.values())
    return " ".join(text.replace("\\\n", " ").split())


def _read(text: str, on: str = "h100:8", model: str = ""):
    return read_plan(text, Given(model, on))


def test_experts_are_spread_over_tensor_ranks_too() -> None:
    text = _words("fsdp=4,expert=4,tensor=4,zero=3,remat=block", "qwen3-30b-a3b", "h100:64", 4096, 256)
    assert "--parallelism.expert_parallel_degree 16" in text
    assert "--parallelism.data_parallel_shard_degree 16" in text


def test_a_pipeline_holds_all_microbatches_of_a_step() -> None:
    text = _words("fsdp=8,tensor=8,pipe=4,zero=2,schedule=1f1b,remat=block,microbatch=2")
    assert "--training.local_batch_size 64" in text
    assert "--parallelism.pipeline_parallel_microbatch_size 2" in text
    assert "--training.disable_cuda_graphs" in text  # which torchtitan refuses beside a pipeline


def test_state_in_the_hosts_memory_is_written_and_read() -> None:
    text = _words("fsdp=8,zero=3,remat=block,offload=parameters", "llama3-8b", "h100:8", batch=64, stack="torchtitan")
    assert "--training.enable_cpu_offload" in text
    command = f"{START} llama3 --config llama3_8b --training.enable_cpu_offload"
    assert _read(command).file.plan.offload == "parameters"


def test_without_one_gradients_add_up() -> None:
    text = _words("fsdp=32,tensor=8,zero=3,remat=block,microbatch=2")
    assert "--training.local_batch_size 2 --training.global_batch_size 512" in text


def test_the_ring_of_older_releases_is_a_difference() -> None:
    made = ds.export(
        "fsdp=8,context=8,context_by=ring,remat=block",
        model="llama3-8b",
        on="h100:64",
        batch="64seq",
        seq="32768",
        to="torchtitan",
    )
    assert [row.setting for row in made.differences] == ["context_by"]
    assert made.plan["context_by"] == "ring"


def test_float8_and_sizes_without_a_flavor_are_a_python_file() -> None:
    text = _words("fsdp=8,zero=3,remat=block,dtype=fp8", "llama3-8b?num_hidden_layers=16", "h100:8", batch=64)
    assert "--module torchtitan_run --config run" in text
    assert "Float8LinearConverter.Config(" in text
    assert '"n_layers": 16' in text


@pytest.mark.parametrize(
    ("plan", "model", "why"),
    [
        ("fsdp=8", "gemma2-9b", "has no model like gemma2-9b"),
        ("fsdp=4,pipe=2,zero=2,schedule=1f1b,remat=block", "llama3.2-1b", "tied embeddings"),
        ("fsdp=8,optimizer=muon", "llama3-8b", "DistMuon"),
    ],
)
def test_what_torchtitan_refuses_is_refused(plan: str, model: str, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        _words(plan, model, "h100:8", 4096, 64)


def test_flags_are_read_in_all_their_spellings() -> None:
    found = _read(
        f"{START}=llama3 --config=llama3_8b --parallelism.tensor-parallel-degree=2 "
        "--parallelism.data_parallel_replicate_degree 2 "
        "--parallelism.no-enable-sequence-parallel --compile.enable --training.local_batch_size 4 "
        "activation-checkpoint:none"
    )
    plan = found.file.plan
    assert (plan.data, plan.fsdp, plan.tensor, plan.microbatch, plan.remat, plan.sequence) == (
        2,
        2,
        2,
        4,
        "none",
        False,
    )
    assert (found.file.batch, found.file.seq, found.file.stack) == (16, 8192, "torchtitan")


def test_what_a_config_function_sets_counts_until_a_flag_says_otherwise() -> None:
    assert _read(f"{START} llama3 --config llama3_70b").file.plan.tensor == 8
    assert _read(f"{START} llama3 --config llama3_70b --parallelism.tensor_parallel_degree 4").file.plan.tensor == 4


def test_experts_over_context_ranks_come_first() -> None:
    text = (
        f"{START} qwen3 --config qwen3_30b_a3b --parallelism.context_parallel_degree 2 "
        "--parallelism.expert_parallel_degree"
    )
    assert (_read(f"{text} 4").file.plan.expert, _read(f"{text} 4").file.plan.fold) == (2, "context")
    assert _read(f"{text} 2").file.plan.expert == 1


def test_the_ring_of_an_old_file_is_read() -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 131072\nlocal_batch_size = 1\n'
        '[parallelism]\ncontext_parallel_degree = 8\ncontext_parallel_rotate_method = "alltoall"\n'
    )
    found = _read(text, "h100:16")
    assert (found.file.plan.context, found.file.plan.context_by, found.file.plan.fsdp) == (8, "ring", 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{START} llama3 --config llama3_9b", "did you mean 'llama3_8b'"),
        (f"{START} llama3 --config llama3_8b --parallelism.tensor_parallel_degree two", "whole number"),
        (f"{START} llama3 --config llama3_8b --parallelism.tensor_parallel_degree 3", "do not divide 8 chips"),
        (f"{START} llama3 --config llama3_8b activation-checkpoint:some", "activation checkpointing"),
        (
            (
                f"{START} llama3 --config llama3_8b --parallelism.pipeline_parallel_degree 2 "
                "--parallelism.pipeline_parallel_schedule X"
            ),
            "schedule",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _read(text)


def test_a_flag_that_the_release_lacks_is_told() -> None:
    found = _read(f"{START} llama3 --config llama3_8b --training.no_such 3")
    assert found.unknown == ("training.no_such",)


def test_experts_are_sliced_over_tensor_without_expert_parallelism() -> None:
    made = ds.export(
        "fsdp=4,tensor=2,etp=true", to="torchtitan", model="qwen3-30b-a3b", on="h100:8", batch="64seq", seq=4096
    )
    text = "\n".join(made.files.values())
    assert "--parallelism.expert_parallel_degree 1" in text
    assert read_plan(text).file.plan.etp
    with pytest.raises(Infeasible, match="take etp=false"):
        ds.export(
            "fsdp=2,expert=2,tensor=2,etp=true",
            to="torchtitan",
            model="qwen3-30b-a3b",
            on="h100:8",
            batch="64seq",
            seq=4096,
        )
