"""Fine-tuning as plans like any other: adapters in the program, what is held, what runs beside the trained model."""

import json
from typing import Any

import pytest

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.lengths import packed_sequences, with_lengths
from dragonscale.commands.train.train_question import read_question
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.models.flops import Workload, training_flops
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.advice.inverse import fewest_chips, least_chips
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, make_job
from dragonscale.training.plan.plan_file import TrainingFile, load_training_file, parse_plan, save_training_file
from dragonscale.training.plan.tuning import Tuning, methods, optimizer_named, read_tuning
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, parse_space

MODEL = load_model("llama3.1-8b")


def _job(method: str = "full", *words: Any, stack: str = "hf", on: str = "h200:1", batch: int = 4) -> Job:
    return make_job(MODEL, parse_slice(on), batch, 2048, stack, read_tuning(MODEL, method, *words))


def _judged(job: Job, plan: str = "mb4 z0 block") -> Verdict:
    return judge_one(job, parse_plan(plan))


def _held(verdict: Verdict, part: str) -> float:
    return sum(first_number(line.bytes) for line in verdict.ledger.held if line.part == part)


def test_adapters_are_lines_of_the_program():
    block = _job("lora", 16, "q_proj,v_proj").model.program().sections[1]
    thin = [op for op in block.ops if op.part == "adapters" and op.function == "einsum"]
    assert [op.weights[0].name for op in thin] == ["Wq_a", "Wq_b", "Wv_a", "Wv_b"]
    assert all(op.frozen for op in block.ops if op.weights and op not in thin)
    assert not any(op.frozen for op in thin)


def test_experts_have_adapters_each():
    model = load_model("qwen3-30b-a3b")
    block = (
        make_job(model, parse_slice("h200:1"), 4, 2048, "hf", read_tuning(model, "lora", 8)).model.program().sections[1]
    )
    down = next(op for op in block.ops if op.weights and op.weights[0].name == "Wd_a")
    assert str(down.weights[0]) == "Wd_a[e:x, f, lr]"


def test_frozen_matmuls_have_no_gradient_of_their_weight():
    full, lora = _judged(_job()), _judged(_job("lora"))
    names = {line.what for line in lora.ledger.lines if line.phase == "backward"}
    assert "dWd" not in names
    assert "dWd_a" in names
    flops = {
        one: sum(training_flops(_job(one).model.program(), Workload(1, 2048, 2048)).values())
        for one in ("full", "lora")
    }
    assert 0.6 < flops["lora"] / flops["full"] < 0.72
    assert first_number(lora.flops) < 0.8 * first_number(full.flops)


def test_only_adapters_have_state():
    lora, qlora = _judged(_job("lora")), _judged(_job("qlora"))
    trained = 41_943_040  # rank 16 on all matmuls of the layers
    assert _held(lora, "optimizer") == pytest.approx(trained * (2 + 8), rel=1e-6)
    assert _held(lora, "weights") == pytest.approx(2 * (8_030_261_248 + trained), rel=1e-6)
    blocks = 8_030_261_248 - 2 * 128256 * 4096 - 65 * 4096
    assert _held(lora, "weights") - _held(qlora, "weights") == pytest.approx(blocks * (2 - 0.516), rel=1e-6)


def test_quantised_weights_are_written_out_for_each_use():
    copies = {
        one: _judged(_job(one)).ledger.by("term", "exposed_s")["weight and gradient copies"]
        for one in ("lora", "qlora")
    }
    assert copies["qlora"] - copies["lora"] == pytest.approx(3 * 6.98e9 * 2.516 / 4.2e12, rel=0.1)


MEASURED = [  # transformers 5.17, PyTorch 2.11 on one H200: plan, sequences, tokens, seconds and GB allocated at most
    ("qwen3-4b", "full", "mb2 z0 block", 4, 4096, 1.684, 88.4),
    ("qwen2.5-1.5b", "full", "mb4 z0 none", 4, 2048, 0.244, 64.1),
    ("llama3.2-3b", "full", "mb2 z0 none", 2, 2048, 0.257, 70.0),
    ("llama3.1-8b", "lora", "mb4 z0 block", 4, 2048, 1.032, 31.5),
    ("llama3.1-8b", "lora", "mb2 z0 none", 2, 2048, 0.382, 51.6),
    ("qwen2.5-1.5b", "lora", "mb4 z0 none", 4, 2048, 0.250, 43.6),
]


@pytest.mark.parametrize(("name", "method", "plan", "batch", "seq", "seconds", "peak"), MEASURED)
def test_eager_runs_take_and_hold_what_was_measured(
    name: str, method: str, plan: str, batch: int, seq: int, seconds: float, peak: float
):
    model = load_model(name)
    verdict = _judged(make_job(model, parse_slice("h200:1"), batch, seq, "hf", read_tuning(model, method)), plan)
    held = sum(
        first_number(line.bytes) for line in verdict.ledger.held if line.part not in ("fragmentation", "framework")
    )
    assert first_number(verdict.seconds) == pytest.approx(seconds, rel=0.1)
    assert held / 1e9 == pytest.approx(peak, rel=0.04)


def test_a_reference_runs_forward_and_lies_beside():
    full, dpo, lora = _judged(_job()), _judged(_job("dpo")), _judged(_job("dpo", 16))
    forward = sum(first_number(line.exposed_s * line.times) for line in full.ledger.lines if line.phase == "forward")
    assert first_number(dpo.seconds) - first_number(full.seconds) == pytest.approx(forward, rel=0.02)
    reference = _held(full, "casts")  # in bf16, as the copies are that autocast makes of the policy's weights
    assert _held(dpo, "weights") == pytest.approx(_held(full, "weights") + reference, rel=1e-6)
    assert _held(lora, "weights") < 1.02 * _held(full, "weights")  # adapters switched off are the reference
    assert (
        first_number(_judged(_job("kto")).seconds)
        > first_number(dpo.seconds)
        > first_number(_judged(_job("orpo")).seconds)
    )


def test_a_reward_model_has_no_logits_and_a_teacher_has_its_own_size():
    assert _held(_judged(_job("reward")), "logits") < 0.01 * _held(_judged(_job()), "logits") + 1e9
    taught = read_tuning(load_model("llama3.2-1b"), "distill", 0, "", "", "llama3.1-8b")
    assert taught.copies == pytest.approx(8.03 / 1.236, rel=0.01)
    assert taught.passes > 5


def test_gradients_that_fsdp1_holds():
    job = _job("lora", 16, "attention", stack="hf-fsdp-liger", on="a100:2", batch=16)
    one = _held(_judged(job, "fsdp2 mb8 z3 block"), "workspace")
    alone = _held(
        _judged(_job("lora", 16, "attention", stack="hf-liger", on="a100:1", batch=8), "mb8 z0 block"), "workspace"
    )
    assert one - alone == pytest.approx(30 * 8 * 2048 * 4096 * 2, rel=1e-6)


@pytest.mark.parametrize("method", ["lora", "qlora", "dpo"])
def test_a_plan_alone_is_the_plan_that_was_found(method: str):
    job = _job(method, on="h200:2", batch=16)
    best = search(job, parse_space("tp1"), 1).best[0]
    assert best.seconds == pytest.approx(first_number(judge_one(job, best.plan).seconds), rel=1e-9)
    assert best.hbm_bytes == pytest.approx(first_number(judge_one(job, best.plan).hbm_bytes), rel=1e-9)


WRONG = [
    (("lra",), "did you mean 'lora'"),
    (("full", 16), "trains every weight"),
    (("dpo", 0, "all"), "give --method dpo a --lora-rank"),
    (("lora", 5000), "1 to 4,096"),
    (("lora", 8, "x_proj"), "no LoRA target called 'x_proj'"),
    (("lora", 8, "q_a_proj"), "has no matmuls that --lora-targets q_a_proj names"),
    (("lora", 8, "", "int3"), "no format of frozen weights called 'int3'"),
    (("grpo",), "dscale rl MODEL"),
    (("dora",), "--method lora has the same memory"),
    (("lora", 8, "experts"), "has no matmuls that --lora-targets experts names"),
    (("distill",), "needs the model that teaches"),
    (("lora", 8, "", "", "llama3-70b"), "--teacher is of --method distill"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_what_cannot_be_is_refused_in_a_sentence(words: tuple[Any, ...], said: str):
    with pytest.raises(InputError, match=said):
        read_tuning(MODEL, *words)


def test_a_rank_alone_means_adapters():
    asked = read_question(TrainQuestion("llama3-8b", "2x4090", lora_rank=8, batch="4seq", seq="1024"))
    assert (asked.job.tuning.method, asked.job.tuning.rank, str(asked.job.slice)) == ("lora", 8, "rtx4090:2")
    assert "--method lora taken: a rank and targets are of adapters." in asked.notes
    wrong: dict[Any, str] = {"8,64": "one whole number; a table of `dscale sweep`", "-3": "a whole number of 1 or more"}
    for rank, said in wrong.items():
        with pytest.raises(InputError, match=said):
            TrainQuestion("llama3-8b", "h100:1", lora_rank=rank)


def test_targets_that_a_model_lacks_are_told_and_passed_over():
    asked = read_question(TrainQuestion("llama3-8b", "h100:1", method="lora", lora_targets="q_proj,experts"))
    assert asked.job.tuning.targets == "q_proj"
    assert "llama3-8b has no experts, and the other targets get adapters." in asked.notes
    experts = read_question(TrainQuestion("qwen3-30b-a3b", "h100:2", method="lora", lora_targets="q_proj,experts"))
    assert experts.job.tuning.targets == "q_proj,experts"


def test_the_critical_batch_is_of_models_that_start_from_nothing():
    words: dict[str, Any] = {"batch": "16seq", "seq": "2048", "tokens": "3M"}
    notes = {
        one: " ".join(read_question(TrainQuestion("llama3-8b", "h100:1", method=one, **words)).notes)
        for one in ("", "lora", "full")
    }
    assert ["critical batch" in notes[one] for one in ("", "lora", "full")] == [True, False, False]


def test_methods_and_optimizers_by_the_names_people_use():
    assert set(methods()) == {"full", "lora", "qlora", "dpo", "orpo", "kto", "reward", "distill"}
    assert [optimizer_named(one) for one in ("adamw_bnb_8bit", "AdamW_torch", "paged", "sgd")] == [
        "adam8",
        "adam",
        "adam8",
        "sgd",
    ]
    asked = read_question(TrainQuestion("llama3-8b", "h100:1", method="qlora", optimizer="adamw-8bit"))
    assert asked.job.space.words.optimizer == "adam8"
    assert (asked.job.batch, asked.job.sequence, asked.job.tuning.frozen) == (16, 2048, "nf4")


def test_a_plan_file_keeps_how_it_is_tuned(tmp_path):
    saved = TrainingFile(
        parse_plan("z0"), model="llama3-8b", slice="h100:1", batch=4, seq=2048, method="qlora", lora_rank=8
    )
    save_training_file(saved, tmp_path / "plan.toml")
    read = load_training_file(tmp_path / "plan.toml")
    assert (read.method, read.lora_rank) == ("qlora", 8)
    asked = read_question(TrainQuestion(plan=str(tmp_path / "plan.toml")))
    assert asked.job.on_slice().tuning == Tuning("qlora", 8, "", "nf4", asked=True)


def test_lengths_are_packed(tmp_path):
    path = tmp_path / "lengths.jsonl"
    path.write_text('600\n{"length": 500}\n{"input_ids": [1, 2, 3]}\n400\n')
    question, notes = with_lengths(TrainQuestion("llama3-8b", "h100:1", seq="1024", lengths=str(path), method="lora"))
    assert (question.documents, question.tokens) == (str(round((600**2 + 500**2 + 9 + 400**2) / 1503)), "2048")
    assert "4 examples of 1,503 tokens, packed into 2 sequences" in notes[0]
    assert "the mean is 376 tokens, 512 weighted by length" in notes[0]
    assert packed_sequences([1024, 5, 1019], 1024) == 2
    path.write_text("twelve\n")
    with pytest.raises(InputError, match="Line 1 of --lengths"):
        with_lengths(TrainQuestion("llama3-8b", "h100:1", lengths=str(path)))


def test_epochs_and_the_usual_sequence_of_a_dataset(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("3000\n" * 98 + "200000\n" * 2)
    words: dict[str, Any] = {"lengths": str(path), "method": "lora"}
    once, notes = with_lengths(TrainQuestion("llama3-8b", "h100:1", **words))
    assert (once.seq, once.tokens) == ("4096", str(100 * 4096))
    assert "--seq 4096 taken: it holds 98% of the examples whole." in notes
    assert with_lengths(TrainQuestion("llama3-8b", "h100:1", epochs=2.5, **words))[0].tokens == str(250 * 4096)
    path.write_text("200000\n")
    assert with_lengths(TrainQuestion("llama3-8b", "h100:1", **words))[0].seq == "8192"
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"epochs": 3}, "give its --lengths FILE, or how many --examples it has and their mean"),
        ({"epochs": 3, "tokens": "1M", **words}, "both say how long"),
        ({"epochs": 0, **words}, "more than 0"),
    )
    for given, said in wrong:
        with pytest.raises(InputError, match=said):
            with_lengths(TrainQuestion("llama3-8b", "h100:1", **given))


def test_what_fits_instead_is_told_with_its_run_and_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """LoRA of a 70B does not fit on two chips with the usual stacks: with another it does, and so does QLoRA; its own
    answer has the same hours and dollars."""
    assert (
        main(["train", *["llama3-70b", "--method", "lora", "--on", "h100:2", "--tokens", "100M", "--owned", "30k/4"]])
        == 3
    )
    text = " ".join(capsys.readouterr().out.split())
    command = "--on h100:2 --batch 16seq --seq 2048 --method lora --tokens 100M --owned 30k/4 --stack megatron-bridge"
    assert "--method qlora fits here: " in text
    assert text.endswith(f"Next: dscale train llama3-70b {command}")
    assert main(["train", "llama3-70b", *command.split(), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["goodput"]
    assert f"100M tokens in {render(run['days'] * 86400, 's')} and ${run['cost_usd']:,.2f}, with failures" in text


def test_the_smallest_slice_holds_adapters_and_frozen_weights_alone() -> None:
    card, model = load_chip("rtx4090"), load_model("llama3-8b")
    for method, chips in (("full", 4), ("qlora", 1)):
        job = make_job(model, parse_slice("rtx4090:1"), 16, 2048, "auto", read_tuning(model, method))
        assert least_chips(job, card, None, None) == chips
    fit = fewest_chips(make_job(model, parse_slice("rtx4090:1"), 16, 2048, "auto", read_tuning(model, "qlora")), card)
    assert fit is not None
    assert fit.job.slice.chips == 1


@pytest.mark.parametrize("stack", ["hf", "axolotl", "auto"])
def test_fine_tuning_is_split_as_its_front_ends_split_it(stack: str) -> None:
    model = load_model("llama3-70b")
    job = make_job(model, parse_slice("h100:8"), 16, 2048, stack, read_tuning(model, "lora"))
    found = search(job, Space(), 5)
    assert found.best
    assert all(one.plan.tensor == one.plan.context == one.plan.pipe == 1 for one in found.best)
    assert any("only data, fsdp" in why for why in illegal(job, parse_plan("fsdp=2,tensor=4")))


def test_a_method_that_is_named_is_fine_tuning_and_full_is_one() -> None:
    model = load_model("llama3-8b")
    named, plain = read_tuning(model, "full"), read_tuning(model)
    assert (named.tunes, plain.tunes) == (True, False)
    piece = parse_slice("h100:8")
    assert make_job(model, piece, 64, 2048, "auto", named).stack.name == "axolotl"
    assert make_job(model, piece, 64, 2048, "auto", plain).stack.name != "axolotl"
