"""What `dscale models` and `ds.model` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import ASSUME, FAMILY, MODEL, SEQ, SHOW, SOFTWARE, Several, Switch, Text, Thing


@dataclass(frozen=True)
class ModelsQuestion:
    """One model by part; all presets where none is named."""

    model: Thing = MODEL.but(
        about=f"{MODEL.about} Without one: all presets.",
        default="",
        value="NAME",
    )
    seq: Text = SEQ.but(about="Tokens of a sequence, for FLOPs and caches.", default="8192")
    full: Switch = Switch("Count the whole attention square, not its causal half.")
    kv_dtype: Text = Text(
        "Format of the KV cache.", default="bf16", value="DTYPE", group=SOFTWARE, also=("--kv",), offers="dtypes"
    )
    assume: Several = ASSUME
    family: Text = FAMILY
    program: Switch = Switch("Print the model as named einsums.", group=SHOW)
