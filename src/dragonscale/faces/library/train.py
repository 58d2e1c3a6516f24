"""`ds.train`: plan a training run.

>>> import dragonscale as ds
>>> run = ds.train("llama3-8b", on="h100:8", batch="64seq", seq=8192, tokens="1T")
>>> run
<TrainReport: llama3-8b on h100:8: ..., MFU ...>
>>> run.best.feasible, run.best.step_low_s < run.best.step_s < run.best.step_high_s
(True, True)
>>> judged = ds.train("llama3-8b", "h100:8", batch="64seq", seq=8192, plan="tp8", alone=True)
>>> judged.plans[0].plan["tensor"], judged.ledger.total("flops") > 0
(8, True)
"""

from dragonscale.app.questions.train import TrainQuestion
from dragonscale.app.train.ask import ask
from dragonscale.faces.library.asking import asking

train = asking(
    "train",
    TrainQuestion,
    ask,
    """
    How to split a training run over chips, how long a step takes, what bounds it, what it costs.

    Returns a `TrainReport`: `.best` is the recommended plan, `.plans` all that are shown (a given plan first),
    `.ledger` a line for each kernel and each move of the first one.

    >>> import dragonscale as ds
    >>> ds.train("llama3-8b", on="h100:8", batch="64seq", seq=8192).plot("memory")  # doctest: +SKIP
    """,
)
