"""`dscale estimate` and `ds.estimate`: the book's numbers, and formulas that give the values beside them."""

import json
import math

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.faces.cli import main


def worked(line, letters: dict[str, float]) -> float:
    """A line's formula worked out by Python itself."""
    names = letters | {"ceiling": math.ceil, "floor": math.floor}
    return eval(line.formula.replace("^", "**"), {"__builtins__": {}}, names)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama3-8b", "on": "h100:8", "lora_rank": 16, "batch": 32, "tokens": "1T"},
        {"model": "deepseek-v3", "on": "h200", "batch": 4},
        {"model": "gemma3-27b", "on": "v6e:2x4", "context": "32k", "weights": "int8"},
        {"params": "70e9", "active": "10B", "on": "gb200", "tokens": "15T", "batch": 8},
    ],
    ids=lambda asked: asked.get("model", "plain"),
)
def test_every_formula_gives_its_value(asked):
    report = ds.estimate(**asked)
    for line in report.lines:
        assert worked(line, report.letters) == pytest.approx(line.value, rel=2e-3), line
        assert all((line.formula, line.numbers, line.unit)), line


def test_the_books_questions():
    """Chapters 6 to 8: LLaMA 3 70B on 15T tokens over a v5p pod, and 13B served by v5e."""
    run = ds.estimate(params=70e9, tokens="15T", on="v5p:16x20x28", mfu="40%")
    assert run["training FLOPs (6ND)"] == 6.3e24
    assert run["run time"] / 86400 == pytest.approx(44.3, abs=0.1)
    assert run["state, 10 bytes a parameter"] == 700e9
    model = ds.estimate("llama3-70b")
    assert model["KV bytes a token"] == 160 * 1024 * 2
    assert model["weights in int8"] == model["parameters"] == pytest.approx(70.6e9, rel=1e-3)
    assert ds.estimate("llama3-70b", on="v5e", batch=1)["batch that is compute-bound"] == pytest.approx(240, abs=1)


def test_what_adapters_train_and_hold():
    report = ds.estimate("llama3-8b", lora_rank=16)
    # published for rank 16 on every linear layer of LLaMA 3 8B: 41,943,040 trainable parameters
    assert report["LoRA parameters, all matmuls"] == 41_943_040
    full, lora, narrow = (
        next(line.value for line in report.lines if line.name.startswith(f"{name}:"))
        for name in ("full", "LoRA", "QLoRA")
    )
    assert full == 16 * report["parameters"]
    assert lora == 2 * report["parameters"] + 16 * 41_943_040
    assert 5.5e9 < narrow < 6.8e9


def test_a_checkpoint_is_weighed_in_its_own_formats():
    """The files of gpt-oss-120b on the Hub are 65.2 GB: experts in mxfp4, the rest in bf16."""
    report = ds.estimate("gpt-oss-120b", on="h100")
    assert report["weights as published"] == pytest.approx(65.2e9, rel=0.005)
    assert (report.weights, report["fewest chips"]) == ("mxfp4", 1)


def test_a_small_batch_of_an_moe_reads_few_experts():
    few, many = (ds.estimate("deepseek-v3", on="h200:16", batch=batch) for batch in (1, 512))
    assert few["parameters that a step reads"] == few.active_parameters
    assert many["parameters that a step reads"] > 18 * few["parameters that a step reads"]


def test_json_and_text(capsys):
    assert main(["estimate", "--params", "70e9", "--tokens", "15T", "--on", "h100:1024", "--mfu", "40%", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    line = next(line for line in answer["lines"] if line["name"] == "run time")
    assert (line["unit"], line["formula"]) == ("s", "FLOPs/(C*chips*mfu)")
    assert "1024*0.4" in line["numbers"]
    assert not any("KV" in line["name"] for line in answer["lines"])
    for width in ("60", "80", "200"):
        assert main(["estimate", "llama3-70b", "--on", "h100:8", "--batch", "64", "--width", width]) == 0
        said = capsys.readouterr().out
        assert "decode step" in said
        assert max(map(len, said.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "neither a model nor params="),
        ({"model": "llama3-8b", "params": "8e9"}, "both a model and params="),
        ({"params": "8e9", "lora_rank": 16}, "name a model"),
        ({"model": "llama3-8b", "mfu": "400%"}, "mfu="),
        ({"model": "llama3-8b", "price": "2/h"}, "on="),
        ({"params": "8e9", "active": "9e9"}, "no more than all"),
        ({"model": "llama3-8b", "batch": 0}, "at least one"),
    ],
)
def test_what_cannot_be_estimated_is_said_in_a_sentence(asked, words):
    with pytest.raises(InputError, match=words):
        ds.estimate(**asked)


def test_the_headline_has_the_flops_that_its_days_are_of(capsys):
    assert main(["estimate", "llama3-70b", "--on", "h100:512", "--tokens", "15T", "--mfu", "40%"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "6.74e24 FLOP (6ND 6.26e24, 357d alone, and attention at 8,192 tokens), 385d" in text


def test_adapters_are_told_without_a_run(capsys):
    assert main(["estimate", "llama3-8b", "--lora-rank", "16"]) == 0
    text = capsys.readouterr().out
    assert "fine-tuning  LoRA 16.7GB, QLoRA" in text
    assert "P_lora those of the adapters" in " ".join(text.split())
    assert "6ND" not in text
