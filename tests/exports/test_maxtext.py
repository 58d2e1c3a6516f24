"""MaxText: meshes over slices, batches by device, ZeRO on its axes, policies by tensor, and what is refused."""

import pytest
import yaml

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.reading import read_plan
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.trainers import maxtext
from dragonscale.exports.written import RANK, WrittenFiles
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.plan.plan_file import TrainingFile, parse_plan


def _run(plan: str, model: str, on: str, batch: int, seq: int = 8192) -> TrainingRun:
    file = TrainingFile(parse_plan(plan), model=model, slice=on, stack="maxtext", tokens="1T", batch=batch, seq=seq)
    return TrainingRun(file, load_model(model), model_fields(model), parse_slice(on))


def _made(plan: str, model: str, on: str, batch: int, seq: int = 8192) -> tuple[dict, WrittenFiles]:
    written = maxtext.write(_run(plan, model, on, batch, seq))
    return yaml.safe_load(written.files["maxtext.yml"]), written


def test_pods_take_the_slowest_axes() -> None:
    table, _ = _made("pipe=2,data=2,fsdp=128,schedule=gpipe", "llama3-70b", "v5p:4x4x8*4", 2048)
    assert (table["dcn_pipeline_parallelism"], table["dcn_data_parallelism"], table["ici_fsdp_parallelism"]) == (
        2,
        2,
        128,
    )


def test_gpu_nodes_are_slices() -> None:
    table, written = _made("fsdp=16,tensor=4,remat=block", "llama3-8b", "h100:64", 64)
    assert (table["dcn_fsdp_parallelism"], table["ici_fsdp_parallelism"], table["ici_tensor_sequence_parallelism"]) == (
        8,
        2,
        4,
    )
    assert table["attention"] == "cudnn_flash_te"
    assert "NODE_RANK=" + RANK in written.programs[0].words


def test_a_tpu7x_chip_is_two_devices() -> None:
    table, written = _made("fsdp=64,microbatch=1", "llama3-8b", "tpu7x:4x4x4", 256)
    assert (table["ici_fsdp_parallelism"], table["per_device_batch_size"], table["gradient_accumulation_steps"]) == (
        128,
        1,
        2,
    )
    assert written.as_run is not None
    assert written.as_run.microbatch == 2
    with pytest.raises(Infeasible, match="multiple of 128"):
        _made("fsdp=64,microbatch=1", "llama3-8b", "tpu7x:4x4x4", 64)


def test_devices_that_share_a_sequence_have_a_fraction_of_it() -> None:
    table, _ = _made("fsdp=16,context=4,context_by=ring", "llama3-8b", "v6e:8x8", 32)
    assert (table["per_device_batch_size"], table["gradient_accumulation_steps"]) == (0.25, 2)
    assert (table["context_parallel_strategy"], table["use_tokamax_splash"]) == ("ring", True)


def test_zero_1_is_the_data_axis() -> None:
    table, written = _made("data=2,fsdp=32,zero=1", "llama3-8b", "v6e:8x8", 64)
    assert (table["ici_data_parallelism"], table["ici_fsdp_parallelism"], table["shard_optimizer_over_data"]) == (
        64,
        1,
        True,
    )
    assert [one.setting for one in written.differences] == ["data"]
    assert written.as_run == parse_plan("fsdp=64,zero=1")


def test_a_circular_pipeline_has_its_microbatches_in_one_pass() -> None:
    table, _ = _made("pipe=4,fsdp=32,virtual=5,schedule=interleaved", "llama3-70b", "v5p:4x4x8", 256)
    assert (
        table["num_pipeline_repeats"],
        table["num_layers_per_pipeline_stage"],
        table["num_pipeline_microbatches"],
    ) == (5, 4, 8)
    assert (table["per_device_batch_size"], table["gradient_accumulation_steps"]) == (2, 1)
    assert table["set_remat_policy_on_pipeline_iterations"] is False


def test_sizes_stand_for_a_model_without_a_name() -> None:
    table, written = _made("fsdp=64,remat=selective", "llama3-8b?num_hidden_layers=16", "v6e:8x8", 64)
    assert (table["model_name"], table["decoder_block"], table["base_num_decoder_layers"]) == ("default", "llama2", 16)
    bare = "\n".join(line for line in written.files["maxtext.yml"].split("\n") if "dscale:" not in line)
    back = read_plan(bare, Given(slice="v6e:8x8"))
    assert back.file.model == "llama3-8b?num_hidden_layers=16"
    assert back.file.plan.remat == "selective"


def test_what_maxtext_refuses_is_refused() -> None:
    with pytest.raises(Infeasible, match="no config of falcon-7b"):
        _made("fsdp=64", "falcon-7b", "v6e:8x8", 64)
    with pytest.raises(Infeasible, match="Muon"):
        _made("fsdp=64,optimizer=muon", "mixtral-8x7b", "v6e:8x8", 64)
    with pytest.raises(Infeasible, match="take pipe=1"):
        _made("fsdp=32,pipe=2,schedule=gpipe", "gpt-oss-20b", "v6e:8x8", 64)
    with pytest.raises(Infeasible, match="gradient accumulation"):
        _made("fsdp=8,dtype=fp8", "llama3-8b", "mi300x:8", 64)


def test_words_of_the_command_line_win() -> None:
    text = (
        "python3 -m maxtext.trainers.pre_train.train base.yml model_name=qwen3-8b per_device_batch_size=2 "
        "quantization=int8 "
        "use_qwix_quantization=true ici_fsdp_parallelism=8 ici_tensor_parallelism=2 dcn_data_parallelism=4 "
        "remat_policy=minimal "
        "gradient_accumulation_steps=2 base_num_decoder_layers=18 override_model_config=true no_such_key=1 "
        "num_vocab_tiling=4"
    )
    found = read_plan(text, Given(slice="v6e:4x4*4"))
    assert found.file.plan == parse_plan("data=4,fsdp=8,tensor=2,microbatch=4,remat=matmuls,dtype=int8")
    assert (found.file.model, found.file.batch, found.file.seq) == ("qwen3-8b?num_hidden_layers=18", 256, 2048)
    assert (found.unknown, found.unplanned) == (("no_such_key",), ("num_vocab_tiling",))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ici_fsdp_parallelism=two", "ici_fsdp_parallelism is 'two'"),
        ("ici_fsdp_parallelism=-1 ici_tensor_parallelism=-1", "both -1"),
        ("ici_tensor_parallelism=3", "does not divide the 64"),
        ("per_device_batch_size=0.01", "0.64 sequences"),
        ("remat_policy=some", "remat_policy is some"),
        ("opt_type=lion", "opt_type is lion"),
        ("ici_fsdp_parallelism=32", "has 32 chips"),
    ],
)
def test_a_wrong_value_is_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_plan(
            f"python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b {words}", Given(slice="v6e:8x8")
        )


@pytest.mark.parametrize(
    ("words", "chip", "piece"),
    [
        ("ici_fsdp_parallelism=64 ici_tensor_parallelism=4 dcn_data_parallelism=2", "v6e", "v6e:16x16*2"),
        ("ici_fsdp_parallelism=128", "tpu7x", "tpu7x:4x4x4"),
        ("hardware=gpu ici_fsdp_parallelism=8 dcn_fsdp_parallelism=4", "h100", "h100:32"),
    ],
)
def test_a_whole_mesh_says_the_slice_of_a_chip(words: str, chip: str, piece: str) -> None:
    text = f"python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b per_device_batch_size=1 {words}"
    assert read_plan(text, Given(slice=chip)).file.slice == piece


def test_an_open_mesh_needs_a_slice() -> None:
    with pytest.raises(InputError, match="on="):
        ds.import_plan("python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b")


def test_a_folder_that_hosts_must_share_is_said_beside_its_key() -> None:
    text = next(iter(maxtext.write(_run("fsdp=64", "llama3-8b", "v5p:4x4x4", 128)).files.values()))
    before, _ = text.split("\nbase_output_directory: maxtext_output")
    assert "all hosts see" in before.splitlines()[-1]


def test_both_devices_of_a_tpu7x_chip_hold_a_replica_each_where_weights_are_whole() -> None:
    table, _ = _made("data=64,zero=0,microbatch=1", "llama3-8b", "tpu7x:4x4x4", 256)
    assert (table["ici_data_parallelism"], table["ici_fsdp_parallelism"]) == (128, 1)
