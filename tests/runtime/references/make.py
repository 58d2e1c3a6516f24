"""Small random models of several families, as `transformers` writes and computes them: what our own reading is held
against.

    pip install torch transformers && python tests/runtime/references/make.py

Each folder gets a checkpoint (its weights rounded to bf16, computed with in fp32) and `expected.json`: some tokens, the
logits after each, and the tokens that follow greedily.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 39,
    "pad_token_id": 0,
}
MORE = {
    "llama": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen3": {"tie_word_embeddings": True},
    "gemma2": {
        "sliding_window": 4,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_implementation": "eager",
    },
    "gemma3_text": {
        "sliding_window": 4,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
        "routed_scaling_factor": 1.5,
        "head_dim": 4,
    },
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "attn_implementation": "eager",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
        },
    },
}


def write(kind: str, folder: Path) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES | MORE[kind])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = 0.3 if value.dim() == 1 else 1.5 / value.shape[-1] ** 0.5
            value.copy_((torch.randn_like(value) * scale + ("norm" in name and "gemma" not in kind)).bfloat16().float())
        for name, value in model.named_buffers():
            if "e_score_correction_bias" in name:
                value.copy_((torch.randn_like(value) * 0.1).bfloat16().float())
    model.generation_config.eos_token_id = None  # ten tokens follow, whichever
    tokens = torch.randint(1, 38, (1, 12))
    with torch.no_grad():
        logits = model(tokens).logits[0]
        follow = model.generate(tokens, do_sample=False, max_new_tokens=10, use_cache=True)[0, 12:]
    model.bfloat16().save_pretrained(folder)
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)
    found = {
        "tokens": tokens[0].tolist(),
        "greedy": follow.tolist(),
        "logits": [[round(x, 5) for x in row] for row in logits.tolist()],
    }
    (folder / "expected.json").write_text(json.dumps(found))


if __name__ == "__main__":
    for kind in sys.argv[1:] or MORE:
        write(kind, Path(__file__).parent / kind)
