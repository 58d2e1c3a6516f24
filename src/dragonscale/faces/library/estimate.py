"""`ds.estimate`: the back of the envelope.

>>> import dragonscale as ds
>>> run = ds.estimate(params=70e9, tokens="15T", on="v5p:16x20x28", mfu=0.4)
>>> run
<EstimateReport: a model on v5p:16x20x28: 70B parameters, 44.3d for the run>
>>> line = run.line("training FLOPs (6ND)")
>>> line.value, line.formula, line.numbers
(6.3e+24, '6*P*tokens', '6*7e10*1.5e13')
>>> ds.estimate("llama3-70b")["KV bytes a token"]
327680.0
"""

from dragonscale.app.estimate.ask import ask
from dragonscale.app.questions.estimate import EstimateQuestion
from dragonscale.faces.library.asking import asking

estimate = asking(
    "estimate",
    EstimateQuestion,
    ask,
    """
    FLOPs, days, dollars, bytes and floors of a model on the back of an envelope, each with its formula.

    Returns an `EstimateReport`: `.lines` are the quantities, `report["run time"]` is the value of one.

    >>> import dragonscale as ds
    >>> ds.estimate("llama3-8b", on="h100:8", batch=64, context=8192).to_frame()  # doctest: +SKIP
    """,
)
