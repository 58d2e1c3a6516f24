"""The formats that flags ask for: checked, as a request of a job, and as a plan that is given takes them."""

from dataclasses import replace

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.errors import InputError, unknown
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.stored_formats import STORED, read_format, stored_bytes
from dragonscale.serving.advice.formats import ANY_FORMAT, FormatRequest, known_engine, pinned_formats
from dragonscale.serving.engine.checkpoint import bits, narrower_formats, own_formats, stored_in
from dragonscale.serving.engine.formats import Formats, product_format
from dragonscale.serving.engine.legality import read_quantize
from dragonscale.serving.engine.plan import paired
from dragonscale.serving.engine.plan_file import SavedPlan

# The formats of a plan that flags can say.
PLAN_FORMATS = ("weights", "compute", "kv", "attention")


def format_request(question: ServeQuestion) -> FormatRequest:
    """The formats that flags fix."""
    formats = {name: read_format(getattr(question, name)) for name in ("dtype", "weights", "compute", "kv_dtype")}
    stored = formats["dtype"] if stored_bytes(formats["dtype"]) is not None else ""
    return FormatRequest(
        dtype="" if stored else formats["dtype"],
        weights=formats["weights"] or stored,
        compute=formats["compute"],
        kv=formats["kv_dtype"],
        attention=question.attention,
        quantize=read_format(question.quantize),
    )


FOUR_BITS = {
    "mlx": ("mlx4", "MLX's 4 bits in groups of 64"),
    "exllamav2": ("exl2_4", "EXL2 at 4 bits a weight"),
    "exllamav3": ("exl3_4", "EXL3 at 4 bits a weight"),
    "llama.cpp": ("q4_k_m", "its usual file of 4 bits"),
    "ollama": ("q4_k_m", "its usual file of 4 bits"),
}
"""What `--quantize int4` is with engines that have 4 bits of their own, and in words."""


def with_own_four_bits(question: ServeQuestion, engine: str) -> tuple[ServeQuestion, list[str]]:
    """The question with the 4 bits that its engine has, and a note of it."""
    name = engine.partition(",")[0]
    if name not in FOUR_BITS or question.quantize.strip().lower() != "int4":
        return question, []
    own, told = FOUR_BITS[name]
    return replace(question, quantize=own), [f"--quantize int4 with {name} is {own}, {told}."]


def check_formats(question: ServeQuestion, model: Transformer) -> None:
    """Refuse unknown dtypes, pairs that have no kernels anywhere, and formats wider than the checkpoint's."""
    dtypes = [*DTYPE_BYTES, "fp8_block", *STORED]
    for flag in ("weights", "compute", "kv_dtype", "attention", "dtype"):
        dtype = getattr(question, flag)
        if flag != "attention":
            dtype = read_format(dtype)
        if stored_bytes(dtype) is not None and flag in ("weights", "kv_dtype", "dtype"):
            continue
        allowed = list(FORMATS) if flag == "attention" else dtypes
        if dtype and dtype not in allowed:
            raise unknown("dtype", dtype, allowed, close=paired(dtype, allowed))
    read_quantize(question.quantize)
    if question.quantize and (question.dtype or question.weights or question.compute):
        raise InputError("--quantize and --dtype (or --weights, --compute) both say a format; give one of them.")
    stored = stored_in(model)
    quantize = read_format(question.quantize)
    if quantize not in ("", ANY_FORMAT) and bits(quantize) > bits(stored):
        raise InputError(
            f"{model.name} is stored in {stored} already, which is narrower than {question.quantize}; leave "
            "--quantize out."
        )
    if question.compute:
        weights = read_format(question.weights or question.dtype) or question.compute
        product_format(weights, question.compute)


def planned_formats(
    saved: SavedPlan, question: ServeQuestion, engine: str, chip: Chip, model: Transformer
) -> dict[str, str]:
    """The formats of a given plan that change: those that flags say, and the checkpoint's own for those that neither
    they nor the plan name."""
    request = format_request(question)
    if request.dtype:
        return _of_plan(pinned_formats(request, engine, chip, model))

    by_flag = {name: getattr(request, name) for name in PLAN_FORMATS if getattr(request, name)}
    if request.weights and not request.compute:
        by_flag["compute"] = pinned_formats(request, engine, chip, model).compute
    by_plan = saved.named & {*PLAN_FORMATS}
    if request.quantize:
        narrower = narrower_formats(known_engine(engine, chip), chip, model, request.quantize)
        if request.quantize == ANY_FORMAT or by_plan - {"kv"} or not narrower:
            raise InputError(
                f"--quantize {request.quantize} chooses formats and --plan is judged as it is; write weights=, "
                "compute= and kv= into the plan."
            )
        return _of_plan(narrower[0]) | by_flag
    if {*by_flag, *by_plan} & {"weights", "compute", "attention"}:
        return by_flag
    # nothing but perhaps the cache is named: the rest is as the checkpoint is stored
    native = _of_plan(own_formats(known_engine(engine, chip), chip, model) or Formats())
    return {name: dtype for name, dtype in native.items() if name not in by_plan} | by_flag


def _of_plan(formats: Formats) -> dict[str, str]:
    """Formats by the names of a plan's settings; that of the wire is the plan's own."""
    return {name: getattr(formats, name) for name in PLAN_FORMATS}
