"""DeepSpeed: batches and ranks as it counts them, `auto` values, what no config can say, and what is refused."""

import json
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.trainers import deepspeed
from dragonscale.exports.written import WrittenFiles
from dragonscale.models import load_model
from dragonscale.models.load import model_fields
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.plan.plan_file import TrainingFile, parse_plan


def _made(plan: str, model: str, on: str, batch: int, seq: int = 8192) -> tuple[dict, WrittenFiles]:
    file = TrainingFile(parse_plan(plan), model=model, slice=on, stack="deepspeed", tokens="1T", batch=batch, seq=seq)
    written = deepspeed.write(TrainingRun(file, load_model(model), model_fields(model), parse_slice(on)))
    return json.loads(written.files["ds_config.json"]), written


def _read(config: dict, on: str = "h100:8") -> Imported:
    return read_plan(json.dumps(config), Given("llama3-8b", on))


def test_the_config_and_the_arguments_agree() -> None:
    table, written = _made("fsdp=16,zero=2,microbatch=2", "llama3-8b", "h100:16", 128)
    words = written.programs[0].words
    assert (
        table["train_batch_size"],
        table["train_micro_batch_size_per_gpu"],
        table["gradient_accumulation_steps"],
    ) == (128, 2, 4)
    assert words[words.index("--per_device_train_batch_size") + 1] == "2"
    assert words[words.index("--gradient_checkpointing") + 1] == "false"
    assert table["zero_optimization"]["stage"] == 2


@pytest.mark.parametrize(("offload", "hosted"), [("optimizer", False), ("parameters", True)])
def test_state_in_the_hosts_memory_is_written_and_read(offload: str, hosted: bool) -> None:
    table, _ = _made(f"fsdp=8,zero=3,remat=block,offload={offload}", "llama3-8b", "h100:8", 64)
    zero = table["zero_optimization"]
    assert zero["offload_optimizer"]["device"] == "cpu"
    assert ("offload_param" in zero) is hosted
    read = _read(table)
    assert read.file.plan.offload == offload
    assert not any("offload" in name for name in read.unplanned)


def test_zero_splits_over_all_ranks() -> None:
    _, written = _made("data=2,fsdp=8,zero=3,remat=block", "llama3-8b", "h100:16", 64)
    assert written.as_run == parse_plan("fsdp=16,zero=3,remat=block")
    assert "MiCS" in written.differences[0].why


def test_ulysses_ranks_share_a_batch() -> None:
    table, written = _made("fsdp=2,context=4,zero=3,context_by=ulysses", "llama3-8b", "h100:8", 16, 32768)
    assert "train_batch_size" not in table
    assert (table["sequence_parallel_size"], written.programs[0].env["PARALLELISM_CONFIG_SP_SIZE"]) == (4, "4")
    assert _read(table).file.plan == parse_plan("fsdp=2,context=4,zero=3,context_by=ulysses")
    assert _read(table).file.batch == 16


def test_experts_are_spread_by_auto_ep() -> None:
    table, _ = _made("fsdp=4,expert=8,zero=3,remat=block", "qwen3-30b-a3b", "h100:32", 256)
    assert table["expert_parallel"]["autoep_size"] == 8


def test_a_model_with_other_sizes_has_a_config_of_its_own(tmp_path: Path) -> None:
    made = ds.export(
        "fsdp8", to="deepspeed", model="llama3-8b?num_hidden_layers=4", on="h100:8", batch="64seq", seq="4096"
    )
    assert json.loads(made.files["model_config.json"])["num_hidden_layers"] == 4
    made.write_into(str(tmp_path / "out"))
    script = tmp_path / "out" / "deepspeed.sh"
    script.write_text("\n".join(line for line in script.read_text().split("\n") if "dscale:" not in line))
    assert ds.import_plan(str(tmp_path / "out"), on="h100:8").model == "llama3-8b?num_hidden_layers=4"


@pytest.mark.parametrize(
    ("plan", "model", "on", "sentence"),
    [
        ("fsdp=4,pipe=2,zero=1", "llama3-8b", "h100:8", "PipelineModule"),
        ("fsdp=4,tensor=2,sequence=false", "llama3-8b", "h100:8", "AutoTP's mesh"),
        ("data=8,zero=0,offload=optimizer", "llama3-8b", "h100:8", "take zero=1"),
        ("fsdp=4,expert=2", "gpt-oss-20b", "h100:8", "AutoEP finds"),
    ],
)
def test_what_deepspeed_refuses_is_refused(plan: str, model: str, on: str, sentence: str) -> None:
    with pytest.raises(Infeasible, match=sentence):
        _made(plan, model, on, 64)


def test_auto_is_the_trainers_argument(tmp_path: Path) -> None:
    auto = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    config = {**auto, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}, "no_such_key": 1}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    (tmp_path / "go.sh").write_text(
        "deepspeed --num_gpus 8 --num_nodes 2 run_clm.py --deepspeed ds.json --bf16 --model_name_or_path "
        "meta-llama/Meta-Llama-3-8B "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --block_size 4096 --optim adamw_bnb_8bit"
    )
    found = read_plan(str(tmp_path / "go.sh"), Given(slice="h100"))
    assert found.file.plan == parse_plan("fsdp=16,zero=1,microbatch=2,optimizer=adam8")
    assert (found.file.model, found.file.slice, found.file.batch) == ("llama3-8b", "h100:16", 128)
    assert found.unknown == ("no_such_key",)


def test_a_batch_is_worked_out_as_deepspeed_does() -> None:
    assert _read({"train_batch_size": 64}).file.plan.microbatch == 8  # pyright: ignore[reportAttributeAccessIssue]
    both = _read({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}})
    assert (both.file.plan, both.file.batch) == (parse_plan("fsdp=8,microbatch=2,dtype=fp32"), 64)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"zero_optimization": {"stage": 4}, "train_batch_size": 8}, "stage is 4"),
        ({"zero_optimization": {"stage": "three"}, "train_batch_size": 8}, "stage is 'three'"),
        ({"zero_optimization": {"stage": 3}}, "neither train_batch_size"),
        ({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 1}, "train_batch_size 9"),
        ({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 3}}, "do not divide"),
        ({"train_batch_size": -8}, "train_batch_size is -8"),
    ],
)
def test_a_wrong_value_is_one_sentence(config: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        _read(config)


def test_a_config_alone_needs_a_slice() -> None:
    with pytest.raises(InputError, match="--on"):
        read_plan(json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 1}}))


@pytest.mark.parametrize(
    ("formats", "dtype", "note"),
    [
        ({"bf16": {"enabled": "auto"}}, "bf16", "bf16 is assumed"),
        ({"fp16": {"enabled": "auto"}}, "fp16", "fp16 is assumed"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, "bf16", "bf16 is assumed"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": "auto"}}, "fp16", ""),
        ({}, "fp32", "read as fp32"),
    ],
)
def test_a_format_that_is_not_said_is_told(formats: dict, dtype: str, note: str) -> None:
    found = _read({"train_batch_size": 8, "zero_optimization": {"stage": 3}, **formats})
    assert isinstance(found.file, TrainingFile)
    assert found.file.plan.dtype == dtype
    assert any(note in one for one in found.notes) if note else not any("fp" in one for one in found.notes)


@pytest.mark.parametrize(
    ("flags", "dtype", "note"),
    [
        ("--zero_stage 3", "fp16", "DeepSpeed-Chat"),
        ("--zero_stage 2 --dtype bf16", "bf16", ""),
        ("--bf16", "bf16", ""),
        ("", "fp32", "as fp32"),
    ],
)
def test_the_format_of_a_program_is_its_own_default(flags: str, dtype: str, note: str) -> None:
    words = (
        "deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size "
        f"4 --max_seq_len 512 {flags}"
    )
    found = read_plan(words + " --deepspeed", Given(slice="a100"))
    assert isinstance(found.file, TrainingFile)
    assert found.file.plan.dtype == dtype
    assert any(note in one for one in found.notes) == bool(note)


def test_arguments_that_the_trainer_would_refuse_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}}))
    command = (
        "deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json --bf16 --per_device_train_batch_size {} --block_size "
        "4096"
    )
    for said, agrees in ((2, True), (4, False)):
        (tmp_path / "go.sh").write_text(command.format(said))
        if agrees:
            assert read_plan(str(tmp_path / "go.sh"), Given("llama3-8b", "h100")).file.batch == 16
            continue
        with pytest.raises(
            InputError, match="train_micro_batch_size_per_gpu 2, and the command --per_device_train_batch_size 4"
        ):
            read_plan(str(tmp_path / "go.sh"), Given("llama3-8b", "h100"))
