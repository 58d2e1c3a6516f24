"""Every preset against what is published and against an independent count.

`counted_presets.json` was counted by transformers 5.22.2 on torch's meta device (parameters, and the routers' score
corrections, which that library keeps as buffers and checkpoints hold). `hub_totals.csv` holds totals of the published
files as public repositories record them, looked up on 2026-11-15. Other totals in the presets are recollections that
the counts confirm, not lookups.

`published_sizes.csv` holds sizes that somebody else wrote down, each with where it was read: a table, a list of models,
or no more than the model's name, where that says its size to 1%. `rounded_sizes.csv` holds sizes that nobody looked up:
recollections and counts of this project, rounded. They show that a preset has changed, not that it is right. In both,
`config` names the public copies of the config whose sizes were compared (Lightning-AI/litgpt, RahulSChand/gpu_poor,
mlc-ai/mlc-llm, ai-dynamo/aiconfigurator, debaditc/kvfit); where it is empty, those sizes are recollections too.
"""

import csv
import json
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.models import count_parameters, load_model, model_names
from dragonscale.models.catalogue import preset
from dragonscale.models.names import plain
from dragonscale.models.preset_files import entries

COUNTED = json.loads(Path(__file__).with_name("counted_presets.json").read_text())

HUB = list(csv.DictReader(Path(__file__).with_name("hub_totals.csv").read_text().splitlines()))

SIZES = list(csv.DictReader(Path(__file__).with_name("published_sizes.csv").read_text().splitlines()))

ROUNDED = list(csv.DictReader(Path(__file__).with_name("rounded_sizes.csv").read_text().splitlines()))

# What papers say, in billions, where no exact count is published, and how far off rounding may put it.
PAPERS = {
    "gpt3-125m": (0.125, 0.005),
    "gpt3-350m": (0.350, 0.02),
    "gpt3-760m": (0.760, 0.005),
    "gpt3-1.3b": (1.3, 0.02),
    "gpt3-2.7b": (2.7, 0.02),
    "gpt3-6.7b": (6.7, 0.01),
    "gpt3-13b": (13.0, 0.02),
    "gpt3-175b": (175.0, 0.003),
    "palm-8b": (8.63, 0.001),
    "palm-62b": (62.50, 0.001),
    "palm-540b": (540.35, 0.0001),
    "grok-1": (314, 0.006),
    "qwen3.5-35b-a3b": (35.0, 0.02),
    "gemma4-31b": (31, 0.02),
    "gemma4-26b-a4b": (26, 0.04),
    "opt-175b": (175, 0.003),
    "nemotron4-15b": (15.6, 0.01),
    "nemotron4-340b": (340, 0.005),
}

# Parameters used per token, in billions, as their makers say.
ACTIVE = {
    "deepseek-v3": 36.6,
    "mixtral-8x7b": 12.9,
    "gpt-oss-120b": 5.1,
    "gpt-oss-20b": 3.6,
    "kimi-k2": 32,
    "qwen3-30b-a3b": 3.0,
    "qwen3-235b-a22b": 22,
    "llama4-maverick": 17,
    "llama4-scout": 17,
    "deepseek-v2": 21,
    "glm-5": 40,
    "minimax-m2.5": 10,
    "dbrx-132b": 36,
    "deepseek-v4-flash": 13,
    "kimi-k3": 104,
    "minimax-m3": 23,
    "mimo-v2-flash": 15,
    "hunyuan-a13b": 13,
    "nemotron3-super-120b-a12b": 12,
    "olmoe-1b-7b": 1.3,
    "ernie-4.5-300b-a47b": 47,
    "qwen3.5-397b-a17b": 17,
}


@pytest.mark.parametrize("name", model_names())
def test_parameters_are_exactly_those_expected(name):
    table, counts = preset(name), count_parameters(load_model(name))
    if "parameters" in table:
        assert counts.total == table["parameters"]
    else:
        billions, off = PAPERS[name]
        assert counts.total / 1e9 == pytest.approx(billions, rel=off)
    if "checkpoint" in table:
        assert counts.checkpoint == table["checkpoint"]
    assert table["source"]


@pytest.mark.parametrize("row", HUB, ids=lambda row: row["preset"])
def test_the_published_files_hold_as_much(row):
    """The difference, where there is one, is what the files hold beside parameters."""
    counts = count_parameters(load_model(row["preset"]))
    assert int(row["total"]) - counts.checkpoint == int(row["more_than_ours"])
    assert (row["more_than_ours"] == "0") == (row["why"] == "")


@pytest.mark.parametrize("row", SIZES, ids=lambda row: row["preset"])
def test_sizes_are_what_is_published(row):
    assert row["says"] not in {"", "model page", "model card"}, "name what was opened"
    check_size(row)


@pytest.mark.parametrize("row", ROUNDED, ids=lambda row: row["preset"])
def test_sizes_are_still_what_they_were(row):
    check_size(row)


def check_size(row):
    counts = count_parameters(load_model(row["preset"]))
    # figures of models that see include the tower, those of others may include multi-token modules or not
    assert min(abs(size / 1e9 / float(row["billions"]) - 1) for size in (counts.total, counts.checkpoint)) < 0.01


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_an_independent_count_agrees(name):
    counts = count_parameters(load_model(name))
    assert counts.total == COUNTED[name]["parameters"]
    assert counts.extras_by_part.get("vision", 0) == COUNTED[name].get("vision", 0)


@pytest.mark.parametrize(("name", "billions"), sorted(ACTIVE.items()))
def test_active_parameters_are_about_what_their_makers_say(name, billions):
    assert count_parameters(load_model(name)).active / 1e9 == pytest.approx(billions, rel=0.1)


def test_names_are_forgiving():
    same = ["llama3-70b", "llama-3-70b", "meta-llama/Meta-Llama-3-70B", "LLaMA 3 70B", "Meta-Llama-3-70B-Instruct"]
    assert {load_model(name).name for name in same} == {"llama3-70b"}
    assert load_model("Qwen/Qwen3-235B-A22B-FP8").n_layers == load_model("qwen3-235b-a22b").n_layers
    assert load_model("gpt3-1.3b").n_layers != load_model("gpt3-13b").n_layers


@pytest.mark.parametrize(
    ("name", "preset_name", "dtypes"),
    [
        ("TheBloke/Wizard-Vicuna-30B-Uncensored-GGML", "llama1-30b", {"int4"}),
        ("wizard-vicuna-30b", "llama1-30b", set()),
        ("lmsys/vicuna-13b-v1.5", "llama2-13b", set()),
        ("microsoft/Orca-2-13b", "llama2-13b", set()),
        ("NousResearch/Nous-Hermes-13b", "llama1-13b", set()),
        ("unsloth/gemma-4-31B-it-unsloth-bnb-4bit", "gemma4-31b", {"int4"}),
        ("TheBloke/Llama-2-7B-GPTQ", "llama2-7b", {"int4"}),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "llama3.1-8b", {"int4"}),
        ("mlx-community/Qwen3-30B-A3B-4bit", "qwen3-30b-a3b", {"int4"}),
        ("turboderp/Llama-3.1-70B-Instruct-exl2-2.4bpw", "llama3.1-70b", {"int4"}),
        ("llama3:8b", "llama3-8b", set()),
        ("llama3.1:70b-instruct-q4_K_M", "llama3.1-70b", {"int4"}),
        ("qwen3:30b-a3b-q8_0", "qwen3-30b-a3b", {"int8"}),
        ("deepseek-r1:70b", "llama3.3-70b", set()),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b", set()),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b", set()),
        ("Qwen/QwQ-32B", "qwen2.5-32b", set()),
        ("llama3:latest", "llama3-8b", set()),
        ("phi3", "phi-3-mini", set()),
        ("ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b", {"mxfp4"}),
    ],
)
def test_names_of_tunes_and_of_formats_are_read_as_their_base(name, preset_name, dtypes):
    model, base = load_model(name), load_model(preset_name)
    assert (model.n_layers, model.d_model) == (base.n_layers, base.d_model)
    assert set(model.weight_dtypes.values()) == dtypes
    assert name == "llama3:8b" or preset_name in " ".join(model.notes)


def test_what_rests_on_another_has_its_own_name():
    assert [load_model(name).name for name in ("deepseek-r1", "deepseek-v3.2")] == ["deepseek-r1", "deepseek-v3.2"]


def test_no_two_presets_answer_to_one_name():
    claimed: dict[str, str] = {}
    for name in model_names():
        for alias in (name, *preset(name).get("aliases", ())):
            assert claimed.setdefault(plain(alias), name) == name
            assert entries()[plain(alias)].name == name


@pytest.mark.parametrize(
    "name", ["", "   ", "lama3-70b", "x" * 100_000, "../../etc", "\0", "/nowhere/config.json", "a.toml"]
)
def test_wrong_names_are_refused_in_one_sentence(name):
    with pytest.raises(InputError) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_a_users_model_may_start_from_a_preset(tmp_path):
    path = tmp_path / "deeper.toml"
    path.write_text('base = "llama3-70b"\nn_layers = 100\nnum_key_value_heads = 64\n')
    model = load_model(path)
    assert (model.name, model.n_layers) == ("deeper", 100)
    assert model.layers[0].mixer.n_kv_heads == 64


def test_a_users_model_may_be_written_in_letters(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("d_model = 4096\nd_ff = 14336\nn_layers = 32\nn_heads = 32\nn_kv_heads = 8\nvocab = 128256\n")
    assert count_parameters(load_model(path)).total == 8_030_261_248


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("d_model = 4096", "lacks d_ff"),
        ("d_model = -1\n", "d_model = -1"),
        ("d_modle = 4096\n", "did you mean 'd_model'"),
        ("d_model = true\n", "whole number"),
        ('base = "nothing"\n', "There is no model"),
        ("base = 3\n", "not a name"),
        ('base = "llama3-8b"\nwings = 2\n', "wings"),
        ("= 4", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
        ("d_model=7\nd_ff=8\nn_layers=1\nn_heads=2\nvocab=9", "split over 2 heads"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, said):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_model(path)
