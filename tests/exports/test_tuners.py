"""Configs, commands and scripts of fine-tuning are read with their software's own defaults, judged as what they train or
refused in a sentence, and written back as they were."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.foreign import foreign_plan, told
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.reading import read_plan
from dragonscale.training.plan.plan_file import TrainingFile, load_training_file, parse_plan, save_training_file

TRL = "trl {kind} --model_name_or_path Qwen/Qwen3-8B --dataset_name a --per_device_train_batch_size 2"
AXOLOTL = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\n"
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: {kind}\nper_device_train_batch_size: 2\n"
TUNE = "model:\n  _component_: torchtune.models.llama3_1.{kind}llama3_1_8b\nbatch_size: 2\ndtype: bf16\n"
SWIFT = "swift sft --model Qwen/Qwen3-8B --dataset a"


def _found(text: str, on: str = "h100:8") -> Imported:
    return read_plan(text, Given(slice=on))


def _file(text: str, on: str = "h100:8") -> TrainingFile:
    file = _found(text, on).file
    assert isinstance(file, TrainingFile)
    return file


@pytest.mark.parametrize(
    ("text", "target", "remat", "seq", "batch", "rank", "targets"),
    [
        (TRL.format(kind="sft"), "trl", "block", 1024, 16, 0, ""),
        (TRL.format(kind="sft") + " --use_peft", "trl", "block", 1024, 16, 16, "q_proj,v_proj"),
        (AXOLOTL, "axolotl", "none", 512, 16, 0, ""),
        (AXOLOTL + "adapter: lora\n", "axolotl", "none", 512, 16, 8, "q_proj,v_proj"),
        (FACTORY.format(kind="full"), "llamafactory", "block", 2048, 16, 0, ""),
        (FACTORY.format(kind="lora"), "llamafactory", "block", 2048, 16, 8, "all"),
        (SWIFT, "swift", "block", 0, 16, 8, "all"),
    ],
)
def test_each_has_its_own_defaults(
    text: str, target: str, remat: str, seq: int, batch: int, rank: int, targets: str
) -> None:
    found, file = _found(text), _file(text)
    assert (found.target, file.plan.remat, file.seq, file.batch) == (target, remat, seq, batch)
    assert (file.lora_rank, file.lora_targets) == (rank, targets)


@pytest.mark.parametrize(
    ("text", "method", "frozen"),
    [
        (TRL.format(kind="sft") + " --use_peft --load_in_4bit", "qlora", ""),
        (TRL.format(kind="dpo") + " --use_peft --load_in_4bit", "dpo", "nf4"),
        (TRL.format(kind="reward"), "reward", ""),
        (AXOLOTL + "adapter: qlora\n", "qlora", ""),
        (AXOLOTL + "rl: kto\nadapter: lora\nload_in_8bit: true\n", "kto", "int8"),
        (FACTORY.format(kind="lora") + "quantization_bit: 4\n", "qlora", ""),
        (FACTORY.format(kind="lora") + "stage: dpo\npref_loss: orpo\n", "orpo", ""),
        (TUNE.format(kind="qlora_"), "qlora", ""),
        (TUNE.format(kind="") + "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n", "dpo", ""),
        (SWIFT.replace("sft", "rlhf") + " --rlhf_type dpo --quant_bits 4", "dpo", "nf4"),
        ("accelerate launch train.py --per_device_train_batch_size 2 --bf16 --lora_rank 4", "lora", ""),
    ],
)
def test_what_is_trained_is_what_is_judged(text: str, method: str, frozen: str) -> None:
    file = _file(text, "h100:1")
    assert (file.method, file.frozen) == (method, frozen)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TRL.format(kind="grpo"), "`dscale rl"),
        (AXOLOTL + "rl: grpo\n", "`dscale rl"),
        (FACTORY.format(kind="freeze"), "freeze, which is not planned"),
        (FACTORY.format(kind="loara"), "did you mean 'lora'"),
        (AXOLOTL + "load_in_4bit: true\n", "trains no adapters"),
        (AXOLOTL.replace("2", "two"), "axolotl's micro_batch_size is 'two'"),
        (SWIFT + " --tuner_type vera", "another tuner"),
        ('{"peft_type": "IA3", "base_model_name_or_path": "Qwen/Qwen3-8B"}', "another kind of adapters"),
        ("axolotl train no-such-file.yml", "'no-such-file.yml', which is not here"),
        ("deepspeed train.py --deepspeed ds.json --lora_dim 128 --bf16", "trains adapters in a script of its own"),
        (AXOLOTL + "adapter: lora\nlora_target_modules: [q_porj]\n", "did you mean 'q_proj'"),
        (AXOLOTL + "adapter: lora\nlora_target_modules: [lm_head]\n", "on lm_head alone"),
    ],
)
def test_what_is_not_planned_is_refused_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        ds.train(plan=text, on="h100:8", model="qwen3-8b", alone=True, batch="16seq", seq=1024)


def test_pairs_of_answers_are_two_sequences() -> None:
    alone, pairs = _file(TRL.format(kind="sft")), _file(TRL.format(kind="dpo"))
    assert (pairs.plan.microbatch, pairs.batch) == (2 * alone.plan.microbatch, 2 * alone.batch)


def test_a_script_in_python_is_read_without_being_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from trl import SFTConfig, SFTTrainer\nfrom peft import LoraConfig\n"
        f"open({str(tmp_path / 'ran')!r}, 'w')\nNAME = 'meta-llama/Llama-3.1-8B'\n"
        "args = SFTConfig(max_length=4096, per_device_train_batch_size=4, gradient_checkpointing=False)\n"
        "SFTTrainer(NAME, args=args, peft_config=LoraConfig(r=64, target_modules='all-linear'))\n"
    )
    file = _file(str(script), "h100:1")
    assert (file.model, file.seq, file.plan.microbatch, file.plan.remat) == ("llama3.1-8b", 4096, 4, "none")
    assert (file.method, file.lora_rank, file.lora_targets) == ("lora", 64, "all")
    assert not (tmp_path / "ran").exists()


def test_settings_of_an_adapter_leave_the_batch_open() -> None:
    text = json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "gpt2"})
    file = _file(text, "h100:1")
    assert (file.method, file.lora_rank, file.lora_targets, file.batch, file.seq) == ("lora", 4, "q_proj", 0, 0)


def test_configs_beside_a_command_and_words_over_them(tmp_path: Path) -> None:
    (tmp_path / "cfg.yml").write_text(AXOLOTL + "adapter: qlora\nlora_r: 64\nsample_packing: true\n")
    script = tmp_path / "run.sh"
    script.write_text("accelerate launch --num_processes 4 -m axolotl.cli.train cfg.yml --micro-batch-size 1\n")
    found = read_plan(str(script), Given(slice="h100"))
    assert isinstance(found.file, TrainingFile)
    assert (found.file.slice, found.file.plan.data, found.file.plan.microbatch) == ("h100:4", 4, 1)
    assert (found.file.lora_rank, found.notes) == (64, ())


def test_how_far_off_the_answer_may_be_is_said() -> None:
    found = _found(
        AXOLOTL + "adapter: lora\npeft_use_dora: true\nlora_dropout: 0.05\nwandb_project: a\nsequenc_len: 8\n"
    )
    assert found.unplanned == ("peft_use_dora",)
    assert any("takes longer than LoRA's" in note for note in found.notes)
    assert any("padded and not packed" in note for note in found.notes)
    assert {"lora_dropout", "wandb_project"} <= set(found.ignored)
    assert found.unknown == ("sequenc_len (did you mean sequence_len?)",)


DEEPSPEED = (
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "offload_param": {"device": "%s"}}}'
)
ACCELERATE = (
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_offload_params: %s\n"
)


HOSTED = (
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, '
    '"offload_optimizer": {"device": "%s"}, "offload_param": {"device": "cpu"}}}'
)


@pytest.mark.parametrize(
    ("text", "on", "off"),
    [
        (AXOLOTL + "fsdp_config:\n  fsdp_offload_params: %s\n", "true", "false"),
        (AXOLOTL + "fsdp_config:\n  offload_params: %s\n", "true", "false"),
        (FACTORY.format(kind="lora") + "fsdp: full_shard%s\n", " offload", ""),
        (FACTORY.format(kind="lora") + "deepspeed: examples/ds_z%s_config.json\n", "3_offload", "3"),
        (ACCELERATE, "true", "false"),
        (HOSTED, "cpu", "none"),
    ],
)
def test_parameters_in_the_hosts_memory_are_planned(text: str, on: str, off: str) -> None:
    away, there = (_found(text % word) for word in (on, off))
    assert (away.file.plan.offload, there.file.plan.offload) == ("parameters", "none")
    assert not any("offload_param" in name for name in away.unplanned)
    assert not any("host's memory" in note for note in away.notes)


def test_parameters_in_the_hosts_memory_without_the_optimizer_are_told() -> None:
    """Which DeepSpeed can and no plan says: it is judged with the parameters on the chip."""
    away, there = (_found(DEEPSPEED % word) for word in ("cpu", "none"))
    assert away.file.plan.offload == "none"
    assert any("Parameters would lie in the host's memory" in note for note in away.notes)
    assert any("offload_param" in name for name in away.unplanned)
    assert len(set(away.notes)) == len(away.notes)
    assert not any("host's memory" in note for note in there.notes)
    assert not any("offload_param" in name for name in there.unplanned)


def test_frozen_weights_in_fp32_are_told() -> None:
    text = TRL.format(kind="sft") + " --use_peft --packing"
    assert any("take 4 bytes" in note for note in _found(text).notes)
    assert _found(text + " --dtype bfloat16").notes == ()


def test_a_plan_tells_whose_it_is_and_what_it_trains() -> None:
    found = foreign_plan(TRL.format(kind="sft") + " --use_peft", "", "h100:1")
    assert found is not None
    assert told(found)[0] == "Read as a plan of TRL 1.16.0: mb2 z3 block, lora rank 16 (q_proj,v_proj)."


PLANS: tuple[tuple[str, str, str, int, int, dict[str, Any]], ...] = (
    ("llama3.2-3b", "h100:1", "remat=block,microbatch=2", 16, 4096, {"method": "lora", "lora_rank": 16}),
    ("llama3.2-1b", "h100:1", "remat=none", 16, 2048, {"method": "qlora", "lora_rank": 8, "lora_targets": "q_proj"}),
    ("llama3.1-8b", "h100:8", "fsdp=8,zero=3,remat=block,microbatch=2", 64, 1024, {"method": "dpo", "lora_rank": 32}),
    ("llama3.2-1b", "h100:8", "fsdp=8,zero=3,remat=block", 64, 1024, {"method": "lora", "lora_targets": "attention"}),
)
TARGETS = ("trl", "axolotl", "llamafactory", "torchtune", "swift")


def _saved(place: Path, model: str, on: str, plan: str, batch: int, seq: int, tuning: dict[str, Any]) -> Path:
    path = place / "plan.toml"
    save_training_file(TrainingFile(parse_plan(plan), model, on, batch=batch, seq=seq, tokens="10M", **tuning), path)
    return path


@pytest.mark.parametrize(("target", "row"), [*itertools.product(TARGETS, PLANS)], ids=str)
def test_an_exported_plan_is_read_back_as_it_was(target: str, row: Any, tmp_path: Path) -> None:
    path = _saved(tmp_path, *row)
    ds.export(str(path), to=target).write_into(str(tmp_path / "out"))
    back, plan = ds.import_plan(str(tmp_path / "out")).file, load_training_file(path)
    assert isinstance(back, TrainingFile)
    names = ("plan", "model", "slice", "tokens", "batch", "seq", "method", "lora_rank", "lora_targets", "frozen")
    assert [getattr(back, name) for name in names] == [getattr(plan, name) for name in names]


def test_a_file_says_which_stack_it_was_planned_with(tmp_path: Path) -> None:
    path = _saved(tmp_path, "llama3.2-1b", "h100:1", "remat=block", 16, 1024, {"method": "lora", "stack": "unsloth"})
    factory, script = (ds.export(str(path), to=one) for one in ("llamafactory", "trl"))
    config = factory.files["llamafactory.yaml"]
    assert "use_unsloth: true" in config
    assert "pure_bf16" not in config
    lines = [" ".join(text.replace("#", "").split()) for text in (config, script.files["trl.yaml"])]
    assert ["HBM, with stack unsloth" in lines[0], "HBM, planned with stack unsloth" in lines[1]] == [True, True]
    assert any("starts without Unsloth's kernels" in note for note in script.notes)
    assert not any("Unsloth" in note for note in factory.notes)
    with pytest.raises(InputError, match="Unsloth is called from a script of your own"):
        ds.export(str(path), to="unsloth")


def test_a_config_with_unsloth_is_judged_with_its_stack() -> None:
    found = _found(FACTORY.format(kind="lora") + "use_unsloth: true\nneat_packing: true\n", "h100:1")
    assert isinstance(found.file, TrainingFile)
    assert (found.file.stack, found.notes, found.unplanned) == ("unsloth", (), ())


@pytest.mark.parametrize(
    ("target", "plan", "tuning", "why"),
    [
        ("megatron", "fsdp=8", {"method": "lora"}, "take axolotl, llamafactory, torchtune, trl, swift"),
        ("accelerate", "fsdp=8", {"method": "qlora"}, "training every weight"),
        ("trl", "fsdp=8,microbatch=2,remat=block", {"method": "orpo"}, "no script for ORPO"),
        ("torchtune", "data=8,remat=block", {"method": "lora"}, "put data=8 into fsdp"),
        ("axolotl", "fsdp=4,context=2,remat=block", {"method": "lora"}, "context_by=ring"),
        ("llamafactory", "fsdp=4,tensor=2,remat=block", {"method": "lora"}, "no tensor ranks"),
        ("axolotl", "fsdp=8,remat=block", {"method": "dpo"}, "pairs of answers"),
        ("trl", "fsdp=8,remat=block", {"method": "lora", "frozen": "fp8"}, "not fp8"),
    ],
)
def test_what_a_front_end_does_not_run_is_refused(
    target: str, plan: str, tuning: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = _saved(tmp_path, "llama3.2-1b", "h100:8", plan, 64, 1024, tuning)
    with pytest.raises(Infeasible, match=why):
        ds.export(str(path), to=target, force=True)


@pytest.mark.parametrize("seed", range(4))
def test_broken_configs_are_refused_in_a_sentence(seed: int) -> None:
    """Values of the wrong kind, cut texts and signs put in: a plan or one sentence."""
    draw = random.Random(seed)
    strange = ("null", "[]", "{}", "-1", "1e999", "'é\u2028'", "true", "[1, {a: 2}]", "0x10", '"\\0"', "9" * 40)
    whole = [
        AXOLOTL + "adapter: lora\nlora_r: 8\nfsdp_config:\n  reshard_after_forward: true\n",
        FACTORY.format(kind="lora"),
    ]
    whole += [TUNE.format(kind="lora_"), TRL.format(kind="sft"), SWIFT + " --tuner_type lora --lora_rank 8"]
    for text, _ in itertools.product(whole, range(25)):
        lines = text.splitlines()
        at = draw.randrange(len(lines))
        lines[at] = (
            lines[at].partition(":")[0] + ": " + draw.choice(strange)
            if ":" in lines[at]
            else lines[at] + " --bf16 maybe"
        )
        broken = "\n".join(lines)[: draw.randrange(20, 400)]
        sentence = _sentence(broken)
        assert "\n" not in sentence


def _sentence(text: str) -> str:
    """Why a text is not read; nothing where it is."""
    try:
        read_plan(text, Given("qwen3-8b", "h100:8"))
    except InputError as error:
        return str(error)
    return ""
