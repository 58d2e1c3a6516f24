"""What MaxText calls the parts of a plan: the model, the mesh, what is recomputed, formats, flags of the compiler.

**Model.** `model_name` brings the sizes of `configs/models/NAME.yml`, and those win over a YAML file of one's own (only
words of the command line win over them, with `override_model_config`). So a model that MaxText has no name for is
written without one: its decoder and its sizes, under the names of `base.yml`.

**Mesh.** An `ici_` axis inside a slice and a `dcn_` axis between slices for each kind of parallelism: the product of
the `ici_` axes is the devices of a slice and that of the `dcn_` axes the slices. A slice is what JAX calls one: a TPU
slice, a GPU node, or an NVLink domain of racks. A TPU7x chip is two devices to JAX (so are chips of v2 and v3); those
of v4 and v5p are one ("megacore"). A plan counts chips, so on TPU7x the `fsdp` axis is twice the plan's. Slices are
given to the slowest axes of a plan, as its own mesh does (`sharding.mesh`).

**Recomputation.** What MaxText keeps is a policy by name, or (`remat_policy: custom`) a place for each tensor that its
layers name: kept on the device, sent to the host, or made again. A plan's policies in these words:

| plan | MaxText |
|---|---|
| none | `none` |
| block | `full` |
| matmuls | `minimal`: the dense projections' outputs; with experts or latent attention a custom list |
| selective | custom: what `minimal` keeps but the output of the MLP, which no gradient reads |
| offload | custom: the input of each layer goes to the host, all else is made again |

>>> model_keys("llama3-70b", {"model_type": "llama"})
{'model_name': 'llama3-70b'}
>>> model_of({"model_name": "deepseek3-671b"}, {})
'deepseek-v3'
>>> model_of({"model_name": "llama3-8b"}, {"base_num_decoder_layers": "16"})
'llama3-8b?num_hidden_layers=16'
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> piece = parse_slice("v5p:8x8x8*2")
>>> mesh_keys(parse_plan("data=2,fsdp=128,tensor=4"), piece)["dcn_data_parallelism"]
2
>>> slices_of(parse_slice("h100:64")), slices_of(parse_slice("gb200:72"))
(8, 1)
>>> remat_keys("block", False, False), remat_of({"remat_policy": "full"})[0]
({'remat_policy': 'full'}, 'block')
>>> remat_of({"remat_policy": "custom", "decoder_layer_input": "offload"})
('offload', '')
>>> quantization_keys("fp8", "nvidia", 4)
{'quantization': 'te_fp8_currentscaling'}
"""

import math
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.keys import whole
from dragonscale.exports.model_names import EXPERTS, model_of_sizes
from dragonscale.exports.terms import load_terms
from dragonscale.models.catalogue import is_preset, preset
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.chip import Tree
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import AXES, Plan

TERMS = load_terms("maxtext")

NAMES: Mapping[str, str] = trainers()["maxtext"].presets
"""MaxText's name of each preset that it has a config of."""
_ALSO = TERMS.tables["other_names"]
_PRESETS = {**{own: name for name, own in reversed(NAMES.items())}, **_ALSO}

DECODERS = trainers()["maxtext"].called
SIZES = TERMS.tables["sizes"]
_CYCLES = ("gemma3", "gemma4", "gpt-oss", "llama4", "qwen3-next", "qwen3.5", "deepseek4", "deepseek3.2")
"""Names of models whose scanned block is several layers, or whose layers differ in more than being dense or not."""
_DENSE_FIRST = ("deepseek", "kimi")
"""Names of models whose first layers are dense: MaxText runs those before its pipeline."""


def experts_of(fields: Mapping[str, Any]) -> int:
    """Experts of a layer, by the fields of a Hugging Face config."""
    inner = fields.get("text_config")
    flat = {**fields, **inner} if isinstance(inner, Mapping) else fields
    return next((int(flat[name]) for name in EXPERTS if flat.get(name)), 0)


def model_keys(model: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that name a model, or say its decoder and sizes."""
    name, _, changed = model.partition("?")
    if not changed and is_preset(name) and (own := NAMES.get(str(preset(name)["name"]))):
        return {"model_name": own}
    decoder = DECODERS.get(str(fields.get("model_type", "")))
    if decoder is None:
        kind, known = fields.get("model_type", "?"), ", ".join(DECODERS)
        raise TERMS.refused("no_model", model=model, kind=kind, count=len(NAMES), decoders=known)
    return _sizes(decoder, fields)


def _sizes(decoder: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    heads, experts = int(fields["num_attention_heads"]), experts_of(fields)
    wide = int(fields.get("moe_intermediate_size") or fields["intermediate_size"])
    values = {
        "decoder": decoder,
        "fields": fields,
        "heads": heads,
        "kv_heads": int(fields.get("num_key_value_heads") or heads),
        "head_dim": int(fields.get("head_dim") or int(fields["hidden_size"]) // heads),
        # a model of experts alone has one width under both names
        "mlp": wide if experts else fields["intermediate_size"],
        "tied": bool(fields.get("tie_word_embeddings", False)),
    }
    return TERMS.group("sizes", experts=experts, wide=wide, **values)


def alike(own: Mapping[str, Any]) -> bool:
    """Whether the layers of a model are one block each, and attend alike."""
    return not str(own["model_name"]).startswith(_CYCLES)


def pipelines(own: Mapping[str, Any]) -> bool:
    """Whether all layers of a model can be dealt to stages."""
    return alike(own) and not str(own["model_name"]).startswith(_DENSE_FIRST)


def merged_layers(own: Mapping[str, Any]) -> int:
    """Layers of the model that one decoder layer of MaxText is: Gemma 2's local and global attention are one block."""
    return 2 if str(own["model_name"]).startswith("gemma2") else 1


def model_of(own: Mapping[str, Any], words: Mapping[str, Any], kept: str = "") -> str:
    """The model that a config says: by MaxText's name, with what the command line changes, or by sizes; empty where it
    says neither. `kept` is preferred where it has the same name there."""
    name = str({**own, **words}.get("model_name") or "default").removesuffix("-Instruct")
    if name != "default":
        if is_preset(kept) and NAMES.get(str(preset(kept)["name"])) == name:
            return kept
        found = _PRESETS.get(name) or (str(preset(name)["name"]) if is_preset(name) else "")
        changes = [f"{ours}={words[theirs]}" for ours, theirs in SIZES.items() if found and theirs in words]
        return f"{found}?{'&'.join(changes)}" if changes else found
    every = {**own, **words}
    if "base_emb_dim" not in every:
        return kept
    types = {decoder: kind for kind, decoder in DECODERS.items()}
    sizes = {ours: whole(every[theirs], theirs, 0) for ours, theirs in SIZES.items() if every.get(theirs) is not None}
    if sizes.get("experts", 1) > 1:
        sizes.pop("moe_intermediate_size" if every.get("decoder_block") == "mixtral" else "intermediate_size", None)
    else:
        dense = ("experts", "num_experts_per_tok", "moe_intermediate_size")
        sizes = {name: value for name, value in sizes.items() if name not in dense}
    return model_of_sizes({"model_type": types.get(str(every.get("decoder_block", "llama2")), ""), **sizes}, kept)


AXIS = {"pipe": "pipeline", "data": "data", "fsdp": "fsdp", "expert": "expert", "context": "context"}
"""MaxText's name of each axis; `tensor` has two."""
READ = TERMS.tables["axes_read"]
_TWO = ("v2", "v3", "tpu7x")


def devices_per_chip(chip: Chip) -> int:
    """JAX devices of a chip."""
    return 2 if chip.name in _TWO else 1


def slices_of(piece: Slice) -> int:
    """Slices as JAX counts them: pods of TPUs, or NVLink domains of GPUs."""
    if not isinstance(piece.chip.network, Tree):
        return piece.pods
    return -(-piece.chips // min(piece.chip.network.levels[0].degree, piece.chips))


def tensor_axis(chip: Chip) -> str:
    """The axis that tensor parallelism lies on. Between blocks `tensor` splits the model dim and `tensor_sequence` the
    sequence, with as many bytes moved and kept; MaxText's guide recommends the second for GPUs, and its TPU recipes
    take the first."""
    return "tensor" if family(chip) == "tpu" else "tensor_sequence"


def mesh_keys(plan: Plan, piece: Slice) -> dict[str, int]:
    """The mesh of a plan. All axes are said, so that none is filled in."""
    slices, over = slices_of(piece), dict.fromkeys(AXES, 1)
    left = slices
    for axis in AXES:  # slowest first
        over[axis] = math.gcd(getattr(plan, axis), left)
        left //= over[axis]
    if left > 1:
        raise TERMS.refused("parts_of_slices", slices=slices, piece=piece, plan=plan)
    names = {**AXIS, "tensor": tensor_axis(piece.chip)}
    inside = {axis: getattr(plan, axis) // over[axis] for axis in AXES}
    inside["fsdp" if plan.zero == 3 else "data"] *= devices_per_chip(piece.chip)
    between = {f"dcn_{names[axis]}_parallelism": over[axis] for axis in AXES}
    return between | {f"ici_{names[axis]}_parallelism": inside[axis] for axis in AXES}


def degrees(table: Mapping[str, Any], piece: Slice | None, shown: str) -> dict[str, int]:
    """A plan's degrees of a config's mesh: what it leaves to be filled in (-1) is filled in, pairs of cores are one
    chip."""
    every = [(way, name) for way in ("ici", "dcn") for names in READ.values() for name in names]
    sizes = {(way, name): _size(table, way, name, shown) for way, name in every}
    two = devices_per_chip(piece.chip) if piece is not None else 1
    for way in ("ici", "dcn"):
        _fill(sizes, way, _devices(way, piece, two), shown)
    found = {axis: math.prod(sizes["ici", name] * sizes["dcn", name] for name in names) for axis, names in READ.items()}
    for axis in ("fsdp", "data", "tensor", "expert", "context"):
        if two > 1 and found[axis] % two == 0:
            found[axis] //= two
            break
    if piece is not None and math.prod(found.values()) != piece.chips:
        mesh = ", ".join(f"{axis}={size}" for axis, size in found.items() if size > 1) or "data=1"
        raise TERMS.wrong("mesh_chips", shown=shown, mesh=mesh, piece=piece, ranks=math.prod(found.values()))
    return found


def _devices(way: str, piece: Slice | None, two: int) -> int:
    if piece is None:
        return 0
    return slices_of(piece) if way == "dcn" else piece.chips // slices_of(piece) * two


def _size(table: Mapping[str, Any], way: str, name: str, shown: str) -> int:
    key = f"{way}_{name}_parallelism"
    usual = -1 if key in ("ici_fsdp_parallelism", "dcn_data_parallelism") else 1
    size = whole(table.get(key, usual), key, -1)
    if not size:
        raise InputError(f"In {shown} {key} is 0; write a whole number, or -1 for what is left.")
    return size


def _fill(sizes: dict[tuple[str, str], int], way: str, devices: int, shown: str) -> None:
    """Fill in the axis that is left open. Without a slice, what is left is one."""
    open_axes = [key for key in sizes if key[0] == way and sizes[key] == -1]
    rest = math.prod(sizes[key] for key in sizes if key[0] == way and sizes[key] != -1)
    if len(open_axes) > 1:
        names = " and ".join(f"{way}_{name}_parallelism" for _, name in open_axes)
        raise InputError(f"In {shown} {names} are both -1; one axis can be left open.")
    if not open_axes:
        return
    if not devices and way == "ici":
        raise TERMS.wrong("open_axis", shown=shown, way=way, axis=open_axes[0][1])
    if devices and devices % rest:
        what = "slices" if way == "dcn" else "devices of a slice"
        raise InputError(f"In {shown} the {way}_ axes come to {rest}, which does not divide the {devices} {what}.")
    sizes[open_axes[0]] = max(devices // rest, 1)


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


def compiler_flags(kind: str, chip: str, between: bool, experts: bool, host: bool) -> dict[str, str]:
    """What the compiler is told so that collectives run under the matmuls, as the expectation assumes: the groups of
    flags that MaxText's recipes use (benchmarks/xla_flags_library.py and configs/gpu/a3 of its repository, 2026-08-22).
    On TPU7x gathers and scatters go to the SparseCores of their own accord."""
    flags = TERMS.lists
    if kind != "tpu":
        return {"XLA_FLAGS": " ".join(flags["xla_gpu"])}
    first = "xla_tpu7x" if chip == "tpu7x" else "xla_fusion"
    groups = {first: True, "xla_between_slices": between, "xla_host": host}
    own = [flag for group, has in groups.items() if has for flag in flags[group]]
    if chip in ("v5p", "v6e"):
        own.append(f"--xla_tpu_scoped_vmem_limit_kib={81920 if experts else 98304}")
    return {"LIBTPU_INIT_ARGS": " ".join(own)}
