"""Models as torchtitan has them: a module (`llama3`), a flavor (`8B`), and a function that makes its config
(`llama3_8b`).

The table of keys holds the sizes of every flavor and what every config function sets, both read from the release. A
model with the sizes of a flavor runs by name. Where the function of that flavor differs in what no flag can say (its
number format, its attention), or where there is no such flavor but the module builds any size, a small Python file says
the rest (`torchtitan_run.py`): torchtitan takes a module of the working folder by `--module`, and calls its one
function, `run`. Degrees, batch and schedule stay flags, so that a command can be read and changed without it.
`read_config` reads such a file back without running it.

>>> found = flavor_of(
...     {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256}, 70.55e9
... )
>>> found, function_for(found, "bf16", False)
('llama3/70B', 'llama3_70b')
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.keys import load_keys
from dragonscale.exports.terms import load_terms

TERMS = load_terms("torchtitan")

MODULES = TERMS.tables["modules"]
FILE = "torchtitan_run.py"
_COMPARED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_PLAIN_DISPATCH = ("", "AllToAllTokenDispatcher", "TorchAOTokenDispatcher")
_BUILT = ("llama", "mistral", "qwen3", "qwen3_moe")
"""Types whose module builds layers of any size."""


def flavors() -> dict[str, dict[str, Any]]:
    """The sizes of every flavor, by module and name."""
    return _defaults("model ")


def functions() -> dict[str, dict[str, Any]]:
    """What every config function sets, by module and name."""
    return _defaults("config ")


def _defaults(lead: str) -> dict[str, dict[str, Any]]:
    keys = load_keys("torchtitan").keys
    return {name.removeprefix(lead): key.default for name, key in keys.items() if name.startswith(lead)}


def flavor_of(fields: Mapping[str, Any], parameters: float) -> str:
    """The flavor that has a model's sizes; empty where there is none."""
    module = MODULES.get(str(fields.get("model_type")), "")
    for name, sizes in flavors().items():
        same = all(sizes.get(key) == fields.get(key, sizes.get(key)) for key in _COMPARED)
        if name.startswith(f"{module}/") and same and abs(sizes["parameters"] / parameters - 1) < 0.002:
            return name
    return ""


def function_for(flavor: str, dtype: str, context: bool) -> str:
    """The config function of a flavor in a number format; empty where there is none. Context parallelism needs
    FlexAttention."""
    module, _, name = flavor.partition("/")
    fitting = [
        own.partition("/")[2]
        for own, sets in functions().items()
        if own.startswith(f"{module}/")
        and sets["model"] == name
        and not own.startswith(f"{module}/sft")
        and sets.get("dtype", "bf16") == dtype
        and sets.get("dispatch", "") in _PLAIN_DISPATCH
        and not (context and sets["attention"] != "FlexAttention")
    ]
    return min(fitting, key=len, default="")


def own_sizes(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The sizes that a file builds a model of, where no flavor has them."""
    kind = str(fields.get("model_type"))
    if kind not in _BUILT or fields.get("sliding_window") or fields.get("attention_bias"):
        raise Infeasible(f"torchtitan {load_keys('torchtitan').version} has no model like {name}; it has {_offered()}.")
    heads, width = fields["num_attention_heads"], fields["hidden_size"]
    head = fields.get("head_dim") or width // heads
    if MODULES[kind] == "llama3" and head * heads != width:
        raise TERMS.refused("head_width", name=name, head=head)
    sizes = {
        "dim": width,
        "n_layers": fields["num_hidden_layers"],
        "n_heads": heads,
        "n_kv_heads": fields.get("num_key_value_heads") or heads,
        "vocab_size": fields["vocab_size"],
        "max_seq_len": fields.get("max_position_embeddings") or 131072,
        "theta": float(fields.get("rope_theta") or (500000 if MODULES[kind] == "llama3" else 1000000)),
    }
    if kind == "qwen3_moe":
        sizes |= {"moe_hidden_dim": fields["moe_intermediate_size"], "top_k": fields["num_experts_per_tok"]}
        sizes |= {"num_experts": fields.get("num_experts") or fields["num_local_experts"]}
    else:
        sizes |= {"hidden_dim": fields["intermediate_size"]}
    sizes |= {"head_dim": head} if MODULES[kind] == "qwen3" else {}
    return sizes | ({"tied": True} if fields.get("tie_word_embeddings") else {})


def fields_of_sizes(module: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a file as Hugging Face names them."""
    kind = "llama" if module == "llama3" else "qwen3_moe" if "num_experts" in sizes else "qwen3"
    names = TERMS.tables["size_names"]
    return {"model_type": kind, **{names[key]: value for key, value in sizes.items() if key in names}}


def _offered() -> str:
    found: dict[str, list[str]] = {}
    for name in flavors():
        module, _, flavor = name.partition("/")
        found.setdefault(module, []).append(flavor)
    return "; ".join(f"{module} ({', '.join(names)})" for module, names in found.items())


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
    flavor: str, chosen: list[tuple[str, str]], attention: str, name: str, sizes: Mapping[str, Any] | None = None
) -> str:
    """The file for a flavor, or for sizes of its module that it lacks."""
    module, _, like = flavor.partition("/")
    # Names may be a user's: each is written as one string, in double quotes as the rest of the file.
    assets, name = (json.dumps(text, ensure_ascii=False) for text in (f"./assets/hf/{name}", name))
    made = ", ".join(f"{kind}.Config({how})" for kind, how in chosen)
    kinds = ", ".join(kind for kind, _ in chosen)
    imports = f"from torchtitan.components.quantization import {kinds}\n" if chosen else ""
    text = TERMS.texts["head"].format(module=module, quantization=imports)
    if sizes is not None:
        build = TERMS.texts["llama" if module == "llama3" else "qwen"]
        text = text.replace("from torchtitan.trainer", build.partition("\n\n")[0] + "\nfrom torchtitan.trainer")
        text += "\n" + build.partition("\n\n")[2].format(sizes=json.dumps(dict(sizes)).replace("true", "True"))
        text += TERMS.texts["sized"].format(like=like, name=name, converters=f"[{made}]" if made else "()")
        return text + TERMS.texts["run"].format(spec="sized_spec()", assets=assets)
    spec = f'model_registry("{like}"' + (f', attn_backend="{attention}"' if attention else "")
    spec += f", converters=[{made}])" if made else ")"
    return text + TERMS.texts["run"].format(spec=spec, assets=assets)


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "model_registry" and node.args:
            found["flavor"] = ast.literal_eval(node.args[0])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            for mark, dtype in (("MXFP8", "mxfp8"), ("Float8", "fp8"), ("NVFP4", "nvfp4")):
                found |= {"dtype": dtype} if node.value.id.startswith(mark) else {}
    return found
