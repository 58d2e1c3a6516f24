"""`ds.sweep`: many questions at once.

>>> import dragonscale as ds
>>> grid = {"serve": [{"model": "llama3-8b", "on": "h100:1", "plan": "tensor=1", "batch": [8, 16]}]}
>>> found = ds.sweep(grid, jobs=1)
>>> found
<SweepReport: 2 entries: 0 known before, 2 answered now, 0 failed>
>>> [row["batch"] for row in found.rows()]
[8, 16]
"""

from dragonscale.app.questions.sweep import SweepQuestion
from dragonscale.app.sweep.ask import ask
from dragonscale.faces.library.asking import asking

sweep = asking(
    "sweep",
    SweepQuestion,
    ask,
    """
    A grid of questions to verify, train and serve, on all cores or on a Ray cluster: resumable, one bad entry
    never stops the rest.

    The grid is a TOML file, or the same tables as a dict of lists. Returns a `SweepReport`; `.to_frame()` has a
    row for each entry.
    """,
)
