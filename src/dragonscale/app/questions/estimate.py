"""What `dscale estimate` and `ds.estimate` can be asked."""

from dragonscale.app.questions import shared
from dragonscale.app.questions.flag import SOFTWARE, Question, Text, Thing, Whole


class EstimateQuestion(Question):
    """A model, or a number of parameters; a run, a batch of decoding, a chip: whatever is known."""

    model: Thing = shared.MODEL.but(default="")
    on: Thing = shared.ON.but(default="")
    """A chip (h100), or a slice of several (h100:1024, v5p:8x16x16); without it, what needs no chip."""
    params: Text = Text("", "COUNT")
    """Parameters, instead of a model (70e9, 70B): what needs no architecture is worked out."""
    active: Text = Text("", "COUNT")
    """With --params: those that a token uses, of an MoE."""
    tokens: Text = Text("", "TOKENS")
    """Tokens of a training run (15T); 'chinchilla', as without it, for 20 a parameter."""
    seq: Text = shared.SEQ.but(default="8192")
    """Tokens of a training sequence, for the attention FLOPs."""
    mfu: Text = Text("40%", "PART")
    """The part of the peak that training and prefill reach: 40%, 0.4."""
    batch: Text = Text("", "SEQS")
    """Sequences that are decoded together."""
    context: Text = Text("", "TOKENS")
    """Tokens in the KV cache of a sequence (8192 without it)."""
    prompt: Text = Text("", "TOKENS")
    """Tokens of a prompt (2048 without it)."""
    lora: Whole = Whole(None, "RANK")
    """Add the memory of fine-tuning with adapters of this rank."""
    price: Text = shared.PRICE
    dtype: Text = shared.DTYPE
    weights: Text = Text("", "DTYPE", SOFTWARE, offers="dtypes")
    """Format of the weights that are served: bf16, fp8, int8, int4 …; the checkpoint's own without it."""
    kv_dtype: Text = Text("bf16", "DTYPE", SOFTWARE, also=("--kv",), offers="dtypes")
    """Format of the KV cache."""
