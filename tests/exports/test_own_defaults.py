"""What a config leaves unsaid is what its software takes, and what cannot be told from it is said."""

import pytest

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.training.plan.plan_file import TrainingFile

SIZES = "--num-layers 36 --hidden-size 4096 --num-attention-heads 32"
RUN = "--micro-batch-size 1 --global-batch-size 64 --seq-length 2048 --bf16"
TRL = "model_name_or_path: mistralai/Mistral-7B-v0.1\nper_device_train_batch_size: 4\nmax_length: 1024\n"


def trained(text: str, on: str = "h100:8", model: str = "") -> tuple[Imported, TrainingFile]:
    found = read_plan(text, Given(model, on))
    assert isinstance(found.file, TrainingFile)
    return found, found.file


def test_megatron_has_its_own_width_heads_and_gate() -> None:
    """Sizes of Qwen3-8B without its gate are those of a GPT, and a Llama without its width is a narrower one."""
    found, file = trained(f"torchrun --nproc-per-node 8 pretrain_gpt.py {SIZES} {RUN}")
    assert file.model == "gpt3-175b?n_embd=4096&n_layer=36&n_head=32"
    assert found.notes == ("Its vocabulary is that of a tokenizer, which is not read: 50,257 tokens are counted.",)
    llama = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --group-query-attention --num-query-groups 8"
    llama += " --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights"
    assert trained(f"pretrain_gpt.py {llama} {RUN}")[1].model.endswith("?intermediate_size=21824")
    whole = trained(f"pretrain_gpt.py {llama} --ffn-hidden-size 28672 {RUN}")[1].model
    assert "?" not in whole
    assert "70b" in whole


def test_a_gpt_of_experts_is_not_read_as_one_without() -> None:
    text = f"deepspeed --num_gpus 8 pretrain_gpt.py {SIZES} --num-experts 128 {RUN}"
    with pytest.raises(InputError, match=r"a GPT of 128 experts; give one by --model"):
        trained(text)
    assert trained(text, model="llama3-8b")[1].model == "llama3-8b"


def test_a_script_takes_the_branch_of_its_own_switch() -> None:
    script = 'ckpt="false"\nargs=""\nif [ "${ckpt}" = "true" ]; then\n  args="--checkpoint-activations"\nfi\n'
    script += f': "${{TP:=2}}"\ntorchrun pretrain_gpt.py {SIZES} --tensor-model-parallel-size $TP $args {RUN}'
    plan = trained(script)[1].plan
    assert (plan.remat, plan.tensor) == ("none", 2)
    assert trained(script.replace('"false"', '"true"'))[1].plan.remat == "block"
    assert trained(script.replace('ckpt="false"\n', ""))[1].plan.remat == "block"  # nobody knows


def test_a_file_of_trl_says_its_trainer_by_what_others_lack() -> None:
    found, file = trained(TRL + "beta: 0.1\n")
    assert (file.method, file.plan.microbatch, file.batch) == ("dpo", 8, 64)
    assert "beta is a setting of DPO" in found.notes[0]
    assert found.notes[-1].startswith("Nothing here shards the model")
    assert trained(TRL)[1].method == ""
    with pytest.raises(InputError, match=r"trains by grpo"):
        trained(TRL + "num_generations: 8\nbeta: 0.0\n")


def test_a_teacher_of_torchtune_is_planned() -> None:
    text = "model:\n  _component_: torchtune.models.llama3_2.lora_llama3_2_1b\n  lora_rank: 64\nbatch_size: 4\n"
    text += "teacher_model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
    file = trained(text, "a100:2")[1]
    assert (file.method, file.teacher, file.lora_rank) == ("distill", "llama3.1-8b", 64)


TASK = "resources: {accelerators: CHOICE}\nnum_nodes: 2\nrun: |\n  TP=$((SKYPILOT_NUM_GPUS_PER_NODE * 2))\n"
TASK += "  python -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --tp $TP --nnodes $SKYPILOT_NUM_NODES\n"


def test_a_choice_of_accelerators_says_how_many() -> None:
    assert read_plan(TASK.replace("CHOICE", "{H200:8, H100:8}"), Given("", "h200")).file.slice == "h200:16"
    with pytest.raises(InputError, match="leaves a choice of how many accelerators"):
        read_plan(TASK.replace("CHOICE", "{H200:8, H100:4}"), Given("", "h200"))


SPREAD = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: one}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: serve
          command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --tp, "2", --nnodes, "2"]
          resources: {limits: {nvidia.com/gpu: "1"}}
"""


def test_pods_of_a_part_of_a_host_may_lie_apart() -> None:
    (note,) = read_plan(SPREAD, Given("", "h100")).notes
    assert note.startswith("Its 2 pods of 1 GPU may lie on different hosts")
    assert not read_plan(SPREAD.replace('gpu: "1"', 'gpu: "8"'), Given("", "h100")).notes


def test_a_chip_alone_has_the_shape_of_the_manifest() -> None:
    script = "xpk workload create --device-type=tpu7x-4x4x8 --command='python3 -m maxtext.trainers.pre_train.train"
    script += " maxtext/configs/base.yml model_name=llama3.1-8b per_device_batch_size=1 max_target_length=4096'"
    assert trained(script, "tpu7x")[1].slice == "tpu7x:4x4x8"
    assert trained(script, "tpu7x:4x4x4")[1].slice == "tpu7x:4x4x4"
