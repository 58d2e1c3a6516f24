"""Plans in Hugging Face's words: what accelerate and the Trainer each say, what is refused, and configs as people write
them."""

import json

import pytest
import yaml

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.training.plan.plan_file import TrainingFile


def _made(plan: str, model: str = "llama3-8b", on: str = "h100:16", seq: int = 4096, batch: int = 64, **more: str):
    made = ds.export(plan, model=model, on=on, batch=f"{batch}seq", seq=str(seq), to="accelerate", **more)
    return made, yaml.safe_load(made.files["accelerate.yaml"]), json.loads(made.files["training_args.json"])


def _read(text: str, on: str = "h100:8", model: str = "llama3-8b") -> TrainingFile:
    found = read_plan(text, Given(model, on)).file
    assert isinstance(found, TrainingFile)
    return found


def test_the_mesh_is_accelerates_and_the_batch_the_trainers() -> None:
    _, config, arguments = _made("data=2,fsdp=4,tensor=2,zero=2,remat=block,sequence=false,microbatch=2")
    sizes = {name.removeprefix("parallelism_config_"): size for name, size in config["parallelism_config"].items()}
    assert sizes == {"dp_replicate_size": 2, "dp_shard_size": 4, "tp_size": 2, "cp_size": 1}
    assert config["fsdp_config"]["fsdp_reshard_after_forward"] is False
    assert (arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]) == (2, 4)


def test_a_stream_has_a_number_of_steps() -> None:
    """The Trainer refuses a dataset without a length where max_steps is not said."""
    made, _, arguments = _made("fsdp=16,zero=3")
    assert (arguments["streaming"], arguments["max_steps"]) == (True, 100)
    assert [note for note in made.notes if "max_steps is 100" in note]
    assert _read(made.text()).tokens == ""  # which the plan does not say
    made, _, arguments = _made("fsdp=16,zero=3", tokens="26214400")
    assert (arguments["max_steps"], _read(made.text()).tokens) == (100, "26214400")
    assert not [note for note in made.notes if "max_steps" in note]


def test_replicas_alone_need_no_fsdp() -> None:
    _, config, arguments = _made("data=8,remat=block", "llama3.2-1b", "h100:8")
    assert config["distributed_type"] == "MULTI_GPU"
    assert "parallelism_config" not in config
    assert arguments["gradient_checkpointing"]


def test_float8_is_said_by_the_launcher_alone() -> None:
    _, config, arguments = _made("fsdp=16,zero=3,remat=block,dtype=fp8")
    assert (config["mixed_precision"], config["fp8_config"]["fp8_backend"]) == ("fp8", "ao")
    assert "bf16" not in arguments  # TrainingArguments would turn mixed precision back


def test_weights_in_bf16_are_a_stack_of_their_own() -> None:
    _, config, arguments = _made("fsdp=16,zero=3,remat=block", stack="hf-bf16")
    assert (config["mixed_precision"], arguments["dtype"]) == ("no", "bfloat16")
    _, config, arguments = _made("fsdp=16,zero=3,remat=block", stack="hf-fsdp-liger")
    assert (config["mixed_precision"], arguments["dtype"], arguments["use_liger_kernel"]) == ("bf16", "float32", True)


def test_ulysses_is_a_config_of_deepspeed() -> None:
    _, config, _ = _made("fsdp=8,context=2,zero=3,remat=block,context_by=ulysses", seq=16384)
    assert config["distributed_type"] == "DEEPSPEED"
    assert (config["deepspeed_config"]["zero_stage"], config["parallelism_config"]["parallelism_config_sp_size"]) == (
        3,
        2,
    )


def test_what_transformers_does_otherwise_is_a_difference() -> None:
    made, _, _ = _made("fsdp=8,tensor=2,zero=3,remat=block")
    assert [row.setting for row in made.differences] == ["sequence"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("data=8,tensor=2,remat=block,sequence=false", "put data=8 into fsdp"),
        ("fsdp=4,context=4,zero=0,remat=block", "zero=0"),
    ],
)
def test_what_accelerate_refuses_is_refused(plan: str, why: str) -> None:
    with pytest.raises(Infeasible, match=why):
        _made(plan, "llama3.2-1b")


@pytest.mark.parametrize(
    ("strategy", "data", "fsdp", "zero"),
    [
        ("FULL_SHARD", 1, 16, 3),
        ("SHARD_GRAD_OP", 1, 16, 2),
        ("HYBRID_SHARD", 2, 8, 3),
        ("2", 1, 16, 2),
        ("NO_SHARD", 16, 1, 0),
    ],
)
def test_strategies_of_fsdp1(strategy: str, data: int, fsdp: int, zero: int) -> None:
    plan = _read(
        (
            f"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: {strategy}\nnum_machines: "
            "2\nnum_processes: 16\n"
        ),
        "h100",
    ).plan
    assert (plan.data, plan.fsdp, plan.zero) == (data, fsdp, zero)


def test_flags_of_a_launch_are_read() -> None:
    file = _read(
        "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false --num_processes 8 "
        "--mixed_precision bf16 "
        "--use_parallelism_config --parallelism_config_dp_shard_size 4 --parallelism_config_cp_size=2 "
        "--parallelism_config_cp_comm_strategy alltoall train.py --per_device_train_batch_size=2 --block-size "
        "32768 --gradient_checkpointing"
    )
    assert (file.plan.fsdp, file.plan.context, file.plan.context_by, file.plan.zero, file.plan.remat) == (
        4,
        2,
        "ring",
        2,
        "block",
    )
    assert (file.batch, file.seq) == (8, 32768)


def test_the_plugin_of_deepspeed_is_read() -> None:
    file = _read(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: "
        "4\nmixed_precision: bf16\nnum_processes: 8\n"
    )
    assert (file.plan.fsdp, file.plan.zero, file.stack) == (8, 2, "deepspeed")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("distributed_type: FSPD\nnum_processes: 8\n", "did you mean 'FSDP'"),
        ("distributed_type: FSDP\nnum_processes: eight\n", "whole number"),
        (
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SOME\nnum_processes: 8\n",
            "sharding strategy",
        ),
        ("distributed_type: MEGATRON_LM\nnum_processes: 8\n", "MEGATRON_LM"),
        (
            "distributed_type: FSDP\nparallelism_config:\n  parallelism_config_dp_shard_size: 3\nnum_processes: 8\n",
            "a mesh of 3 ranks",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _read(text)


def test_it_trains_from_scratch_by_the_same_numbers_as_deepspeed() -> None:
    run = {"batch": "64seq", "seq": 4096, "tokens": "15T", "model": "llama3-8b", "on": "h100:8"}
    own = json.loads(ds.export("fsdp8", to="accelerate", **run).files["training_args.json"])
    other = ds.export("fsdp8", to="deepspeed", **run).files
    words = " ".join(next(text for name, text in other.items() if name.endswith(".sh")).replace("\\\n", " ").split())
    assert "model_name_or_path" not in own
    names = (
        "config_name",
        "tokenizer_name",
        "learning_rate",
        "adam_beta1",
        "adam_beta2",
        "weight_decay",
        "warmup_steps",
        "lr_scheduler_type",
        "save_steps",
        "save_total_limit",
        "seed",
        "max_steps",
    )
    assert [name for name in names if f"--{name} {own.get(name)}" not in words] == []


def test_fsdp_keeps_weights_with_the_optimizer_in_the_hosts_memory() -> None:
    """Its offload is of both; the optimizer's state alone is DeepSpeed's."""
    asked = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": "8192", "to": "accelerate", "stack": "hf"}
    text = "".join(ds.export("fsdp=8,remat=block,offload=parameters", **asked).files.values())
    assert "fsdp_offload_params: true" in text
    with pytest.raises(Infeasible, match="take offload=parameters, or export to deepspeed"):
        ds.export("fsdp=8,remat=block,offload=optimizer", **asked)
