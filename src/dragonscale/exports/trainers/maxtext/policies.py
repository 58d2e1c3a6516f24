"""Words of a plan and MaxText's words for them: what is recomputed, formats of numbers, optimizers, flags of the
compiler.

What MaxText keeps is a policy by name, or (`remat_policy: custom`) a place for each tensor that its layers name: kept
on the device, sent to the host, or made again. A plan's policies in these words:

| plan | MaxText |
|---|---|
| none | `none` |
| block | `full` |
| matmuls | `minimal`: the dense projections' outputs; with experts or latent attention a custom list |
| selective | custom: what `minimal` keeps but the output of the MLP, which no gradient reads |
| offload | custom: the input of each layer goes to the host, all else is made again |

>>> remat_keys("block", False, False), remat_of({"remat_policy": "full"})[0]
({'remat_policy': 'full'}, 'block')
>>> remat_of({"remat_policy": "custom", "decoder_layer_input": "offload"})
('offload', '')
>>> quantization_keys("fp8", "nvidia", 4)
{'quantization': 'te_fp8_currentscaling'}
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.terms import load_terms

TERMS = load_terms("maxtext")

_ATTENTION = ("query_proj", "key_proj", "value_proj", "out_proj")
_LATENT = ("query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv", "out_proj")
_MLP = ("mlpwi_0", "mlpwi_1")
_MOE = ("moe_mlpwi_0", "moe_mlpwi_1")
_OUT = ("mlpwo", "moe_mlpwo")
TENSORS = frozenset((*TERMS.lists["tensors"], *_MLP, *_MOE, *_OUT, *_ATTENTION, *_LATENT))
"""The tensors that a custom policy has a place for."""


def remat_keys(policy: str, experts: bool, latent: bool) -> dict[str, Any]:
    """What is kept, in MaxText's words."""
    if policy in ("none", "block"):
        return {"remat_policy": "full" if policy == "block" else "none"}
    if policy == "matmuls" and not experts and not latent:
        return {"remat_policy": "minimal"}
    if policy == "offload":
        return {"remat_policy": "custom", "decoder_layer_input": "offload"}
    kept = [*(_LATENT if latent else _ATTENTION), *_MLP, *(_MOE if experts else ())]
    kept += ([*_OUT] if experts else ["mlpwo"]) if policy == "matmuls" else []
    return {"remat_policy": "custom", **dict.fromkeys(("decoder_layer_input", *kept), "device")}


_NEAREST = TERMS.tables["remat_nearest"]


def remat_of(table: Mapping[str, Any]) -> tuple[str, str]:
    """The plan's word for what is recomputed, and a note where it is only the nearest."""
    said = table.get("remat_policy", "full")
    policy = "none" if said is None else str(said).lower()
    exact = {"none": "none", "full": "block", "minimal": "matmuls"}
    if policy in exact:
        return exact[policy], ""
    if policy in _NEAREST:
        near = _NEAREST[policy]
        return near, f"remat_policy={policy} is read as remat={near}, the nearest that a plan has."
    if policy != "custom":
        known = ", ".join([*exact, *_NEAREST, "custom"])
        raise InputError(f"remat_policy is {policy}; MaxText has {known}.")
    return _custom(table)


def _custom(table: Mapping[str, Any]) -> tuple[str, str]:
    kept = {name for name in TENSORS if str(table.get(name, "remat")) == "device"} - {"decoder_layer_input"}
    sent = {name for name in TENSORS if str(table.get(name, "remat")) == "offload"}
    if kept & {"mlpwi", *_MLP, *_MOE} and kept & {"query_proj", "qkv_proj", "query_wa_proj", "mla_q"}:
        extra = kept & {"context", "attention_out"}
        note = "" if not extra else f"what is kept of attention ({', '.join(sorted(extra))}) is read as made again."
        return ("matmuls" if kept & {*_OUT} else "selective"), note
    policy = "offload" if "decoder_layer_input" in sent else "block"
    others = sorted(kept | (sent - {"decoder_layer_input"}))
    note = f"{', '.join(others)} kept or sent to the host is read as remat={policy}, the nearest that a plan has."
    return policy, note if others else ""


def quantization_keys(dtype: str, kind: str, accumulation: int) -> dict[str, Any]:
    """The format that matrices are multiplied in. Qwix is what MaxText quantizes with on TPUs, Transformer Engine on
    NVIDIA's GPUs."""
    if dtype in ("bf16", "fp32"):
        return {"quantization": ""}
    if kind == "amd":
        if accumulation > 1:
            raise TERMS.refused("amd_accumulation", accumulation=accumulation)
        return {"quantization": "nanoo_fp8"}
    if kind == "nvidia":
        return {"quantization": TERMS.tables["transformer_engine"][dtype]}
    return {"quantization": "fp8_full" if dtype == "fp8" else dtype, "use_qwix_quantization": True}


def dtype_of(table: Mapping[str, Any]) -> str:
    """The plan's word for the format."""
    said = str(table.get("quantization") or "")
    if not said or said == "te_no_quant":
        return "fp32" if str(table.get("dtype", "bfloat16")) == "float32" else "bf16"
    for start, dtype in (("te_mxfp8", "mxfp8"), ("te_nvfp4", "nvfp4"), ("int4", "int4"), ("int", "int8")):
        if said.startswith(start):
            return dtype
    return "fp8" if "fp8" in said else "bf16"


MUON = ("llama2", "llama3", "deepseek", "qwen3-", "gpt-oss", "gemma3", "kimi")
"""Models whose weights MaxText's Muon knows how to see as matrices (of `llama2`, `deepseek`, `qwen3…`, `gpt_oss` and
`gemma3` decoders)."""
MUON_DECODERS = ("llama2", "qwen3", "qwen3_moe")

_FUSION = TERMS.lists["xla_fusion"]
_BETWEEN = TERMS.lists["xla_between_slices"]
_HOST = TERMS.lists["xla_host"]
_GPU = TERMS.lists["xla_gpu"]


def compiler_flags(kind: str, chip: str, between: bool, experts: bool, host: bool) -> dict[str, str]:
    """What the compiler is told so that collectives run under the matmuls, as the expectation assumes: the groups of
    flags that MaxText's recipes use (benchmarks/xla_flags_library.py and configs/gpu/a3 of its repository, 2026-08-22).
    On TPU7x gathers and scatters go to the SparseCores of their own accord."""
    if kind != "tpu":
        return {"XLA_FLAGS": " ".join(_GPU)}
    own = ["--xla_tpu_enable_sparse_core_collective_offload_all_reduce=true"] if chip == "tpu7x" else [*_FUSION]
    own += _BETWEEN if between else ()
    own += _HOST if host else ()
    if chip in ("v5p", "v6e"):
        own.append(f"--xla_tpu_scoped_vmem_limit_kib={81920 if experts else 98304}")
    return {"LIBTPU_INIT_ARGS": " ".join(own)}
