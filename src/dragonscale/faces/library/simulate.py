"""`ds.simulate`: a fleet under traffic.

>>> import dragonscale as ds
>>> run = ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=200, ttft="2s", tpot="50ms")
>>> run
<SimulateReport: llama3-8b on 1 x h100:1: TTFT ..., TPOT ... at p95, meets the targets>
>>> [row["latency"] for row in run.rows()][1:3]
['ttft_s', 'tpot_s']
"""

from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.app.simulate.ask import ask
from dragonscale.faces.library.asking import asking

simulate = asking(
    "simulate",
    SimulateQuestion,
    ask,
    """
    What a fleet does under traffic: percentiles of TTFT and TPOT, goodput, what it holds, what to change.

    Returns a `SimulateReport`: `.meets_slo` says whether the targets are met, `.latency` has the distributions,
    `.capacity` what was found by running where the fleet does not hold, `.rows()` a row for each latency.

    >>> import dragonscale as ds
    >>> ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=200).plot("occupancy")  # doctest: +SKIP
    """,
)
