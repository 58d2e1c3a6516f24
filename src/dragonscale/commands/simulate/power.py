"""What a fleet draws while it serves, where it was measured for its chips.

A GPU that serves draws less than its limit: decoding is bound by memory, and the watts grow with the sequences that
decode together. The curve is the logistic one that the GPU-to-Grid model fits to ML.ENERGY's measurements of vLLM on
H100 SXM (batch 1: 300 W, 128: 600 W), as vLLM Semantic Router's fleet simulator prints it (docs, "Power Model
Reference"): 300 W + 300 W / (1 + exp(4.2 - log2 batch)). Prompts draw up to the limit (POLCA, arXiv:2308.12908), and a
GPU with nothing to do 80 W (measured on an H200 between load tests of vLLM). Other chips of the family have the same
limit and are taken alike; of others, and of chips whose limit is set lower, only the limit is known.

>>> [round(decoding_watts(batch)) for batch in (1, 6, 17, 48, 128)]
[304, 350, 442, 540, 583]
"""

import math
from collections.abc import Sequence

from dragonscale.commands.simulate.simulate_question import SimulateAsked
from dragonscale.physics.hardware.price_book import site_watts
from dragonscale.simulation import SimulationResult

MEASURED = ("h100", "h200")
LIMIT_W = 700.0
IDLE_W, ALONE_W, SPAN_W = 80.0, 300.0, 300.0
MIDDLE = 4.2
"""Power of two at which half of the span is drawn."""


def decoding_watts(batch: float) -> float:
    """What a GPU draws while so many sequences decode."""
    return ALONE_W + SPAN_W / (1 + math.exp(MIDDLE - math.log2(max(batch, 1.0))))


def chip_watts(busy: float, prompts: float, batch: float) -> float:
    """What a GPU draws on average that works so much of the time, so much of that on prompts."""
    return (1 - busy) * IDLE_W + busy * (prompts * LIMIT_W + (1 - prompts) * decoding_watts(batch))


def mean_watts(asked: SimulateAsked, result: SimulationResult, counts: Sequence[float]) -> float | None:
    """Watts of the fleet on average over the run, with their share of hosts, which draw in proportion; None where it is
    not known for a chip. `counts` are the replicas of each pool."""
    total = 0.0
    for (name, one, _), count in zip(asked.pools, counts, strict=True):
        whole = site_watts(one.chip)
        if whole is None or one.chip.kin not in MEASURED or one.chip.power != LIMIT_W:
            return None
        own = [replica for replica in result.replicas if replica.pool == name]
        steps, up_s = sum(replica.iterations for replica in own), count * result.seconds
        busy = min(sum(replica.busy_s for replica in own) / up_s, 1.0) if up_s else 0.0
        batch = sum(replica.mean_batch * replica.iterations for replica in own) / steps if steps else 0.0
        watts = chip_watts(busy, result.use[name].prompt_share, batch)
        total += count * one.piece.chips * watts * whole / LIMIT_W
    return total


def tokens_of(result: SimulationResult) -> float:
    """Tokens of prompts and outputs over all of the run."""
    own = [one for one in result.replicas if one.pool != "prefill"]
    prompts = sum(one.prefilled_tokens for one in result.replicas) / max(1 - result.cache_hit_rate, 1e-9)
    return prompts + sum(one.output_tokens for one in own)
