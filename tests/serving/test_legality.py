"""What engines run: the table itself, the formats that checkpoints are served in, and refusals with a
legal neighbour."""

import json
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.models import load_config, load_model
from dragonscale.physics.hardware import chip_names, load_chip, parse_slice
from dragonscale.serving.engine.checkpoint import legal_formats, narrower_formats, own_formats
from dragonscale.serving.engine.engine import engines
from dragonscale.serving.engine.formats import product_format
from dragonscale.serving.engine.legality import (
    QUANTIZE,
    architecture,
    caches,
    current_engines,
    has_row,
    listed_pairs,
    pairs,
    quality,
    rules,
    runs_on,
)
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.space.legal import refusal
from dragonscale.serving.space.space import parts_of, slices_of, splits
from tests.hardware.owned import AMPERE, APPLE, BLACKWELL, CARDS, OTHER_CARDS, PASCAL, TURING

ARCHITECTURES = {
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "sm120",
    "cdna2",
    "cdna3",
    "cdna4",
    "tpu-v2",
    "tpu-v3",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu7x",
    "apple",
    "pascal",
    "cdna",
    "gcn5",
    "rdna3",
    "rdna3.5",
    "rdna4",
    "xe",
    "xe2",
    "any",
}


@pytest.mark.parametrize("engine", engines())
def test_every_engine_has_a_row_that_can_be_read(engine: str) -> None:
    row = rules(engine)
    assert has_row(engine)
    assert row.expert in ("world", "divides")
    assert {*row.formats} <= ARCHITECTURES
    assert {*row.kv} <= ARCHITECTURES
    for word in {word for words in row.formats.values() for word in words}:
        for pair in listed_pairs(word):
            assert product_format(*pair)
    for chip in map(load_chip, chip_names()):
        if runs_on(engine, chip):
            assert caches(engine, chip), f"{engine} has no cache on {chip.name}"


# vLLM's, SGLang's, TensorRT-LLM's and tpu-inference's own tables of hardware.
AMPERE_ON = (
    "a10 a10g a30 a100 a100-40gb a800 l40 b200 b300 gb200 gb300 gh200 gh200-144gb h100 h20 h200 h800 l4 l40s "
    "rtx3090 rtx4090 rtx5090 rtxpro6000 a6000 a6000-nvlink rtx3090-nvlink rtx6000ada rtxpro6000-ws gb10 h100-pcie "
    "h100-nvl h200-nvl h20-3e rubin " + " ".join(name for name in CARDS if name not in TURING)
)
INSTINCT = "mi300x mi325x mi350x mi355x mi455x"
OTHERS = {"gaudi3", "trainium2", "trainium3", *APPLE, *OTHER_CARDS}
RUNS = {
    "vllm": f"t4 {' '.join(TURING)} {AMPERE_ON} mi210 {INSTINCT}",
    "sglang": f"{AMPERE_ON} {INSTINCT}",
    "trtllm": AMPERE_ON,
    "vllm-tpu": "v3 v4 v5e v5p v6e tpu7x",
    "generic": " ".join(chip_names()),
}


@pytest.mark.parametrize("engine", RUNS)
def test_engines_run_on_the_chips_that_they_say(engine: str) -> None:
    assert {name for name in chip_names() if runs_on(engine, load_chip(name))} == {*RUNS[engine].split()}


def test_formats_of_a_chip_are_those_of_its_maker() -> None:
    def native(dtype: str) -> set[str]:
        return {
            name
            for name in chip_names()
            for _, compute in pairs("generic", load_chip(name))
            if compute.startswith(dtype)
        }

    small = {"rtx5090", "rtxpro6000", "rtxpro6000-ws", "gb10", *BLACKWELL}  # compute capability 12.x
    blackwell = {"b200", "b300", "gb200", "gb300", "rubin"}
    ampere = {"a10", "a10g", "a30", "a800", "rtx3090", "rtx3090-nvlink", "a6000", "a6000-nvlink", "a100", "a100-40gb"}
    older = {"v100", "v100-16gb", "t4", *TURING, *APPLE, *AMPERE, *OTHER_CARDS} - {"rx9070xt", "r9700"} | ampere
    microscaled = {"mi350x", "mi355x", "mi455x", "trainium3"}
    assert native("nvfp4") == blackwell | small
    assert native("mxfp4") == blackwell | small | microscaled
    assert native("mxfp8") == blackwell | microscaled
    assert native("fp8") == {*chip_names()} - older - {"v2", "v3", "v4", "v5e", "v5p", "v6e"}
    assert {*chip_names()} - native("bf16") == {"v100", "v100-16gb", "t4", *TURING, *PASCAL, "mi50", "mi60"}
    assert {"v5e", "v5p", "v6e"} <= native("int8")
    assert "tpu7x" not in native("int8")


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
INT8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8, "type": "int"}}
    },
}
FP8 = {"num_bits": 8, "type": "float"}


def groups(weights: dict, activations: dict | None = None) -> dict:
    group = {"weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


QUARK = {"weight": {"dtype": "fp4"}, "input_tensors": {"dtype": "fp4"}}
FP8_KV = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
OWN = {
    ("vllm", "h100", "llama3-70b"): "bf16/bf16, cache bf16",
    ("generic", "v100", "llama3-70b"): "fp16/fp16, cache fp16",
    ("vllm", "h100", "gpt-j-6b"): "fp16/fp16, cache fp16",
    ("sglang", "h200", "deepseek-v3"): "fp8/fp8_block, cache bf16",
    ("sglang", "mi300x", "deepseek-v3"): "fp8/fp8, cache bf16",
    ("trtllm", "b200", "deepseek-v3"): "fp8/fp8, cache fp8",
    ("vllm", "a100", "deepseek-v3"): "fp8/bf16, cache bf16",
    ("vllm-tpu", "v6e", "deepseek-v3"): "fp8/bf16, cache bf16",
    ("vllm-tpu", "v4", "deepseek-v3"): "bf16/bf16, cache bf16",
    ("vllm-tpu", "tpu7x", "deepseek-v3"): "fp8/fp8, cache bf16",
    ("vllm", "gb200", "gpt-oss-120b"): "mxfp4/mxfp8, cache bf16",
    ("vllm", "h100", "gpt-oss-120b"): "mxfp4/bf16, cache bf16",
    ("vllm", "mi300x", "gpt-oss-20b"): "mxfp4/bf16, cache bf16",
    ("vllm", "h200", "kimi-k2.5"): "int4/bf16, cache bf16",
    ("vllm", "h100", "awq"): "int4/bf16, cache bf16",
    ("vllm", "h100", "int8"): "int8/int8, cache bf16",
    ("vllm-tpu", "v5e", "int8"): "int8/int8, cache bf16",
    ("vllm", "h100", "modelopt"): "fp8/fp8, cache fp8",
    ("vllm", "h100", "qwen3-32b-fp8"): "fp8/fp8_block, cache bf16",
    ("vllm", "h100", "mixtral-8x7b-fp8"): "fp8/fp8, cache bf16",  # a scale for each channel, not for blocks
    ("vllm", "h100", "fp8 channels"): "fp8/fp8, cache bf16",
    ("vllm", "h100", "fp8 blocks"): "fp8/fp8_block, cache bf16",
    ("vllm", "h100", "fp8 weights"): "fp8/bf16, cache bf16",
    ("vllm", "b200", "nvfp4 weights"): "nvfp4/bf16, cache bf16",
    ("vllm", "h100", "w4a8"): "int4/fp8, cache bf16",
    ("vllm", "mi355x", "quark"): "mxfp4/mxfp4, cache bf16",
}


def stored(name: str) -> Any:
    """A preset, or a small Llama with a `quantization_config`."""
    known = {
        "awq": AWQ,
        "int8": INT8,
        "modelopt": FP8_KV,
        "fp8 channels": groups({**FP8, "strategy": "channel"}, FP8),
        "fp8 blocks": groups({**FP8, "strategy": "block", "block_structure": [128, 128]}, FP8),
        "fp8 weights": groups(FP8),
        "nvfp4 weights": groups({"num_bits": 4, "type": "float", "group_size": 16}),
        "w4a8": groups({"num_bits": 4, "type": "int"}, FP8),
        "quark": {"quant_method": "quark", "global_quant_config": QUARK},
    }
    if name not in known:
        return load_model(name)
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2, "vocab_size": 32000}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    return load_config({"model_type": "llama", **sizes, **heads, "quantization_config": known[name]}, name)


@pytest.mark.parametrize(("engine", "chip", "model"), OWN)
def test_a_checkpoint_is_served_in_its_own_format(engine: str, chip: str, model: str) -> None:
    found = own_formats(engine, load_chip(chip), stored(model))
    assert str(found) == OWN[engine, chip, model]


def test_a_router_that_is_spared_spares_nothing_else() -> None:
    """Lists of exceptions name routers beside what they gate: `mlp.gate`, `shared_expert_gate`."""
    spared = {**groups(FP8, FP8), "ignore": ["lm_head", "re:.*mlp.gate$", "re:.*shared_expert_gate$"]}
    moe = load_model("qwen3-30b-a3b", {"quantization_config": spared})
    assert {*moe.weight_dtypes} == {"attention", "experts"}
    dense = load_model("llama3-8b", {"quantization_config": spared})
    assert {*dense.weight_dtypes} == {"attention", "mlp"}


def test_attention_stays_as_wide_as_the_checkpoint_has_it() -> None:
    assert own_formats("vllm", load_chip("b200"), load_model("gpt-oss-120b")).attention == "bf16"  # pyright: ignore
    assert own_formats("vllm", load_chip("h200"), load_model("deepseek-v4-flash")).attention == "fp8_block"  # pyright: ignore
    assert own_formats("sglang", load_chip("h200"), load_model("deepseek-v3")).attention == ""  # pyright: ignore


def test_an_engine_without_the_format_has_none() -> None:
    assert own_formats("trtllm", load_chip("b200"), load_model("kimi-k2.5")) is None  # no int4 on Blackwell there
    assert own_formats("trtllm", load_chip("l40s"), load_model("deepseek-v3")) is None  # no blocks on Ada
    assert legal_formats("trtllm", load_chip("l40s"), load_model("llama3-8b"))[0].weights == "bf16"


NARROW = {
    ("vllm-tpu", "v5p", "llama3-70b"): ["int8/int8, cache fp8", "int4/bf16, cache fp8"],
    ("vllm-tpu", "tpu7x", "llama3-70b"): ["fp8/fp8, cache fp8", "int4/bf16, cache fp8"],
    ("vllm", "b200", "llama3-70b"): ["fp8/fp8, cache fp8", "nvfp4/nvfp4, cache fp8"],
    ("vllm", "mi355x", "llama3-70b"): ["fp8/fp8, cache fp8", "mxfp4/mxfp4, cache fp8"],
    ("sglang", "h200", "deepseek-v3"): ["int4/bf16, cache fp8"],
    ("vllm", "h100", "gpt-oss-120b"): [],
}


@pytest.mark.parametrize(("engine", "chip", "model"), NARROW)
def test_what_a_checkpoint_may_be_quantised_to(engine: str, chip: str, model: str) -> None:
    found = narrower_formats(engine, load_chip(chip), load_model(model), "any")
    assert [str(one) for one in found] == NARROW[engine, chip, model]


def test_every_narrower_format_has_a_word_on_quality() -> None:
    assert all("arXiv" in quality(name) or "blogs" in quality(name) for name in QUANTIZE if name != "any")
    assert quality("bf16") == ""


WIDTHS = {
    ("vllm", "h100:8", "phi-4", "tensor=8"): ("10 KV heads", "take tensor=2"),
    ("vllm", "h100:4", "phi-4", "tensor=4"): ("10 KV heads", "take tensor=2"),
    ("vllm", "h200:8", "qwen3-235b-a22b", "tensor=8,weights=fp8,compute=fp8_block"): ("leaves 192", "take expert=8"),
    ("vllm", "h200:8", "qwen3-235b-a22b", "tensor=2,data=4,expert=4"): ("expert is 1 or 8", "take expert=8"),
    ("sglang", "h200:8", "qwen3-235b-a22b", "tensor=2,data=4,expert=4"): ("", ""),
    ("sglang-ep", "h200:8", "qwen3-235b-a22b", "tensor=2,data=4,expert=4"): (
        "expert is 8",
        "take expert=8, or --engine sglang",
    ),
    ("sglang-ep", "h200:8", "deepseek-v3", "tensor=8,expert=8,weights=fp8,compute=fp8_block"): (
        "is data-parallel attention",
        "take data=8,tensor=1, or --engine sglang",
    ),
    ("sglang-ep", "h200:16", "kimi-k2", "tensor=8,expert=8,pipe=2,weights=fp8,compute=fp8_block"): (
        "is data-parallel attention",
        "take pipe=1,data=16,tensor=1,expert=16, or --engine sglang",
    ),
    ("vllm-ep", "h200:1", "gpt-oss-120b", "tensor=1"): ("is data-parallel attention", "take --engine vllm"),
    ("trtllm-ep", "gb200:16", "deepseek-v3", "tensor=2,data=8,expert=16,weights=fp8,compute=fp8"): ("", ""),
    ("trtllm", "h200:8", "qwen3-235b-a22b", "tensor=8,expert=3"): ("a divisor of 8", "take expert="),
    ("sglang-ep", "gb200:72", "deepseek-v3", "tensor=1,data=72,expert=72,weights=fp8,compute=fp8"): ("", ""),
    ("trtllm", "gb200:72", "deepseek-v3", "tensor=1,data=72,expert=72,weights=fp8,compute=fp8"): (
        "256 experts",
        "take data=64,expert=64",
    ),
    ("vllm", "h100:8", "qwen3-30b-a3b", "tensor=8,weights=int4"): ("Marlin", "take expert=8"),
    ("vllm", "h100:8", "qwen2.5-14b", "tensor=8,weights=int4"): ("every 128 inputs", "take tensor=4"),
    ("vllm", "h100:8", "llama3-70b", "tensor=4,width=2"): ("no width=2", "take width=1"),
    ("generic", "v5e:4x4", "llama3-70b", "tensor=8,width=2"): ("", ""),
    ("vllm-tpu", "tpu7x:2x2x1", "phi-4", "tensor=4"): ("(8 devices)", "take tensor=1"),
    ("vllm-tpu", "tpu7x:2x2x1", "llama3-70b", "tensor=4"): ("", ""),
    ("sgl-jax", "v6e:2x4", "llama3-70b", "tensor=4,pipe=2"): ("no pipe=2", "take pipe=1"),
    ("vllm", "h100:8", "llama3-70b", "tensor=8,spread=batch"): ("no spread=batch", "take spread=copy"),
    ("vllm-tpu", "v6e:2x4", "deepseek-v2-lite", "tensor=8"): ("latent attention", "take data=8,tensor=1,expert=8"),
    ("vllm", "h100:8", "llama3-70b", "tensor=8,kv=int4"): ("no KV cache in int4", "take --kv-dtype fp8"),
    ("vllm", "mi355x:8", "llama3-70b", "tensor=8,weights=nvfp4,compute=nvfp4"): (
        "has no nvfp4 matmul",
        "--weights nvfp4 --compute bf16",
    ),
    ("generic", "v100:8", "llama3-70b", "tensor=8"): ("stores bf16", "take --dtype fp16"),
}


@pytest.mark.parametrize(("engine", "where", "model", "plan"), WIDTHS)
def test_a_plan_that_an_engine_refuses_names_a_legal_neighbour(engine: str, where: str, model: str, plan: str) -> None:
    told, take = WIDTHS[engine, where, model, plan]
    piece, found = parse_slice(where), load_model(model)
    sentence = refusal(engine, piece, found, parse_serving_plan(plan))
    assert bool(sentence) == bool(told)
    assert told in sentence
    assert take in sentence
    if "; take " in sentence and "--" not in sentence.partition("; take ")[2]:  # the neighbour is legal
        changed = dict(part.split("=") for part in f"{plan},{sentence.partition('; take ')[2]}".split(","))
        assert refusal(engine, piece, found, parse_serving_plan(",".join(f"{k}={v}" for k, v in changed.items()))) == ""


SERVE = ["serve", "llama3-8b", "--on"]
EXAMPLES = {
    "nvfp4 on Hopper": ([*SERVE, "h100:8", "--compute", "nvfp4"], "--weights nvfp4 --compute bf16"),
    "nvfp4 on a TPU": ([*SERVE, "v5e", "--dtype", "nvfp4"], "TPU v5e neither multiplies nor stores nvfp4"),
    "fp8 on Volta": ([*SERVE, "v100", "--dtype", "fp8"], "take --dtype fp16"),
    "trtllm on AMD": ([*SERVE, "mi300x", "--engine", "trtllm"], "take --engine vllm or sglang"),
    "trtllm on a TPU": ([*SERVE, "v5e", "--engine", "trtllm"], "take --engine vllm-tpu or sgl-jax"),
    "jetstream on a GPU": ([*SERVE, "h100", "--engine", "jetstream"], "JetStream is archived"),
    "sglang on Volta": ([*SERVE, "v100", "--engine", "sglang"], "does not run on NVIDIA V100"),
    "ragged KV heads": (["serve", "phi-4", "--on", "h100:8", "--plan", "tensor=8"], "take tensor=2"),
    "blocks over ranks": (
        ["serve", "qwen3-235b-a22b", "--on", "h200:8", "--plan", "tensor=8,weights=fp8,compute=fp8_block"],
        "take expert=8",
    ),
    "experts of vLLM": (
        ["serve", "qwen3-235b-a22b", "--on", "h200:8", "--engine", "vllm", "--plan", "tensor=2,data=4,expert=4"],
        "expert is 1 or 8",
    ),
    "beyond the context": ([*SERVE, "h100", "--prompt", "100k", "--output", "100k"], "context of 8,192 tokens"),
    "caches of two formats": (
        [
            "simulate",
            "llama3-70b",
            "--on",
            "h100:8",
            "--prefill-on",
            "h100:8",
            "--prefill-plan",
            "tensor=8,kv=fp8",
            "--rate",
            "1/s",
        ],
        "prefill replicas write a KV cache in fp8",
    ),
    "pools of two engines": (
        ["simulate", "llama3-70b", "--on", "mi300x:8", "--prefill-on", "v5e:4x4", "--rate", "1/s"],
        "prefill replicas run vllm-tpu and decode replicas vllm",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_no_engine_runs_is_refused_in_a_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, told = EXAMPLES[name]
    assert main(arguments) == 3
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).split())
    assert "Not possible: " in text
    assert told in text
    assert "or add --force" in text


def report(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_what_is_forced_is_judged_and_noted(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(["serve", "phi-4", "--on", "h100:8", "--plan", "tensor=8", "--batch", "8", "--force"], capsys)
    assert found["configs"][0]["tensor"] == 8
    assert any(note.startswith("Forced: phi-4 has 10 KV heads") for note in found["notes"])


def test_nothing_is_quantised_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    for model, on, weights in (
        ("deepseek-v3", "h200:8", "fp8"),
        ("gpt-oss-120b", "h100:8", "mxfp4"),
        ("llama3-8b", "b200:1", "bf16"),
    ):
        found = report(["serve", model, "--on", on, "--batch", "8"], capsys)
        assert {one["dtypes"]["weights"] for one in found["configs"]} == {weights}
        assert not any(one["quantized"] for one in found["configs"])


def test_narrower_formats_are_ranked_apart(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(["serve", "llama3-70b", "--on", "v5p", "--batch", "32", "--quantize", "any"], capsys)
    flags = [one["quantized"] for one in found["configs"]]
    assert flags == sorted(flags)
    assert {True, False} == {*flags}
    assert "int8" in {one["dtypes"]["weights"] for one in found["configs"]}
    assert any("int8 is narrower than the checkpoint's bf16" in note for note in found["notes"])
    alone = report(["serve", "llama3-70b", "--on", "v5p", "--batch", "32", "--quantize", "int8"], capsys)
    assert {one["dtypes"]["compute"] for one in alone["configs"]} == {"int8"}


def test_a_target_that_only_a_narrower_format_meets_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3-70b", "--on", "h100:4", "--batch", "1", "--output", "64", "--tpot"]
    own = min(one["tpot_s"] for one in report([*asked, "1s"], capsys)["configs"])
    found = report([*asked, f"{0.8 * own}s"], capsys, 4)
    assert any("--quantize fp8" in note and "lossless" in note for note in found["notes"])


def test_formats_cannot_be_said_twice_or_wider() -> None:
    assert main(["serve", "gpt-oss-120b", "--on", "h100", "--quantize", "fp8"]) == 2
    assert main(["serve", "llama3-8b", "--on", "h100", "--quantize", "fp8", "--dtype", "int8"]) == 2
    assert main(["serve", "llama3-8b", "--on", "h100", "--quantize", "fp9"]) == 2


@pytest.mark.parametrize(
    ("engine", "model", "plans"),
    [
        ("llama.cpp", "command-r-plus-104b", ["pp3"]),  # 96 heads divide by 3 and 8 KV heads do not
        ("exllamav2", "deepseek-v3", ["pp3"]),
        ("exllamav3", "llama3-70b", ["pp3"]),
        ("ktransformers", "llama3-70b", []),
        ("vllm", "llama3-70b", []),
    ],
)
def test_engines_that_deal_layers_deal_them_over_three_cards(engine: str, model: str, plans: list[str]) -> None:
    assert [str(plan) for plan in splits(load_model(model), parse_slice("rtx3090:3"), engine)] == [
        str(parse_serving_plan(plan)) for plan in plans
    ]


def test_exl2_is_said_as_a_dtype_too(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["serve", "llama3.1-70b", "--on", "l40s:1", "--engine", "exllamav2", "--batch", "1"]
    answers = []
    for flag in ("--dtype", "--quantize"):
        assert main([*asked, flag, "exl2-4.5bpw"]) == 0
        answers.append(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("TPOT")))
    assert answers[0] == answers[1]
    # a refusal names a number of bits
    assert main([*asked, "--dtype", "fp8"]) != 0
    assert "There is no dtype" not in "".join(capsys.readouterr())


def test_racks_are_taken_by_trays() -> None:
    assert [piece.chips for piece in slices_of(load_chip("gb200"))] == [1, 2, 4, 8, 12, 16, 24, 32, 36, 48, 64, 72]
    assert [piece.chips for piece in parts_of(parse_slice("gb300:72"))] == [1, 2, 4, 8, 12, 24, 36, 72]
    assert [piece.chips for piece in slices_of(load_chip("b200"))] == [1, 2, 4, 8, 16, 32, 64]
    assert [piece.chips for piece in slices_of(load_chip("l4"))] == [1, 2, 4, 8]  # cards without a network of their own
    assert [piece.chips for piece in slices_of(load_chip("gh200"))] == [1]
    assert [piece.chips for piece in slices_of(load_chip("l4"), 32)] == [1, 2, 4, 8, 16, 32]


def test_engines_that_are_named_instead_run_there() -> None:
    for chip in map(load_chip, chip_names()):
        assert all(runs_on(name, chip) for name in current_engines(chip))
        assert architecture(chip) in ARCHITECTURES or chip.name in OTHERS


def test_a_context_that_a_config_stretches_is_the_stretched_one() -> None:
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2, "vocab_size": 32000}
    config = {"model_type": "llama", **sizes, "num_attention_heads": 32, "max_position_embeddings": 32768}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert load_config(config).context == 32768
    assert load_config(config | {"rope_scaling": yarn}).context == 131072
    assert load_config(config | {"rope_scaling": yarn, "max_position_embeddings": 131072}).context == 131072


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_blackwell_on_pcie_multiplies_mxfp4_weights_in_sixteen_bits(engine: str) -> None:
    """Marlin's kernels for experts take wide activations there; B200's are in MXFP8."""
    model = load_model("gpt-oss-20b")
    for chip, compute in {"rtx5090": "bf16", "rtxpro6000": "bf16", "b200": "mxfp8"}.items():
        formats = own_formats(engine, load_chip(chip), model)
        assert formats is not None
        assert (formats.weights, formats.compute) == ("mxfp4", compute)
        ways = {made for weights, made in pairs(engine, load_chip(chip)) if weights == "mxfp4"}
        assert (ways == {"bf16"}) == (compute == "bf16")


def test_a_cache_in_fp8_is_nobodys_default_where_the_chip_does_not_multiply_it() -> None:
    model = load_model("llama3-8b")
    for chip, kv in {"rtx3090": "bf16", "a10g": "bf16", "a100": "bf16", "l4": "fp8", "h100": "fp8"}.items():
        found = narrower_formats("vllm", load_chip(chip), model, "any")
        assert {one.kv for one in found} == {kv}
