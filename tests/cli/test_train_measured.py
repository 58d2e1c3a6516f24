"""`--measured`: how a measured step is read, and what is said of one outside the band."""

import json

import pytest

from dragonscale.commands.train.measured import measured_row, measured_step
from dragonscale.commands.train.train_records import Measured
from dragonscale.errors import InputError
from dragonscale.faces.cli.app import run as main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.advice.assessment import assess
from dragonscale.training.advice.explanations import by_default
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import stacks
from dragonscale.training.search.published_runs import published_runs, runs_of_model


def qwen_job(stack: str = "megatron-core") -> Job:
    return make_job(load_model("qwen3-30b-a3b"), parse_slice("h100:16"), 512, 4096, stack)


def measured_of(job: Job, plan: str, seconds: float) -> Measured:
    return measured_row(assess(job, parse_plan(plan)), seconds)


DENSE = make_job(load_model("qwen2.5-32b"), parse_slice("h200:8"), 64, 4096, "megatron-core")


@pytest.mark.parametrize(
    "text",
    [
        "420 TFLOP/s",
        "420TFLOP/s",
        "420 TFLOPs",
        "420 TFLOPS",
        "420 TFLOP/s/GPU",
        "420 TFLOP/s per GPU",
        "420 tflops/gpu",
        "0.42 PFLOP/s",
        "3360 TFLOP/s",  # more than one chip can do: of the run
        "42.45%",
        "42.45% MFU",
        "2102.5 tok/s/GPU",
        "2102.5 tokens/s per GPU",
        "15.585s",
    ],
)
def test_every_way_to_report_a_step_is_read_alike(text: str) -> None:
    assert measured_step(text, DENSE).seconds == pytest.approx(15.585, rel=2e-3)


@pytest.mark.parametrize("text", ["9000 PFLOP/s/GPU", "0 TFLOP/s", "-420 TFLOP/s", "1200 TFLOP/s/GPU"])
def test_more_flops_than_a_chip_has_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"peak|FLOP"):
        measured_step(text, DENSE)


def test_what_megatron_prints_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "qwen2.5-32b", "--on", "h200:8", "--plan", "tp4 pp2", "--batch", "64seq", "--seq", "4096"]
    assert main([*asked, "--alone", "--measured", "420 TFLOP/s", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measured"]["mfu"] == pytest.approx(0.4245, abs=1e-3)
    assert any("read as 420TFLOP/s of one chip" in note for note in report["notes"])


def test_a_published_run_that_was_as_slow_is_laid_beside_it() -> None:
    """NVIDIA's own run of release 25.11: its software has fused attention, and no machine need be at fault."""
    found = measured_of(qwen_job(), "pp2 ep8 z1 fp8", 24.8)
    assert not found.within_band
    nearest = found.published[0]
    assert nearest.tokens_per_s_per_chip == pytest.approx(512 * 4096 / 24.8 / 16, rel=0.01)
    assert "25.11 container" in nearest.source
    assert "25.11 container" in found.text
    assert "it is the prediction that may be off" in found.text
    assert not any("fused" in row.cause for row in found.suspects)
    assert "candidate by itself" in found.text


def llama_job(stack: str) -> Job:
    return make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, stack)


def test_published_runs_are_of_the_model_and_not_of_others_as_wide_and_deep() -> None:
    """MPT-7B, Llama 2 7B, nanotron 8.86B and Nemotron-8B have the layers and the width of Llama 3 8B."""
    found = measured_of(llama_job("llm-foundry"), "fsdp8 z3 block", 60.0)
    names = {run.model.lower() for run in runs_of_model(llama_job("llm-foundry"))}
    assert names == {"llama3-8b", "llama3.1-8b", "llama3_8b"}
    assert "mpt" not in found.text.lower()
    assert all("llm-foundry" not in row.source for row in found.published)
    assert "tokens/s a chip (llama3-8b, " in found.text


def test_the_runs_that_are_shown_are_said_to_be_the_nearest_of_all() -> None:
    found = measured_of(llama_job("llm-foundry"), "fsdp8 z3 block", 60.0)
    runs = runs_of_model(llama_job("llm-foundry"))
    assert len(runs) > len(found.published) == 3
    assert f"The nearest 3 of {len(runs)} published runs of this model" in found.text


def test_a_run_of_other_software_does_not_put_the_prediction_in_doubt() -> None:
    """A run of torchtitan that was as slow says nothing of llm-foundry."""
    job = llama_job("llm-foundry")
    slow = next(run for run in runs_of_model(job) if run.stack == "torchtitan-async")
    found = measured_of(job, f"fsdp8 z3 block {slow.parsed_plan.dtype}", job.tokens / 8 / slow.tokens_per_s_per_chip)
    assert not found.within_band
    assert any(row.source == slow.source for row in found.published)
    assert "it is the prediction that may be off" not in found.text


def test_a_step_within_its_band_has_nothing_beside_it() -> None:
    found = measured_of(qwen_job(), "pp2 ep8 z1 fp8", 11.0)
    assert found.within_band
    assert not found.published
    assert not found.suspects


def test_unknown_software_may_have_plain_attention() -> None:
    found = measured_of(qwen_job("generic"), "pp2 ep8 z1 fp8", 24.8)
    assert any("attention not fused" in row.cause for row in found.suspects)


def test_no_stack_is_suspected_of_what_it_does_by_default() -> None:
    """Every stack with a fused attention kernel has it by default, but for the one that is nobody's and those of
    configs that nobody reads or that have to ask for it (attention_config of GPT-NeoX is global unless told)."""
    for name, stack in stacks().items():
        if stack.kernels.flash and name not in ("generic", "xla-gpu", "hai-llm", "gpt-neox"):
            assert by_default("attention", name), name


def test_published_runs_are_plans_of_their_chips() -> None:
    runs = published_runs()
    assert len(runs) > 300
    for run in runs[::10]:
        assert run.parsed_plan.chips == run.chips, run
        assert run.tokens_per_s_per_chip > 0
