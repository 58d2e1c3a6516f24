"""In which formats a question wants a model served: the checkpoint's own, those that flags say, or those that it may be
quantised to."""

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.errors import InputError, unknown
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.serving.engine.checkpoint import (
    bits,
    multiplied_in,
    narrower_formats,
    own_formats,
    quantised_attention,
    stored_in,
    wide_format,
)
from dragonscale.serving.engine.formats import Formats, product_format
from dragonscale.serving.engine.legality import read_quantize, runs_on
from dragonscale.serving.engine.plan import paired
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.serving.space.legal import model_caches

WORDS = {"weights": "weights", "compute": "compute", "kv": "kv_dtype", "attention": "attention"}
"""The formats of a plan, and the fields of a question that say them."""


def is_pinned(words: ServeQuestion) -> bool:
    """Whether flags say formats."""
    return bool(words.dtype) or any(getattr(words, field) for field in WORDS.values())


def check_formats(words: ServeQuestion, model: Transformer) -> None:
    """Refuse dtypes that there are not, pairs that have no kernels anywhere, and formats wider than
    the checkpoint's."""
    known = [*DTYPE_BYTES, "fp8_block"]
    for name in (*WORDS.values(), "dtype"):
        value, allowed = getattr(words, name), [*FORMATS] if name == "attention" else known
        if value and value not in allowed:
            raise unknown("dtype", value, allowed, close=paired(value, allowed))
    read_quantize(words.quantize)
    if words.quantize and is_pinned(words) and (words.dtype or words.weights or words.compute):
        raise InputError("--quantize and --dtype (or --weights, --compute) both say a format; give one of them.")
    stored = stored_in(model)
    if words.quantize not in ("", "any") and bits(words.quantize) > bits(stored):
        raise InputError(
            f"{model.name} is stored in {stored} already, which is narrower than {words.quantize}; leave "
            "--quantize out."
        )
    if words.compute:
        product_format(words.weights or words.dtype or words.compute, words.compute)


def known_engine(engine: str, chip: Chip) -> str:
    """The engine whose formats count: one that does not run on a chip at all has those that any engine has there."""
    return engine if runs_on(engine, chip) else "generic"


def said_formats(words: ServeQuestion, engine: str, chip: Chip, model: Transformer) -> Formats:
    """The formats that the flags say; what they leave open follows from what they do not, or is the
    checkpoint's own."""
    engine = known_engine(engine, chip)
    wide = wide_format(engine, chip, model)
    own = own_formats(engine, chip, model) or Formats(wide, wide, wide)
    weights = words.weights or words.dtype or words.compute.removesuffix("_block")
    if not weights:
        return Formats(own.weights, own.compute, words.kv_dtype or own.kv, words.attention or own.attention, own.wire)
    found = multiplied_in(engine, chip, model, weights)
    compute = words.compute or (found[1] if found is not None else weights)
    has = model_caches(engine, chip, model)
    asked = (words.dtype, "fp8", "int8") if words.dtype and bits(words.dtype) < 16 else (words.dtype,)
    kv = words.kv_dtype or next((one for one in asked if one in has), wide)
    kept = own.attention
    if weights != own.weights:
        kept = quantised_attention(engine, chip, model, weights, compute)
    return Formats(weights, compute, kv, words.attention or kept)


def formats_for(words: ServeQuestion, engine: str, chip: Chip, model: Transformer) -> list[Formats]:
    """The formats to look at on a chip, the checkpoint's own first; none where the engine has none of those that are
    asked for."""
    if words.quantize:
        engine = known_engine(engine, chip)
        narrow = narrower_formats(engine, chip, model, words.quantize)
        own = own_formats(engine, chip, model) if words.quantize == "any" else None
        found = [*([] if own is None else [own]), *narrow]
        kept = {"kv": words.kv_dtype} if words.kv_dtype else {}
        return [Formats(**(vars(one) | kept)) for one in found]
    if is_pinned(words):
        return [said_formats(words, engine, chip, model)]
    own = own_formats(known_engine(engine, chip), chip, model)
    if own is None and words.force:
        own = own_formats("generic", chip, model)
    return [] if own is None else [own]


def planned_formats(
    saved: SavedPlan, words: ServeQuestion, engine: str, chip: Chip, model: Transformer
) -> dict[str, str]:
    """What flags say of a plan's formats, and the checkpoint's own for those that neither they nor the plan name."""
    if words.dtype:
        said = said_formats(words, engine, chip, model)
        return {name: getattr(said, name) for name in WORDS}
    found = {name: getattr(words, field) for name, field in WORDS.items() if getattr(words, field)}
    if "weights" in found and "compute" not in found:
        found["compute"] = said_formats(words, engine, chip, model).compute
    named = saved.named & {*WORDS}
    if words.quantize:
        narrow = narrower_formats(known_engine(engine, chip), chip, model, words.quantize)
        if words.quantize == "any" or named - {"kv"} or not narrow:
            raise InputError(
                f"--quantize {words.quantize} chooses formats and --plan is judged as it is; write weights=, "
                "compute= and kv= into the plan."
            )
        return {name: getattr(narrow[0], name) for name in WORDS} | found
    if not {*found, *named} & {"weights", "compute", "attention"}:
        own = own_formats(known_engine(engine, chip), chip, model) or Formats()
        kept = {name: getattr(own, name) for name in WORDS if name not in named}
        found = kept | found
    return found
