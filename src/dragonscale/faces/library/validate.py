"""`ds.validate`: predictions scored against measured runs in a file.

>>> import dragonscale as ds
>>> ds.validate("collectives", "tests/evidence/data/collectives.csv")  # doctest: +SKIP
<Validation: collectives: 7 of 21 rows scored, median error 2.7%>
"""

from dragonscale.app.questions.validate import ValidateQuestion
from dragonscale.app.validate.ask import ask
from dragonscale.faces.library.asking import asking

validate = asking(
    "validate",
    ValidateQuestion,
    ask,
    """
    Score predictions against measured runs in a file, or a plan against the log of your own run.

    Returns a `Validation`: `.to_dict()` is what `--json` prints, `.to_frame()` has a row for each one scored,
    `.plot()` draws predicted against measured. Of the log of one run, with its `plan`, a `RunScore`: `.measures` has
    every number with its expectation and band.
    """,
)
