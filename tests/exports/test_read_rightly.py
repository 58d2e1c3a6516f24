"""What published scripts and configs taught the readers: branches, other forms of a config, formats of checkpoints."""

import pytest

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.rl.rl_commands import read_rl
from dragonscale.exports.shell import read_commands
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.training.plan.plan_file import TrainingFile

SCRIPT = """
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
MACHINE=${MACHINE:-}
case "${DEVICE}" in
    gpu)
        case "${MACHINE}" in
            gb200) EACH=4 ;;
            *)
                EACH=8
                ;;
        esac
        batch=1024
        ;;
    npu | tpu)
        EACH=16
        batch=16
        ;;
esac
[ "${PP:-2}" -gt 1 ] && VPP=2 || VPP=null
run batch=$batch each=$EACH vpp=$VPP
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", ["batch=1024", "each=8", "vpp=2"]),
        ("MACHINE=gb200\nPP=1", ["batch=1024", "each=4", "vpp=null"]),
        ("DEVICE=tpu", ["batch=16", "each=16", "vpp=2"]),
    ],
)
def test_the_branch_that_a_script_takes_counts(before: str, expected: list[str]) -> None:
    assert read_commands(before + SCRIPT)[-1].words == ["run", *expected]


def training(text: str, on: str = "h100:8") -> TrainingFile:
    found = read_plan(text, Given(slice=on)).file
    assert isinstance(found, TrainingFile)
    return found


def test_muon_of_llamafactory_is_planned() -> None:
    config = "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: 2048\nuse_muon: true\n"
    assert training(config).plan.optimizer == "muon"
    assert training(config.replace("true", "false")).plan.optimizer == "adam"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("model: Qwen/Qwen3-8B\ncutoff_len: 2048\ndist_config: {name: fsdp2}\n", "second trainer"),
        ("base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 2048\nexpert_parallel_size: 2\n", "expert parallelism"),
        ("resources: {accelerators: {L4: 8, A100: 4}}\nrun: vllm serve m -tp $SKYPILOT_NUM_GPUS_PER_NODE\n", "choice"),
        ("FROM debian\n", "dscale rl --plan"),
    ],
)
def test_what_is_not_planned_is_refused_for_what_it_is(config: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_plan(config, Given(slice="h100:8"))


def test_checkpoints_are_served_in_their_own_formats() -> None:
    found = read_plan("vllm serve moonshotai/Kimi-K2-Thinking -tp 8", Given(slice="h200:8")).file
    assert isinstance(found, SavedPlan)
    assert (found.model, found.plan.weights, found.plan.attention) == ("kimi-k2-thinking", "int4", "bf16")
    stored = "base_model: hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16\nadapter: qlora\nsequence_len: 2048\n"
    assert training(stored).model == "llama3.1-405b"


NEMO = "grpo: {num_prompts_per_step: 8}\npolicy: {model_name: Qwen/Qwen3-8B, %s}\ncluster: {gpus_per_node: 8}\n"
MEGATRON = "megatron_cfg: {enabled: true, fp8_cfg: {enabled: %s}}"


def test_a_trainer_that_is_not_planned_is_refused() -> None:
    with pytest.raises(InputError, match=r"policy\.dtensor_cfg, which is not planned"):
        read_rl(NEMO % "dtensor_cfg: {tensor_parallel_size: 8}", Given(slice="h100:8"))
    both = f"dtensor_cfg: {{enabled: false}}, {MEGATRON % 'true'}"
    assert [note for note in read_rl(NEMO % both, Given(slice="h100:8")).notes if "fp8" in note]
    assert not [note for note in read_rl(NEMO % (MEGATRON % "false"), Given(slice="h100:8")).notes if "fp8" in note]


def test_a_task_of_a_cloud_is_unwrapped_for_reinforcement_learning() -> None:
    run = "python3 -m verl.trainer.main_ppo data.train_batch_size=32 actor_rollout_ref.model.path=Qwen/Qwen3-8B"
    run += " trainer.nnodes=$SKYPILOT_NUM_NODES trainer.n_gpus_per_node=$SKYPILOT_NUM_GPUS_PER_NODE"
    file = read_rl(f"resources: {{accelerators: 'H100:4'}}\nnum_nodes: 2\nrun: |\n  {run}\n").file
    assert (file.slice, file.prompts, file.model) == ("h100:8", 32, "qwen3-8b")


def test_torchtune_shards_what_tensor_ranks_leave() -> None:
    config = "model: {_component_: torchtune.models.llama3_3.llama3_3_70b}\ntokenizer: {max_seq_len: 1024}\n"
    config += "batch_size: 4\ntensor_parallel_dim: 8\ndata_parallel_shard_dim: -1\ndata_parallel_replicate_dim: 1\n"
    plan = training(config, "h100:32").plan
    assert (plan.fsdp, plan.data, plan.tensor, plan.zero) == (4, 1, 8, 3)
    plan = training(config.replace("replicate_dim: 1", "replicate_dim: 2"), "h100:32").plan
    assert (plan.fsdp, plan.data, plan.tensor, plan.zero) == (2, 2, 8, 3)
    scout = config.replace("llama3_3.llama3_3_70b", "llama4.llama4_scout_17b_16e")
    assert training(scout).model == "llama4-scout"


LAUNCH = "accelerate launch --num_processes 8 {launch} {script} --model_name_or_path meta-llama/Llama-2-7b-hf "
LAUNCH += "--per_device_train_batch_size 1 --max_seq_length 1024 {rest}"


def launched(script: str, launch: str = "--mixed_precision bf16", rest: str = "") -> TrainingFile:
    return training(LAUNCH.format(script=script, launch=launch, rest=rest))


def test_a_script_of_ones_own_trains_as_its_name_says() -> None:
    own = launched("open_instruct/dpo_tune_cache.py", rest="--use_qlora --use_lora --lora_rank 64")
    assert (own.method, own.frozen, own.lora_rank, own.plan.microbatch) == ("dpo", "nf4", 64, 2)
    assert launched("finetune.py").method == ""
    for script, rest in (("grpo_fast.py", ""), ("train.py", "--vllm_server_host node4")):
        with pytest.raises(InputError, match="trains by grpo, on answers"):
            launched(script, rest=rest)


def test_a_file_without_offload_in_its_name_offloads_nothing() -> None:
    for name, offload in (("stage3_no_offloading.conf", "none"), ("stage3_offloading.conf", "parameters")):
        file = launched("finetune.py", f"--use_deepspeed --deepspeed_config_file {name}")
        assert (file.plan.zero, file.plan.offload) == (3, offload)


def test_flags_of_slurm_are_not_those_of_accelerate() -> None:
    text = "#SBATCH --job-name=x\n#SBATCH --nodes=2\nsrun -l --mpi=pmix --container-image ./a.sqsh "
    found = read_plan(text + LAUNCH.format(script="train.py", launch="--num_machine 2", rest=""), Given(slice="h100:8"))
    assert [name.partition(" ")[0] for name in found.unknown] == ["num_machine"]
    assert [note for note in found.notes if note.startswith("Nothing says bf16 or fp16")]


@pytest.mark.parametrize("flag", ["--actor_model_name_or_path a", "--num_padding_at_beginning 1"])
def test_the_later_stages_of_deepspeed_chat_are_refused(flag: str) -> None:
    chat = "deepspeed main.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 4 "
    chat += "--max_seq_len 512 --zero_stage 3 --deepspeed"
    assert training(chat).plan.zero == 3
    with pytest.raises(InputError, match="not read from DeepSpeed-Chat's flags"):
        training(f"{chat} {flag}")


def test_heads_are_as_wide_as_megatron_makes_them() -> None:
    sizes = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 512 --num-attention-heads 64 "
    sizes += "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --seq-length 1024 "
    sizes += "--micro-batch-size 1 --global-batch-size 8 --position-embedding-type rope --bf16"
    assert "head_dim=8" in training(sizes).model
    assert "head_dim=64" in training(f"{sizes} --kv-channels 64").model


COMPOSE = """
services:
  engine:
    image: vllm/vllm-openai:latest
    environment: {HF_TOKEN: "${HF_TOKEN}", NCCL_DEBUG: null}
    command: %s
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0", "1"]}]}}}
  page:
    image: ghcr.io/open-webui/open-webui:main
    environment: [OPENAI_API_BASE_URL=http://engine:8000/v1]
"""


@pytest.mark.parametrize("command", ["--model Qwen/Qwen3-32B -tp 2", '["--model", "Qwen/Qwen3-32B", "-tp", "2"]'])
def test_services_of_docker_compose_are_read(command: str) -> None:
    found = read_plan(COMPOSE % command, Given(slice="h100"))
    assert isinstance(found.file, SavedPlan)
    assert (found.target, found.file.model, found.file.slice) == ("vllm", "qwen3-32b", "h100:2")
    assert found.file.plan.tensor == 2


def test_a_container_of_kserve_is_read() -> None:
    text = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {containers: [{name: a, "
    text += "command: [vllm, serve, Qwen/Qwen3-8B, -tp, '2'], resources: {limits: {nvidia.com/gpu: 2}}}]}}\n"
    assert read_plan(text, Given(slice="h100")).file.slice == "h100:2"


SET = """
apiVersion: apps/v1
kind: StatefulSet
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: sglang
        command: [/bin/bash, -c, "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --tp 16 %s"]
        resources: {limits: {nvidia.com/gpu: "8"}}
"""


@pytest.mark.parametrize(("nodes", "replicas"), [("--nnodes 2 --node-rank $POD_INDEX", 1), ("", 2)])
def test_pods_that_serve_together_are_one_replica(nodes: str, replicas: int) -> None:
    found = read_plan(SET % nodes, Given(slice="h20:16"))
    assert isinstance(found.file, SavedPlan)
    assert (found.file.replicas or 1, found.file.plan.tensor) == (replicas, 16)


def test_sums_of_expr_are_worked_out() -> None:
    assert read_commands("N=2\nswift sft --steps $(expr 16 / $N) --more $(expr 2 \\* 3)")[0].words[3] == "8"
    assert read_commands("swift sft --more $(expr 2 \\* 3)")[0].words[3] == "6"
