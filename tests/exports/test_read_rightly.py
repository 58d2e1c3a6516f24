"""What published scripts and configs taught the readers: branches, other forms of a config, formats of checkpoints."""

import pytest

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.rl.rl_commands import read_rl
from dragonscale.exports.shell import read_commands
from dragonscale.serving.plan_file import SavedPlan
from dragonscale.training.plan_file import TrainingFile

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
