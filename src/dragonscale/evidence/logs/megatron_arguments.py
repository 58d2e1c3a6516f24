"""The arguments that Megatron-LM prints at its start, as the command that gives them.

    ------------------------ arguments ------------------------
      tensor_model_parallel_size ...................... 8
      recompute_modules ............................... ['core_attn']

Every argument is printed, with its default where nobody gave it, after Megatron has filled in what follows from others.
So only those are taken that say the plan or the model, and those of a part (experts, latent attention, fp8) only where
it is on.
"""

import ast
import math
import re

from dragonscale.evidence.logs.text import LogText

_ARGUMENT = re.compile(r"^(?:\[?\w+\]?:\s*)?\s*([a-z][a-z0-9_]*) \.{3,} (.+?)\s*$")
UNSAID = ("None", "[]", "")
SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "kv_channels",
    "seq_length",
    "max_position_embeddings",
    "micro_batch_size",
    "global_batch_size",
    "optimizer",
    "position_embedding_type",
    "normalization",
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "train_iters",
    "mtp_num_layers",
)
SWITCHES = (
    "bf16",
    "fp16",
    "sequence_parallel",
    "use_distributed_optimizer",
    "swiglu",
    "squared_relu",
    "group_query_attention",
    "untie_embeddings_and_output_weights",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "multi_latent_attention",
    "add_qkv_bias",
    "qk_layernorm",
    "grad_reduce_in_bf16",
    "tp_comm_overlap",
    "optimizer_cpu_offload",
    "use_megatron_fsdp",
    "use_torch_fsdp2",
    "overlap_moe_expert_parallel_comm",
)
PARTS = {
    "group_query_attention": ("num_query_groups",),
    "num_experts": (
        "num_experts",
        "moe_router_topk",
        "moe_ffn_hidden_size",
        "moe_layer_freq",
        "moe_shared_expert_intermediate_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "moe_token_dispatcher_type",
    ),
    "multi_latent_attention": ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
    "recompute_granularity": ("recompute_granularity", "recompute_method", "recompute_num_layers"),
    "use_megatron_fsdp": ("data_parallel_sharding_strategy",),
    "fp8": ("fp8_recipe",),
}
"""Arguments that say something only where another is given."""
OTHERWISE = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
}
"""Arguments that are kept under another name than they are given by."""


def arguments(log: LogText) -> dict[str, str]:
    """The arguments by name, of the last start."""
    return {found[1]: found[2] for line in log.lines if (found := _ARGUMENT.match(line))}


def whole(said: dict[str, str], name: str) -> int:
    """An argument's number; 0 where it says none."""
    text = said.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= 12 else 0


def plan_words(said: dict[str, str]) -> str:
    """The command; empty where no arguments were printed.

    >>> plan_words({"tensor_model_parallel_size": "8", "world_size": "16", "bf16": "True", "num_experts": "None"})
    'torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 8 --bf16'
    """
    if "tensor_model_parallel_size" not in said:
        return ""
    chips = whole(said, "world_size")
    each = math.gcd(chips, 8) if chips > 8 else chips  # hosts are alike, so that the processes come to the world
    words = ["torchrun", "--nproc-per-node", str(each), "--nnodes", str(chips // each)] if chips else []
    words.append("pretrain_gpt.py")
    vocabulary = "vocab_size" if said.get("vocab_size", "None") not in UNSAID else "padded_vocab_size"
    parts = [name for part, names in PARTS.items() if _is_on(said.get(part, "None")) for name in names]
    for name in (*SIZES, vocabulary, *parts):
        words += _words(f"--{name.replace('_', '-')}", said.get(name, "None"))
    for name, flag in OTHERWISE.items():
        words += _words(flag, said.get(name, "None")) if _is_on(said.get(name, "None")) else []
    if said.get("recompute_granularity") == "selective":
        words += _words("--recompute-modules", said.get("recompute_modules", "None"))
    words += [f"--{name.replace('_', '-')}" for name in SWITCHES if said.get(name) == "True"]
    return " ".join(words + (["--disable-bias-linear"] if said.get("add_bias_linear") == "False" else []))


def _is_on(value: str) -> bool:
    return value not in (*UNSAID, "False")


def _words(flag: str, value: str) -> list[str]:
    """A flag and its value; a list is as many words."""
    if value in UNSAID:
        return []
    if not value.startswith("["):
        return [flag, value] if re.fullmatch(r"[\w.,*+/|()-]+", value) else []
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [flag, *map(str, found)] if all(re.fullmatch(r"[\w.-]+", str(one)) for one in found) else []
