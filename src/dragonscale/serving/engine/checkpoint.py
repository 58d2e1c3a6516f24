"""The number formats to serve a checkpoint in: its own as far as engine and chip support them, and narrower ones on
request.

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.models import load_model
>>> print(own_formats("vllm", load_chip("b200"), load_model("gpt-oss-120b")))
mxfp4/mxfp8, cache bf16
>>> print(own_formats("vllm", load_chip("h100"), load_model("gpt-oss-120b")))
mxfp4/bf16, cache bf16
>>> [str(formats) for formats in narrower_formats("vllm-tpu", load_chip("v6e"), load_model("llama3-70b"), "int8")]
['int8/int8, cache fp8']
"""

import math
from collections.abc import Iterable

from dragonscale.models.count import parameters
from dragonscale.models.served_checkpoints import published_attention
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.stored_formats import stored_bytes
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import WIDE, architecture, caches, pairs, rules, table_entry, tried
from dragonscale.serving.engine.plan import ServingPlan

# Parts of a model by the share of the weights that they usually hold, largest first.
_LARGEST_PARTS = ("experts", "mlp", "shared", "linear", "mamba", "attention")


def bits(dtype: str) -> int:
    """The bits of an element without its scales.

    >>> bits("nvfp4"), bits("fp8_block"), bits("bf16")
    (4, 8, 16)
    """
    return math.floor(8 * dtype_bytes(dtype.removesuffix("_block")))


def stored_in(model: Transformer) -> str:
    """The dtype of most of a checkpoint's weights; fp32 checkpoints are served as bf16."""
    dtypes = model.weight_dtypes
    dtype = next((dtypes[part] for part in _LARGEST_PARTS if part in dtypes), model.dtype)
    return dtype if bits(dtype) <= 16 else "bf16"


def wide_format(engine: str, chip: Chip, model: Transformer) -> str:
    """The 16-bit format to serve in: the checkpoint's if the engine has it on the chip, else the other one."""
    supported = {compute for _, compute in pairs(engine, chip)} & {*WIDE}
    native = rules(engine).sixteen or ("fp16" if model.dtype == "fp16" else "bf16")
    if native in supported or not supported:
        return native
    return next(iter(supported))


def fp8_products(chip: Chip, model: Transformer) -> str:
    """The matmul format of fp8 weights: `fp8_block` if scales are per block of weights, else `fp8` (per tensor or
    channel)."""
    # A checkpoint that is not stored in fp8 yet: MoE models are published with block scales (DeepSeek, Qwen, MiniMax).
    moe = any("e" in section.dims for section in model.program().sections)
    blocks = model.quantization.block or (moe and stored_in(model) != "fp8")
    # Only Hopper has good kernels for blocks.
    return "fp8_block" if blocks and architecture(chip) == "hopper" else "fp8"


_FILES = {"int8": "q8_0", "int4": "q4_k_m", "mxfp4": "mxfp4_moe"}
"""The GGUF files that weights of a format are stored in."""


def _candidates(weights: str, wide: str, chip: Chip, model: Transformer) -> Iterable[tuple[str, str]]:
    """Pairs (weights, matmul format) for weights of a format, best first; last those of files."""
    yield from _plain_candidates(weights, wide, chip, model)
    file = _FILES.get(weights, weights if stored_bytes(weights) is not None else "")
    if file:
        yield from ((file, "int8"), (file, wide))


def _plain_candidates(weights: str, wide: str, chip: Chip, model: Transformer) -> Iterable[tuple[str, str]]:
    is_stored = stored_in(model) == weights
    activations = model.quantization.activations if is_stored else ""
    if activations == "bf16":
        return ((weights, wide),)
    if weights == "fp8":
        return (("fp8", fp8_products(chip, model)), ("fp8", "fp8"), ("fp8", wide))
    if weights == "int8":
        if is_stored and activations != "int8":  # a weight-only checkpoint
            return (("int8", wide), ("int8", "int8"))
        return (("int8", "int8"), ("int8", wide))
    if weights == "mxfp4" and not activations:
        # Checkpoints stored in MXFP4 have wide activations; those who quantise to it mean activations too.
        first = ("mxfp4", "mxfp8") if is_stored else ("mxfp4", "mxfp4")
        return (first, ("mxfp4", wide))
    return ((weights, activations or weights), (weights, wide))


def _legal(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> bool:
    supported = pairs(engine, chip)
    if weights == compute == "fp8" and model.quantization.block and stored_in(model) == "fp8":
        # the checkpoint's scales are per block, so only kernels for blocks can read it
        return ("fp8", "fp8_block") in supported
    return (table_entry(weights), compute) in supported


def multiplied_in(engine: str, chip: Chip, model: Transformer, weights: str) -> tuple[str, str] | None:
    """The pair (weights, matmul format) that an engine uses for weights of a format; None without such kernels."""
    # Kernels for narrow weights take either 16-bit format; the table lists them under one of the two.
    for wide in (wide_format(engine, chip, model), *WIDE):
        for pair in _candidates(weights, wide, chip, model):
            if _legal(engine, chip, model, *pair):
                return pair
    return None


def own_formats(engine: str, chip: Chip, model: Transformer) -> Formats | None:
    """The checkpoint's own formats as an engine runs them on a chip; None if it cannot.

    A format that the engine widens when it loads the checkpoint is returned as 16 bits.
    """
    wide, stored = wide_format(engine, chip, model), stored_in(model)
    unquantised = None
    if (wide, wide) in pairs(engine, chip):
        unquantised = Formats(wide, wide, _cache(engine, chip, model, wide, wide))
    if stored in WIDE:
        return unquantised
    pair = multiplied_in(engine, chip, model, stored)
    if pair is None:
        return unquantised if rules(engine).upcasts else None
    weights, compute = pair
    attention = model.weight_dtypes.get("attention", "")
    if attention == stored or stored_bytes(weights) is not None:
        attention = ""
    elif attention == "fp8" and ("fp8", "fp8") in pairs(engine, chip):
        attention = fp8_products(chip, model)
    else:
        attention = wide
    return Formats(weights, compute, _cache(engine, chip, model, weights, wide), attention)


def _cache(engine: str, chip: Chip, model: Transformer, weights: str, wide: str) -> str:
    """The default format of the KV cache (`--kv-dtype auto`)."""
    row = rules(engine)
    sparse = ""
    if "indexer" in parameters(model.program().sections):
        sparse = row.kv_sparse.get(architecture(chip), "")
    # the checkpoint's wish, then what recipes pair with such weights, then what sparse attention needs
    for wanted in (model.quantization.kv, row.kv_with.get(weights, ""), sparse):
        if wanted and wanted in caches(engine, chip):
            return wanted
    return wide


def narrower_formats(engine: str, chip: Chip, model: Transformer, quantize: str) -> list[Formats]:
    """Formats that a checkpoint can be quantised to: the one named, or with `any` all that are narrower than its own.

    The cache is quantised along, to fp8 if the engine supports it and the chip multiplies it.
    """
    stored, wide = stored_in(model), wide_format(engine, chip, model)
    names = [quantize]
    if quantize == "any":
        names = [name for name in tried(chip) if bits(name) < bits(stored)]
    cache_dtypes = caches(engine, chip)
    kv = wide
    if "fp8" in cache_dtypes and chip.format("fp8") == "native":
        kv = "fp8"
    formats: list[Formats] = []
    for name in names:
        if name == stored:
            native = own_formats(engine, chip, model)
            if native is not None and native.weights == name:  # not widened at load time
                formats.append(native)
            continue
        if bits(name) > bits(stored):
            continue
        pair = multiplied_in(engine, chip, model, name)
        if pair is None:
            continue
        has_only_int8 = "int8" in cache_dtypes and "fp8" not in cache_dtypes
        cache = "int8" if name == "int8" and has_only_int8 else kv
        formats.append(Formats(*pair, cache, quantised_attention(engine, chip, model, *pair)))
    return formats


def quantised_attention(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> str:
    """The format of the attention's own weights in a checkpoint quantised to 4 bits; empty if it is that of the rest.

    It follows published checkpoints of that kind; for unpublished kinds attention stays wider than 4 bits.
    """
    if compute not in ("nvfp4", "mxfp4"):
        return ""
    published = published_attention(weights, has_latent_cache(model))
    if published == "wide":
        return wide_format(engine, chip, model)
    if published == "same" or ("fp8", "fp8") not in pairs(engine, chip):
        return ""
    return fp8_products(chip, model)


def has_latent_cache(model: Transformer) -> bool:
    """Whether keys and values are cached as one latent (MLA)."""
    ops = [op for section in model.program().sections for op in section.ops if op.function == "cache"]
    return any("s" in array.names and "k" not in array.names for op in ops for array in op.inputs)


def legal_formats(engine: str, chip: Chip, model: Transformer) -> list[Formats]:
    """The formats of a model under an engine on a chip: the checkpoint's own first, then narrower ones."""
    narrower = narrower_formats(engine, chip, model, "any")
    native = own_formats(engine, chip, model)
    return narrower if native is None else [native, *narrower]


def is_quantized(weights: str, model: Transformer) -> bool:
    """Whether weights are narrower than the checkpoint's."""
    return bits(weights) < bits(stored_in(model))


def plan_text(plan: ServingPlan, model: Transformer) -> str:
    """The plan as text that reads back as the same plan for this model.

    A plan without formats means the checkpoint's own, and `str` omits bf16. So bf16 is written out for a checkpoint
    that is stored in something else.

    >>> from dragonscale.models import load_model
    >>> plan = ServingPlan(tensor=8, expert=8)
    >>> plan_text(plan, load_model("deepseek-v3")), plan_text(plan, load_model("qwen3-30b-a3b"))
    ('tensor=8,expert=8,weights=bf16', 'tensor=8,expert=8')
    """
    text = str(plan)
    is_named = plan.attention != "" or not plan.weights == plan.compute == ServingPlan.weights
    reads_as_bf16 = stored_in(model) == model.dtype == ServingPlan.weights and not model.quantization.kv
    if is_named or reads_as_bf16:
        return text
    return f"{text},weights={plan.weights}"


def told(formats: Formats, model: Transformer) -> str:
    """A phrase about how the checkpoint's format is changed for serving; empty if it is simply kept."""
    stored = stored_in(model)
    if stored in WIDE:
        same = formats.weights in ("bf16", model.dtype)
        return "" if same else f"served in {formats.weights}: there is no {model.dtype}"
    if formats.weights in WIDE:
        return f"stored in {stored}, which is widened to {formats.weights} when it is loaded"
    if formats.compute in WIDE:
        return f"stored in {stored}: its weights stay so and are multiplied in {formats.compute}"
    return ""
