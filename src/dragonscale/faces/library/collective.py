"""`ds.collective`: how long a collective takes, and whether its hops or its bytes decide.

>>> import dragonscale as ds
>>> found = ds.collective("all_gather", "34MB", on="v5e:8x16", axis="Y")
>>> round(found.lower_s * 1e6), found.regime, found.ring.hops
(354, 'bandwidth', 8.0)
>>> ds.collective("send", "9MB", on="v5e:4x4", from_chip="0,0", to_chip="3,3").paths
2
"""

from dragonscale.app.collective.ask import ask
from dragonscale.app.questions.operations import CollectiveQuestion
from dragonscale.faces.library.asking import asking

collective = asking(
    "collective",
    CollectiveQuestion,
    ask,
    """
    How long a collective takes over mesh axes of a slice; or one message between its chips (`send`, `gather`).

    Returns a `CollectiveReport`: the bandwidth and latency terms, `.lower_s` (at best), `.book_s` (to first order),
    `.expected_s`, and what goes on in the ring or on the tiers of switches; or a `TransferReport`.
    """,
)
