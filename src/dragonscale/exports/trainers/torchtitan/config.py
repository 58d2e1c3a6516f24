"""The Python file of a torchtitan run, for what its flags cannot say: sizes that no flavor has, number formats, the
kind of attention.

It has one function, `run`, which torchtitan calls (`--module torchtitan_run --config run`). Degrees, batch and schedule
stay flags, so that a command can be read and changed without it. `read_config` reads such a file back without running
it.
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError

_HEAD = """from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
{quantization}from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.{module} import model_registry
from torchtitan.trainer import Trainer
"""
_RUN = """

def run() -> Trainer.Config:
    model_spec = {spec}
    return Trainer.Config(
        model_spec=model_spec,
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        ),
        hf_assets_path={assets},  # the folder of the tokenizer
        optimizer=default_adamw(lr=3e-4),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
    )
"""
_LLAMA = """from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

SIZES = {sizes}


def sized() -> llama3.Llama3Model.Config:
    dim, vocab, tied = SIZES["dim"], SIZES["vocab_size"], SIZES.get("tied", False)
    return llama3.Llama3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying=tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=vocab,
            embedding_dim=dim,
            param_init=llama3._EMBEDDING_SKIP_INIT if tied else llama3._EMBEDDING_INIT,
        ),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=llama3._output_linear_init(dim)),
        layers=llama3._build_llama3_layers(
            **{{name: SIZES[name] for name in ("n_layers", "dim", "n_heads", "n_kv_heads", "hidden_dim")}},
            rope=ComplexRoPE.Config(dim=dim // SIZES["n_heads"], max_seq_len=SIZES["max_seq_len"], theta=SIZES["theta"]),
            attn_backend="flex",
        ),
    )
"""
_QWEN = """from torchtitan.models import qwen3
from torchtitan.models.common import CosSinRoPE, Embedding, Linear

SIZES = {sizes}


def sized() -> qwen3.Qwen3Model.Config:
    dim, vocab, tied = SIZES["dim"], SIZES["vocab_size"], SIZES.get("tied", False)
    build = qwen3._build_qwen3_moe_layers if "num_experts" in SIZES else qwen3._build_qwen3_layers
    other = ("vocab_size", "max_seq_len", "theta", "tied")
    return qwen3.Qwen3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying=tied,
        norm=qwen3._qwen3_norm(dim),
        tok_embeddings=Embedding.Config(
            num_embeddings=vocab,
            embedding_dim=dim,
            param_init=qwen3._EMBEDDING_SKIP_INIT if tied else qwen3._EMBEDDING_INIT,
        ),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=qwen3._LINEAR_INIT),
        layers=build(
            **{{name: size for name, size in SIZES.items() if name not in other}},
            **({{"moe_comm_backend": "standard"}} if "num_experts" in SIZES else {{}}),
            rope=CosSinRoPE.Config(dim=SIZES["head_dim"], max_seq_len=SIZES["max_seq_len"], theta=SIZES["theta"]),
            attn_backend="flex",
        ),
    )
"""
_SIZED = """

def sized_spec() -> object:
    model_spec = model_registry("{like}")
    model_spec.flavor, model_spec.model = {name}, sized()
    for converter in {converters}:
        model_spec.model = converter.build().convert(model_spec.model)
    return model_spec
"""


def converters(dtype: str, experts: bool, compiled: bool) -> list[tuple[str, str]]:
    """The converters of a number format: classes, and how they are configured. Router and head stay in bf16."""
    on = f"model_compile_enabled={compiled}"
    if dtype == "fp8":
        kept = '["lm_head", "router.gate"]' if experts else '["lm_head"]'
        found = [("Float8LinearConverter", f"filter_fqns={kept}, {on}")]
        return found + ([("Float8GroupedExpertsConverter", on)] if experts else [])
    if dtype == "mxfp8":
        found = [("MXFP8LinearConverter", f'fqns=["attention", "shared_experts", "feed_forward"], {on}')]
        return found + ([("MXFP8GroupedExpertsConverter", f"pad_multiple=128, {on}")] if experts else [])
    return []


def config_text(
    flavor: str,
    chosen: list[tuple[str, str]],
    attention: str,
    assets: str,
    sizes: Mapping[str, Any] | None = None,
    name: str = "",
) -> str:
    """The file for a flavor, or for sizes of its module that it lacks."""
    module, _, like = flavor.partition("/")
    # Names may be a user's: each is written as one string, in double quotes as the rest of the file.
    assets, name = (json.dumps(text, ensure_ascii=False) for text in (assets, name))
    made = ", ".join(f"{kind}.Config({how})" for kind, how in chosen)
    imports = (
        f"from torchtitan.components.quantization import {', '.join(kind for kind, _ in chosen)}\n" if chosen else ""
    )
    text = _HEAD.format(module=module, quantization=imports)
    if sizes is not None:
        build = _LLAMA if module == "llama3" else _QWEN
        text = text.replace("from torchtitan.trainer", build.partition("\n\n")[0] + "\nfrom torchtitan.trainer")
        text += "\n" + build.partition("\n\n")[2].format(sizes=json.dumps(dict(sizes)).replace("true", "True"))
        text += _SIZED.format(like=like, name=name, converters=f"[{made}]" if made else "()")
        return text + _RUN.format(spec="sized_spec()", assets=assets)
    spec = f'model_registry("{like}"' + (f', attn_backend="{attention}"' if attention else "")
    spec += f", converters=[{made}])" if made else ")"
    return text + _RUN.format(spec=spec, assets=assets)


def read_config(text: str) -> dict[str, Any]:
    """What such a file says: `module`, `flavor`, `dtype`, `sizes`; only what is written out counts, nothing is run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"The Python config of torchtitan cannot be read: {error}.") from None
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchtitan.models."):
            module = node.module.split(".")[2]
            found |= {"module": module} if module != "common" else {}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "SIZES":
            found["sizes"] = ast.literal_eval(node.value)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "model_registry"
            and node.args
        ):
            found["flavor"] = ast.literal_eval(node.args[0])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            for mark, dtype in (("MXFP8", "mxfp8"), ("Float8", "fp8"), ("NVFP4", "nvfp4")):
                found |= {"dtype": dtype} if node.value.id.startswith(mark) else {}
    return found
