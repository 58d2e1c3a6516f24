"""Models as torchtitan has them: a module (`llama3`), a flavor (`8B`), and a function that makes its config
(`llama3_8b`).

The table of keys holds the sizes of every flavor and what every config function sets, both read from the release. A
model with the sizes of a flavor runs by name. Where the function of that flavor differs in what no flag can say (its
number format, its attention), or where there is no such flavor but the module builds any size, a small Python file says
the rest (`torchtitan_run.py`): torchtitan takes a module of the working folder by `--module`.

>>> found = flavor_of(
...     {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256}, 70.55e9
... )
>>> found, function_for(found, "bf16", False)
('llama3/70B', 'llama3_70b')
"""

from collections.abc import Mapping
from typing import Any

from dragonscale.errors import Infeasible
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
