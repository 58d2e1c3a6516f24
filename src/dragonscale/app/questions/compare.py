"""What `dscale compare` and `ds.compare` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    DTYPE,
    ENGINE,
    MODEL,
    ON,
    PLAN,
    PRICE,
    PROFILE,
    SEQ,
    STACK,
    TRAIN_BATCH,
    Items,
    Text,
    Thing,
)

_THINGS = 'Plans ("tp8 pp4 dp16"), files of --save, or the word best; with PLAN=8.2s the step that was measured of it.'
_PLACES = "A slice, or several to compare (h100:512,v5p:8x8x8); to serve, chips too (h100,v6e)."


@dataclass(frozen=True)
class CompareQuestion:
    """Plans, slices, stacks or engines, side by side. Several of each give every combination."""

    things: Items = Items(_THINGS, default=(), value="PLAN …", place=True, offers="files")
    model: Thing = MODEL.but(default="", place=False)
    on: Thing = ON.but(about=_PLACES, default="")
    batch: Text = TRAIN_BATCH.but(
        about="Training: tokens of a step (4M), or sequences (512seq). Serving: sequences decoded at once.", default=""
    )
    seq: Text = SEQ.but(about="Training: tokens of a sequence (8192, 32k).", default="")
    tokens: Text = Text("Training: tokens of the whole run (15T), for days and dollars.", default="", value="TOKENS")
    prompt: Text = Text("Serving: tokens of a prompt (2048 without it).", default="", value="TOKENS")
    output: Text = Text("Serving: output tokens of a request (512 without it).", default="", value="TOKENS")
    ttft: Text = Text("Serving: the TTFT to hold (500ms).", default="", value="TIME")
    tpot: Text = Text("Serving: the TPOT to hold (30ms).", default="", value="TIME")
    measured: Text = Text(
        "Training: the step that was measured of the first plan (8.2s).", default="", value="TIME", group=PLAN
    )
    price: Text = PRICE
    profile: Text = PROFILE
    stack: Text = STACK.but(about="Training software, or several to compare: megatron,torchtitan …", default="")
    engine: Text = ENGINE.but(about="Serving software, or several to compare: vllm,sglang …")
    dtype: Text = DTYPE.but(about="Format of matmuls: bf16 without it, fp8 …", default="")
