"""`ds.serve`: plan how to serve a model.

>>> import dragonscale as ds
>>> served = ds.serve("llama3-8b", on="h100:1", prompt=2048, output=256, batch=32)
>>> served
<ServeReport: llama3-8b on h100:1: tp1, bf16, batch 32, TTFT ..., TPOT ..., ... tok/s/chip>
>>> served.best.meets_slo, served.best.tpot_low_s < served.best.tpot_s < served.best.tpot_high_s
(True, True)
>>> ds.serve(ds.load_model("llama3-8b"), ds.parse_slice("h100:2"), plan="tp2", batch=8).ledger.total("flops") > 0
True
"""

from dragonscale.app.questions.serve import ServeQuestion
from dragonscale.app.serve.ask import ask
from dragonscale.faces.library.asking import asking

serve = asking(
    "serve",
    ServeQuestion,
    ask,
    """
    How to serve a model: which chips, sharding, batch and engine; how fast tokens are, what they cost.

    Returns a `ServeReport`: `.best` is the recommended configuration (None where none meets the targets), `.configs`
    all that are shown, `.frontier` those that no other beats, `.ledger` a line for each kernel, each move and each
    tensor of a decode step of the first one.

    >>> import dragonscale as ds
    >>> ds.serve("llama3-70b", on="h100:8", tpot="30ms").plot("frontier")  # doctest: +SKIP
    """,
)
