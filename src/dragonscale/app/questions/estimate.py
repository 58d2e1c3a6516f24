"""What `dscale estimate` and `ds.estimate` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    DTYPE,
    MODEL,
    ON,
    PRICE,
    SEQ,
    SOFTWARE,
    Text,
    Thing,
    Whole,
)

_PLACE = "A chip (h100), or a slice of several (h100:1024, v5p:8x16x16); without it, what needs no chip."


@dataclass(frozen=True)
class EstimateQuestion:
    """A model, or a number of parameters; a run, a batch of decoding, a chip: whatever is known."""

    model: Thing = MODEL.but(default="")
    on: Thing = ON.but(about=_PLACE, default="")
    params: Text = Text(
        "Parameters, instead of a model (70e9, 70B): what needs no architecture is worked out.",
        default="",
        value="COUNT",
    )
    active: Text = Text("With --params: those that a token uses, of an MoE.", default="", value="COUNT")
    tokens: Text = Text(
        "Tokens of a training run (15T); 'chinchilla', as without it, for 20 a parameter.",
        default="",
        value="TOKENS",
    )
    seq: Text = SEQ.but(about="Tokens of a training sequence, for the attention FLOPs.", default="8192")
    mfu: Text = Text("The part of the peak that training and prefill reach: 40%, 0.4.", default="40%", value="PART")
    batch: Text = Text("Sequences that are decoded together.", default="", value="SEQS")
    context: Text = Text("Tokens in the KV cache of a sequence (8192 without it).", default="", value="TOKENS")
    prompt: Text = Text("Tokens of a prompt (2048 without it).", default="", value="TOKENS")
    lora: Whole = Whole("Add the memory of fine-tuning with adapters of this rank.", default=None, value="RANK")
    price: Text = PRICE
    dtype: Text = DTYPE
    weights: Text = Text(
        "Format of the weights that are served: bf16, fp8, int8, int4 …; the checkpoint's own without it.",
        default="",
        value="DTYPE",
        group=SOFTWARE,
        offers="dtypes",
    )
    kv_dtype: Text = Text(
        "Format of the KV cache.",
        default="bf16",
        value="DTYPE",
        group=SOFTWARE,
        also=("--kv",),
        offers="dtypes",
    )
