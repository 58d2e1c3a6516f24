"""Logs of trainers, read and scored against a plan."""

import gzip
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.evidence.logs.reading import read_training_log
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.training_log import SettledStep, TrainingLog, settled
from tests.evidence.logs import samples


def read(text: str) -> TrainingLog:
    return read_training_log(LogText(text, Path("run.log")))


def step_of(log: TrainingLog, batch: int = 256) -> SettledStep:
    found = settled(log, lambda step: step.seconds or (batch / step.samples if step.samples else None))
    assert found is not None
    return found


def test_megatron_skips_the_warm_up_and_takes_the_median() -> None:
    log = read(samples.megatron_log(20000, 20000, 20000, 20000, 16000, 16100, 16200, 40000))
    step = step_of(log)
    assert (step.seconds, step.counted, step.skipped, step.starts) == (pytest.approx(16.15), 4, 5, 1)
    assert step.high == 40.0
    assert step.flops == pytest.approx(418.7e12)
    assert log.memory_bytes == pytest.approx(45754.88 * 2**20)


def test_ranks_that_print_at_once_share_a_line_of_memory() -> None:
    line = samples.megatron_memory(2, 12680.5) + samples.megatron_memory(6, 50850.5) + "\n"
    assert read(samples.megatron_log(16000) + line).memory_bytes == pytest.approx(50850.5 * 2**20)


def test_a_line_that_is_cut_says_nothing() -> None:
    whole = samples.megatron_log(16000, 16000, 16000, 16000, 16000, 16000)
    cut = samples.megatron_line(8, 15555.5)
    for end in (cut.index("15555.5") + 3, cut.index("global batch") + 8, len(cut)):
        assert step_of(read(whole + cut[:end])).counted == 2


def test_every_start_has_its_own_warm_up() -> None:
    steady = [16000.0] * 8
    log = read(samples.megatron_log(*steady) + samples.megatron_log(*steady, first=5))
    step = step_of(log)
    assert (step.starts, step.skipped, step.counted) == (2, 10, 8)
    assert step.high == 16.0


def test_a_batch_that_grows_counts_at_its_last_size() -> None:
    log = read(
        samples.megatron_log(*[4000.0] * 20, batch=32)
        + "\n".join(samples.megatron_line(n, 16000) for n in range(30, 34))
        + "\n"
    )
    step = step_of(log)
    assert step.seconds == 16.0
    assert "128 sequences" in step.notes[0]


def test_nemo_lines_are_megatron_s() -> None:
    line = (
        "Training epoch 0, iteration {step}/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: {step} | "
        "max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | "
        "train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888\n"
    )
    log = read("".join(line.format(step=step) for step in range(10)))
    step = step_of(log)
    assert (step.seconds, step.flops, log.memory_bytes) == (6.08, 1249e12, 115792977920)
    assert log.steps[0].batch == 128


def test_torchtitan_says_what_ran() -> None:
    log = read(samples.titan_log())
    assert [step.tokens for step in log.steps] == [375, 5760, 5760, 5760]  # of rank 0 alone
    assert (log.batch, log.seq, log.chips, log.chip, log.model) == (8, 8192, 8, "NVIDIA H100", "llama3-8b")
    assert "fsdp=8" in log.plan
    assert "remat=selective" in log.plan
    assert log.memory_bytes == pytest.approx(47.43 * 2**30)


def test_maxtext_lines_and_metrics() -> None:
    assert step_of(read(samples.maxtext_log())).seconds == pytest.approx(5.401)
    step = step_of(read(samples.maxtext_metrics() + '{"perf/step_time_seconds": 5'))
    assert (step.seconds, step.counted) == (5.4, 4)


def test_deepspeed_rates() -> None:
    log = read(samples.deepspeed_log())
    assert step_of(log).seconds == pytest.approx(10.0)
    assert log.memory_bytes == pytest.approx(38.49 * 2**30)
    piped = "".join(f"steps: {n} loss: 10.71 iter time (s): 0.283 samples/sec: 226.457\n" for n in (10, 20, 30))
    assert step_of(read(piped)).seconds == 0.283


def test_hugging_face_bars_and_state() -> None:
    step = step_of(read(samples.trainer_bars()))
    assert (step.seconds, step.skipped) == (pytest.approx(2.0), 1)
    log = read(samples.trainer_state())
    assert step_of(log).seconds == pytest.approx(2.5)
    assert "warm-up included" in log.notes[0]
    with pytest.raises(InputError, match="holds no times"):
        read(samples.trainer_state(ended=False))


def test_a_log_is_scored_against_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(samples.megatron_log(*[16000.0] * 8).encode()))
    found = ds.validate(
        "training", str(path), plan="tp8 pp2 fsdp4", model="llama3-70b", on="h100:64", seq="8192", stack="megatron"
    ).to_dict()
    rows = {row["name"]: row for row in found["measures"]}
    step = rows["step"]
    assert step["measured"] == 16.0
    assert step["ratio"] == pytest.approx(16.0 / step["expected"])
    assert step["inside"] is (step["low"] <= 16.0 <= step["high"]) is found["inside"]
    assert rows["memory (max_allocated)"]["measured"] == pytest.approx(45754.88 * 2**20)
    assert found["workload"].startswith("128 sequences")


def test_a_slow_run_says_where_the_rest_may_have_gone(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(samples.megatron_log(*[32000.0] * 8))
    found = ds.validate(
        "training", str(tmp_path / "run.log"), plan="tp8 pp2 fsdp4", model="llama3-70b", on="h100:64", seq=8192
    )
    assert found.inside is False
    assert found.suspects
    assert "outside the band" in found.text


def test_a_log_that_says_its_plan_needs_none(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(samples.titan_log())
    found = ds.validate("training", str(tmp_path / "run.log"))
    assert (found.model, found.slice) == ("llama3-8b", "h100:8")
    assert found.measures[0].measured == pytest.approx(8 * 8192 / (5760 * 8))
    assert "33.7% MFU" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "given", "sentence"),
    [
        (samples.maxtext_log(), {}, "does not say how the run was split"),
        ("nothing\nof the kind\n", {"plan": "tp8"}, "is not a log of a trainer"),
        ("", {"plan": "tp8"}, "is not a log of a trainer"),
        (samples.megatron_log(16000.0), {"plan": "tp8", "search": True}, "search= is for a table"),
        (
            samples.titan_log(),
            {"plan": "fsdp16", "model": "llama3-8b", "on": "h100:16"},
            "run on 8 chips, and the plan is for 16",
        ),
        (samples.sglang_result().__repr__(), {"plan": "tp8"}, "is not a log of a trainer"),
    ],
    ids=["no plan", "no log", "empty", "search", "other chips", "python"],
)
def test_one_sentence(tmp_path: Path, text: str, given: dict[str, object], sentence: str) -> None:
    (tmp_path / "run.log").write_text(text)
    with pytest.raises(InputError, match=sentence):
        ds.validate("training", str(tmp_path / "run.log"), **given)  # pyright: ignore[reportArgumentType]


def test_a_table_of_runs_takes_no_plan(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("id\n")
    with pytest.raises(InputError, match="is a table of runs"):
        ds.validate("training", str(tmp_path / "runs.csv"), plan="tp8")


ARGUMENTS = {
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 2,
    "context_parallel_size": 1,
    "world_size": 64,
    "virtual_pipeline_model_parallel_size": 2,
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "kv_channels": 128,
    "seq_length": 4096,
    "max_position_embeddings": 32768,
    "micro_batch_size": 1,
    "global_batch_size": 128,
    "vocab_size": None,
    "padded_vocab_size": 32000,
    "num_experts": 8,
    "moe_router_topk": 2,
    "expert_model_parallel_size": 8,
    "expert_tensor_parallel_size": 1,
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
    "recompute_modules": ["core_attn"],
    "bf16": True,
    "use_distributed_optimizer": True,
    "swiglu": True,
    "fp8": None,
    "fp8_recipe": "delayed",
    "multi_latent_attention": False,
    "kv_lora_rank": 32,
    "v_head_dim": 128,
    "add_bias_linear": False,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "optimizer": "adam",
    "sequence_parallel": False,
    "data_parallel_sharding_strategy": "no_shard",
}


def test_megatron_s_own_arguments_say_the_plan(tmp_path: Path) -> None:
    """Every argument is printed, with defaults of parts that are off: those say nothing."""
    printed = "".join(samples.megatron_argument(name, value) + "\n" for name, value in sorted(ARGUMENTS.items()))
    (tmp_path / "run.log").write_text(printed + samples.megatron_log(*[16000.0] * 8))
    found = ds.validate("training", str(tmp_path / "run.log"), on="h100")
    assert (found.model, found.slice) == ("mixtral-8x7b", "h100:64")
    assert found.plan == "pp2 fsdp4 ep8 v2 z1 block"
    assert found.workload == "128 sequences of 4,096 tokens a step"
