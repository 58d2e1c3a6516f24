"""The formats in which a job wants its model served: those that it fixes, those that it may be quantised to, or the
checkpoint's own."""

from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.serving.engine.checkpoint import (
    bits,
    multiplied_in,
    narrower_formats,
    own_formats,
    quantised_attention,
    wide_format,
)
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.space.legal import model_caches

# Quantise to whatever narrower format serves best.
ANY_FORMAT = "any"


@dataclass(frozen=True)
class FormatRequest:
    """The dtypes that a job fixes; an empty one follows from the others, the checkpoint, the engine and the chip.

    `dtype` stands for weights, matmuls and KV cache at once. `quantize` asks for a format narrower than the
    checkpoint's and leaves to the engine what it multiplies in."""

    dtype: str = ""
    weights: str = ""
    compute: str = ""
    kv: str = ""
    attention: str = ""
    quantize: str = ""

    @property
    def is_pinned(self) -> bool:
        """Whether any dtype is fixed by name."""
        return any((self.dtype, self.weights, self.compute, self.kv, self.attention))


def known_engine(engine: str, chip: Chip) -> str:
    """The engine whose kernels count. One that does not run on a chip has those that any engine has there."""
    if runs_on(engine, chip):
        return engine
    return "generic"


def pinned_formats(request: FormatRequest, engine: str, chip: Chip, model: Transformer) -> Formats:
    """The formats with those that a request fixes; what it leaves open follows from them or from the checkpoint."""
    engine = known_engine(engine, chip)
    wide = wide_format(engine, chip, model)
    native = own_formats(engine, chip, model) or Formats(wide, wide, wide)
    # matmuls in fp8 mean weights in fp8, scaled by blocks or not
    weights = request.weights or request.dtype or request.compute.removesuffix("_block")
    if not weights:
        return replace(native, kv=request.kv or native.kv, attention=request.attention or native.attention)

    kernel = multiplied_in(engine, chip, model, weights)
    compute = request.compute or (weights if kernel is None else kernel[1])
    # attention stays as the checkpoint has it unless the weights change
    attention = native.attention
    if weights != native.weights:
        attention = quantised_attention(engine, chip, model, weights, compute)
    kv = request.kv or _cache_format(request.dtype, model_caches(engine, chip, model)) or wide
    return Formats(weights, compute, kv, request.attention or attention)


def _cache_format(dtype: str, supported: tuple[str, ...]) -> str:
    """The KV cache's format under a `dtype` for everything: itself, or of narrow ones fp8 or int8 where an engine has
    no cache in it (4-bit weights). Empty where none is supported."""
    candidates = [dtype]
    if dtype and bits(dtype) < 16:
        candidates += ["fp8", "int8"]
    return next((candidate for candidate in candidates if candidate in supported), "")


def formats_on(
    request: FormatRequest, engine: str, chip: Chip, model: Transformer, force: bool = False
) -> list[Formats]:
    """The formats to search on a chip, the checkpoint's own first; none where the engine lacks those asked for.

    With `force` a checkpoint that the engine cannot run is served as any engine would."""
    kernel_engine = known_engine(engine, chip)
    native = own_formats(kernel_engine, chip, model)
    if request.quantize:
        candidates = narrower_formats(kernel_engine, chip, model, request.quantize)
        if request.quantize == ANY_FORMAT and native is not None:
            candidates = [native, *candidates]
        if request.kv:
            candidates = [replace(formats, kv=request.kv) for formats in candidates]
        return candidates
    if request.is_pinned:
        return [pinned_formats(request, engine, chip, model)]
    if native is None and force:
        native = own_formats("generic", chip, model)
    return [] if native is None else [native]
