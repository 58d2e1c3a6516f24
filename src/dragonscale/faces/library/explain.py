"""`ds.explain`: the formula behind a number, the numbers put in, and the crossover solved.

>>> import dragonscale as ds
>>> found = ds.explain("collective", "all_gather", on="v5e:8x16", axis="Y", size="34MB")
>>> found["bandwidth term"].formula, round(found["bandwidth term"].value_si * 1e6)
('V*(Y - 1)/(2*W*Y)', 354)
>>> limit = ds.explain("train", "tp", model="llama3-8b", on="v5e:4x4", batch="1M", solve="tensor").solutions[0]
>>> limit.name, round(limit.value_si, 1)
('tensor collectives: tensor', 9.9)
"""

from typing import Any, Literal

from dragonscale.commands.explain.formulas import Explanation
from dragonscale.errors import unknown
from dragonscale.faces.command import heard, python_words, read_call
from dragonscale.faces.commands import COMMANDS


def explain(
    what: Literal["train", "serve", "roofline", "collective", "shard", "model"], /, *given: Any, **named: Any
) -> Explanation:
    """The formulas behind a roofline, collective, shard, model, train or serve answer.

    `what` is one of these words; the rest are the fields of `dragonscale.commands.questions.explain`, and so what
    `dscale explain WHAT` takes. An `Explanation` has `.lines` (name, formula, numbers, `value_si` in `unit`),
    `.solutions` (the crossovers as numbers), and `found["name"]` gives a line.
    """
    kinds = {name.partition(" ")[2]: row for name, row in COMMANDS.items() if name.startswith("explain ")}
    if what not in kinds:
        raise unknown("explanation of", what, kinds)
    reading = read_call("explain", kinds[what].asked(), given, named)
    with python_words(kinds[what].asked()):
        return kinds[what].answer(kinds[what].question(**reading.values), heard(reading))
