"""Hugging Face checkpoints: small random ones are written, loaded, run, and compared with a plain NumPy reference."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.checkpoint import load_weights  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.safetensors import SafeTensors, write_safetensors  # noqa: E402
from dragonscale.runtime.train.loop import train  # noqa: E402
from dragonscale.runtime.train.settings import read_order  # noqa: E402
from dragonscale.runtime.train.tokens import open_tokens  # noqa: E402
from tests.runtime import reference  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

MORE = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "norm_topk_prob": True}
NAMES = ("llama", "tied", "qwen2", "qwen3", "mistral", "mixtral", "qwen3-moe", "deepseek-v3")


def random_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """A checkpoint with the names and shapes that Hugging Face writes."""
    draw = np.random.default_rng(seed)
    d, v, n, k = (config[name] for name in ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads"))
    h, f = config.get("head_dim") or d // n, config["intermediate_size"]
    kind = config["model_type"]
    w: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int) -> None:
        scale = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.3
        w[name] = (draw.normal(size=shape) * scale + (1 if "norm" in name else 0)).astype(np.float32)

    def feed(prefix: str, inner: int, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> None:
        for name, shape in zip(names, ((inner, d), (inner, d), (d, inner)), strict=True):
            add(f"{prefix}{name}.weight", *shape)

    add("model.embed_tokens.weight", v, d)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            add(f"{p}{name}.weight", d)
        if kind == "deepseek_v3":
            q, c, nope, rope, g = (
                config[x] for x in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            )
            add(f"{p}self_attn.q_a_proj.weight", q, d)
            add(f"{p}self_attn.q_a_layernorm.weight", q)
            add(f"{p}self_attn.q_b_proj.weight", n * (nope + rope), q)
            add(f"{p}self_attn.kv_a_proj_with_mqa.weight", c + rope, d)
            add(f"{p}self_attn.kv_a_layernorm.weight", c)
            add(f"{p}self_attn.kv_b_proj.weight", n * (nope + g), c)
            add(f"{p}self_attn.o_proj.weight", d, n * g)
        else:
            for name, heads in (("q", n), ("k", k), ("v", k)):
                add(f"{p}self_attn.{name}_proj.weight", heads * h, d)
                if kind == "qwen2":
                    add(f"{p}self_attn.{name}_proj.bias", heads * h)
                if kind.startswith("qwen3") and name != "v":
                    add(f"{p}self_attn.{name}_norm.weight", h)
            add(f"{p}self_attn.o_proj.weight", d, n * h)
        if kind == "mixtral":
            add(f"{p}block_sparse_moe.gate.weight", config["num_local_experts"], d)
            for e in range(config["num_local_experts"]):
                feed(f"{p}block_sparse_moe.experts.{e}.", f, ("w1", "w3", "w2"))
        elif kind == "qwen3_moe" or (kind == "deepseek_v3" and layer >= config["first_k_dense_replace"]):
            experts = config.get("num_experts") or config["n_routed_experts"]
            add(f"{p}mlp.gate.weight", experts, d)
            for e in range(experts):
                feed(f"{p}mlp.experts.{e}.", config["moe_intermediate_size"])
            if kind == "deepseek_v3":
                add(f"{p}mlp.gate.e_score_correction_bias", experts)
                feed(f"{p}mlp.shared_experts.", config["moe_intermediate_size"] * config["n_shared_experts"])
        else:
            feed(f"{p}mlp.", f)
    add("model.norm.weight", d)
    if not config.get("tie_word_embeddings"):
        add("lm_head.weight", v, d)
    return w


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name] | MORE | {"num_hidden_layers": 2}
    written = random_tensors(config)
    write_safetensors(written, tmp_path / "model.safetensors")
    program, numerics = load_config(config).program(), read_numerics(config)
    params = load_weights(SafeTensors(tmp_path), program, jnp.float32)
    tokens = np.random.default_rng(1).integers(0, 128, (1, 12))
    found = jax.jit(lambda p, t: forward(p, program, t, PassSetting(numerics)))(params, jnp.asarray(tokens))
    wanted = reference.logits(tokens[0], {key: value.astype(np.float64) for key, value in written.items()}, config)
    assert np.abs(np.asarray(found[0]) - wanted).max() < 2e-4 * max(np.abs(wanted).max(), 1)


def test_several_files_and_half_precision(tmp_path: Path) -> None:
    import ml_dtypes

    first, second = {"a": np.ones((2, 3), ml_dtypes.bfloat16)}, {"b": np.arange(4, dtype=np.float16)}
    write_safetensors(first, tmp_path / "model-00001.safetensors")
    write_safetensors(second, tmp_path / "model-00002.safetensors")
    found = SafeTensors(tmp_path)
    assert set(found) == {"a", "b"}
    assert found["a"].dtype == ml_dtypes.bfloat16
    assert found["b"].tolist() == [0, 1, 2, 3]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    config = CONFIGS["llama"] | MORE
    written = random_tensors(config)
    program = load_config(config).program()
    with pytest.raises(InputError, match=r"lacks the weight Wd of block.*down_proj"):
        load_weights({k: v for k, v in written.items() if "3.mlp.down_proj" not in k}, program)
    wrong = written | {"model.layers.1.self_attn.q_proj.weight": np.zeros((7, 64), np.float32)}
    with pytest.raises(InputError, match=r"shape \(7, 64\), not that of this model: \(64, 64\)"):
        load_weights(wrong, program)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(InputError, match="not in the safetensors format"):
        SafeTensors(tmp_path)
    with pytest.raises(InputError, match=r"holds no \.safetensors file"):
        SafeTensors(tmp_path / "..")


@pytest.mark.slow
@pytest.mark.usefixtures("eight")
def test_a_run_begins_from_a_checkpoint(tmp_path: Path) -> None:
    """The loss of the first step is that of the checkpoint's own weights, on whatever mesh."""
    config = CONFIGS["llama"] | MORE
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(random_tensors(config), tmp_path / "model.safetensors")
    np.random.default_rng(0).integers(0, config["vocab_size"], 2000).astype(np.uint16).tofile(tmp_path / "text.bin")
    changes = {"data": str(tmp_path / "text.bin"), "steps": 1, "batch": 4, "seq": 16, "dtype": "fp32"}
    order = read_order("fsdp=2,tensor=2", str(tmp_path), changes=changes | {"weights": str(tmp_path)})
    found = train(order)
    program, numerics = load_config(config).program(), read_numerics(config)
    params = load_weights(SafeTensors(tmp_path), program, jnp.float32)
    rows = open_tokens(order.run.data, "", 16, config["vocab_size"], 0).rows(range(4))
    logits = forward(params, program, jnp.asarray(rows[:, :-1]), PassSetting(numerics))
    assert found.loss == pytest.approx(float(loss(logits, jnp.asarray(rows[:, 1:]))), rel=1e-5)
    assert train(read_order("fsdp=2", str(tmp_path), changes=changes)).loss != pytest.approx(found.loss, rel=1e-2)
