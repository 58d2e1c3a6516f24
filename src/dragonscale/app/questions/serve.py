"""What `dscale serve` and `ds.serve` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    DTYPE,
    ENGINE,
    FAMILY,
    FORCE,
    MODEL,
    ON,
    PLAN,
    PRICE,
    PROFILE,
    SET,
    SHOW,
    SOFTWARE,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)
from dragonscale.app.questions.serving import (
    ACCEPT,
    COMPUTE,
    DRAFT,
    DRAFTS,
    KV_DTYPE,
    MAX_SEQS,
    MEMORY_FRACTION,
    OUTPUT,
    PROMPT,
    RATE,
    SERVE_PLAN,
    TOKEN_BUDGET,
    TPOT,
    TTFT,
    WEIGHTS,
)

_PLACES = (
    "A chip (h100: all its slices), a slice (v5e:4x4), several of either (h100,v6e, or --on again), or 'any' of the "
    "catalogue."
)


@dataclass(frozen=True)
class ServeQuestion:
    """Requests to serve: the model, the chips, the tokens; and what the answer should hold to. A plan file says what is
    left out."""

    model: Thing = MODEL.but(default="", needed=True)
    on: Thing = ON.but(about=_PLACES, default="", needed=True)
    prompt: Text = PROMPT
    output: Text = OUTPUT
    ttft: Text = TTFT
    tpot: Text = TPOT
    rate: Text = RATE.but(about="Requests to serve (20/s): how many replicas, and what the fleet costs.")
    engine: Text = ENGINE
    weights: Text = WEIGHTS
    compute: Text = COMPUTE
    kv_dtype: Text = KV_DTYPE
    attention: Text = Text(
        "Format of the attention's own weights where it differs.",
        default="",
        value="DTYPE",
        group=SOFTWARE,
        offers="dtypes",
    )
    dtype: Text = DTYPE.but(about="Format of weights, matmuls and KV cache: bf16, fp8, int8, int4 …", default="")
    quantize: Text = Text(
        "Serve in a narrower format than the checkpoint's: fp8, int8, int4, nvfp4, mxfp4 or any.",
        default="",
        value="DTYPE",
        group=SOFTWARE,
        offers=("fp8", "int8", "int4", "nvfp4", "mxfp4", "any"),
    )
    plan: Thing = SERVE_PLAN
    better: Switch = Switch(
        "Say what would be better than --plan on the same chips (a plan of another software always).", group=PLAN
    )
    batch: Text = Text(
        "Sequences that decode at once; every number of them without it.", default="", value="SEQS", group=PLAN
    )
    cached: Real = Real("The part of each prompt that a prefix cache has already.", default=0.0, value="PART")
    spread: Text = Text(
        "What a TP degree beyond the KV heads does with the KV cache: copy, batch or sequence.",
        default="",
        value="HOW",
        group=PLAN,
        offers=("copy", "batch", "sequence"),
    )
    accept: Text = ACCEPT
    drafts: Whole = DRAFTS
    draft: Thing = DRAFT
    disaggregate: Switch = Switch("Add disaggregated prefill and decode.", group=PLAN)
    top: Whole = Whole(
        "How many of the best configurations to show; 0: five, or the best of each chip.",
        default=0,
        value="N",
        group=SHOW,
    )
    max_seqs: Whole = MAX_SEQS
    token_budget: Whole = TOKEN_BUDGET
    memory_fraction: Real = MEMORY_FRACTION
    price: Text = PRICE
    force: Switch = FORCE
    set: Several = SET
    profile: Text = PROFILE
    assume: Several = ASSUME
    family: Text = FAMILY
