"""Commands of frameworks of reinforcement learning: every name is the framework's own, and what is written is read back."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import Given
from dragonscale.exports.rl.rl_commands import read_rl, settings_of, target_of, targets, write_rl
from dragonscale.exports.rl.rl_file import changed, values_of
from dragonscale.training.plan.plan import Plan
from tests.exports.rl_runs import NAMED, RUNS, made, script


@pytest.mark.parametrize("run", RUNS, ids=NAMED)
def test_what_is_written_is_read_back(run):
    assert read_rl(script(run)).file == run


@pytest.mark.parametrize("run", RUNS, ids=NAMED)
def test_the_command_alone_says_the_run(run):
    """Without the comment, what a framework has a word for is the same; lengths are taken as half of the cap."""
    bare = re.sub(r"^# .*$", "", script(run), flags=re.MULTILINE)
    found = read_rl(bare, Given(slice="h100")).file
    assert not read_rl(bare, Given(slice="h100")).unknown
    same = ("model", "slice", "prompts", "samples", "prompt", "output", "updates", "reference", "mode", "trainer")
    for name in (*same, "algorithm", "train_chips", "rollout_chips", "rollout", "share"):
        assert getattr(found, name) == getattr(run, name), name
    for name in ("tensor", "pipe", "context", "expert", "microbatch", "chips"):
        assert getattr(found.train, name) == getattr(run.train, name), name


@pytest.mark.parametrize("name", list(targets()))
def test_every_name_is_the_frameworks_own(name):
    target = target_of(name)
    for section, rows in target.sections.items():
        for key in rows:
            owner = (
                key.rpartition(".")[0] if ".override_optimizer_" in key else key
            )  # a table of whatever the optimizer takes
            assert section == "launch" or target.table().known(owner) is not None, key


def test_a_flag_that_was_edited_counts():
    text = script(RUNS[0]).replace("rollout.tensor_model_parallel_size=2", "rollout.tensor_model_parallel_size=4")
    text = text.replace("data.train_batch_size=128", "data.train_batch_size=256")
    found = read_rl(text).file
    assert (found.rollout.tensor, found.prompts, found.updates) == (4, 256, 8)
    assert found.train == RUNS[0].train


def test_what_a_framework_does_not_run_is_refused():
    with pytest.raises(Infeasible, match="does not run async"):
        write_rl(replace(RUNS[-1], mode="async", train_chips=4, rollout_chips=4))
    with pytest.raises(Infeasible, match="not written with algorithm ppo"):
        write_rl(replace(RUNS[5], algorithm="ppo"))
    with pytest.raises(InputError, match="neither a command nor a config"):
        read_rl("vllm serve meta-llama/Meta-Llama-3-8B -tp 8")
    with pytest.raises(InputError, match="do not divide"):
        changed(RUNS[0], {"tensor": 3})


def test_settings_are_counted_as_each_framework_counts_them():
    verl, nemo, slime = (settings_of(target_of(run.stack), run) for run in (RUNS[0], RUNS[5], RUNS[10]))
    assert verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == 32  # prompts
    assert nemo["policy.train_global_batch_size"] == slime["--global-batch-size"] == 256  # answers
    assert nemo["policy.max_total_sequence_length"] == 2304
    assert verl["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 4608
    assert slime["--recompute-method"] == "block"
    assert slime["--recompute-num-layers"] == 6
    assert values_of(RUNS[4])["ep"] == 8


PUBLISHED = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 data.max_prompt_length=512 \\
    data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=1 $@
"""
"""As examples/grpo_trainer/run_qwen3-8b.sh of verl has it."""


def test_a_published_command_is_judged():
    found = read_rl(PUBLISHED, Given(slice="h100")).file
    assert (found.model, found.slice, found.prompts, found.samples, found.updates) == ("qwen3-8b", "h100:8", 1024, 5, 4)
    assert (str(found.train), found.trainer) == ("fsdp=8,microbatch=32,remat=block", "verl-fsdp")
    assert found.mode == "colocated"
    answer = ds.rl(plan=PUBLISHED, on="h100", mean_output=300)
    assert answer.plans[0].train == "fsdp8 mb32 z3 block"
    # a microbatch is 32 answers of the tokens that there are, and not of the longest; the script runs as it is
    assert answer.best is not None
    assert answer.best.train_hbm_bytes < 0.75 * answer.best.hbm_limit_bytes
    assert (answer.prompts, answer.mean_output) == (1024, 300)


def test_linear_attention_is_not_packed_on_verls_megatron():
    """As examples/grpo_trainer/run_qwen3_5_35b_megatron.sh of verl has it: sequences counted, padding kept."""
    plan = Plan(fsdp=4, tensor=2, zero=1, remat="block")
    run = made("verl", "megatron-rl", plan, model="Qwen/Qwen3.5-35B-A3B", train=8)
    settings = settings_of(target_of("verl"), run)
    actor = "actor_rollout_ref.actor"
    assert settings[f"{actor}.use_dynamic_bsz"] is settings[f"{actor}.megatron.use_remove_padding"] is False
    assert settings[f"{actor}.ppo_micro_batch_size_per_gpu"] == 1
    assert read_rl(script(run)).file == run
    packed = settings_of(target_of("verl"), RUNS[0])
    assert packed[f"{actor}.use_dynamic_bsz"] is packed[f"{actor}.megatron.use_remove_padding"] is True
    assert f"{actor}.ppo_micro_batch_size_per_gpu" not in packed


def test_a_recommended_way_is_exported_and_judged_alike(tmp_path):
    asked = {"on": "h100:8", "prompts": 32, "samples": 8, "output": 1024, "mean_output": 400}
    best = ds.rl("qwen2.5-1.5b", to="slime", out=str(tmp_path), mode="colocated", **asked)
    again = ds.rl(plan=str(tmp_path / "slime.sh"))
    assert list(best.files) == ["slime.sh"]
    assert again.plans[0] == best.plans[0]
    with pytest.raises(InputError, match="export is written for"):
        ds.rl("qwen2.5-1.5b", to="axolotl", **asked)


def test_what_is_not_said_is_the_frameworks_own() -> None:
    """verl answers each prompt once and by PPO, and Megatron's optimizer may work in the host's memory."""
    text = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B data.train_batch_size=512"
    text += " +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True"
    found = read_rl(text, Given(slice="h100:8"))
    assert (found.file.algorithm, found.file.samples, found.file.prompt, found.file.output) == ("ppo", 1, 512, 512)
    assert (found.file.train.offload, found.unknown) == ("optimizer", ())
    slime = "python3 train.py --hf-checkpoint Qwen/Qwen3-8B --rollout-batch-size 32 --colocate --optimizer-cpu-offload"
    assert read_rl(slime, Given(slice="h100:8")).file.train.offload == "optimizer"


def test_lengths_that_are_whole_leave_room_for_a_prompt() -> None:
    text = "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-8B --data.max_len 2048"
    found = read_rl(f"{text} --train.colocate_all --actor.num_gpus_per_node 8", Given(slice="h100:16"))
    assert (found.file.prompt, found.file.output, found.file.slice) == (512, 1536, "h100:8")
    assert [note.partition(":")[0] for note in found.notes] == [
        "Prompt and answer have 2,048 tokens together",
        "It is for h100",
    ]


def test_a_config_has_its_defaults_and_references(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("grpo: {num_prompts_per_step: 8}\npolicy: {train_micro_batch_size: 2}\n")
    own = "defaults: base.yaml\ngrpo: {num_generations_per_prompt: 4}\npolicy:\n  model_name: Qwen/Qwen3-8B\n"
    own += "  max_total_sequence_length: 4096\n  generation: {max_new_tokens: '${policy.max_total_sequence_length}'}\n"
    own += "cluster: {gpus_per_node: 8, num_nodes: 1}\n"
    (tmp_path / "run.yaml").write_text(own)
    found = read_rl(str(tmp_path / "run.yaml"), Given(slice="h100"))
    assert (found.file.prompts, found.file.samples, found.file.output) == (8, 4, 3584)
    assert found.file.train.microbatch == 2
    assert read_rl(own, Given(slice="h100")).notes[0].startswith("Its defaults, base.yaml, are not here")


def test_trls_file_is_read_as_its_command() -> None:
    text = "model_name_or_path: Qwen/Qwen3-8B\nnum_generations: 16\nper_device_train_batch_size: 16\n"
    found = read_rl(text + "gradient_accumulation_steps: 4\nmax_completion_length: 1024\n", Given(slice="h100:8")).file
    assert (found.stack, found.prompts, found.samples, found.output, found.updates) == ("trl", 32, 16, 1024, 1)


def test_sequences_count_where_tokens_do_not() -> None:
    text = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B data.train_batch_size=512"
    text += (
        " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048"
    )
    assert read_rl(text, Given(slice="h100:8")).file.train.microbatch == 4
    assert (
        read_rl(f"{text} actor_rollout_ref.actor.use_dynamic_bsz=True", Given(slice="h100:8")).file.train.microbatch
        == 2
    )
    (note,) = read_rl(f"{text} actor_rollout_ref.model.lora_rank=64", Given(slice="h100:8")).notes
    assert note.startswith("actor_rollout_ref.model.lora_rank trains adapters alone")
