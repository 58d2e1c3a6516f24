"""`ds.explain`: the formula behind a number, the numbers put in, and the crossover solved.

>>> import dragonscale as ds
>>> found = ds.explain("collective", "all_gather", on="v5e:8x16", axis="Y", size="34MB")
>>> found["bandwidth term"].formula, round(found["bandwidth term"].value_si * 1e6)
('V*(Y - 1)/(2*W*Y)', 354)
>>> limit = ds.explain("train", "tp", model="llama3-8b", on="v5e:4x4", batch="1M", solve="tensor").solutions[0]
>>> limit.name, round(limit.value_si, 1)
('tensor collectives: tensor', 9.9)
"""

from typing import Any

from dragonscale.app.explain import ask
from dragonscale.app.explain.formulas import Explanation
from dragonscale.app.questions import explain as questions
from dragonscale.app.questions.flag import fields_of
from dragonscale.errors import unknown
from dragonscale.faces.library.asking import check_call
from dragonscale.listener import Listener

KINDS = {
    "roofline": (questions.ExplainRooflineQuestion, ask.ask_roofline),
    "collective": (questions.ExplainCollectiveQuestion, ask.ask_collective),
    "shard": (questions.ExplainShardQuestion, ask.ask_shard),
    "model": (questions.ExplainModelQuestion, ask.ask_model),
    "train": (questions.ExplainTrainQuestion, ask.ask_train),
    "serve": (questions.ExplainServeQuestion, ask.ask_serve),
}


def explain(what: str, /, *given: Any, **named: Any) -> Explanation:
    """The formulas behind a roofline, collective, shard, model, train or serve answer.

    `what` is one of these words; the rest are the fields of `dragonscale.app.questions.explain`, and so what
    `dscale explain WHAT` takes. An `Explanation` has `.lines` (name, formula, numbers, `value_si` in `unit`),
    `.solutions` (the crossovers as numbers), and `found["name"]` gives a line.
    """
    if what not in KINDS:
        raise unknown("explanation of", what, KINDS)
    question, answer = KINDS[what]
    check_call("explain", fields_of(question), given, named)
    return answer(question(*given, **named), Listener())
