"""Models as torchtitan has them: a module (`llama3`), a flavor (`8B`), and a function that makes its config
(`llama3_8b`); and their layers in its pipeline stages.

The table of keys holds the sizes of every flavor and what every config function sets, both read from the release. A
model with the sizes of a flavor runs by name. Where the function of that flavor differs in what no flag can say (its
number format, its attention), or where there is no such flavor but the module builds any size, a small Python file says
the rest (`torchtitan_run.py`): torchtitan takes a module of the working folder by `--module`, and calls its one
function, `run`. Degrees, batch and schedule stay flags, so that a command can be read and changed without it.
`read_config` reads such a file back without running it.

torchtitan deals layers by itself from two counts (`pipeline_parallel_first_stage_less_layers` and `…last…`: what the
embedding and the head are worth in layers) and a size of stages; any other layout is a list of the modules of each
stage.

>>> found = flavor_of(
...     {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256}, 70.55e9
... )
>>> found, function_for(found, "bf16", False)
('llama3/70B', 'llama3_70b')
>>> dealt(32, 4, 0, 0), dealt(126, 16, 1, 1)[:2], dealt(10, 4, 1, 1)
([8, 8, 8, 8], [7, 8], [2, 3, 3, 2])
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> stage_flags(parse_plan("pipe=4,schedule=1f1b,layout=7-9-9-7"), 32)["--parallelism.module_fqns_per_model_part"][3]
'layers.25,layers.26,layers.27,layers.28,layers.29,layers.30,layers.31,norm,lm_head'
"""

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.imported import layout_named
from dragonscale.exports.keys import load_keys, whole
from dragonscale.exports.terms import load_terms
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stages import FOLDED, chunk_sizes

TERMS = load_terms("torchtitan")

TRAINER = trainers()["torchtitan"]
MODULES = TRAINER.called
FILE = "torchtitan_run.py"
_COMPARED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_PLAIN_DISPATCH = ("", "AllToAllTokenDispatcher", "TorchAOTokenDispatcher")


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
    if kind not in TRAINER.types or any(fields.get(field) for field in TRAINER.without):
        raise Infeasible(f"torchtitan {load_keys('torchtitan').version} has no model like {name}; it has {_offered()}.")
    heads, width = fields["num_attention_heads"], fields["hidden_size"]
    head = fields.get("head_dim") or width // heads
    if kind in TRAINER.square and head * heads != width:
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


SCHEDULES = TERMS.tables["schedules"]
SINGLE = ("1f1b", "gpipe")
"""Those with a stage on each rank."""
_LESS = TERMS.lists["less_layers"]
_PER_STAGE, _MODULES = "--parallelism.pipeline_parallel_layers_per_stage", "--parallelism.module_fqns_per_model_part"


def dealt(layers: int, stages: int, first: int, last: int) -> list[int]:
    """The layers of every stage as torchtitan deals them."""
    base, extra = divmod(layers + first + last, stages)
    sizes = [base + (stage < extra) for stage in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


def wanted(plan: Plan, layers: int) -> list[int]:
    """The layers of every stage as the plan deals them. A rank of a V has its layers in two stages, going down and
    coming back."""
    sizes = chunk_sizes(layers, plan.pipe * plan.virtual, plan.layout)
    if plan.schedule not in FOLDED:
        return sizes
    return [size - size // 2 for size in sizes] + [size // 2 for size in reversed(sizes)]


def stage_flags(plan: Plan, layers: int) -> dict[str, Any]:
    """The flags that make torchtitan deal layers as the plan does."""
    sizes = wanted(plan, layers)
    stages = len(sizes)
    single = plan.schedule in SINGLE
    for first, last in ((0, 0), (1, 1)) if plan.layout != "ends" else ((1, 1), (0, 0)):
        per_stage = math.ceil((layers + first + last) / stages)
        named = single or math.ceil((layers + first + last) / per_stage) == stages
        if sizes == dealt(layers, stages, first, last) and named and (single or stages > plan.pipe):
            flags: dict[str, Any] = {_LESS[0]: first, _LESS[1]: last}
            return flags if single else flags | {_PER_STAGE: per_stage}
    return {_MODULES: [",".join(part) for part in _parts(sizes)]}


def _parts(sizes: Sequence[int]) -> list[list[str]]:
    parts: list[list[str]] = []
    start = 0
    for size in sizes:
        parts.append([f"layers.{number}" for number in range(start, start + size)])
        start += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def layout_read(said: Mapping[str, Any], pipe: int, schedule: str, layers: int) -> tuple[int, str]:
    """The chunks of a rank and the layout that flags say; `said` has the values by the flags' last names."""
    parts = said.get("module_fqns_per_model_part")
    ends = [f"pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last")]
    first, last = (whole(said.get(name, 1), name, 0) for name in ends)
    per_stage = said.get("pipeline_parallel_layers_per_stage")
    if parts:
        sizes = [sum(name.startswith("layers.") for name in _names(part)) for part in parts]
    elif layers:
        stages = pipe * (1 if schedule in SINGLE else 2)
        if per_stage and str(per_stage) != "None":
            stages = math.ceil((layers + first + last) / whole(per_stage, "pipeline_parallel_layers_per_stage"))
        sizes = dealt(layers, max(stages, 1), first, last)
    else:
        return (1 if schedule in SINGLE or schedule in FOLDED else 2), "even"
    return _named(sizes, pipe, schedule, layers)


def _named(sizes: list[int], pipe: int, schedule: str, layers: int) -> tuple[int, str]:
    if schedule in FOLDED and len(sizes) == 2 * pipe:
        sizes = [sizes[rank] + sizes[-1 - rank] for rank in range(pipe)]
    virtual = max(len(sizes) // pipe, 1)
    return virtual, layout_named(sizes, layers or sum(sizes))


def _names(part: Any) -> list[str]:
    return part.split(",") if isinstance(part, str) else list(part)
