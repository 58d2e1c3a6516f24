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

from dragonscale.physics.hardware.price_book import site_watts
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob
from dragonscale.simulation.result import SimulationResult

# Families of chips that the curve was measured on, and their power limit.
MEASURED_FAMILIES = ("h100", "h200")
LIMIT_W = 700.0

# Watts of a GPU with nothing to do, of one that decodes one sequence, and what a large batch adds.
IDLE_W = 80.0
DECODING_W = 300.0
BATCH_SPAN_W = 300.0

# Power of two of the batch at which half of the span is drawn.
HALF_SPAN_LOG2 = 4.2


def decoding_watts(batch: float) -> float:
    """What a GPU draws while so many sequences decode."""
    return DECODING_W + BATCH_SPAN_W / (1 + math.exp(HALF_SPAN_LOG2 - math.log2(max(batch, 1.0))))


def chip_watts(busy_share: float, prompt_share: float, batch: float) -> float:
    """What a GPU draws on average that is busy for a part of the time, and with prompts for a part of that."""
    busy_w = prompt_share * LIMIT_W + (1 - prompt_share) * decoding_watts(batch)
    return (1 - busy_share) * IDLE_W + busy_share * busy_w


def mean_watts(job: FleetJob, result: SimulationResult, counts: Sequence[float]) -> float | None:
    """Watts of the fleet on average over the run, with their share of hosts, which draw in proportion; None where it is
    not known for a chip. `counts` are the replicas of each pool."""
    total_w = 0.0
    for pool, count in zip(job.pools, counts, strict=True):
        replica_slice = pool.deployment.piece
        limit_w = site_watts(replica_slice.chip)  # of a chip with its share of its host
        if limit_w is None or replica_slice.chip.kin not in MEASURED_FAMILIES or replica_slice.chip.power != LIMIT_W:
            return None
        replicas = [replica for replica in result.replicas if replica.pool == pool.name]
        iterations = sum(replica.iterations for replica in replicas)
        up_s = count * result.seconds
        busy_share, batch = 0.0, 0.0
        if up_s:
            busy_share = min(sum(replica.busy_s for replica in replicas) / up_s, 1.0)
        if iterations:
            batch = sum(replica.mean_batch * replica.iterations for replica in replicas) / iterations
        watts = chip_watts(busy_share, result.use[pool.name].prompt_share, batch)
        total_w += count * replica_slice.chips * watts * limit_w / LIMIT_W
    return total_w


def tokens_per_joule(result: SimulationResult, limit_w: float | None, mean_w: float | None) -> float | None:
    """Prompt and output tokens per joule: by what the fleet draws where that is known, over all of the run; else by the
    limits of its chips."""
    if mean_w:
        joules = mean_w * result.seconds
        return processed_tokens(result) / joules if joules else None
    if not limit_w:
        return None
    throughput = result.throughput
    return (throughput.output_tokens_per_s + throughput.input_tokens_per_s) / limit_w


def processed_tokens(result: SimulationResult) -> float:
    """Tokens of prompts and outputs over all of the run, those of prompts that were cached included."""
    decoding = [replica for replica in result.replicas if replica.pool != "prefill"]
    prefilled = sum(replica.prefilled_tokens for replica in result.replicas)
    prompts = prefilled / max(1 - result.cache_hit_rate, 1e-9)
    return prompts + sum(replica.output_tokens for replica in decoding)
