"""What fills a chip in fine-tuning: defaults of the software, attention, formats, answers that are compared. The cases
are runs that people reported."""

from dataclasses import replace

import pytest

from dragonscale.commands.compare.ask_training import ask
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.advice.memory_margins import longest_held, memory_margins
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.tuning import read_tuning, with_attention


def asked(**flags: object) -> TrainReport:
    """The answer to `dscale train`."""
    return ask(TrainQuestion(**flags), Listener())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("stack", ["axolotl", "llama-factory", "trl", "unsloth", "swift"])
def test_a_plan_without_recompute_has_that_of_the_software(stack: str) -> None:
    report = asked(model="llama3-8b", on="rtx4090:1", batch="1seq", seq="2048", method="qlora", stack=stack, plan="z0")
    assert report.plans[0].plan.remat == "block"
    assert report.plans[0].feasible
    assert any(f"Taken as {stack} has it there: remat=block" in note for note in report.asked.notes)


def test_the_trainer_itself_recomputes_quantized_models_alone() -> None:
    for method, remat in (("lora", "none"), ("qlora", "block")):
        report = asked(model="llama3-8b", on="h100:1", batch="1seq", seq="1024", method=method, stack="hf", plan="z0")
        assert report.plans[0].plan.remat == remat


def test_gemma_3_under_unsloth_writes_its_scores_out() -> None:
    """github.com/unslothai/unsloth/issues/2366: about 14,000 tokens of Gemma-3 12B in 8 bit fill an H100, 15,000 and
    more ran out; 28,000 were wanted."""
    model = load_model("gemma3-12b")
    tuning = read_tuning(model, "lora", frozen="int8")
    job = make_job(model, parse_slice("h100:1"), 1, 8192, "unsloth", tuning)
    plan = parse_plan("z0 block")
    assert longest_held(job, plan) == pytest.approx(14_500, rel=0.1)
    flash = make_job(model, parse_slice("h100:1"), 1, 8192, "unsloth", with_attention(tuning, "sdpa"))
    assert longest_held(flash, plan) > 3 * longest_held(job, plan)


def test_a_model_loaded_in_fp32_has_weights_and_activations_of_four_bytes() -> None:
    """github.com/huggingface/transformers/issues/25572, the maintainer's count of a 7B with LoRA of rank 8 at 4 x 256
    tokens: 28 GB of weights and 12.25 GB of activations."""
    report = asked(
        model="llama1-7b",
        on="a100:1",
        batch="4seq",
        seq="256",
        method="lora",
        lora_rank=8,
        dtype="fp32",
        plan="none",
        stack="hf",
    )
    plan = report.plans[0]
    weights = next(row.bytes for row in plan.memory if row.name == "weights")
    assert weights == pytest.approx(27.0e9, rel=0.02)
    assert plan.hbm_bytes == pytest.approx(28e9 + 12.25e9, rel=0.1)
    assert plan.plan.microbatch == 4


def test_compared_answers_pass_together() -> None:
    """github.com/hiyouga/LLaMA-Factory/issues/7938: DPO of a 7B at 32k runs out on A100s whatever is offloaded."""
    report = asked(
        model="qwen2.5-7b",
        on="a100:64",
        batch="64seq",
        seq="32768",
        method="lora",
        loss="dpo",
        plan="z3 offload=optimizer",
        stack="llama-factory",
    )
    assert not report.plans[0].feasible
    logits = next(row.bytes for row in report.plans[0].memory if row.name == "logits")
    assert logits > 2 * 32768 * 152_064 * 12


def test_what_would_make_a_run_fail_is_named() -> None:
    job = make_job(
        load_model("llama2-70b"),
        parse_slice("a100:4"),
        4,
        1024,
        "llama-factory",
        read_tuning(load_model("llama2-70b"), "lora"),
    )
    plan = parse_plan("fsdp4 z3 block")
    margins = memory_margins(job, plan)
    assert ["whole replicas" in margin.what for margin in margins] == [True]
    assert margins[0].hbm_bytes > 138e9
    longest = longest_held(job, plan)
    assert float(judge_one(replace(job, sequence=longest), plan).hbm_bytes) <= job.slice.chip.visible


def test_methods_and_stacks_are_compared_by_their_memory() -> None:
    """github.com/unslothai/unsloth/issues/1176: weights of Llama-3.2 1B take 2.47 GB under Unsloth and 4.95 GB in the
    Trainer of transformers."""
    report = ask(TrainQuestion(model="llama3.2-1b", on="rtx4090:1", method="full", stack="unsloth,hf"), Listener())
    assert [round(part.bytes / 1e9, 2) for side in report.sides for part in side.memory if part.name == "weights"] == [
        2.47,
        4.94,
    ]
    methods = ask(
        TrainQuestion(model="llama3.2-1b", on="a100:1", batch="1seq", seq="8192", method="lora,full"), Listener()
    )
    lora, full = methods.sides
    assert 0.8 < lora.hbm_bytes / full.hbm_bytes < 1.1  # at long context activations rule (peft issue 1514)


def test_layerwise_galore_of_a_7b_takes_about_20_gb() -> None:
    """github.com/axolotl-ai-cloud/axolotl/issues/1448: about 20 GB with the layer-wise optimizer; the plain one holds
    all gradients beside the weights."""
    sizes: dict[str, float] = {}
    for optimizer in ("galore_adamw_layerwise", "galore_adamw", "adamw"):
        report = asked(
            model="mistral-7b",
            on="a6000:1",
            batch="1seq",
            seq="4096",
            method="full",
            optimizer=optimizer,
            stack="axolotl",
            plan="z0",
        )
        sizes[optimizer] = report.plans[0].hbm_bytes
    assert sizes["galore_adamw_layerwise"] == pytest.approx(20e9, rel=0.15)
    assert sizes["galore_adamw"] > sizes["galore_adamw_layerwise"] + 13e9
    assert sizes["adamw"] > sizes["galore_adamw"] + 20e9


def test_the_largest_model_keeps_to_a_given_plan() -> None:
    """github.com/huggingface/transformers/issues/11044: ZeRO-2 holds whole weights on every card, so that about 5B are
    the most on 24 GB whatever their number; ZeRO-3 lifts it."""
    report = asked(
        model="qwen3-4b",
        on="rtx3090:8",
        batch="16seq",
        seq="2048",
        method="full",
        stack="hf",
        plan="z2",
        largest="model",
    )
    first = report.plans[0]
    assert (first.plan.zero, first.plan.tensor) == (2, 1)
    assert 3e9 < report.workload.parameters < 6e9
    assert "ZeRO-3 holds" in report.answer
