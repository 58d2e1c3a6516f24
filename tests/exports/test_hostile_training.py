"""Configs of trainers that do not add up: one sentence each, and never a plan that has lost ranks,
layers or sequences."""

import time

import pytest

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.shell import documents, read_commands

MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --swiglu --seq-length 8192 --bf16"
)
PIPE = f"{MEGATRON} --pipeline-model-parallel-size"
TITAN = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
MAXTEXT = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b"
SPEED = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, '
FSDP = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
RUN = "accelerate launch --use_fsdp --num_processes 8 run_clm.py --per_device_train_batch_size 2 --bf16"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{PIPE} 4 --decoder-first-pipeline-num-layers 6", "leave 26, which do not divide over 3"),
        (f"{PIPE} 2 --decoder-first-pipeline-num-layers 40", "leave -8"),
        (f"{PIPE} 2 --decoder-first-pipeline-num-layers 20 --decoder-last-pipeline-num-layers 10", "leave 2"),
        (f"{PIPE} 4 --decoder-first-pipeline-num-layers 5 --num-virtual-stages-per-pipeline-rank 2", "2 chunks"),
        (
            f"{PIPE} 4 --account-for-embedding-in-pipeline-split",
            "32 layers and 1 more for the ends do not divide over 4",
        ),
        (f"{PIPE} 2 --num-layers-per-virtual-pipeline-stage 5", "do not divide"),
        (f"{PIPE} 0", "pipeline-model-parallel-size is"),
        (f"{MEGATRON} --tensor-model-parallel-size 0", "from 1 to"),
        (f"{MEGATRON} --expert-model-parallel-size 0", "from 1 to"),
        (f"{MEGATRON} --global-batch-size 0 --train-samples 100", "from 1 to"),
        (f"{MEGATRON} --num-distributed-optimizer-instances 0", "from 1 to"),
        (MEGATRON.replace("torchrun --nproc_per_node 8", "python"), "how many chips"),
        (MEGATRON.replace("--num-layers 32", "--num-layers ²"), "--num-layers is"),
        (SPEED + '"zero_optimization": {"stage": 3, "mics_shard_size": 3}}', "mics_shard_size 3 does not divide 8"),
        (
            SPEED
            + (
                '"zero_optimization": {"stage": 3, "mics_shard_size": 8}, "expert_parallel": {"enabled": true, '
                '"autoep_size": 4}}'
            ),
            "does not divide 2",
        ),
        (
            SPEED + '"zero_optimization": {"stage": 3}, "expert_parallel": {"enabled": true, "autoep_size": 0}}',
            "autoep_size is",
        ),
        (SPEED + '"zero_optimization": {"stage": 3}, "sequence_parallel_size": 0}', "sequence_parallel_size is"),
        (SPEED + f'"zero_optimization": {{"stage": 1{"0" * 400}}}}}', "zero_optimization.stage is"),
        ("distributed_type: DEEPSPEED\nnum_processes: 8\nzero_stage: 9\n", "zero_stage is"),
        (
            (
                "distributed_type: DEEPSPEED\nnum_processes: 8\nzero_stage: 2\nparallelism_config:\n  "
                "parallelism_config_tp_size: 3\n"
            ),
            "8 chips do not divide by tensor=3",
        ),
        (f"{FSDP}num_machines: -3\n", "num_machines is"),
        (
            f"{FSDP}num_machines: 3\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
            "3 hosts, which do not divide 8",
        ),
        (f"{FSDP}fsdp_config:\n  fsdp_activation_checkpointing: perhaps\n", "write true or false"),
        (
            f"{TITAN} --training.global_batch_size 12 --training.local_batch_size 1",
            "no multiple of local_batch_size 1 x 8",
        ),
        (f"{TITAN} --training.local_batch_size 0", "local_batch_size is"),
        (f"{TITAN} --training.seq_len -5", "seq_len is"),
        (
            (
                f"{TITAN} --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatch_size 3 "
                "--training.local_batch_size 4"
            ),
            "no multiple of pipeline",
        ),
        (
            f"{TITAN} --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_layers_per_stage x",
            "layers_per_stage is",
        ),
        (f"{MAXTEXT} gradient_accumulation_steps=-1", "gradient_accumulation_steps is"),
        (f"{MAXTEXT} max_target_length=-1", "max_target_length is"),
        (f"{MAXTEXT} ici_pipeline_parallelism=2 base_num_decoder_layers=many", "many"),
        (f"{MAXTEXT} sparse_matmul=false capacity_factor=big", "capacity_factor is"),
        (f"{MAXTEXT} ici_fsdp_parallelism=0", "ici_fsdp_parallelism is 0"),
    ],
)
def test_what_does_not_add_up_is_one_sentence(text: str, sentence: str) -> None:
    chip = "h100" if "how many chips" in sentence else "v6e:2x4" if "MaxText" in text else "h100:8"
    with pytest.raises(InputError) as told:
        read_plan(text, Given("" if "MaxText" in text or "megatron" in text else "llama3-8b", chip))
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("words", "layout"),
    [
        ("4 --decoder-first-pipeline-num-layers 5", "5-9-9-9"),
        (
            (
                "4 --decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6 "
                "--num-virtual-stages-per-pipeline-rank 2"
            ),
            "3-5-5-3-3-5-5-3",
        ),
        ("2 --num-layers 31 --account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2", "even"),
        ("4 --num-layers 31 --account-for-embedding-in-pipeline-split", "7-8-8-8"),
    ],
)
def test_no_layer_is_lost(words: str, layout: str) -> None:
    assert read_plan(f"{PIPE} {words}", Given(slice="h100")).file.plan.layout == layout  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("srun -N 2 --ntasks 16 python x.py", 16),
        ("mpirun -np 16 python x.py", 16),
        ("mpiexec -n 4 python x.py", 4),
        ("srun -N 4 --ntasks 4 torchrun --nnodes 4 --nproc_per_node 8 x.py", 32),
        ("#SBATCH -N 4\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-node=8\nsrun python x.py", 32),
        ("torchrun --nproc_per_node ² x.py", 0),
        (
            "#SBATCH -N 48\n#SBATCH --ntasks-per-node=1\nsrun python -u -m torch.distributed.run --nproc_per_node 8 x.py",
            384,
        ),
    ],
)
def test_launchers_say_their_processes(text: str, processes: int) -> None:
    assert read_commands(text)[0].processes == processes


def test_a_tpu_alone_takes_the_torus_of_the_processes() -> None:
    text = f"{TITAN} --training.local_batch_size 1".replace("node 8", "node 4")
    assert read_plan(text, Given(slice="v6e")).file.slice == "v6e:2x2"


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        (f"{RUN} --gradient_accumulation_steps 4 --model_name_or_path llama3-8b", 64),
        (RUN.replace("launch", "launch --gradient_accumulation_steps 2") + " --gradient_accumulation_steps 4", 64),
        (RUN.replace("launch", "launch --gradient_accumulation_steps auto"), 16),
    ],
)
def test_the_trainers_own_accumulation_wins(text: str, batch: int) -> None:
    assert read_plan(text, Given("llama3-8b", "h100:8")).file.batch == batch


def test_here_documents_are_read_in_one_pass() -> None:
    begin = time.perf_counter()
    assert documents("cat <<A\n" * 100_000) == []
    assert time.perf_counter() - begin < 2
    assert documents("cat <<-E > a.yaml\n\tx: 1\n\tE\n") == [("cat <<-E > a.yaml", "\tx: 1")]
