"""The formats to serve a checkpoint in: its own as far as engine and chip have it, and narrower ones where they are
asked for.

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.models import load_model
>>> print(own_formats("vllm", load_chip("b200"), load_model("gpt-oss-120b")))
mxfp4/mxfp8, cache bf16
>>> print(own_formats("vllm", load_chip("h100"), load_model("gpt-oss-120b")))
mxfp4/bf16, cache bf16
>>> [str(one) for one in narrower_formats("vllm-tpu", load_chip("v6e"), load_model("llama3-70b"), "int8")]
['int8/int8, cache fp8']
"""

import math
from collections.abc import Iterable

from dragonscale.models.count import parameters
from dragonscale.models.served_checkpoints import published_attention
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import WIDE, architecture, caches, pairs, rules, tried
from dragonscale.serving.engine.plan import ServingPlan

_BULK = ("experts", "mlp", "shared", "linear", "mamba", "attention")
"""Where most of the weights are, first of all."""


def bits(dtype: str) -> int:
    """The bits of an element without its scales.

    >>> bits("nvfp4"), bits("fp8_block"), bits("bf16")
    (4, 8, 16)
    """
    return math.floor(8 * dtype_bytes(dtype.removesuffix("_block")))


def stored_in(model: Transformer) -> str:
    """The dtype of most of a checkpoint's weights."""
    found = next((model.weight_dtypes[part] for part in _BULK if part in model.weight_dtypes), model.dtype)
    return found if bits(found) <= 16 else "bf16"


def wide_format(engine: str, chip: Chip, model: Transformer) -> str:
    """The 16-bit format: the checkpoint's where the engine has it there, or the other."""
    has = {compute for _, compute in pairs(engine, chip)} & {*WIDE}
    own = "fp16" if model.dtype == "fp16" else "bf16"
    return own if own in has or not has else next(iter(has))


def fp8_products(chip: Chip, model: Transformer) -> str:
    """What fp8 weights are multiplied in: by the scales of a checkpoint that is stored so, a scale for a tensor, a
    channel or a block. Of one that is not, MoE models are published with blocks (DeepSeek, Qwen, MiniMax), and it is
    for those that Hopper has good kernels."""
    moe = any("e" in section.dims for section in model.program().sections)
    blocks = model.quantization.block or (moe and stored_in(model) != "fp8")
    return "fp8_block" if blocks and architecture(chip) == "hopper" else "fp8"


def _candidates(weights: str, wide: str, chip: Chip, model: Transformer) -> Iterable[tuple[str, str]]:
    """Ways to multiply weights of a format, best first."""
    said = model.quantization.activations if stored_in(model) == weights else ""
    if said == "bf16":
        return ((weights, wide),)
    if weights == "fp8":
        return (("fp8", fp8_products(chip, model)), ("fp8", "fp8"), ("fp8", wide))
    if weights == "int8":
        plain = stored_in(model) == "int8" and model.quantization.activations != "int8"
        both = (("int8", "int8"), ("int8", wide))
        return both[::-1] if plain else both
    if weights == "mxfp4" and not said:
        # What is stored in MXFP4 has wide activations; who quantises to it means both.
        native = ("mxfp4", "mxfp4")
        return (("mxfp4", "mxfp8"), ("mxfp4", wide)) if stored_in(model) == "mxfp4" else (native, ("mxfp4", wide))
    return ((weights, said or weights), (weights, wide))


def _legal(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> bool:
    here = pairs(engine, chip)
    if weights == compute == "fp8" and model.quantization.block and stored_in(model) == "fp8":
        return ("fp8", "fp8_block") in here  # by whatever kernels
    return (weights, compute) in here


def multiplied_in(engine: str, chip: Chip, model: Transformer, weights: str) -> tuple[str, str] | None:
    """Weights of a format with what an engine multiplies them in on a chip; None where it has no kernels for them."""
    wide = wide_format(engine, chip, model)
    # Kernels for narrow weights take either 16-bit format; they are listed under one.
    ways = (way for each in (wide, *WIDE) for way in _candidates(weights, each, chip, model))
    return next((pair for pair in ways if _legal(engine, chip, model, *pair)), None)


def own_formats(engine: str, chip: Chip, model: Transformer) -> Formats | None:
    """The checkpoint's own formats as an engine runs them on a chip; None where it cannot. One that engines widen when
    they load a checkpoint comes out in 16 bits."""
    wide, stored = wide_format(engine, chip, model), stored_in(model)
    has_wide = (wide, wide) in pairs(engine, chip)
    plain = Formats(wide, wide, _cache(engine, chip, model, wide, wide)) if has_wide else None
    if stored in WIDE:
        return plain
    pair = multiplied_in(engine, chip, model, stored)
    if pair is None:
        return plain if rules(engine).upcasts else None
    weights, compute = pair
    attention = model.weight_dtypes.get("attention", "")
    if attention == stored:
        attention = ""
    elif attention == "fp8" and ("fp8", "fp8") in pairs(engine, chip):
        attention = fp8_products(chip, model)
    else:
        attention = wide
    return Formats(weights, compute, _cache(engine, chip, model, weights, wide), attention)


def _cache(engine: str, chip: Chip, model: Transformer, weights: str, wide: str) -> str:
    """The KV cache's format where nobody says one: what the checkpoint asks for, what the engine's recipes take with
    such weights, what it takes for sparse attention, or 16 bits (`auto`)."""
    row = rules(engine)
    sparse = row.kv_sparse.get(architecture(chip), "") if "indexer" in parameters(model.program().sections) else ""
    for asked in (model.quantization.kv, row.kv_with.get(weights, ""), sparse):
        if asked and asked in caches(engine, chip):
            return asked
    return wide


def narrower_formats(engine: str, chip: Chip, model: Transformer, quantize: str) -> list[Formats]:
    """Formats that a checkpoint can be quantised to: the one that is named, or with `any` all that are narrower than
    its own. The cache goes with them, in fp8 where the engine has that and the chip multiplies it."""
    stored, wide = stored_in(model), wide_format(engine, chip, model)
    names = [name for name in tried(chip) if bits(name) < bits(stored)] if quantize == "any" else [quantize]
    found: list[Formats] = []
    for name in names:
        if name == stored:
            own = own_formats(engine, chip, model)
            found += [own] if own is not None and own.weights == name else []
            continue
        pair = multiplied_in(engine, chip, model, name) if bits(name) <= bits(stored) else None
        if pair is None:
            continue
        has = caches(engine, chip)
        kv = "fp8" if "fp8" in has and chip.format("fp8") == "native" else wide
        kv = "int8" if name == "int8" and "int8" in has and "fp8" not in has else kv
        found.append(Formats(*pair, kv, quantised_attention(engine, chip, model, *pair)))
    return found


def quantised_attention(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> str:
    """The format of the attention's own weights in a checkpoint that is quantised to a format, as those that are
    published have it; empty where it is that of the others. Where that is not known, it is kept wider than 4 bits."""
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
    own = own_formats(engine, chip, model)
    return [*([] if own is None else [own]), *narrower_formats(engine, chip, model, "any")]


def is_quantized(weights: str, model: Transformer) -> bool:
    """Whether weights are narrower than the checkpoint's."""
    return bits(weights) < bits(stored_in(model))


def plan_text(plan: ServingPlan, model: Transformer) -> str:
    """The plan as text that reads back as the same plan for this model.

    Readers take the checkpoint's own formats where a plan names none, and `str` leaves bf16 out, so bf16 is named
    beside a checkpoint that is stored in something else.

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
    """What was made of a checkpoint's format, where it is not simply kept, to be said of some chips;
    empty otherwise."""
    stored = stored_in(model)
    if stored in WIDE:
        same = formats.weights in ("bf16", model.dtype)
        return "" if same else f"served in {formats.weights}: there is no {model.dtype}"
    if formats.weights in WIDE:
        return f"stored in {stored}, which is widened to {formats.weights} when it is loaded"
    if formats.compute in WIDE:
        return f"stored in {stored}: its weights stay so and are multiplied in {formats.compute}"
    return ""
