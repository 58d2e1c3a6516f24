"""The loader of `config.json` files: exact counts for real ones, and for small ones of every family."""

import json
from pathlib import Path

import pytest

from dragonscale.models import cache_bytes, count_parameters, kv_bytes_per_token, load_config, load_model
from dragonscale.models.huggingface import model_types
from dragonscale.models.huggingface.quantization import weight_dtypes

HERE = Path(__file__).parent
SMALL = [json.loads(line) for line in (HERE / "counted_small.jsonl").read_text().splitlines()]
"""Random small configs of every family, counted by transformers 5.22.2 on torch's meta device."""

TOWERS = [json.loads(line) for line in (HERE / "counted_towers.jsonl").read_text().splitlines()]
"""The same for models that see, the tower counted apart."""
PUBLISHED = [json.loads(line) for line in (HERE / "published.jsonl").read_text().splitlines()]
"""Configs in the manner of the public files, odd fields and all, and totals, both written down from memory: tests of
reading first. Looked up since: SmolLM3-3B, Phi-3-mini, Phi-4-mini, Mistral-Small (with its tower), MiniMax. Counted by
transformers on the meta device: Jamba, Hunyuan-A13B, Nemotron-H-8B, Qwen2-VL, Qwen2.5-VL, Gemma-3n-E4B's text, zamba2,
jetmoe. LongCat (560B, 27B used), Step3 (316B without its tower), Ling-mini-2.0 and Ling-lite agree with what their
reports round."""

# total, checkpoint: totals were counted by transformers 5.22.2 on the meta device (MiMo and Kimi K2, which it lacks, as
# their Qwen2 and DeepSeek-V3 kin); checkpoints add multi-token modules and towers, see hub_totals.csv for those looked
# up.
REAL = {
    "MiniMaxAI--MiniMax-M2.5": (228_689_764_864, 228_689_764_864),
    "Qwen--Qwen3-0.6B": (596_049_920, 596_049_920),
    "Qwen--Qwen3-235B-A22B": (235_093_634_560, 235_093_634_560),
    "Qwen--Qwen3-30B-A3B": (30_532_122_624, 30_532_122_624),
    "Qwen--Qwen3-32B": (32_762_123_264, 32_762_123_264),
    "Qwen--Qwen3-32B-FP8": (32_762_123_264, 32_762_123_264),
    "Qwen--Qwen3-8B": (8_190_735_360, 8_190_735_360),
    "Qwen--Qwen3.5-27B": (26_895_998_464, 27_781_427_952),
    "Qwen--Qwen3.5-397B-A17B": (396_346_350_336, 403_397_928_944),
    "XiaomiMiMo--MiMo-7B-Base": (7_622_619_136, 7_833_409_536),
    "deepseek-ai--DeepSeek-R1": (671_026_419_200, 684_489_845_504),
    "deepseek-ai--DeepSeek-V3": (671_026_419_200, 684_489_845_504),
    "deepseek-ai--DeepSeek-V4-Flash": (284_332_240_471, 290_944_616_402),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (400_711_848_960, 400_711_848_960),
    "meta-llama--Meta-Llama-3.1-405B": (405_853_388_800, 405_853_388_800),
    "meta-llama--Meta-Llama-3.1-70B": (70_553_706_496, 70_553_706_496),
    "meta-llama--Meta-Llama-3.1-8B": (8_030_261_248, 8_030_261_248),
    "mistralai--Mixtral-8x7B-v0.1": (46_702_792_704, 46_702_792_704),
    "moonshotai--Kimi-K2-Instruct": (1_026_408_232_448, 1_026_408_232_448),
    "moonshotai--Kimi-K2.5": (1_026_408_232_448, 1_026_879_376_368),
    "openai--gpt-oss-120b": (116_829_156_672, 116_829_156_672),
    "zai-org--GLM-5": (743_911_218_432, 753_864_139_008),
}

# Bytes that one more token adds to a bf16 cache, from the architectures' own arithmetic.
KV = {
    "meta-llama--Meta-Llama-3.1-70B": 2 * 2 * 80 * 8 * 128,
    "deepseek-ai--DeepSeek-V3": 2 * 61 * (512 + 64),
    "zai-org--GLM-5": 2 * 78 * (512 + 64 + 128),
    "openai--gpt-oss-120b": 2 * 2 * 36 * 8 * 64,
    "Qwen--Qwen3.5-397B-A17B": 2 * 2 * 15 * 2 * 256,
    # 43 windows of 512; pools of 4 with their index keys in 21 layers, pools of 128 in 20
    "deepseek-ai--DeepSeek-V4-Flash": 2 * (43 * 512 + 21 * (512 + 128) / 4 + 20 * 512 / 128),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_configs_count_exactly(name):
    counts = count_parameters(load_config(HERE / "configs" / f"{name}.json"))
    assert (counts.total, counts.checkpoint) == REAL[name]


def test_every_real_config_is_tested():
    assert {path.stem for path in (HERE / "configs").glob("*.json")} == set(REAL)


@pytest.mark.parametrize("name", sorted(KV))
def test_cache_of_real_configs(name):
    assert kv_bytes_per_token(load_config(HERE / "configs" / f"{name}.json")) == KV[name]


def test_small_configs_of_every_family_count_exactly():
    wrong = [row for row in SMALL if count_parameters(load_config(row["config"])).total != row["parameters"]]
    assert not wrong


def test_small_towers_count_exactly():
    for row in TOWERS:
        counts = count_parameters(load_config(row["config"]))
        assert (counts.total, counts.extras_by_part["vision"]) == (row["parameters"], row["vision"])


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["name"])
def test_totals_of_configs_with_odd_fields(row):
    counts = count_parameters(load_config(row["config"]))
    assert (counts.total, counts.checkpoint) == (row["parameters"], row["checkpoint"])


def test_few_families_lack_an_independent_count():
    """Types whose code is not in transformers; most of these are among the presets or the published."""
    tested = {row["config"]["model_type"] for row in (*SMALL, *TOWERS, *PUBLISHED)}
    inside = [row["config"].get("text_config") or {} for row in (*TOWERS, *PUBLISHED)]
    tested |= {config["model_type"] for config in inside if "model_type" in config}
    lacking = set(model_types()) - tested
    assert lacking == {
        "bert",
        "deepseek",
        "grok-1",
        "internlm",
        "internlm3",
        "kimi_k2",
        "kimi_k3",
        "mimo",
        "minimax_m1",
        "mistral4",
        "palm",
        "roberta",
        "xlm-roberta",
    }


def test_dtypes_of_parts():
    def stored(name):
        return load_config(HERE / "configs" / f"{name}.json").weight_dtypes

    assert stored("meta-llama--Meta-Llama-3.1-8B") == {}
    assert stored("Qwen--Qwen3-32B-FP8") == {"attention": "fp8", "mlp": "fp8"}
    assert stored("openai--gpt-oss-120b") == {"experts": "mxfp4"}
    assert stored("moonshotai--Kimi-K2.5") == {"experts": "int4"}
    assert stored("deepseek-ai--DeepSeek-V4-Flash")["experts"] == "mxfp4"
    assert stored("deepseek-ai--DeepSeek-V4-Flash")["attention"] == "fp8"


def test_a_folder_and_a_file_are_the_same(tmp_path):
    path = HERE / "configs" / "Qwen--Qwen3-8B.json"
    (tmp_path / "config.json").write_bytes(path.read_bytes())
    assert load_config(tmp_path).layers == load_config(path).layers
    assert load_config(path).name == "Qwen/Qwen3-8B"
    assert load_config(tmp_path / "config.json").name == tmp_path.name


def test_fixed_states_do_not_grow():
    sections = load_config(HERE / "configs" / "Qwen--Qwen3.5-27B.json").program().sections
    linear = next(section for section in sections if section.name == "block0")
    state = 4 * 48 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 48 * 128)
    assert cache_bytes([linear], 10)["block0"] == cache_bytes([linear], 10**6)["block0"] == 48 * state


@pytest.mark.parametrize("field", ["modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"])
def test_layers_that_a_checkpoint_leaves_alone_are_not_quantized(field: str) -> None:
    """Each library has its own name for the list: Transformers, compressed-tensors, vLLM's fp8 and ModelOpt."""
    model = load_model("llama3-8b")
    config = {"quant_method": "fp8", field: ["lm_head", "model.layers.*.self_attn.q_proj"]}
    assert weight_dtypes(model, config, None) == {"mlp": "fp8"}
    assert weight_dtypes(model, {"quant_method": "fp8"}, None) == {"attention": "fp8", "mlp": "fp8"}
